//! Messages, replies and tool calls: methods on the contract's own types.

use serde::de::DeserializeOwned;

use crate::Metadata;
use crate::bindings::harness::fulgurite::plugin::llm::{Options, Reply};
use crate::bindings::harness::fulgurite::plugin::types::{
    FinishReason, Message, Part, Role, ToolCall, ToolResult,
};

impl Message {
    /// A message of one text.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, parts: vec![Part::Text(text.into())], metadata: Metadata::new() }
    }

    /// What a user says.
    pub fn user(text: impl Into<String>) -> Self {
        Self::text(Role::User, text)
    }

    /// What a model said; for histories that a harness writes itself.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::text(Role::Assistant, text)
    }

    /// The text parts in one string; reasoning, calls and results are left out.
    pub fn plain_text(&self) -> String {
        self.parts
            .iter()
            .filter_map(|part| match part {
                Part::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    /// The tool calls, in order, malformed ones included.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            _ => None,
        })
    }
}

impl Reply {
    /// The reply's text, without reasoning and calls.
    pub fn text(&self) -> String {
        self.message.plain_text()
    }

    /// The tool calls, in order, malformed ones included. Answer each of them.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.message.tool_calls()
    }

    /// Whether the reply ended because a limit was reached.
    pub fn is_cut_off(&self) -> bool {
        self.finish == FinishReason::Length
    }
}

impl ToolCall {
    /// The arguments as a typed value. The error is fit for the model: hand it to
    /// [`ToolCall::fail`].
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, String> {
        if let Some(problem) = &self.problem {
            return Err(format!("the call is malformed: {problem}"));
        }
        serde_json::from_str(&self.arguments)
            .map_err(|error| format!("the arguments of {} are wrong: {error}", self.name))
    }

    /// The result of a call that worked.
    pub fn answer(&self, content: impl Into<String>) -> ToolResult {
        ToolResult { call: self.id.clone(), content: content.into(), failed: false }
    }

    /// The result of a call that failed.
    pub fn fail(&self, content: impl Into<String>) -> ToolResult {
        ToolResult { call: self.id.clone(), content: content.into(), failed: true }
    }
}

/// The run's own settings for everything.
#[allow(clippy::derivable_impls)]
impl Default for Options {
    fn default() -> Self {
        Self { max_tokens: None, temperature: None, stop: Vec::new(), metadata: Metadata::new() }
    }
}

/// What can be sent to a model: a text (said by the user), messages, or results of tool calls.
pub trait IntoMessages {
    /// The messages, in order.
    fn into_messages(self) -> Vec<Message>;
}

impl IntoMessages for &str {
    fn into_messages(self) -> Vec<Message> {
        vec![Message::user(self)]
    }
}

impl IntoMessages for String {
    fn into_messages(self) -> Vec<Message> {
        vec![Message::user(self)]
    }
}

impl IntoMessages for &String {
    fn into_messages(self) -> Vec<Message> {
        vec![Message::user(self)]
    }
}

impl IntoMessages for Message {
    fn into_messages(self) -> Vec<Message> {
        vec![self]
    }
}

impl IntoMessages for Vec<Message> {
    fn into_messages(self) -> Vec<Message> {
        self
    }
}

impl IntoMessages for ToolResult {
    fn into_messages(self) -> Vec<Message> {
        let parts = vec![Part::ToolResult(self)];
        vec![Message { role: Role::Tool, parts, metadata: Metadata::new() }]
    }
}

/// One message a result: chat templates expect them apart.
impl IntoMessages for Vec<ToolResult> {
    fn into_messages(self) -> Vec<Message> {
        self.into_iter().flat_map(IntoMessages::into_messages).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: &str, problem: Option<&str>) -> ToolCall {
        ToolCall {
            id: "1".into(),
            name: "bash".into(),
            arguments: arguments.into(),
            problem: problem.map(String::from),
        }
    }

    #[test]
    fn malformed_calls_are_errors_that_can_be_answered() {
        let parsed = call("{", None).parse::<serde_json::Value>();
        assert!(parsed.unwrap_err().contains("arguments of bash"));
        let parsed = call("{}", Some("no name")).parse::<serde_json::Value>();
        assert_eq!(parsed.unwrap_err(), "the call is malformed: no name");
    }

    #[test]
    fn results_become_one_message_each() {
        let results = vec![call("{}", None).answer("a"), call("{}", None).fail("b")];
        let messages = results.into_messages();
        assert_eq!(messages.len(), 2);
        assert!(messages.iter().all(|message| message.role == Role::Tool));
    }
}
