//! What is handed to the writer thread.

use std::sync::{Arc, OnceLock};

use tokio::sync::oneshot;

use super::{codec::EncodedEntry, contents::EncodedContent, error::StoreError};
use crate::{
    Digest, EpisodeRef, FailureKind, QueuedEpisode, ResumePlan, RunRecord, RunStatus, Score,
    score::Graded, writer::JournalCounts,
};

/// One request, with whoever waits for it to be durable.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) work: Work,
    pub(crate) waiter: Option<oneshot::Sender<Result<Answer, StoreError>>>,
}

/// What a request answers.
#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    Resume(ResumePlan),
    Grading(u32),
}

/// The requests.
#[derive(Debug)]
pub(crate) enum Work {
    CreateRun(Box<RunRecord>),
    FinishRun { run: String, status: RunStatus },
    ResumeRun { run: String },
    Queue { run: String, episodes: Vec<QueuedEpisode> },
    Start(Arc<Target>),
    Keep(Vec<EncodedContent>),
    BeginGrading { run: String, plan: String },
    Grade { run: String, position: u32, graded: Box<Graded> },
    Journal { target: Arc<Target>, entries: Vec<EncodedEntry>, change: Option<Change> },
}

/// The attempt that a writer writes to. The start of an attempt is not waited for: its row is
/// found, or refused, when the start is applied, and every later request of it sees the result.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) run: String,
    pub(crate) episode: EpisodeRef,
    pub(crate) row: OnceLock<Result<i64, StoreError>>,
}

/// A step of the attempt's life, with what is recorded along with it.
#[derive(Debug)]
pub(crate) enum Change {
    End {
        kind: FailureKind,
        /// JSON.
        ending: String,
        tree: Option<Digest>,
        changes: Vec<u8>,
        counts: JournalCounts,
    },
    Score {
        scores: Vec<Score>,
        total: f64,
    },
    Fail {
        reason: String,
        /// Whether the next attempt is queued in the same breath.
        retry: bool,
        counts: JournalCounts,
    },
    Drop {
        reason: String,
        counts: JournalCounts,
    },
    Cancel {
        counts: JournalCounts,
    },
}

impl Work {
    /// Bytes it holds, about.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Journal { entries, change, .. } => {
                let change = match change {
                    Some(Change::End { ending, changes, .. }) => ending.len() + changes.len(),
                    Some(_) => 256,
                    None => 0,
                };
                entries.iter().map(EncodedEntry::size).sum::<usize>() + change
            }
            Self::Queue { episodes, .. } => 64 * episodes.len(),
            Self::Keep(contents) => contents.iter().map(EncodedContent::len).sum(),
            Self::BeginGrading { plan, .. } => plan.len(),
            Self::Grade { graded, .. } => 256 * graded.scores.len() + 64,
            Self::CreateRun(_)
            | Self::FinishRun { .. }
            | Self::ResumeRun { .. }
            | Self::Start(_) => 256,
        }
    }
}
