//! How long training goes on and how groups are gathered.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// When training ends: at whatever comes first.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// Steps.
    pub steps: Option<u64>,
    /// Minutes of this process.
    pub minutes: Option<f64>,
    /// Sampled tokens.
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
        if self.reward.is_some_and(f64::is_nan) {
            return Some("`budget.reward` is no number".to_owned());
        }
        if self.steps.is_none() && self.minutes.is_none() && self.tokens.is_none() {
            return Some(
                "`budget` has no end; set `steps`, `minutes` or `tokens` (`reward` alone may never \
                 be reached)"
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

impl Gathering {
    /// Groups under way at once, where that is more than an update takes.
    pub fn asynchronous(&self) -> Option<usize> {
        self.active.filter(|active| *active > self.groups)
    }

    /// What is wrong with it, if anything.
    pub fn problem(&self) -> Option<String> {
        if self.episodes == 0 || self.groups == 0 {
            return Some("`group.episodes` and `group.groups` must be at least 1".to_owned());
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

/// How training is run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunSettings {
    /// When it ends.
    pub budget: Budget,
    /// How groups are gathered.
    pub group: Gathering,
    /// Steps between two validations; 0 validates at the start and at the end only.
    pub validate_every: u64,
    /// Steps between two checkpoints; 0 writes one at the end only.
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
        assert_eq!(gathering(None).asynchronous(), None);
        assert_eq!(gathering(Some(4)).asynchronous(), None);
        assert_eq!(gathering(Some(6)).asynchronous(), Some(6));
        assert!(gathering(Some(3)).problem().is_some());
    }
}
