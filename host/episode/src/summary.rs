//! What came of a run, in numbers.

use std::{collections::BTreeMap, time::Duration};

use fulgurite_trace::{EpisodeRef, FailureKind};
use serde::Serialize;

/// How one episode came out, retries included.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EpisodeResult {
    /// The last attempt.
    pub episode: EpisodeRef,
    /// The task's id.
    pub task_id: String,
    /// How it ended.
    pub kind: FailureKind,
    /// Whether it counts.
    pub verdict: Verdict,
    /// Why it does not count, for people: hostile text, escape before showing.
    pub reason: Option<String>,
    /// Model calls of the last attempt.
    pub turns: u32,
    /// Tokens of the last attempt that the model read.
    pub prompt_tokens: u64,
    /// Tokens of the last attempt that the model wrote.
    pub completion_tokens: u64,
}

/// Whether an episode counts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It has a score.
    Scored {
        /// Weighted sum over the rewards, after the floor.
        total: f64,
        /// Whether the run's first reward gave at least 1.
        passed: bool,
    },
    /// No reward was asked for.
    Unscored,
    /// The infrastructure failed, also on retries.
    Dropped,
    /// Something needs its owner: a reward failed, or a harness that never reached the model.
    Alarm,
    /// The run was stopped.
    Cancelled,
}

/// An estimate with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Counts and means of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Episodes that came to an end of any kind.
    pub episodes: u64,
    /// Those with a score.
    pub scored: u64,
    /// Mean total of those.
    pub mean_reward: Option<f64>,
    /// Share of scored episodes that passed.
    pub pass_at_1: Option<Estimate>,
    /// Episodes by how they ended.
    pub kinds: BTreeMap<&'static str, u64>,
    /// Dropped for failing infrastructure.
    pub dropped: u64,
    /// Alarms for the run's owner.
    pub alarms: u64,
    /// Stopped with the run.
    pub cancelled: u64,
    /// Model calls.
    pub turns: u64,
    /// Tokens the model read.
    pub prompt_tokens: u64,
    /// Tokens the model wrote.
    pub completion_tokens: u64,
    /// Wall clock of the run in seconds.
    pub wall_s: f64,
    /// CPU time of the process in seconds.
    pub cpu_s: f64,
}

/// Passed and scored episodes of one task.
#[derive(Debug, Clone, Copy, Default)]
struct Group {
    scored: u32,
    passed: u32,
}

/// Adds up results as they come; keeps a few bytes a task, whatever the number of turns.
#[derive(Debug, Default)]
pub struct Tally {
    groups: BTreeMap<u32, Group>,
    kinds: BTreeMap<&'static str, u64>,
    total: f64,
    scored: u64,
    dropped: u64,
    alarms: u64,
    cancelled: u64,
    turns: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
}

impl Tally {
    /// Counts one episode.
    pub fn add(&mut self, result: &EpisodeResult) {
        *self.kinds.entry(result.kind.name()).or_default() += 1;
        self.turns += u64::from(result.turns);
        self.prompt_tokens += result.prompt_tokens;
        self.completion_tokens += result.completion_tokens;
        match result.verdict {
            Verdict::Scored { total, passed } => {
                self.total += total;
                self.scored += 1;
                let group = self.groups.entry(result.episode.task).or_default();
                group.scored += 1;
                group.passed += u32::from(passed);
            }
            Verdict::Unscored => {}
            Verdict::Dropped => self.dropped += 1,
            Verdict::Alarm => self.alarms += 1,
            Verdict::Cancelled => self.cancelled += 1,
        }
    }

    /// Episodes counted so far.
    pub fn episodes(&self) -> u64 {
        self.kinds.values().sum()
    }

    /// Mean total so far.
    pub fn mean_reward(&self) -> Option<f64> {
        (self.scored > 0).then(|| self.total / self.scored as f64)
    }

    /// The numbers.
    pub fn summary(&self, wall: Duration, cpu: Duration) -> Summary {
        Summary {
            episodes: self.episodes(),
            scored: self.scored,
            mean_reward: self.mean_reward(),
            pass_at_1: pass_at_1(self.groups.values()),
            kinds: self.kinds.clone(),
            dropped: self.dropped,
            alarms: self.alarms,
            cancelled: self.cancelled,
            turns: self.turns,
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.completion_tokens,
            wall_s: wall.as_secs_f64(),
            cpu_s: cpu.as_secs_f64(),
        }
    }
}

/// 97.5 % point of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// Mean over tasks of their share of passed episodes. The interval is Wilson's (1927) where each
/// task has one episode; with more, episodes of a task are not independent, and it is the normal
/// interval over tasks, or Wilson's again where no task differs from another.
fn pass_at_1<'a>(groups: impl Iterator<Item = &'a Group> + Clone) -> Option<Estimate> {
    let tasks = groups.clone().count() as f64;
    if tasks == 0.0 {
        return None;
    }
    let shares = groups.clone().map(|group| f64::from(group.passed) / f64::from(group.scored));
    let value = shares.clone().sum::<f64>() / tasks;
    let shares_differ = shares.clone().any(|share| (share - value).abs() > f64::EPSILON);
    let half_and_centre = if !shares_differ || groups.clone().all(|group| group.scored == 1) {
        let spread = 1.0 + Z * Z / tasks;
        let centre = (value + Z * Z / (2.0 * tasks)) / spread;
        let root = (value * (1.0 - value) / tasks + Z * Z / (4.0 * tasks * tasks)).sqrt();
        (Z * root / spread, centre)
    } else {
        let variance =
            shares.map(|share| (share - value).powi(2)).sum::<f64>() / (tasks - 1.0).max(1.0);
        (Z * (variance / tasks).sqrt(), value)
    };
    let (half, centre) = half_and_centre;
    Some(Estimate { value, low: (centre - half).max(0.0), high: (centre + half).min(1.0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(task: u32, sample: u32, total: f64) -> EpisodeResult {
        EpisodeResult {
            episode: EpisodeRef { task, sample, attempt: 0 },
            task_id: task.to_string(),
            kind: FailureKind::Completed,
            verdict: Verdict::Scored { total, passed: total >= 1.0 },
            reason: None,
            turns: 1,
            prompt_tokens: 10,
            completion_tokens: 5,
        }
    }

    #[test]
    fn wilson_interval_matches_the_published_example() {
        // Newcombe (1998), table I: 15 of 148, Wilson without correction: 0.0624 to 0.1605.
        let groups: Vec<_> =
            (0..148).map(|task| Group { scored: 1, passed: u32::from(task < 15) }).collect();
        let estimate = pass_at_1(groups.iter()).unwrap();
        assert!((estimate.low - 0.0624).abs() < 5e-5, "{estimate:?}");
        assert!((estimate.high - 0.1605).abs() < 5e-5, "{estimate:?}");
    }

    #[test]
    fn means_are_over_scored_episodes_only() {
        let mut tally = Tally::default();
        tally.add(&result(0, 0, 1.0));
        tally.add(&result(1, 0, 0.0));
        tally.add(&EpisodeResult { verdict: Verdict::Dropped, ..result(2, 0, 0.0) });
        let summary = tally.summary(Duration::ZERO, Duration::ZERO);
        assert_eq!((summary.episodes, summary.scored, summary.dropped), (3, 2, 1));
        assert_eq!(summary.mean_reward, Some(0.5));
        assert_eq!(summary.pass_at_1.unwrap().value, 0.5);
    }

    #[test]
    fn episodes_of_one_task_are_one_group() {
        let mut tally = Tally::default();
        for (task, sample, total) in [(0, 0, 1.0), (0, 1, 0.0), (1, 0, 1.0), (1, 1, 1.0)] {
            tally.add(&result(task, sample, total));
        }
        let estimate = tally.summary(Duration::ZERO, Duration::ZERO).pass_at_1.unwrap();
        assert_eq!(estimate.value, 0.75);
        assert!(estimate.low > 0.25 && estimate.high == 1.0, "{estimate:?}");
    }

    #[test]
    fn nothing_scored_gives_no_estimate() {
        assert_eq!(Tally::default().summary(Duration::ZERO, Duration::ZERO).pass_at_1, None);
    }
}
