//! What a harness may ask for. Everything here is judged before it costs anything.

use fulgurite_trace::{Message, Part, Role, ToolDefinition, Truncation};

use crate::{ConversationConfig, LlmError, ReplyOptions, SamplingDefaults};

const MOST_MESSAGES: usize = 4096;
const MOST_TOOLS: usize = 128;
const MOST_STOPS: usize = 16;
const LONGEST_STOP: usize = 256;
const LONGEST_NAME: usize = 256;

/// How a call is to be sampled, as far as wishes and settings decide it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wish {
    pub(crate) max_tokens: u32,
    pub(crate) temperature: f32,
    pub(crate) truncation: Truncation,
    pub(crate) stop: Vec<String>,
}

pub(crate) fn options(
    options: &ReplyOptions,
    defaults: &SamplingDefaults,
) -> Result<Wish, LlmError> {
    let cap = defaults.max_tokens.get();
    let max_tokens = match options.max_tokens {
        Some(0) => return Err(LlmError::invalid("max-tokens must not be 0")),
        Some(wish) => wish.min(cap),
        None => cap,
    };
    let temperature = match options.temperature {
        Some(wish) if !wish.is_finite() || wish < 0.0 => {
            return Err(LlmError::invalid("temperature must be finite and not negative"));
        }
        Some(wish) if !defaults.fixed_distribution => wish,
        _ => defaults.temperature,
    };
    let wished = options.truncation(defaults.truncation)?;
    let truncation = if defaults.fixed_distribution { defaults.truncation } else { wished };
    if options.stop.len() > MOST_STOPS {
        return Err(LlmError::Invalid(format!("at most {MOST_STOPS} stop strings")));
    }
    if options.stop.iter().any(|stop| stop.is_empty() || stop.len() > LONGEST_STOP) {
        let text = format!("stop strings must have 1 to {LONGEST_STOP} bytes");
        return Err(LlmError::Invalid(text));
    }
    let mut stop = defaults.stop.clone();
    stop.extend(options.stop.iter().filter(|text| !defaults.stop.contains(text)).cloned());
    Ok(Wish { max_tokens, temperature, truncation, stop })
}

pub(crate) fn config(config: &ConversationConfig) -> Result<(), LlmError> {
    if config.agent.len() > LONGEST_NAME {
        return Err(LlmError::Invalid(format!("agent names have at most {LONGEST_NAME} bytes")));
    }
    tools(&config.tools)
}

pub(crate) fn tools(tools: &[ToolDefinition]) -> Result<(), LlmError> {
    if tools.len() > MOST_TOOLS {
        return Err(LlmError::Invalid(format!("at most {MOST_TOOLS} tools")));
    }
    for (position, tool) in tools.iter().enumerate() {
        let name = excerpt(&tool.name);
        if tool.name.is_empty() || tool.name.len() > LONGEST_NAME {
            let text = format!("tool {position} needs a name of 1 to {LONGEST_NAME} bytes");
            return Err(LlmError::Invalid(text));
        }
        if tools.iter().take(position).any(|earlier| earlier.name == tool.name) {
            return Err(LlmError::Invalid(format!("two tools have the name `{name}`")));
        }
        let schema = serde_json::from_str::<serde_json::Value>(&tool.parameters);
        if !schema.is_ok_and(|schema| schema.is_object()) {
            let text = format!("the parameters of tool `{name}` are not a JSON object");
            return Err(LlmError::Invalid(text));
        }
    }
    Ok(())
}

pub(crate) fn messages(messages: &[Message]) -> Result<(), LlmError> {
    if messages.len() > MOST_MESSAGES {
        return Err(LlmError::Invalid(format!("at most {MOST_MESSAGES} messages in one call")));
    }
    for message in messages {
        for part in &message.parts {
            let fits = match part {
                Part::Text(_) => true,
                Part::Thinking(_) | Part::ToolCall(_) => message.role == Role::Assistant,
                Part::ToolResult(_) => message.role == Role::Tool,
            };
            if !fits {
                return Err(LlmError::invalid(
                    "tool results belong in messages of the role tool, thinking and tool calls in \
                     messages of the role assistant",
                ));
            }
        }
    }
    Ok(())
}

/// Bytes of a message, roughly.
pub(crate) fn size(message: &Message) -> usize {
    let parts: usize = message
        .parts
        .iter()
        .map(|part| {
            size_of::<Part>()
                + match part {
                    Part::Text(text) | Part::Thinking(text) => text.len(),
                    Part::ToolCall(call) => {
                        let problem = call.problem.as_ref().map_or(0, String::len);
                        call.id.len() + call.name.len() + call.arguments.len() + problem
                    }
                    Part::ToolResult(result) => result.call.len() + result.content.len(),
                }
        })
        .sum();
    let metadata: usize =
        message.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    size_of::<Message>() + parts + metadata
}

/// Whether a message that a stateless caller sends again is one that the host knows. Callers
/// commonly lose thinking and metadata and trim what the model said.
pub(crate) fn same(known: &Message, sent: &Message) -> bool {
    known.role == sent.role && said(known) == said(sent) && acts(known).eq(acts(sent))
}

fn said(message: &Message) -> String {
    let text = message.plain_text();
    if message.role == Role::Assistant { text.trim().to_owned() } else { text }
}

fn acts(message: &Message) -> impl Iterator<Item = (&str, &str, &str)> {
    message.parts.iter().filter_map(|part| match part {
        Part::ToolCall(call) => Some((&*call.id, &*call.name, &*call.arguments)),
        Part::ToolResult(result) => {
            Some((&*result.call, if result.failed { "failed" } else { "" }, &*result.content))
        }
        _ => None,
    })
}

/// A name fit for an error message.
pub(crate) fn excerpt(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use fulgurite_trace::ToolCall;

    use super::*;

    fn tool(name: &str, parameters: &str) -> ToolDefinition {
        ToolDefinition {
            name: name.to_owned(),
            description: String::new(),
            parameters: parameters.to_owned(),
        }
    }

    #[test]
    fn wishes_are_capped_and_nonsense_is_named() {
        let defaults = SamplingDefaults { stop: vec!["END".to_owned()], ..Default::default() };
        let wish = |asked: ReplyOptions| options(&asked, &defaults);
        let plain = wish(ReplyOptions::default()).unwrap();
        assert_eq!((plain.max_tokens, plain.temperature), (1024, 1.0));
        let large = ReplyOptions { max_tokens: Some(9999), ..Default::default() };
        assert_eq!(wish(large).unwrap().max_tokens, 1024);
        let stops = vec!["END".to_owned(), "x".to_owned()];
        let stops = ReplyOptions { stop: stops.clone(), ..Default::default() };
        assert_eq!(wish(stops).unwrap().stop, ["END", "x"]);
        for temperature in [f32::NAN, f32::INFINITY, -0.5] {
            let bad = ReplyOptions { temperature: Some(temperature), ..Default::default() };
            assert!(matches!(wish(bad), Err(LlmError::Invalid(_))));
        }
        let none = ReplyOptions { max_tokens: Some(0), ..Default::default() };
        assert!(matches!(wish(none), Err(LlmError::Invalid(_))));
        let empty = ReplyOptions { stop: vec![String::new()], ..Default::default() };
        assert!(matches!(wish(empty), Err(LlmError::Invalid(_))));
    }

    #[test]
    fn a_fixed_distribution_overrules_the_harness() {
        let defaults = SamplingDefaults { fixed_distribution: true, ..Default::default() };
        let metadata = vec![("top-k".to_owned(), "5".to_owned())];
        let asked = ReplyOptions { temperature: Some(0.0), metadata, ..Default::default() };
        let wish = options(&asked, &defaults).unwrap();
        assert_eq!((wish.temperature, wish.truncation), (1.0, Truncation::default()));
    }

    #[test]
    fn cuts_are_wished_for_in_the_metadata() {
        let asked = |name: &str, value: &str| ReplyOptions {
            metadata: vec![("top-p".into(), "0.9".into()), (name.into(), value.into())],
            ..Default::default()
        };
        let defaults = SamplingDefaults {
            truncation: Truncation { min_p: Some(0.1), ..Default::default() },
            ..Default::default()
        };
        let wish = options(&asked("top-k", "40"), &defaults).unwrap();
        let expected =
            Truncation { top_k: std::num::NonZeroU32::new(40), top_p: Some(0.9), min_p: Some(0.1) };
        assert_eq!(wish.truncation, expected, "what is not wished for is the run's");
        for (name, value) in
            [("top-k", "0"), ("top-k", "x"), ("top-p", "0"), ("top-p", "NaN"), ("min-p", "2")]
        {
            let error = options(&asked(name, value), &defaults).unwrap_err();
            assert!(matches!(&error, LlmError::Invalid(text) if text.contains(name)), "{error:?}");
        }
    }

    #[test]
    fn tools_need_unique_names_and_object_schemas() {
        assert!(tools(&[tool("a", "{}"), tool("b", r#"{"type": "object"}"#)]).is_ok());
        for bad in [
            vec![tool("", "{}")],
            vec![tool("a", "{}"), tool("a", "{}")],
            vec![tool("a", "[]")],
            vec![tool("a", "{")],
        ] {
            assert!(matches!(tools(&bad), Err(LlmError::Invalid(_))), "{bad:?}");
        }
    }

    #[test]
    fn parts_belong_to_roles() {
        let call = Part::ToolCall(ToolCall {
            id: "1".to_owned(),
            name: "x".to_owned(),
            arguments: "{}".to_owned(),
            problem: None,
        });
        let message = |role| Message { role, parts: vec![call.clone()], metadata: vec![] };
        assert!(messages(&[message(Role::Assistant)]).is_ok());
        assert!(messages(&[message(Role::User)]).is_err());
    }

    #[test]
    fn a_sent_message_may_have_lost_thinking_metadata_and_outer_spaces() {
        let known = Message {
            role: Role::Assistant,
            parts: vec![Part::Thinking("hm".to_owned()), Part::Text("\nyes ".to_owned())],
            metadata: vec![("a".to_owned(), "b".to_owned())],
        };
        assert!(same(&known, &Message::text(Role::Assistant, "yes")));
        assert!(!same(&known, &Message::text(Role::Assistant, "no")));
        assert!(!same(&known, &Message::text(Role::User, "yes")));
        let spaced = Message::text(Role::User, " yes");
        assert!(!same(&spaced, &Message::text(Role::User, "yes")));
    }
}
