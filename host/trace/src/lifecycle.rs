//! The life of an episode's attempt: the one table of what may follow what.
//!
//! ```text
//! queued ──start──▶ running ──end──▶ ended ──score──▶ scored
//!    │                 │               │
//!    └───cancel───┐    ├──fail─────────┴──▶ failed
//!                 ▼    ├──drop─────────┴──▶ dropped
//!             cancelled◀──cancel───────┘
//! ```
//!
//! `scored`, `failed`, `dropped` and `cancelled` are final. Repeating `fail`, `drop` or `cancel`
//! changes nothing, and `cancel` leaves whatever is final as it is, so that stopping a run may
//! cancel everything without asking first. Everything else that is not drawn is an error.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Where an attempt stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It waits for its turn.
    Queued,
    /// Its harness runs, or ran when the host died.
    Running,
    /// Its harness ended and its workspace is sealed; it waits for its scores.
    Ended,
    /// It has its scores. Final.
    Scored,
    /// This attempt is no result: it was retried (a higher attempt exists), or it is an alarm for
    /// the run's owner. Final.
    Failed,
    /// All retries were used up; it is counted, but has no score. Final.
    Dropped,
    /// The run's owner stopped it, or it was interrupted; it runs again on resume. Final.
    Cancelled,
}

/// What happens to an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// A worker takes it.
    Start,
    /// The harness ended.
    End,
    /// The rewards answered.
    Score,
    /// It is no result: retried or an alarm.
    Fail,
    /// Retries are used up.
    Drop,
    /// The run is being stopped, or was interrupted.
    Cancel,
}

/// The step is not allowed where the attempt stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`{step}` is not possible: the attempt is {from}")]
pub struct IllegalStep {
    /// Where the attempt stands.
    pub from: State,
    /// What was asked.
    pub step: Step,
}

impl State {
    /// Every state, in the order of the documentation.
    pub const ALL: [Self; 7] = [
        Self::Queued,
        Self::Running,
        Self::Ended,
        Self::Scored,
        Self::Failed,
        Self::Dropped,
        Self::Cancelled,
    ];

    /// The transition table. Answers the state afterwards, which is the same one when the step
    /// repeats what happened already.
    pub const fn after(self, step: Step) -> Result<Self, IllegalStep> {
        match (self, step) {
            (Self::Queued, Step::Start) => Ok(Self::Running),
            (Self::Running, Step::End) => Ok(Self::Ended),
            (Self::Ended, Step::Score) => Ok(Self::Scored),
            (Self::Running | Self::Ended | Self::Failed, Step::Fail) => Ok(Self::Failed),
            (Self::Running | Self::Ended | Self::Dropped, Step::Drop) => Ok(Self::Dropped),
            (Self::Queued | Self::Running | Self::Ended | Self::Cancelled, Step::Cancel) => {
                Ok(Self::Cancelled)
            }
            (Self::Scored | Self::Failed | Self::Dropped, Step::Cancel) => Ok(self),
            _ => Err(IllegalStep { from: self, step }),
        }
    }

    /// Whether nothing can follow.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Scored | Self::Failed | Self::Dropped | Self::Cancelled)
    }

    /// Whether the harness may still write to the journal.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Running)
    }

    /// The name in stores and exports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Ended => "ended",
            Self::Scored => "scored",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
            Self::Cancelled => "cancelled",
        }
    }
}

impl Step {
    /// Every step.
    pub const ALL: [Self; 6] =
        [Self::Start, Self::End, Self::Score, Self::Fail, Self::Drop, Self::Cancel];

    /// The name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::End => "end",
            Self::Score => "score",
            Self::Fail => "fail",
            Self::Drop => "drop",
            Self::Cancel => "cancel",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// The text names no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no state of an episode")]
pub struct ParseStateError(String);

impl FromStr for State {
    type Err = ParseStateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|state| state.name() == text)
            .ok_or_else(|| ParseStateError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_table_is_exactly_the_documented_one() {
        use State::{Cancelled, Dropped, Ended, Failed, Queued, Running, Scored};
        let allowed = [
            (Queued, Step::Start, Running),
            (Queued, Step::Cancel, Cancelled),
            (Running, Step::End, Ended),
            (Running, Step::Fail, Failed),
            (Running, Step::Drop, Dropped),
            (Running, Step::Cancel, Cancelled),
            (Ended, Step::Score, Scored),
            (Ended, Step::Fail, Failed),
            (Ended, Step::Drop, Dropped),
            (Ended, Step::Cancel, Cancelled),
            (Scored, Step::Cancel, Scored),
            (Failed, Step::Fail, Failed),
            (Failed, Step::Cancel, Failed),
            (Dropped, Step::Drop, Dropped),
            (Dropped, Step::Cancel, Dropped),
            (Cancelled, Step::Cancel, Cancelled),
        ];
        for from in State::ALL {
            for step in Step::ALL {
                let expected = allowed
                    .iter()
                    .find(|(state, allowed, _)| (*state, *allowed) == (from, step))
                    .map(|(_, _, to)| *to);
                assert_eq!(from.after(step).ok(), expected, "{from} {step}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_final_state_is_never_left(steps in proptest::collection::vec(0..6_usize, 0..40)) {
            let mut state = State::Queued;
            let mut finished = None;
            let mut starts = 0;
            for index in steps {
                let step = Step::ALL[index];
                match state.after(step) {
                    Ok(next) => {
                        starts += usize::from(step == Step::Start);
                        state = next;
                    }
                    Err(illegal) => prop_assert_eq!(illegal, IllegalStep { from: state, step }),
                }
                if let Some(finished) = finished {
                    prop_assert_eq!(state, finished);
                }
                if state.is_final() {
                    finished = Some(state);
                }
            }
            prop_assert!(starts <= 1, "an attempt is started once");
        }

        #[test]
        fn names_are_read_back(index in 0..7_usize) {
            let state = State::ALL[index];
            prop_assert_eq!(state.to_string().parse::<State>(), Ok(state));
        }
    }
}
