//! The words of `wit/llm.wit`.

use fulgurite_trace::{FinishReason, Message, Metadata, ToolDefinition, Truncation, Usage};

use crate::LlmError;

/// What the policy behind a model role can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelInfo {
    /// Whether tools reach the model natively.
    pub native_tools: bool,
    /// Tokens of history and reply together, where known.
    pub context_length: Option<u32>,
    /// Whether [`Session::generate`](crate::Session::generate) works.
    pub token_level: bool,
    /// Room for growth.
    pub metadata: Metadata,
}

/// How a conversation is opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConversationConfig {
    /// Which model.
    pub model_role: String,
    /// The (sub-)agent that speaks; may be empty.
    pub agent: String,
    /// System message.
    pub system: Option<String>,
    /// Fixed for the life of the conversation.
    pub tools: Vec<ToolDefinition>,
    /// The conversation that this one was started from.
    pub parent: Option<u32>,
    /// Room for growth.
    pub metadata: Metadata,
}

/// Wishes for one reply.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReplyOptions {
    /// At most this many new tokens; the run's settings, budget and model cap it.
    pub max_tokens: Option<u32>,
    /// Sampling temperature; finite and not negative.
    pub temperature: Option<f32>,
    /// Strings that end the reply, besides those of the run.
    pub stop: Vec<String>,
    /// Room for growth. `stream` = `true` asks for chunks while the reply is written; without it
    /// the whole reply comes as one or two chunks, which is cheaper and takes no part in races.
    /// `top-k`, `top-p` and `min-p` cut the sampling distribution.
    pub metadata: Metadata,
}

impl ReplyOptions {
    pub(crate) fn wants_stream(&self) -> bool {
        self.metadata.iter().any(|(name, value)| name == "stream" && value == "true")
    }

    /// The run's cuts with those wished for in their place.
    pub(crate) fn truncation(&self, mut cuts: Truncation) -> Result<Truncation, LlmError> {
        let bad = |name: &str| LlmError::Invalid(format!("`{name}` is no number it can be"));
        for (name, value) in &self.metadata {
            match name.as_str() {
                "top-k" => cuts.top_k = Some(value.parse().map_err(|_| bad(name))?),
                "top-p" => cuts.top_p = Some(value.parse().map_err(|_| bad(name))?),
                "min-p" => cuts.min_p = Some(value.parse().map_err(|_| bad(name))?),
                _ => {}
            }
        }
        match cuts.problem() {
            Some(problem) => Err(LlmError::Invalid(problem)),
            None => Ok(cuts),
        }
    }
}

/// A complete reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// What was said.
    pub message: Message,
    /// Why it ended.
    pub finish: FinishReason,
    /// Tokens of the call.
    pub usage: Usage,
    /// Number of the turn within the episode.
    pub turn: u32,
    /// Room for growth.
    pub metadata: Metadata,
}

/// A complete reply as tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenReply {
    /// Sampled ids.
    pub tokens: Vec<u32>,
    /// One per id, or empty.
    pub log_probabilities: Vec<f32>,
    /// Why it ended.
    pub finish: FinishReason,
    /// Tokens of the call.
    pub usage: Usage,
    /// Number of the turn within the episode.
    pub turn: u32,
}
