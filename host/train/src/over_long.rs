//! Episodes that ran into a length limit.
//!
//! Such an episode may have been on its way to a good answer; how to treat it is a setting. What
//! the setting does to lengths shows in [`LengthByReward`].

use fulgurite_trace::{EpisodeSamples, FailureKind};
use serde::{Deserialize, Serialize};

use crate::advantage::as_f64;

/// What becomes of over-long episodes: those with a reply cut off by its length, those that ended
/// for the context length or the budget, and those with a row beyond the limit of the response.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverLong {
    /// They are graded like any other.
    #[default]
    Grade,
    /// Their rewards count in the group, their tokens are left out of the loss.
    Mask,
    /// Every episode pays for its sampled tokens beyond a length, over-long or not (soft over-long
    /// punishment, arXiv:2503.14476): nothing up to `limit - buffer`, then in equal parts up to
    /// `penalty` at `limit`.
    Penalise {
        /// Tokens at which the whole penalty is due.
        limit: u64,
        /// Tokens before it over which the penalty grows.
        buffer: u64,
        /// The whole penalty, taken from the total.
        penalty: f64,
    },
}

/// Whether an episode ran into a length limit.
pub fn is_over_long(samples: &EpisodeSamples, kind: FailureKind) -> bool {
    samples.stopped_by_length
        || matches!(kind, FailureKind::ContextLength | FailureKind::Budget)
        || samples.samples.iter().any(|sample| sample.cut)
}

impl OverLong {
    /// Whether the tokens of an episode are to be left out.
    pub(crate) fn masks(self, samples: &EpisodeSamples, kind: FailureKind) -> bool {
        self == Self::Mask && is_over_long(samples, kind)
    }

    /// What an episode has to pay.
    pub(crate) fn penalty(self, samples: &EpisodeSamples) -> f64 {
        match self {
            Self::Grade | Self::Mask => 0.0,
            Self::Penalise { limit, buffer, penalty } => {
                penalty * share(samples.sampled_tokens, limit, buffer)
            }
        }
    }
}

/// How much of the penalty is due, from 0 to 1.
fn share(length: u64, limit: u64, buffer: u64) -> f64 {
    if length >= limit {
        return if length > limit || buffer > 0 { 1.0 } else { 0.0 };
    }
    let over = length.saturating_sub(limit.saturating_sub(buffer));
    if over == 0 { 0.0 } else { wide(over) / wide(buffer) }
}

/// Lengths are far below 2⁵³.
#[allow(clippy::cast_precision_loss)]
const fn wide(length: u64) -> f64 {
    length as f64
}

/// How lengths and rewards go together: whether the policy learns to be long or short rather than
/// right.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LengthByReward {
    /// Mean sampled tokens of episodes with more than the mean reward.
    pub above: Option<f64>,
    /// Mean sampled tokens of the others.
    pub below: Option<f64>,
    /// Pearson's correlation; none when either does not vary.
    pub correlation: Option<f64>,
}

impl LengthByReward {
    /// From (sampled tokens, total) of episodes.
    pub fn of(episodes: &[(u64, f64)]) -> Self {
        let mean = |values: &[f64]| {
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / as_f64(values.len()))
        };
        let lengths: Vec<f64> = episodes.iter().map(|(length, _)| wide(*length)).collect();
        let rewards: Vec<f64> = episodes.iter().map(|(_, reward)| *reward).collect();
        let (Some(length), Some(reward)) = (mean(&lengths), mean(&rewards)) else {
            return Self::default();
        };
        let (above, below): (Vec<_>, Vec<_>) =
            lengths.iter().zip(&rewards).partition(|(_, other)| **other > reward);
        let own = |part: Vec<(&f64, &f64)>| -> Vec<f64> {
            part.into_iter().map(|(length, _)| *length).collect()
        };
        let (mut both, mut lengths_squared, mut rewards_squared) = (0.0, 0.0, 0.0);
        for (one, other) in lengths.iter().zip(&rewards) {
            both += (one - length) * (other - reward);
            lengths_squared += (one - length).powi(2);
            rewards_squared += (other - reward).powi(2);
        }
        let scale = (lengths_squared * rewards_squared).sqrt();
        Self {
            above: mean(&own(above)),
            below: mean(&own(below)),
            correlation: (scale > 0.0).then(|| both / scale),
        }
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_trace::{EpisodeRef, Sample, samples::Skipped};

    use super::*;

    #[test]
    fn the_penalty_grows_over_the_buffer() {
        let due: Vec<f64> =
            [0, 6, 7, 8, 9, 10, 11].iter().map(|length| share(*length, 10, 4)).collect();
        assert_eq!(due, [0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0]);
        assert_eq!([share(9, 10, 0), share(10, 10, 0), share(11, 10, 0)], [0.0, 0.0, 1.0]);
        assert_eq!([share(0, 2, 9), share(1, 2, 9)], [0.0, 1.0 / 9.0]);
    }

    #[test]
    fn over_long_is_what_a_limit_ended() {
        let episode = EpisodeRef::first(0, 0);
        let row = |cut| Sample {
            episode,
            conversation: 0,
            segment: 0,
            prompt: vec![1],
            response: vec![2],
            stretches: Vec::new(),
            log_probabilities: None,
            untruncated: None,
            temperature: 1.0,
            cut,
        };
        let samples = |stopped_by_length, cut| EpisodeSamples {
            episode,
            samples: vec![row(cut)],
            skipped: Skipped::default(),
            sampled_tokens: 4,
            stopped_by_length,
        };
        let whole = samples(false, false);
        assert!(!is_over_long(&whole, FailureKind::Completed));
        assert!(is_over_long(&whole, FailureKind::ContextLength));
        assert!(is_over_long(&whole, FailureKind::Budget));
        assert!(is_over_long(&samples(true, false), FailureKind::Completed));
        assert!(is_over_long(&samples(false, true), FailureKind::Completed));
        assert!(OverLong::Mask.masks(&whole, FailureKind::Budget));
        assert!(!OverLong::Grade.masks(&whole, FailureKind::Budget));
    }

    #[test]
    fn lengths_are_told_apart_by_reward() {
        let found = LengthByReward::of(&[(10, 0.0), (20, 0.0), (30, 1.0), (50, 1.0)]);
        assert_eq!((found.above, found.below), (Some(40.0), Some(15.0)));
        let correlation = found.correlation.unwrap();
        assert!((correlation - 0.845_154).abs() < 1e-6, "{correlation}");
        assert_eq!(LengthByReward::of(&[(3, 1.0), (4, 1.0)]).correlation, None);
        assert_eq!(LengthByReward::of(&[]), LengthByReward::default());
    }
}
