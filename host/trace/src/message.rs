//! Messages between a harness and a model, as in `wit/types.wit`.

use serde::{Deserialize, Serialize};

use crate::Metadata;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Standing instructions.
    System,
    /// The harness.
    User,
    /// The model.
    Assistant,
    /// Results of tool calls.
    Tool,
}

/// A request by the model to call a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Unique within the conversation.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments exactly as the model wrote them; usually, not surely, a JSON object.
    pub arguments: String,
    /// Why the call is malformed. Malformed calls are reply content, never errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What a tool call led to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The [`ToolCall::id`] that this answers.
    pub call: String,
    /// What the model is told.
    pub content: String,
    /// Whether the tool failed.
    pub failed: bool,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Plain text.
    Text(String),
    /// Reasoning that the model marked as such.
    Thinking(String),
    /// A call by the model.
    ToolCall(ToolCall),
    /// The answer to a call.
    ToolResult(ToolResult),
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub parts: Vec<Part>,
    /// Room for growth.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metadata: Metadata,
}

impl Message {
    /// A message of one text part.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, parts: vec![Part::Text(text.into())], metadata: Metadata::new() }
    }

    /// All text parts joined, without thinking, calls and results.
    pub fn plain_text(&self) -> String {
        self.parts
            .iter()
            .filter_map(|part| match part {
                Part::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    /// The tool calls, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            _ => None,
        })
    }
}

/// A tool offered to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolDefinition {
    /// The tool's name.
    pub name: String,
    /// For the model.
    pub description: String,
    /// JSON Schema of the arguments object, as text.
    pub parameters: String,
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FinishReason {
    /// The model ended its turn.
    Stop,
    /// Cut off by `max-tokens` or the context length.
    Length,
    /// The model waits for tool results.
    ToolCalls,
    /// Content was withheld upstream.
    Filtered,
}

/// Tokens of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens the model read, history included.
    pub prompt_tokens: u64,
    /// Those of them that were already in the policy's cache.
    pub cached_tokens: u64,
    /// Tokens the model wrote.
    pub completion_tokens: u64,
}
