//! The learning rate over the steps.

use serde::{Deserialize, Serialize};

/// How the rate goes down after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decay {
    /// It does not.
    #[default]
    Constant,
    /// Along a straight line.
    Linear,
    /// Along half a cosine.
    Cosine,
}

/// A schedule.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// The rate after the warm-up; above 0.
    pub rate: f64,
    /// Steps over which the rate rises in equal parts: the first is `rate / warm_up`, and the
    /// last of them is `rate`.
    #[serde(default)]
    pub warm_up: u64,
    /// How it goes down.
    #[serde(default)]
    pub decay: Decay,
    /// The step at which it has gone down; it stays there.
    #[serde(default)]
    pub steps: u64,
    /// What share of the rate is left then, in [0, 1].
    #[serde(default)]
    pub floor: f64,
}

impl Schedule {
    /// The same rate at every step.
    pub const fn constant(rate: f64) -> Self {
        Self { rate, warm_up: 0, decay: Decay::Constant, steps: 0, floor: 0.0 }
    }

    /// The rate of a step, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        if step < self.warm_up {
            return self.rate * as_f64(step.saturating_add(1)) / as_f64(self.warm_up);
        }
        let length = self.steps.saturating_sub(self.warm_up);
        let gone = step.saturating_sub(self.warm_up).min(length);
        let done = if length == 0 { 1.0 } else { as_f64(gone) / as_f64(length) };
        let left = match self.decay {
            Decay::Constant => 1.0,
            Decay::Linear => 1.0 - done,
            Decay::Cosine => f64::midpoint(1.0, (std::f64::consts::PI * done).cos()),
        };
        self.rate * (self.floor + (1.0 - self.floor) * left)
    }
}

/// Steps and counts are far below 2⁵³.
#[allow(clippy::cast_precision_loss)]
pub(crate) const fn as_f64(step: u64) -> f64 {
    step as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(decay: Decay) -> Vec<f64> {
        let schedule = Schedule { rate: 2.0, warm_up: 2, decay, steps: 6, floor: 0.5 };
        (0..8).map(|step| (schedule.at(step) * 1e6).round() / 1e6).collect()
    }

    #[test]
    fn rates_rise_and_go_down_as_written() {
        assert_eq!(rates(Decay::Constant), [1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]);
        assert_eq!(rates(Decay::Linear), [1.0, 2.0, 2.0, 1.75, 1.5, 1.25, 1.0, 1.0]);
        let cosine = [1.0, 2.0, 2.0, 1.853_553, 1.5, 1.146_447, 1.0, 1.0];
        assert_eq!(rates(Decay::Cosine), cosine);
        assert_eq!(Schedule::constant(0.1).at(99), 0.1);
    }

    #[test]
    fn a_decay_without_steps_is_at_its_end() {
        let schedule = Schedule { decay: Decay::Linear, floor: 0.25, ..Schedule::constant(1.0) };
        assert_eq!(schedule.at(0), 0.25);
    }
}
