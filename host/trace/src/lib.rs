//! What is recorded: the types that rooms hand to each other, state transitions, and the
//! durable store.
//!
//! Every other room may use this one; it uses none of them. The shared words of the project
//! (messages, commands, failure kinds, turns, scores) live here as plain data. Only [`store`]
//! names SQLite.

pub mod canonical;
pub mod command;
pub mod digest;
pub mod entry;
pub mod episode;
pub mod escape;
#[cfg(test)]
mod example;
pub mod file;
pub mod lifecycle;
pub mod message;
pub mod run;
pub mod samples;
pub mod score;
pub mod store;
pub mod task;
pub mod transcript;
pub mod writer;

pub use command::{Captured, CommandLine, CommandOutput, CommandRequest, CommandStop};
pub use digest::Digest;
pub use entry::{Entry, EntryBody, SampledTokens, Truncation, Turn, VersionSpan};
pub use episode::{Ending, EpisodeRef, FailureKind, Outcome, OutcomeStatus};
pub use lifecycle::State;
pub use message::{FinishReason, Message, Part, Role, ToolCall, ToolDefinition, ToolResult, Usage};
pub use run::{EpisodeSummary, QueuedEpisode, ResumePlan, Run, RunRecord, RunStatus, Timestamp};
pub use samples::{EpisodeSamples, Sample, SampleSettings, Stretch};
pub use score::{Graded, Grading, Score, ScoreComponent, TurnValue, passed};
pub use store::{SealedEnding, Store, StoreError, StoreOptions};
pub use task::{ReferenceReply, Task, Workspace};
pub use writer::{EpisodeWriter, JournalCounts, JournalLimits};

/// Ordered name/value pairs with unique names, as in the plugin contract.
pub type Metadata = Vec<(String, String)>;
