//! How long training goes on and how groups are gathered.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// When training ends: at whatever comes first.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Steps, counted from the beginning.
    pub steps: Option<u64>,
    /// Minutes of wall clock, over all processes of the training.
    pub minutes: Option<f64>,
    /// Sampled tokens, validation included.
    pub tokens: Option<u64>,
    /// Mean validation reward that is enough.
    pub reward: Option<f64>,
}

impl Budget {
    /// The wall clock that is allowed.
    pub fn wall(&self) -> Option<Duration> {
        self.minutes.and_then(|minutes| Duration::try_from_secs_f64(minutes * 60.0).ok())
    }

    /// What is wrong with it, if anything.
    pub fn problem(&self) -> Option<String> {
        if self.minutes.is_some_and(|minutes| !(minutes > 0.0 && minutes.is_finite())) {
            return Some("`budget.minutes` must be above 0".to_owned());
        }
        if self.reward.is_some_and(|reward| !reward.is_finite()) {
            return Some("`budget.reward` is no number".to_owned());
        }
        if self.steps.is_none() && self.minutes.is_none() && self.tokens.is_none() {
            return Some(
                "`budget` has no end\n  mend: set `steps`, `minutes` or `tokens` (`reward` alone may \
                 never be reached)"
                    .to_owned(),
            );
        }
        None
    }
}

/// How groups are gathered for a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gathering {
    /// Episodes of each group.
    pub episodes: u32,
    /// Groups that an update takes.
    pub groups: usize,
    /// Groups under way at once. More than `groups` makes training asynchronous: an update takes
    /// the first complete groups, the others go on across it.
    pub active: Option<usize>,
}

impl Default for Gathering {
    fn default() -> Self {
        Self { episodes: 8, groups: 8, active: None }
    }
}

/// More groups than can be under way.
const MOST_GROUPS: usize = 1_000_000;

impl Gathering {
    /// Whether groups go on across updates.
    pub fn is_asynchronous(&self) -> bool {
        self.under_way() > self.groups
    }

    /// Groups under way at once.
    pub fn under_way(&self) -> usize {
        self.active.unwrap_or(self.groups).max(self.groups)
    }

    /// What is wrong with it, if anything.
    pub fn problem(&self) -> Option<String> {
        if self.episodes == 0 || self.groups == 0 {
            return Some("`group.episodes` and `group.groups` must be at least 1".to_owned());
        }
        if self.under_way() > MOST_GROUPS {
            return Some(format!("`group.groups` and `group.active` can be {MOST_GROUPS} at most"));
        }
        match self.active {
            Some(active) if active < self.groups => Some(format!(
                "`group.active` is {active}, fewer than the {} groups that an update takes",
                self.groups
            )),
            _ => None,
        }
    }
}

/// What is imitated before anything is compared.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmStart {
    /// Steps.
    pub steps: u64,
    /// What is imitated.
    pub from: WarmSource,
    /// Of each group the best so many episodes (`best-of`).
    #[serde(default = "one")]
    pub keep: usize,
    /// Episodes with a lower total are not imitated (`best-of`).
    #[serde(default)]
    pub least: f64,
    /// The learning rate of these steps; none: that of the schedule.
    #[serde(default)]
    pub rate: Option<f64>,
}

const fn one() -> usize {
    1
}

/// Where imitated episodes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WarmSource {
    /// The reference replies of the tasks, said in the policy's place and in its tokens.
    References,
    /// The best of what the policy itself sampled.
    BestOf,
}

impl WarmStart {
    /// What is wrong with it, if anything.
    pub fn problem(&self) -> Option<String> {
        if self.keep == 0 {
            return Some("`warm_start.keep` must be at least 1".to_owned());
        }
        if self.rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
            return Some("`warm_start.rate` must be above 0".to_owned());
        }
        self.least.is_nan().then(|| "`warm_start.least` is no number".to_owned())
    }
}

/// How training is run.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RunSettings {
    /// When it ends.
    pub budget: Budget,
    /// How groups are gathered.
    pub group: Gathering,
    /// What its first steps imitate.
    pub warm_start: Option<WarmStart>,
    /// Steps between two validations; 0 validates at the start and at the end only.
    pub validate_every: u64,
    /// Steps between two checkpoints; 0 writes one at the start and at the end only.
    pub checkpoint_every: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_needs_an_end_that_will_come() {
        assert!(Budget::default().problem().is_some());
        assert!(Budget { reward: Some(1.0), ..Budget::default() }.problem().is_some());
        assert_eq!(Budget { steps: Some(1), ..Budget::default() }.problem(), None);
        assert!(Budget { minutes: Some(-1.0), ..Budget::default() }.problem().is_some());
    }

    #[test]
    fn more_groups_than_an_update_takes_are_asynchronous() {
        let gathering = |active| Gathering { groups: 4, active, ..Gathering::default() };
        assert!(!gathering(None).is_asynchronous());
        assert!(!gathering(Some(4)).is_asynchronous());
        assert!(gathering(Some(6)).is_asynchronous());
        assert!(gathering(Some(3)).problem().is_some());
    }
}
