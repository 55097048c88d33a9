//! What a component can be given. Each capability is a trait that another room implements; this
//! room calls it on behalf of a guest and never learns who stands behind it.
//!
//! # Rules for implementers
//! - Arguments come from a guest: they are bounded in size (by the hostcall limit of
//!   [`crate::limits::Limits`]) and otherwise hostile.
//! - Futures are polled on the threads that run guests: they must not block.
//! - Errors reach the guest as they are: no host paths, no addresses, no upstream bodies in them.
//! - A future may be dropped at any point (the guest was stopped); dropping cancels the call.

mod grading;
mod llm;

use async_trait::async_trait;
use fulgurite_trace::{CommandOutput, CommandRequest, Metadata};
use serde::{Deserialize, Serialize};

use crate::clock::EpisodeClock;

pub use grading::{
    Change, ChangeKind, EpisodeView, GradedTask, GraderBase, GraderError, GraderHost, ReadError,
    SandboxId, TurnsUnreadable,
};
pub use llm::{
    Chunk, ConversationConfig, ConversationHost, LlmError, LlmHost, ModelInfo, PendingReply, Reply,
    ReplyOptions, TokenReply,
};

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
