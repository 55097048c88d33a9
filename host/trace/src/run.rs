//! What is recorded of a run.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use crate::{Digest, EpisodeRef, FailureKind, State};

/// A moment of the wall clock: milliseconds since 1970 in UTC. Shown as `2026-11-30T15:17:00Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The host's clock.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// Year, month, day, hour, minute, second in UTC.
    fn civil(self) -> (u64, u64, u64, u64, u64, u64) {
        let seconds = self.0 / 1000;
        let of_day = seconds % 86_400;
        // Days since 0000-03-01: with the leap day last in the year, months have a fixed rhythm.
        let days = seconds / 86_400 + 719_468;
        let era = days / 146_097;
        let of_era = days % 146_097;
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * of_year + 2) / 153;
        let day = of_year - (153 * shifted + 2) / 5 + 1;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        (year, month, day, of_day / 3600, of_day / 60 % 60, of_day % 60)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day, hour, minute, second) = self.civil();
        write!(formatter, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// What a run is, fixed when it begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Readable, sortable by time, unique: `20261130-151700-3f9a`.
    pub id: String,
    /// When it began.
    pub started_at: Timestamp,
    /// The whole resolved configuration: what `--resume` needs and `trace show` shows.
    pub plan: serde_json::Value,
    /// The part of the plan that results depend on: digests of harness, rewards, tools, tasks
    /// and policy, limits, seeds. It is part of the canonical form, so nothing that may differ
    /// between equal runs (concurrency, paths, times) belongs here.
    pub pinned: serde_json::Value,
    /// Commit that the host was built from.
    pub commit: Option<String>,
    /// The machine, for people.
    pub machine: Option<String>,
    /// Digest of the task list.
    pub tasks: Option<Digest>,
}

impl RunRecord {
    /// A record that begins now, under a new id.
    pub fn new(plan: serde_json::Value, pinned: serde_json::Value) -> Self {
        let started_at = Timestamp::now();
        Self {
            id: new_id(started_at),
            started_at,
            plan,
            pinned,
            commit: None,
            machine: None,
            tasks: None,
        }
    }
}

/// An id for a run that begins at `moment`. Two of the same second differ in their last four
/// digits with overwhelming likelihood; the store refuses to create a second run of one id.
fn new_id(moment: Timestamp) -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let (year, month, day, hour, minute, second) = moment.civil();
    let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let seed = format!("{nanoseconds} {} {count}", std::process::id());
    let suffix: String = Digest::of(seed).hex().chars().take(4).collect();
    format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}-{suffix}")
}

/// Whether a run is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunStatus {
    /// A process is at it.
    Running,
    /// Every episode was brought to an end.
    Finished,
    /// It was stopped or its process died; `--resume` does what is missing.
    Interrupted,
}

impl RunStatus {
    /// The name in stores and exports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Interrupted => "interrupted",
        }
    }

    /// The status of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Running, Self::Finished, Self::Interrupted]
            .into_iter()
            .find(|status| status.name() == name)
    }
}

impl fmt::Display for RunStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// A run as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// What it is.
    pub record: RunRecord,
    /// Whether it is complete.
    pub status: RunStatus,
    /// When it was last finished or interrupted.
    pub finished_at: Option<Timestamp>,
}

/// An episode that is to be run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueuedEpisode {
    /// Where it stands within the run.
    pub episode: EpisodeRef,
    /// Id of its task.
    pub task_id: String,
}

/// One attempt of an episode, in short.
#[derive(Debug, Clone, PartialEq)]
pub struct EpisodeSummary {
    /// Where it stands within the run.
    pub episode: EpisodeRef,
    /// Id of its task.
    pub task_id: String,
    /// Where it stands in its life.
    pub state: State,
    /// How its harness ended.
    pub kind: Option<FailureKind>,
    /// Its total score.
    pub total: Option<f64>,
    /// Why it failed or was dropped, for people: hostile text, escape before showing.
    pub reason: Option<String>,
    /// Model calls that were answered.
    pub turns: u64,
    /// Tokens that the model read.
    pub prompt_tokens: u64,
    /// Tokens that the model wrote.
    pub completion_tokens: u64,
    /// Wall-clock milliseconds between its start and its end.
    pub wall_ms: Option<u64>,
}

/// What a run still needs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ResumePlan {
    /// Episodes with a final record, by their last attempt: scored, failed or dropped.
    pub recorded: Vec<EpisodeSummary>,
    /// Episodes without one, with the attempt number to run them under.
    pub missing: Vec<QueuedEpisode>,
}

impl ResumePlan {
    /// Splits the attempts of a run (sorted by task, sample, attempt). An attempt that waits is
    /// missing as it is; one that was running, waiting for scores or cancelled is missing under
    /// the next attempt number, because what its harness did is not known to the end.
    pub(crate) fn of(attempts: Vec<EpisodeSummary>) -> Self {
        let mut plan = Self::default();
        let mut attempts = attempts.into_iter().peekable();
        while let Some(attempt) = attempts.next() {
            let EpisodeRef { task, sample, .. } = attempt.episode;
            let superseded = attempts
                .peek()
                .is_some_and(|next| (next.episode.task, next.episode.sample) == (task, sample));
            if superseded {
                continue;
            }
            match attempt.state {
                State::Scored | State::Failed | State::Dropped => plan.recorded.push(attempt),
                State::Queued => plan
                    .missing
                    .push(QueuedEpisode { episode: attempt.episode, task_id: attempt.task_id }),
                State::Running | State::Ended | State::Cancelled => {
                    plan.missing.push(QueuedEpisode {
                        episode: attempt.episode.next_attempt(),
                        task_id: attempt.task_id,
                    });
                }
            }
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_shown_in_utc() {
        for (milliseconds, shown) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_000, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (951_868_800_000, "2000-03-01T00:00:00Z"),
            (1_796_051_820_999, "2026-11-30T15:17:00Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(Timestamp(milliseconds).to_string(), shown);
        }
    }

    #[test]
    fn ids_are_readable_sortable_and_distinct() {
        let id = new_id(Timestamp(1_796_051_820_999));
        assert!(id.starts_with("20261130-151700-"), "{id}");
        assert_eq!(id.len(), 20);
        assert!(id < new_id(Timestamp(1_796_051_821_000)));
        let plan = || serde_json::Value::Null;
        assert_ne!(RunRecord::new(plan(), plan()).id, RunRecord::new(plan(), plan()).id);
    }
}
