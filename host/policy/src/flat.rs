//! Messages as chat formats want them: one role, one text, results apart.

use std::borrow::Cow;

use fulgurite_trace::{Message, Part, Role, ToolCall};

/// A message as OpenAI's format and chat templates know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlatMessage<'a> {
    /// `system`, `user`, `assistant` or `tool`.
    pub(crate) role: &'static str,
    /// What is said.
    pub(crate) text: Cow<'a, str>,
    /// Reasoning, for assistants; may be empty.
    pub(crate) thinking: String,
    /// Calls, for assistants.
    pub(crate) calls: Vec<&'a ToolCall>,
    /// The call that a tool message answers.
    pub(crate) answers: Option<&'a str>,
}

/// Flattens messages. One message of ours is several flat ones where it holds tool results:
/// those need a message each, and must directly follow the calls they answer.
pub(crate) fn flatten(messages: &[Message]) -> Vec<FlatMessage<'_>> {
    let mut flat = Vec::with_capacity(messages.len());
    for message in messages {
        let plain = |role, text| FlatMessage {
            role,
            text,
            thinking: String::new(),
            calls: Vec::new(),
            answers: None,
        };
        for part in &message.parts {
            if let Part::ToolResult(result) = part {
                flat.push(FlatMessage {
                    answers: Some(&result.call),
                    ..plain("tool", Cow::Borrowed(&result.content))
                });
            }
        }
        let text = text(message);
        let only_results = !message.parts.is_empty()
            && message.parts.iter().all(|part| matches!(part, Part::ToolResult(_)));
        match message.role {
            Role::System => flat.push(plain("system", text)),
            Role::User if only_results => {}
            Role::User => flat.push(plain("user", text)),
            // What a tool message says besides results has no place in these formats.
            Role::Tool if text.is_empty() => {}
            Role::Tool => flat.push(plain("user", text)),
            Role::Assistant => flat.push(FlatMessage {
                thinking: thinking(message),
                calls: message.tool_calls().collect(),
                ..plain("assistant", text)
            }),
        }
    }
    flat
}

fn text(message: &Message) -> Cow<'_, str> {
    match message.parts.as_slice() {
        [Part::Text(text)] => Cow::Borrowed(text),
        _ => Cow::Owned(message.plain_text()),
    }
}

fn thinking(message: &Message) -> String {
    message
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Thinking(text) => Some(text.as_str()),
            _ => None,
        })
        .collect()
}
