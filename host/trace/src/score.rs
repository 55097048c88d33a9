//! What a reward component said, as in `wit/scorer.wit`.

use serde::{Deserialize, Serialize};

use crate::Metadata;

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
