//! The loss of a batch of tokens, and its derivatives by each token's log-probability and entropy.
//!
//! Everything here is a pure function over numbers. The loss is a plain sum of token losses times
//! their weights; every denominator is in the weights ([`crate::aggregate`]). How log-probability
//! and entropy depend on the model's weights is the model's business.

use fulgurite_model::{TokenGradient, TokenScore};
use serde::{Deserialize, Serialize};

use crate::kl::{KlEstimator, clamped};

/// What is minimised for the sake of the advantages.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyLoss {
    /// Clipped importance ratio, with a second clip for negative advantages.
    Ppo(Clip),
    /// −advantage · log-probability: REINFORCE, for one update on what was just sampled.
    Reinforce,
    /// −log-probability: cross-entropy, for demonstrations and best-of-n. No advantages.
    Likelihood,
}

impl Default for PolicyLoss {
    fn default() -> Self {
        Self::Ppo(Clip::default())
    }
}

/// Bounds of the importance ratio π / π_old.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Clip {
    /// The ratio counts from 1 − low ...
    pub low: f64,
    /// ... to 1 + high; a `high` above `low` is clip-higher (arXiv:2503.14476).
    pub high: f64,
    /// With a negative advantage A the loss is at most −A times this (arXiv:1912.09729); above 1.
    pub dual: f64,
}

impl Default for Clip {
    fn default() -> Self {
        Self { low: 0.2, high: 0.2, dual: 3.0 }
    }
}

/// The whole objective.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Objective {
    /// For the sake of the advantages.
    pub policy: PolicyLoss,
    /// For staying near the reference: estimate and coefficient.
    pub kl: Option<(KlEstimator, f64)>,
    /// Entropy is rewarded with this coefficient.
    pub entropy: f64,
}

/// What is known of a trained token besides what the model says of it now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Token {
    /// Log-probability before the step, from the training kernels.
    pub old: f64,
    /// Log-probability under the reference.
    pub reference: Option<f64>,
    /// Advantage of its episode or turn.
    pub advantage: f64,
    /// Importance weight for having been sampled by something else than the old policy.
    pub correction: f64,
    /// Its share of the sum: one over the denominator.
    pub weight: f64,
}

/// A loss with its derivatives.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Evaluated {
    /// The weighted sum over the tokens.
    pub value: f64,
    /// By each token's log-probability and entropy.
    pub gradients: Vec<TokenGradient>,
    /// What to watch.
    pub sums: LossSums,
}

/// Sums over tokens, so that those of several packs can be added.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LossSums {
    /// How many tokens.
    pub tokens: f64,
    /// Loss for the sake of the advantages, weighted.
    pub policy_loss: f64,
    /// Loss for staying near the reference, weighted.
    pub kl_loss: f64,
    /// Tokens whose ratio was held back at the lower bound.
    pub clipped_low: f64,
    /// Tokens whose ratio was held back at the upper bound.
    pub clipped_high: f64,
    /// Tokens held back by the second clip.
    pub clipped_dual: f64,
    /// Ratios.
    pub ratio: f64,
    /// The largest ratio.
    pub ratio_max: f64,
    /// k3 estimate of KL(old ‖ now).
    pub drift: f64,
    /// k3 estimate of KL(now ‖ reference).
    pub reference_kl: f64,
    /// Entropies.
    pub entropy: f64,
    /// Log-probabilities.
    pub log_probability: f64,
    /// Importance corrections.
    pub correction: f64,
}

impl LossSums {
    /// Adds those of more tokens.
    pub fn add(&mut self, other: &Self) {
        self.tokens += other.tokens;
        self.policy_loss += other.policy_loss;
        self.kl_loss += other.kl_loss;
        self.clipped_low += other.clipped_low;
        self.clipped_high += other.clipped_high;
        self.clipped_dual += other.clipped_dual;
        self.ratio += other.ratio;
        self.ratio_max = self.ratio_max.max(other.ratio_max);
        self.drift += other.drift;
        self.reference_kl += other.reference_kl;
        self.entropy += other.entropy;
        self.log_probability += other.log_probability;
        self.correction += other.correction;
    }
}

/// Loss of one token for the sake of its advantage, its derivative, and what clipped it.
struct Clipped {
    loss: f64,
    derivative: f64,
    by: Option<Bound>,
}

enum Bound {
    Low,
    High,
    Dual,
}

/// The objective over `scores` (what the model says now) and `tokens`, which belong together one
/// by one; what has no partner is left out.
pub fn evaluate(objective: &Objective, scores: &[TokenScore], tokens: &[Token]) -> Evaluated {
    let mut sums = LossSums::default();
    let mut value = 0.0;
    let mut gradients = Vec::with_capacity(scores.len());
    for (score, token) in scores.iter().zip(tokens) {
        let new = f64::from(score.log_probability);
        let entropy = f64::from(score.entropy);
        let ratio = clamped(new - token.old).exp();
        let policy = match objective.policy {
            PolicyLoss::Ppo(clip) => ppo(clip, token.advantage, ratio, new - token.old),
            PolicyLoss::Reinforce => plain(token.advantage, new),
            PolicyLoss::Likelihood => plain(1.0, new),
        };
        let mut loss = token.correction * policy.loss;
        let mut derivative = token.correction * policy.derivative;
        sums.policy_loss += token.weight * loss;
        if let Some((reference, (estimator, coefficient))) = token.reference.zip(objective.kl) {
            let kl = coefficient * estimator.value(new, reference);
            loss += kl;
            derivative += coefficient * estimator.derivative(new, reference);
            sums.kl_loss += token.weight * kl;
        }
        loss -= objective.entropy * entropy;
        value += token.weight * loss;
        gradients.push(TokenGradient {
            log_probability: narrow(token.weight * derivative),
            entropy: narrow(-token.weight * objective.entropy),
        });
        sums.tokens += 1.0;
        match policy.by {
            Some(Bound::Low) => sums.clipped_low += 1.0,
            Some(Bound::High) => sums.clipped_high += 1.0,
            Some(Bound::Dual) => sums.clipped_dual += 1.0,
            None => {}
        }
        sums.ratio += ratio;
        sums.ratio_max = sums.ratio_max.max(ratio);
        sums.drift += KlEstimator::K3.value(token.old, new);
        sums.reference_kl +=
            token.reference.map_or(0.0, |reference| KlEstimator::K3.value(new, reference));
        sums.entropy += entropy;
        sums.log_probability += new;
        sums.correction += token.correction;
    }
    Evaluated { value, gradients, sums }
}

const fn plain(advantage: f64, new: f64) -> Clipped {
    Clipped { loss: -advantage * new, derivative: -advantage, by: None }
}

fn ppo(clip: Clip, advantage: f64, ratio: f64, difference: f64) -> Clipped {
    // A ratio whose exponent was clamped no longer follows the log-probability.
    let follows = difference.abs() <= crate::kl::MOST_DIFFERENCE;
    let derivative = if follows { -advantage * ratio } else { 0.0 };
    let free = -advantage * ratio;
    let (low, high) = (1.0 - clip.low, 1.0 + clip.high);
    let held = -advantage * ratio.clamp(low, high);
    if held > free {
        let by = if ratio < low { Bound::Low } else { Bound::High };
        return Clipped { loss: held, derivative: 0.0, by: Some(by) };
    }
    let most = -advantage * clip.dual;
    if advantage < 0.0 && free > most {
        return Clipped { loss: most, derivative: 0.0, by: Some(Bound::Dual) };
    }
    Clipped { loss: free, derivative, by: None }
}

/// Truncated importance correction: how much likelier the old policy of the training kernels
/// finds a token than what sampled it, at most `threshold` (token level).
pub fn correction(old: f64, behaviour: f64, threshold: f64) -> f64 {
    clamped(old - behaviour).exp().min(threshold)
}

/// Derivatives leave as `f32`; one beyond its range becomes infinite and is found by the step.
#[allow(clippy::cast_possible_truncation)]
const fn narrow(value: f64) -> f32 {
    value as f32
}
