//! The trait every policy implements.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use fulgurite_trace::{FinishReason, Message, ToolDefinition, Truncation, Usage, VersionSpan};
use tokio::sync::mpsc;

/// What a policy is and can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyInfo {
    /// For people and traces, e.g. `gguf:SmolLM2-135M-Instruct@1a2b3c4d5e6f`. Holds no secret.
    pub name: String,
    /// Tokens of history and reply together, where known.
    pub context_length: Option<u32>,
    /// Whether tool definitions reach the model natively.
    pub native_tools: bool,
}

/// How to sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// At most this many new tokens.
    pub max_tokens: u32,
    /// 0 is greedy.
    pub temperature: f32,
    /// How softmax(logits / temperature) is cut; by default not at all, which is what training
    /// wants.
    pub truncation: Truncation,
    /// Strings that end the reply; cut from the text, kept in the token history.
    pub stop: Vec<String>,
    /// Tokens that end the reply besides the policy's own end tokens; not in the text, kept in
    /// the token history.
    pub stop_tokens: Vec<u32>,
    /// Seed of this call. Each token is drawn with its own number of the seed's stream, so that
    /// what was computed before, and together with what, takes no part.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            max_tokens: 1024,
            temperature: 1.0,
            truncation: Truncation::default(),
            stop: Vec::new(),
            stop_tokens: Vec::new(),
            seed: 0,
        }
    }
}

/// Where in a run a call stands: what scripted policies look replies up by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CallKey {
    /// Id of the task.
    pub task: String,
    /// Name of the harness, from its description.
    pub harness: String,
    /// The (sub-)agent; may be empty.
    pub agent: String,
    /// `native` when the conversation has tools, else `text`.
    pub tool_format: &'static str,
    /// Conversation within the episode.
    pub conversation: u32,
    /// Turn within the conversation, from 0.
    pub turn: u32,
}

/// What the policy is asked with.
#[derive(Debug, Clone)]
pub enum Prompt {
    /// The whole history as messages.
    Messages(Arc<[Message]>),
    /// The whole history as token ids, rendered by the policy's own [`ChatFormat`].
    Tokens(Arc<[u32]>),
}

/// One call.
#[derive(Debug, Clone)]
pub struct ReplyRequest {
    /// Where the call stands.
    pub key: CallKey,
    /// The history. [`Prompt::Tokens`] exactly for token-level policies.
    pub prompt: Prompt,
    /// The conversation's tools.
    pub tools: Arc<[ToolDefinition]>,
    /// How to sample.
    pub sampling: Sampling,
}

/// A piece of a reply while it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// Text.
    Text(String),
    /// Reasoning.
    Thinking(String),
}

/// The tokens of a reply.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SampledReply {
    /// The prompt as the policy saw it; for an upstream that reports it. A token-level policy
    /// leaves it empty: it was asked with ids.
    pub prompt: Vec<u32>,
    /// Sampled ids, end token included when one was chosen.
    pub response: Vec<u32>,
    /// One log-probability per response id under the distribution it was drawn from, or empty.
    pub log_probabilities: Vec<f32>,
    /// One log-probability per response id under the whole softmax(logits / temperature), where
    /// that was cut and the policy knows; else empty.
    pub untruncated: Vec<f32>,
    /// Which version wrote which ids.
    pub versions: Vec<VersionSpan>,
}

/// A complete reply.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyReply {
    /// What was said, stop strings and special tokens removed.
    pub message: Message,
    /// Why it ended.
    pub finish: FinishReason,
    /// Tokens of the call.
    pub usage: Usage,
    /// The ids, where the policy gives them.
    pub tokens: Option<SampledReply>,
}

/// Why a call failed. Texts never hold keys; upstream bodies are cut and meant for the run's
/// owner, never for a component.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// 429. Worth retrying.
    #[error("the policy asks to slow down (429)")]
    RateLimited {
        /// The upstream's wish.
        retry_after: Option<Duration>,
    },
    /// No connection, 408, 5xx, a reply that broke off. Worth retrying.
    #[error("the policy cannot be reached: {0}")]
    Unavailable(String),
    /// No reply in time. Worth retrying.
    #[error("the policy did not answer in time")]
    Timeout,
    /// 401 or 403.
    #[error("the policy refuses the key: {0}")]
    Unauthorized(String),
    /// History and reply do not fit.
    #[error("the history does not fit the model: {0}")]
    ContextLength(String),
    /// The request is wrong.
    #[error("the policy refuses the request: {0}")]
    Invalid(String),
    /// A scripted policy has no reply for this call.
    #[error("no scripted reply: {0}")]
    NoScript(String),
    /// Anything inside the policy.
    #[error("the policy failed: {0}")]
    Internal(String),
}

impl PolicyError {
    /// Whether the same call may succeed a little later.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::RateLimited { .. } | Self::Unavailable(_) | Self::Timeout)
    }
}

/// A source of replies.
#[async_trait]
pub trait Policy: Send + Sync {
    /// What it is and can do.
    fn info(&self) -> &PolicyInfo;

    /// The current version; grows when weights change.
    fn version(&self) -> u64 {
        0
    }

    /// Present exactly for token-level policies.
    fn chat_format(&self) -> Option<Arc<dyn ChatFormat>> {
        None
    }

    /// Whether it can be reached now, as far as that shows without sampling. Asked once, before a
    /// run; without retries.
    async fn check(&self) -> Result<(), PolicyError> {
        Ok(())
    }

    /// One reply, without retries. Dropping the future cancels the call. Chunks are sent while
    /// the reply is written, as far as the receiver keeps up; a closed receiver is no error.
    async fn reply(
        &self,
        request: ReplyRequest,
        chunks: Option<mpsc::Sender<Chunk>>,
    ) -> Result<PolicyReply, PolicyError>;
}

/// Rendering or parsing failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the chat template failed: {0}")]
pub struct FormatError(pub String);

/// Between messages and token ids, for token-level policies.
pub trait ChatFormat: Send + Sync {
    /// The whole history as ids, ending where the assistant is to speak. Text of messages never
    /// becomes special tokens, whatever it spells.
    fn render(
        &self,
        messages: &[Message],
        tools: &[ToolDefinition],
    ) -> Result<Vec<u32>, FormatError>;

    /// For `history = append-only`: the ids that follow a response (`ended` when it holds its end
    /// token) when `messages` are appended, ending where the assistant is to speak.
    fn render_continuation(
        &self,
        messages: &[Message],
        tools: &[ToolDefinition],
        ended: bool,
    ) -> Result<Vec<u32>, FormatError>;

    /// The message that sampled ids spell: special tokens removed, thinking and tool calls parsed.
    fn parse(&self, response: &[u32]) -> Message;

    /// Plain text as ids, without special tokens.
    fn encode(&self, text: &str) -> Vec<u32>;

    /// Appends the bytes that a token stands for; nothing for tokens that are never seen (markers
    /// between messages, padding) and for ids that are no token.
    fn spell(&self, id: u32, bytes: &mut Vec<u8>);

    /// Whether this token ends a reply.
    fn is_end(&self, id: u32) -> bool;
}
