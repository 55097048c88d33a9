//! How far the policy is from a reference, estimated from tokens the policy sampled.
//!
//! With d = log π_reference − log π, for a token sampled from π (J. Schulman, "Approximating KL
//! divergence", 2020): k1 = −d, k2 = d²/2, k3 = eᵈ − d − 1.

use serde::{Deserialize, Serialize};

/// Differences of log-probabilities are clamped to ± this before they are exponentiated.
pub const MOST_DIFFERENCE: f64 = 20.0;

/// Which estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KlEstimator {
    /// Unbiased, of high variance. Its gradient in the loss is zero on average, so it belongs in
    /// the reward.
    K1,
    /// Biased; as a loss its gradient on average is that of the divergence.
    K2,
    /// Unbiased and never negative.
    #[default]
    K3,
}

impl KlEstimator {
    /// The estimate for one token.
    pub fn value(self, policy: f64, reference: f64) -> f64 {
        let difference = reference - policy;
        match self {
            Self::K1 => -difference,
            Self::K2 => difference * difference / 2.0,
            Self::K3 => clamped(difference).exp() - difference - 1.0,
        }
    }

    /// Its derivative by the policy's log-probability.
    pub fn derivative(self, policy: f64, reference: f64) -> f64 {
        let difference = reference - policy;
        match self {
            Self::K1 => 1.0,
            Self::K2 => -difference,
            Self::K3 if difference.abs() > MOST_DIFFERENCE => 1.0,
            Self::K3 => 1.0 - difference.exp(),
        }
    }
}

/// Where the divergence from the reference counts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KlPlace {
    /// Added to the loss of each token.
    Loss,
    /// Summed over the trained tokens of an episode, as the policy was before the step, and taken
    /// from its total before advantages are made.
    Reward,
}

/// A penalty for leaving the reference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KlPenalty {
    /// Which estimate.
    pub estimator: KlEstimator,
    /// Where it counts.
    pub place: KlPlace,
    /// What it is multiplied with; above 0.
    pub coefficient: f64,
}

/// A difference of log-probabilities that can be exponentiated.
pub(crate) const fn clamped(difference: f64) -> f64 {
    difference.clamp(-MOST_DIFFERENCE, MOST_DIFFERENCE)
}
