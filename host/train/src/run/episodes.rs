//! Where groups of episodes come from.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::group::Group;

/// Some episodes of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupRequest {
    /// Position of the task in the task list.
    pub task: u32,
    /// The first episode, counted over all visits of the task.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// What episodes took and how they came out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Episodes brought to an end.
    pub episodes: u64,
    /// Those with a score.
    pub scored: u64,
    /// Those that passed.
    pub passed: u64,
    /// Sum of the totals of those with a score.
    pub reward: f64,
    /// Model calls.
    pub turns: u64,
    /// Tokens that the model read.
    pub prompt_tokens: u64,
    /// Tokens that the model wrote.
    pub sampled_tokens: u64,
    /// Endings by kind.
    pub kinds: BTreeMap<String, u64>,
}

impl Counts {
    /// Mean total of scored episodes.
    pub fn mean_reward(&self) -> Option<f64> {
        (self.scored > 0).then(|| self.reward / self.scored as f64)
    }

    /// Share of scored episodes that passed.
    pub fn pass_rate(&self) -> Option<f64> {
        (self.scored > 0).then(|| self.passed as f64 / self.scored as f64)
    }

    /// Adds other episodes.
    pub fn add(&mut self, other: &Self) {
        self.episodes += other.episodes;
        self.scored += other.scored;
        self.passed += other.passed;
        self.reward += other.reward;
        self.turns += other.turns;
        self.prompt_tokens += other.prompt_tokens;
        self.sampled_tokens += other.sampled_tokens;
        for (kind, count) in &other.kinds {
            *self.kinds.entry(kind.clone()).or_default() += count;
        }
    }
}

/// A group that was played to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Played {
    /// What was asked for.
    pub request: GroupRequest,
    /// What training takes of it.
    pub group: Group,
    /// What it took.
    pub counts: Counts,
}

/// Held-out tasks, played with the weights as they are.
#[derive(Debug, Clone, PartialEq)]
pub struct Validated {
    /// What they took and how they came out.
    pub counts: Counts,
    /// Where it is recorded, as `fulgurite compare` and `trace list` take it.
    pub run: String,
}

/// Episodes could not be played.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EpisodesError {
    /// Training was stopped.
    #[error("stopped")]
    Stopped,
    /// Anything else.
    #[error(transparent)]
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

/// Plays episodes with the policy that is trained, and records them.
#[async_trait]
pub trait Episodes: Send + Sync + 'static {
    /// Plays a group to its end. Episodes of it that are recorded already are not played again.
    async fn play(&self, request: GroupRequest) -> Result<Played, EpisodesError>;

    /// Plays the held-out tasks; none when there are none.
    async fn validate(&self, step: u64) -> Result<Option<Validated>, EpisodesError>;

    /// What a later process needs to find what was recorded.
    fn remember(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}
