//! What a reward component said, as in `wit/scorer.wit`.

use serde::{Deserialize, Serialize};

use crate::{EpisodeRef, FailureKind, Metadata, Timestamp};

/// A named part of a score.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScoreComponent {
    /// Its name.
    pub name: String,
    /// Its value, finite.
    pub value: f64,
}

/// The value of one turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnValue {
    /// The turn's index within the episode.
    pub turn: u32,
    /// Its value, finite.
    pub value: f64,
}

/// Whether a graded episode passed: its harness completed, and its first reward reached 1.
pub fn passed(kind: Option<FailureKind>, scores: &[Score]) -> bool {
    kind == Some(FailureKind::Completed) && scores.first().is_some_and(|score| score.total >= 1.0)
}

/// What one reward component said of one episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The reward's name in the run.
    pub reward: String,
    /// Its weight in the episode's total.
    pub weight: f64,
    /// Finite.
    pub total: f64,
    /// Named parts.
    pub components: Vec<ScoreComponent>,
    /// Values of single turns.
    pub turns: Vec<TurnValue>,
    /// Room for notes: hostile text, escape before showing.
    pub notes: Metadata,
}

/// What a recorded episode was given later, by the rewards of a [`Grading`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Graded {
    /// The attempt.
    pub episode: EpisodeRef,
    /// The weighted sum, after the floor; none when it could not be graded.
    pub total: Option<f64>,
    /// Why it could not, for people: hostile text, escape before showing.
    pub reason: Option<String>,
    /// What each reward said, in order.
    pub scores: Vec<Score>,
}

/// Rewards that graded a recorded run again, beside its own scores.
#[derive(Debug, Clone, PartialEq)]
pub struct Grading {
    /// Number within the run, from 1.
    pub position: u32,
    /// When it began.
    pub graded_at: Timestamp,
    /// Its rewards, pinned, with weights and configurations.
    pub plan: serde_json::Value,
    /// Episodes that have a total.
    pub graded: u64,
    /// Mean of those.
    pub mean: Option<f64>,
}
