//! Where groups of episodes come from.

use std::collections::BTreeMap;

use async_trait::async_trait;
use fulgurite_trace::EpisodeRef;
use serde::{Deserialize, Serialize};

use crate::{group::Group, schedule::as_f64};

/// A group that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupRequest {
    /// Its number, counted over the whole training.
    pub group: u32,
    /// Position of its task in the task list.
    pub task: u32,
    /// Episodes.
    pub size: u32,
}

impl GroupRequest {
    /// The first attempts of its episodes. Samples of a task are numbered by group, so that no
    /// two visits of a task share an episode.
    pub fn episodes(self) -> impl Iterator<Item = EpisodeRef> {
        let Self { group, task, size } = self;
        let first = group.saturating_mul(size);
        (0..size).map(move |index| EpisodeRef::first(task, first.saturating_add(index)))
    }
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
    /// Those that do not count because the infrastructure failed, attempt after attempt.
    pub dropped: u64,
    /// Those that do not count because a reward failed.
    pub alarms: u64,
    /// Endings by kind.
    pub kinds: BTreeMap<String, u64>,
}

impl Counts {
    /// Mean total of scored episodes.
    pub fn mean_reward(&self) -> Option<f64> {
        (self.scored > 0).then(|| self.reward / as_f64(self.scored))
    }

    /// Share of scored episodes that passed.
    pub fn pass_rate(&self) -> Option<f64> {
        (self.scored > 0).then(|| as_f64(self.passed) / as_f64(self.scored))
    }

    /// Adds other episodes.
    pub fn add(&mut self, other: &Self) {
        self.episodes = self.episodes.saturating_add(other.episodes);
        self.scored = self.scored.saturating_add(other.scored);
        self.passed = self.passed.saturating_add(other.passed);
        self.reward += other.reward;
        self.turns = self.turns.saturating_add(other.turns);
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.sampled_tokens = self.sampled_tokens.saturating_add(other.sampled_tokens);
        self.dropped = self.dropped.saturating_add(other.dropped);
        self.alarms = self.alarms.saturating_add(other.alarms);
        for (kind, count) in &other.kinds {
            let own = self.kinds.entry(kind.clone()).or_default();
            *own = own.saturating_add(*count);
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
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Validated {
    /// What they took and how they came out.
    pub counts: Counts,
    /// The run that they are recorded as.
    pub run: String,
}

/// Who speaks in a group's episodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The policy that is trained.
    Policy,
    /// The reference replies of the tasks.
    References,
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
    async fn play(&self, request: GroupRequest, speaker: Speaker) -> Result<Played, EpisodesError>;

    /// Plays the held-out tasks with what `step` steps made of the policy; none when there are
    /// no such tasks.
    async fn validate(&self, step: u64) -> Result<Option<Validated>, EpisodesError>;

    /// Training has ended: groups under way are not wanted any more, and [`Self::play`] may answer
    /// with [`EpisodesError::Stopped`].
    fn give_up(&self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_share_no_episode() {
        let samples = |group| {
            let request = GroupRequest { group, task: 3, size: 2 };
            request.episodes().map(|episode| episode.sample).collect::<Vec<_>>()
        };
        assert_eq!((samples(0), samples(1), samples(5)), (vec![0, 1], vec![2, 3], vec![10, 11]));
    }

    #[test]
    fn counts_add_up() {
        let one = Counts {
            episodes: 2,
            scored: 1,
            reward: 0.5,
            kinds: [("completed".to_owned(), 2)].into(),
            ..Counts::default()
        };
        let mut both = one.clone();
        both.add(&one);
        assert_eq!(both.mean_reward(), Some(0.5));
        assert_eq!(both.kinds["completed"], 4);
        assert_eq!(Counts::default().mean_reward(), None);
    }
}
