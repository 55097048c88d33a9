//! What a training step is told.

use serde::{Deserialize, Serialize};

use crate::{
    advantage::{Credit, Estimator},
    aggregate::Aggregation,
    group::GroupSettings,
    kl::{KlPenalty, KlPlace},
    loss::{Objective, PolicyLoss},
    optimizer::AdamWSettings,
    over_long::OverLong,
    schedule::Schedule,
};

/// Where log-probabilities before the step come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OldLogProbabilities {
    /// Those recorded when the tokens were sampled, where that was the current version without
    /// top-k, top-p or min-p; else the training kernels compute them.
    #[default]
    WhereRecorded,
    /// The training kernels compute all of them.
    Recompute,
}

/// What a training step is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainSettings {
    /// Which groups take part.
    #[serde(default)]
    pub groups: GroupSettings,
    /// What returns are made from.
    #[serde(default)]
    pub credit: Credit,
    /// How returns are compared.
    #[serde(default)]
    pub estimator: Estimator,
    /// What is minimised for the sake of the advantages.
    #[serde(default)]
    pub policy: PolicyLoss,
    /// A penalty for leaving the reference.
    #[serde(default)]
    pub kl: Option<KlPenalty>,
    /// Entropy is rewarded with this coefficient.
    #[serde(default)]
    pub entropy: f64,
    /// The denominator.
    #[serde(default)]
    pub aggregation: Aggregation,
    /// Tokens weigh as much as the old policy finds them likelier than what sampled them, at most
    /// this; none leaves it out.
    #[serde(default)]
    pub importance_threshold: Option<f64>,
    /// Episodes with a trained token from more versions ago than this are dropped.
    #[serde(default)]
    pub max_staleness: Option<u64>,
    /// Where log-probabilities before the step come from.
    #[serde(default)]
    pub old: OldLogProbabilities,
    /// Into how many parts the episodes of a step are split, each with an update of its own.
    #[serde(default = "one")]
    pub parts: usize,
    /// How often a step goes over its episodes.
    #[serde(default = "one")]
    pub passes: usize,
    /// Tokens that are computed together.
    #[serde(default = "budget")]
    pub pack_tokens: usize,
    /// The learning rate, by step.
    pub schedule: Schedule,
    /// The optimizer.
    #[serde(default)]
    pub optimizer: AdamWSettings,
    /// The most that all gradients together may have as norm; none does not clip.
    #[serde(default = "norm")]
    pub max_gradient_norm: Option<f64>,
}

const fn one() -> usize {
    1
}

const fn budget() -> usize {
    8192
}

#[allow(clippy::unnecessary_wraps)]
const fn norm() -> Option<f64> {
    Some(1.0)
}

impl TrainSettings {
    /// The defaults with this learning rate.
    pub fn new(schedule: Schedule) -> Self {
        Self {
            groups: GroupSettings::default(),
            credit: Credit::default(),
            estimator: Estimator::default(),
            policy: PolicyLoss::default(),
            kl: None,
            entropy: 0.0,
            aggregation: Aggregation::default(),
            importance_threshold: None,
            max_staleness: None,
            old: OldLogProbabilities::default(),
            parts: one(),
            passes: one(),
            pack_tokens: budget(),
            schedule,
            optimizer: AdamWSettings::default(),
            max_gradient_norm: norm(),
        }
    }

    /// What is wrong with the values, if anything.
    pub fn problem(&self) -> Option<String> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let share = |value: f64| (0.0..1.0).contains(&value);
        if !positive(self.schedule.rate) {
            return Some(format!(
                "the learning rate is {}; it must be above 0",
                self.schedule.rate
            ));
        }
        if !(0.0..=1.0).contains(&self.schedule.floor) {
            let floor = self.schedule.floor;
            return Some(format!("the schedule's floor is {floor}; it is a share, from 0 to 1"));
        }
        if let PolicyLoss::Ppo(clip) = self.policy
            && !(share(clip.low) && clip.high.is_finite() && clip.high >= 0.0 && clip.dual > 1.0)
        {
            return Some(format!(
                "the bounds of the ratio are low {}, high {}, dual {}; low must be in [0, 1), \
                 high at least 0, dual above 1",
                clip.low, clip.high, clip.dual
            ));
        }
        if let Some(kl) = self.kl
            && !positive(kl.coefficient)
        {
            return Some(format!("the KL coefficient is {}; it must be above 0", kl.coefficient));
        }
        if let Credit::Turns { discount, .. } = self.credit
            && !(discount > 0.0 && discount <= 1.0)
        {
            return Some(format!("the discount is {discount}; it must be above 0 and at most 1"));
        }
        if self.importance_threshold.is_some_and(|most| !positive(most)) {
            return Some("the importance threshold must be above 0".to_owned());
        }
        if self.max_gradient_norm.is_some_and(|most| most.is_nan() || most <= 0.0) {
            return Some(
                "the largest gradient norm must be above 0 (`inf` does not clip)".to_owned(),
            );
        }
        if !self.entropy.is_finite() {
            return Some("the entropy coefficient must be a number".to_owned());
        }
        if self.aggregation == (Aggregation::Constant { tokens: 0 }) {
            return Some("the constant denominator must be at least 1 token".to_owned());
        }
        let AdamWSettings { beta1, beta2, epsilon, weight_decay } = self.optimizer;
        let decays = weight_decay.is_finite() && weight_decay >= 0.0;
        if !(share(beta1) && share(beta2) && positive(epsilon) && decays) {
            return Some(
                "AdamW needs beta1 and beta2 in [0, 1), epsilon above 0 and a finite weight decay \
                 of at least 0"
                    .to_owned(),
            );
        }
        if self.groups.floor.is_some_and(|floor| !floor.is_finite()) {
            return Some("the floor of groups must be a finite number".to_owned());
        }
        if let OverLong::Penalise { penalty, .. } = self.groups.over_long
            && !(penalty.is_finite() && penalty >= 0.0)
        {
            return Some(format!(
                "the penalty for over-long episodes is {penalty}; it must be finite and at least 0"
            ));
        }
        if self.parts == 0 || self.passes == 0 || self.pack_tokens == 0 {
            return Some("parts, passes and pack tokens must be at least 1".to_owned());
        }
        None
    }

    pub(crate) fn objective(&self) -> Objective {
        let kl = self.kl.filter(|kl| kl.place == KlPlace::Loss);
        Objective {
            policy: self.policy,
            kl: kl.map(|kl| (kl.estimator, kl.coefficient)),
            entropy: self.entropy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_no_step_can_work_with_are_refused() {
        type Change = fn(&mut TrainSettings);
        let wrong: [(&str, Change); 8] = [
            ("rate", |settings| settings.schedule.rate = f64::NAN),
            ("weight decay", |settings| settings.optimizer.weight_decay = f64::INFINITY),
            ("floor of groups", |settings| settings.groups.floor = Some(f64::NAN)),
            ("penalty", |settings| {
                settings.groups.over_long =
                    OverLong::Penalise { limit: 9, buffer: 3, penalty: f64::NAN };
            }),
            ("norm", |settings| settings.max_gradient_norm = Some(f64::NAN)),
            ("norm", |settings| settings.max_gradient_norm = Some(0.0)),
            ("entropy", |settings| settings.entropy = f64::INFINITY),
            ("at least 1", |settings| settings.passes = 0),
        ];
        for (part, change) in wrong {
            let mut settings = TrainSettings::new(Schedule::constant(1e-3));
            change(&mut settings);
            let problem = settings.problem().unwrap_or_default();
            assert!(problem.contains(part), "{part}: {problem}");
        }
        let mut unclipped = TrainSettings::new(Schedule::constant(1e-3));
        unclipped.max_gradient_norm = Some(f64::INFINITY);
        assert_eq!(unclipped.problem(), None);
    }
}
