//! What training takes, and the metrics of the loop.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Counts;
use crate::{metrics::Metrics, schedule::as_f64};

/// What training took so far, over all its processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spent {
    /// Wall clock in milliseconds.
    pub wall_ms: u64,
    /// CPU time in milliseconds.
    pub cpu_ms: u64,
    /// Episodes, validation included.
    pub episodes: u64,
    /// Model calls.
    pub turns: u64,
    /// Tokens that the model wrote.
    pub sampled_tokens: u64,
    /// Tokens that were trained, counted once.
    pub trained_tokens: u64,
    /// Episodes that do not count because the infrastructure failed.
    pub dropped: u64,
    /// Episodes that do not count because a reward failed.
    pub alarms: u64,
}

impl Spent {
    /// Wall clock.
    pub const fn wall(&self) -> Duration {
        Duration::from_millis(self.wall_ms)
    }

    /// CPU time.
    pub const fn cpu(&self) -> Duration {
        Duration::from_millis(self.cpu_ms)
    }

    pub(super) fn add(&mut self, counts: &Counts) {
        self.episodes = self.episodes.saturating_add(counts.episodes);
        self.turns = self.turns.saturating_add(counts.turns);
        self.sampled_tokens = self.sampled_tokens.saturating_add(counts.sampled_tokens);
        self.dropped = self.dropped.saturating_add(counts.dropped);
        self.alarms = self.alarms.saturating_add(counts.alarms);
    }
}

/// Adds the time of this process to that of those before it.
pub(super) struct Clock {
    began: Instant,
    before: Spent,
    cpu: fn() -> Duration,
    cpu_before: Duration,
}

impl Clock {
    pub(super) fn start(before: Spent, cpu: fn() -> Duration) -> Self {
        Self { began: Instant::now(), before, cpu, cpu_before: cpu() }
    }

    pub(super) fn read(&self, spent: &mut Spent) {
        let cpu = (self.cpu)().saturating_sub(self.cpu_before);
        spent.wall_ms = self.before.wall_ms.saturating_add(milliseconds(self.began.elapsed()));
        spent.cpu_ms = self.before.cpu_ms.saturating_add(milliseconds(cpu));
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Where the time of a step went.
pub(super) struct Took {
    /// Waiting for episodes.
    pub(super) waiting: Duration,
    /// Training.
    pub(super) training: Duration,
}

/// The numbers of a step, with those of its episodes.
pub(super) fn of_step(mut metrics: Metrics, counts: &Counts, took: &Took, trained: u64) -> Metrics {
    let Took { waiting, training } = took;
    put(&mut metrics, "train/reward", counts.mean_reward());
    put(&mut metrics, "train/pass", counts.pass_rate());
    put(&mut metrics, "time/episodes-s", Some(waiting.as_secs_f64()));
    put(&mut metrics, "time/training-s", Some(training.as_secs_f64()));
    put(&mut metrics, "episodes/played", Some(as_f64(counts.episodes)));
    put(&mut metrics, "episodes/turns", Some(as_f64(counts.turns)));
    put(&mut metrics, "tokens/read", Some(as_f64(counts.prompt_tokens)));
    put(&mut metrics, "tokens/sampled", Some(as_f64(counts.sampled_tokens)));
    let whole = waiting.saturating_add(*training);
    put(&mut metrics, "speed/episodes-per-s", per_second(counts.episodes, whole));
    put(&mut metrics, "speed/sampled-per-s", per_second(counts.sampled_tokens, *waiting));
    put(&mut metrics, "speed/trained-per-s", per_second(trained, *training));
    for (kind, count) in &counts.kinds {
        put(&mut metrics, &format!("ended/{kind}"), Some(as_f64(*count)));
    }
    metrics
}

/// The numbers of a validation.
pub(super) fn of_validation(counts: &Counts) -> Metrics {
    let mut metrics = Metrics::new();
    put(&mut metrics, "validation/reward", counts.mean_reward());
    put(&mut metrics, "validation/pass", counts.pass_rate());
    put(&mut metrics, "validation/episodes", Some(as_f64(counts.episodes)));
    for (kind, count) in &counts.kinds {
        put(&mut metrics, &format!("validation/ended/{kind}"), Some(as_f64(*count)));
    }
    metrics
}

fn put(metrics: &mut Metrics, name: &str, value: Option<f64>) {
    if let Some(value) = value {
        metrics.insert(name.to_owned(), value);
    }
}

fn per_second(count: u64, time: Duration) -> Option<f64> {
    (!time.is_zero()).then(|| as_f64(count) / time.as_secs_f64())
}
