//! How an episode is named and how it can end.

use serde::{Deserialize, Serialize};

use crate::Metadata;

/// Where an episode stands within a run. A retry is the same episode with a higher attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EpisodeRef {
    /// Position of the task in the run's task list, from 0.
    pub task: u32,
    /// Position within the group of episodes of that task, from 0.
    pub sample: u32,
    /// 0 for the first try.
    pub attempt: u32,
}

impl EpisodeRef {
    /// The first attempt of an episode.
    pub const fn first(task: u32, sample: u32) -> Self {
        Self { task, sample, attempt: 0 }
    }

    /// The same episode, tried once more.
    pub const fn next_attempt(self) -> Self {
        Self { attempt: self.attempt.saturating_add(1), ..self }
    }
}

impl std::fmt::Display for EpisodeRef {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "task {}, sample {}, attempt {}", self.task, self.sample, self.attempt)
    }
}

/// How an episode ended. This enum and [`FailureKind::cause`] are the one table of which kind
/// is whose fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// The harness returned an outcome. Not a failure.
    Completed,
    /// The harness returned an error.
    HarnessError,
    /// The harness trapped (unreachable, bad memory access, stack overflow, panic).
    Trap,
    /// The harness used up its fuel.
    OutOfFuel,
    /// The harness was refused memory or tables and ended because of it.
    OutOfMemory,
    /// Tokens, turns or commands were used up and the harness ended because of it.
    Budget,
    /// History and reply no longer fit the model and the harness ended because of it.
    ContextLength,
    /// The episode's time limit passed.
    Timeout,
    /// The harness used something it was not given and ended because of it.
    Denied,
    /// The policy could not be reached or failed.
    PolicyError,
    /// The workspace or a lane failed.
    SandboxError,
    /// A reward component failed.
    RewardError,
    /// The run was stopped by its owner.
    Cancelled,
}

/// Who brought an ending about, which decides what happens to the episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The policy or its harness: sealed and graded like any other, with a floor.
    Policy,
    /// The host or an upstream: retried, then dropped and counted.
    Infrastructure,
    /// An alarm for the run's owner: kept, never silently dropped.
    Alarm,
    /// The run's owner: run again on resume.
    Owner,
}

impl FailureKind {
    /// Every kind, in the order of the documentation.
    pub const ALL: [Self; 13] = [
        Self::Completed,
        Self::HarnessError,
        Self::Trap,
        Self::OutOfFuel,
        Self::OutOfMemory,
        Self::Budget,
        Self::ContextLength,
        Self::Timeout,
        Self::Denied,
        Self::PolicyError,
        Self::SandboxError,
        Self::RewardError,
        Self::Cancelled,
    ];

    /// The name in traces, contracts and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::HarnessError => "harness-error",
            Self::Trap => "trap",
            Self::OutOfFuel => "out-of-fuel",
            Self::OutOfMemory => "out-of-memory",
            Self::Budget => "budget",
            Self::ContextLength => "context-length",
            Self::Timeout => "timeout",
            Self::Denied => "denied",
            Self::PolicyError => "policy-error",
            Self::SandboxError => "sandbox-error",
            Self::RewardError => "reward-error",
            Self::Cancelled => "cancelled",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whose doing the ending is, given whether the model had said anything before it. A harness
    /// that fails before the first reply is broken by itself: an alarm, since retrying cannot
    /// help. A time limit passed on the wall clock alone is the host's doing and is reported as
    /// [`Self::SandboxError`] by the rooms that can tell.
    pub const fn cause(self, after_model_output: bool) -> Cause {
        match self {
            Self::Completed
            | Self::OutOfFuel
            | Self::OutOfMemory
            | Self::Budget
            | Self::ContextLength
            | Self::Timeout
            | Self::Denied => Cause::Policy,
            Self::HarnessError | Self::Trap => {
                if after_model_output {
                    Cause::Policy
                } else {
                    Cause::Alarm
                }
            }
            Self::PolicyError | Self::SandboxError => Cause::Infrastructure,
            Self::RewardError => Cause::Alarm,
            Self::Cancelled => Cause::Owner,
        }
    }
}

impl std::fmt::Display for FailureKind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(self.name())
    }
}

/// Whether the agent holds the task to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutcomeStatus {
    /// It does.
    Submitted,
    /// It does not.
    GaveUp,
}

/// What a harness returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Whether the agent holds the task to be done.
    pub status: OutcomeStatus,
    /// The answer; may be empty where the workspace is the answer.
    pub answer: String,
    /// Room for growth.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metadata: Metadata,
}

/// How one attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// The kind; [`FailureKind::Completed`] exactly when `outcome` is present.
    pub kind: FailureKind,
    /// What the harness returned.
    pub outcome: Option<Outcome>,
    /// What went wrong, for people: hostile text, escape before showing.
    pub message: Option<String>,
    /// Function names of the guest, innermost first, after a trap.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backtrace: Vec<String>,
    /// Fuel the harness used.
    pub fuel_used: u64,
    /// Virtual milliseconds that passed for the harness.
    pub virtual_ms: u64,
}
