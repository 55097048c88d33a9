//! What a component can be given. Each capability is a trait that another room implements; this
//! room calls it on behalf of a guest and never learns who stands behind it.
//!
//! # Rules for implementers
//! - Arguments come from a guest: they are bounded in size (by the hostcall limit of
//!   [`crate::limits::Limits`]) and otherwise hostile.
//! - Futures are polled on the threads that run guests: they must not block.
//! - Errors reach the guest as they are: no host paths, no addresses, no upstream bodies in them.
//! - A future may be dropped at any point (the guest was stopped); dropping cancels the call.

use std::sync::Arc;

use async_trait::async_trait;
use fulgurite_trace::{
    CommandOutput, CommandRequest, Ending, FinishReason, Message, Metadata, ToolDefinition, Turn,
    Usage, file::FileKind,
};
use serde::{Deserialize, Serialize};

use crate::clock::EpisodeClock;

/// Which budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BudgetKind {
    /// Completion tokens.
    Tokens,
    /// Model calls.
    Turns,
    /// Commands.
    Commands,
    /// Time of the virtual clock.
    Time,
    /// Fuel.
    Fuel,
}

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

/// A command could not be run at all, as `exec-error` of the contract.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecError {
    /// The request is wrong.
    #[error("invalid: {0}")]
    Invalid(String),
    /// A budget is used up.
    #[error("the budget of {0:?} is used up")]
    Budget(BudgetKind),
    /// The episode is being cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The run does not allow commands.
    #[error("denied")]
    Denied,
    /// The lane failed.
    #[error("the lane is not available")]
    Unavailable,
    /// A code of a later minor version.
    #[error("error {0}: {1}")]
    Other(u32, String),
}

/// Commands inside the workspace of one episode.
#[async_trait]
pub trait ExecHost: Send + Sync {
    /// Runs a command to its end. `clock` is the calling guest's: hold it
    /// ([`EpisodeClock::stand_still`]) while the command waits for a place in a queue.
    async fn run(
        &self,
        request: CommandRequest,
        clock: &EpisodeClock,
    ) -> Result<CommandOutput, ExecError>;
    /// Names of the programs and commands that exist, sorted.
    fn programs(&self) -> Vec<String>;
}

/// Where notes about one guest go. Calls must not block and must not fail; what does not fit is
/// dropped and counted by the implementer.
pub trait JournalHost: Send + Sync {
    /// A note of the guest.
    fn event(&self, name: String, fields: Metadata);
    /// A number of the guest; finite.
    fn metric(&self, name: String, value: f64);
    /// The guest called an import that it was not given; `import` is `interface#function`. Told
    /// once for each import.
    fn denied(&self, import: &str);
    /// What the guest wrote to its standard streams, cut at the limit. Told once, at the end,
    /// and only when there is something.
    fn output(&self, stdout: String, stderr: String);
}

/// What is left of an episode's budgets; none means unlimited. Time and fuel are known here and
/// not asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Remaining {
    /// Completion tokens.
    pub tokens: Option<u64>,
    /// Model calls.
    pub turns: Option<u32>,
    /// Commands.
    pub commands: Option<u32>,
}

/// The budgets of one episode.
pub trait BudgetHost: Send + Sync {
    /// What is left.
    fn remaining(&self) -> Remaining;
}

/// The task as graders see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GradedTask {
    /// Its id.
    pub id: String,
    /// What the agent was asked.
    pub input: String,
    /// Room for growth.
    pub metadata: Metadata,
    /// Hidden grading data, a JSON object as text.
    pub grading: String,
}

/// What became of an entry of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Added(FileKind),
    /// It was there and differs.
    Modified(FileKind),
    /// It is gone.
    Removed,
}

/// One change of the sealed workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Relative path.
    pub path: String,
    /// What became of it.
    pub kind: ChangeKind,
    /// Bytes of the entry now.
    pub size: u64,
}

/// Why a file of the sealed workspace cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No such entry, or a link on the way.
    #[error("no such file")]
    NotFound,
    /// Not a regular file.
    #[error("not a regular file")]
    NotAFile,
    /// More was asked for than is given at once.
    #[error("too large")]
    TooLarge,
}

/// A finished episode, as a reward reads it.
#[async_trait]
pub trait EpisodeView: Send + Sync {
    /// The task, hidden part included.
    fn task(&self) -> GradedTask;
    /// How the episode ended.
    fn ending(&self) -> Ending;
    /// How many turns there are.
    fn turn_count(&self) -> u32;
    /// The turns from `start` on, at most `count` (which this room keeps small).
    async fn turns(&self, start: u32, count: u32) -> Vec<Arc<Turn>>;
    /// How many changes there are.
    fn change_count(&self) -> u32;
    /// The changes from `start` on, sorted by path, at most `count` (which this room keeps small).
    fn changes(&self, start: u32, count: u32) -> Vec<Change>;
    /// Bytes of a file of the sealed workspace; no link is followed.
    fn read_file(&self, path: &str, offset: u64, length: u32) -> Result<Vec<u8>, ReadError>;
}

/// What a grading sandbox starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraderBase {
    /// Nothing.
    Empty,
    /// The task's workspace as it was.
    Pristine,
    /// With the episode's changes on top.
    Changed,
}

/// Why an operation on a grading sandbox failed, as `grader-error` of the contract.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraderError {
    /// The path is not relative, leaves the tree or passes through a link.
    #[error("bad path")]
    BadPath,
    /// A quota (also of open sandboxes) is used up.
    #[error("quota")]
    Quota,
    /// No such entry.
    #[error("not found")]
    NotFound,
    /// A code of a later minor version.
    #[error("error {0}: {1}")]
    Other(u32, String),
}

/// Names an open grading sandbox of one [`GraderHost`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SandboxId(pub u32);

/// Sandboxes to grade one episode in. Unknown ids never come in; a sandbox is open until
/// [`GraderHost::close`] or until the host is dropped.
#[async_trait]
pub trait GraderHost: Send + Sync {
    /// Opens a fresh tree.
    async fn open(&self, base: GraderBase) -> Result<SandboxId, GraderError>;
    /// Gives one back.
    fn close(&self, sandbox: SandboxId);
    /// Lays down a file; see `grader` of the contract for what is promised.
    fn put_file(
        &self,
        sandbox: SandboxId,
        path: &str,
        contents: Vec<u8>,
    ) -> Result<(), GraderError>;
    /// At most `limit` bytes of a file.
    fn read_file(&self, sandbox: SandboxId, path: &str, limit: u32)
    -> Result<Vec<u8>, GraderError>;
    /// Removes a file, link or folder.
    fn remove(&self, sandbox: SandboxId, path: &str) -> Result<(), GraderError>;
    /// Runs a command to its end; `clock` as in [`ExecHost::run`].
    async fn run(
        &self,
        sandbox: SandboxId,
        request: CommandRequest,
        clock: &EpisodeClock,
    ) -> Result<CommandOutput, ExecError>;
    /// Runs two programs with their standard streams connected crosswise.
    async fn run_connected(
        &self,
        left: (SandboxId, CommandRequest),
        right: (SandboxId, CommandRequest),
        clock: &EpisodeClock,
    ) -> Result<(CommandOutput, CommandOutput), ExecError>;
}
