//! The way to the policy.

use async_trait::async_trait;
use fulgurite_trace::{FinishReason, Message, Metadata, ToolDefinition, Usage};

use super::BudgetKind;

/// Why a call for the policy failed, as `llm-error` of the contract.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LlmError {
    /// The host's own retries are used up.
    #[error("the policy asks to slow down")]
    RateLimited,
    /// History and reply do not fit the model.
    #[error("the history does not fit the model")]
    ContextLength,
    /// A budget is used up.
    #[error("the budget of {0:?} is used up")]
    Budget(BudgetKind),
    /// The episode is being cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The request is wrong.
    #[error("invalid: {0}")]
    Invalid(String),
    /// The policy cannot do this.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// A reply of the conversation is pending.
    #[error("a reply of this conversation is pending")]
    Busy,
    /// The policy cannot be reached.
    #[error("the policy cannot be reached")]
    Unavailable,
    /// No reply in time.
    #[error("the policy did not answer in time")]
    Timeout,
    /// A code of a later minor version.
    #[error("error {0}: {1}")]
    Other(u32, String),
}

/// What the policy behind a model role can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelInfo {
    /// Whether tools reach the model natively.
    pub native_tools: bool,
    /// Tokens of history and reply together, where known.
    pub context_length: Option<u32>,
    /// Whether `generate` works.
    pub token_level: bool,
    /// Room for growth.
    pub metadata: Metadata,
}

/// How a conversation is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// At most this many new tokens.
    pub max_tokens: Option<u32>,
    /// Sampling temperature; finite and not negative.
    pub temperature: Option<f32>,
    /// Strings that end the reply.
    pub stop: Vec<String>,
    /// Room for growth.
    pub metadata: Metadata,
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

/// A provisional piece of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// Text.
    Text(String),
    /// Reasoning.
    Thinking(String),
}

/// The way to the policy, for one episode. The guest's wall clock stands still during every call.
#[async_trait]
pub trait LlmHost: Send + Sync {
    /// What the policy behind `model_role` can do.
    async fn info(&self, model_role: &str) -> Result<ModelInfo, LlmError>;
    /// Opens a conversation.
    async fn open(&self, config: ConversationConfig)
    -> Result<Box<dyn ConversationHost>, LlmError>;
    /// One stateless call.
    async fn chat(
        &self,
        config: ConversationConfig,
        messages: Vec<Message>,
        options: ReplyOptions,
    ) -> Result<Reply, LlmError>;
    /// Continues raw token ids.
    async fn generate(
        &self,
        model_role: &str,
        prompt: Vec<u32>,
        options: ReplyOptions,
    ) -> Result<TokenReply, LlmError>;
}

/// One conversation. Dropped when the guest drops it; replies that are pending then go on.
#[async_trait]
pub trait ConversationHost: Send {
    /// Unique within the episode.
    fn id(&self) -> u32;
    /// Appends messages and asks for a reply. Returns as soon as the reply is pending.
    async fn start(
        &mut self,
        messages: Vec<Message>,
        options: ReplyOptions,
    ) -> Result<Box<dyn PendingReply>, LlmError>;
    /// A new conversation that shares the history up to and including turn `at`.
    async fn branch(&mut self, at: u32) -> Result<Box<dyn ConversationHost>, LlmError>;
    /// Replaces the history.
    async fn restart(&mut self, messages: Vec<Message>, reason: String) -> Result<(), LlmError>;
}

/// A reply that is being written. Dropping it before it is finished cancels it.
#[async_trait]
pub trait PendingReply: Send {
    /// Returns when `next_chunk` or `finish` would answer at once. Dropping the future loses
    /// nothing.
    async fn ready(&mut self);
    /// The next chunk; none when the reply is complete. Dropping the future loses nothing.
    async fn next_chunk(&mut self) -> Result<Option<Chunk>, LlmError>;
    /// The complete reply, durably recorded. Asked a second time: [`LlmError::Invalid`].
    async fn finish(&mut self) -> Result<Reply, LlmError>;
    /// Gives up on the reply; a later `finish` answers [`LlmError::Cancelled`].
    fn cancel(&mut self);
}
