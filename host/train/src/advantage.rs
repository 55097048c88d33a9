//! From returns to advantages.
//!
//! Statistics are over the episodes of a group (one task), never over training rows: however many
//! rows an episode falls into, it counts once, and its advantage is the same for every token it
//! is broadcast to. With values of single turns an episode has one return for each of its turns,
//! and the statistics are over all returns of the group (process supervision in DeepSeekMath,
//! arXiv:2402.03300, §4.1.3, with returns in place of rewards).
//!
//! Conventions, pinned by golden values: the standard deviation divides by n − 1; ε = 1e-6 is
//! added to it; what stands alone has mean 0 and deviation 1, so that its advantage is its
//! return.

use serde::{Deserialize, Serialize};

use fulgurite_trace::TurnValue;

/// Added to a standard deviation before dividing by it.
pub const EPSILON: f64 = 1e-6;

/// How a return is compared with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Estimator {
    /// (return − mean of the group) / (deviation of the group + ε): arXiv:2402.03300.
    #[default]
    Grpo,
    /// Return − mean of the group, without the deviation, which would weigh tasks by difficulty:
    /// arXiv:2503.20783. Its loss goes with [`crate::aggregate::Aggregation::Constant`].
    DrGrpo,
    /// Return − mean of the group's *other* episodes: arXiv:2402.14740.
    Rloo,
    /// (return − mean) / (deviation + ε), over the whole batch.
    Batch,
    /// The return itself.
    Plain,
}

/// What returns are made from.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Credit {
    /// The episode's total, for every token of it.
    #[default]
    Outcome,
    /// The values of single turns: the return of a turn is what it and the later ones earned.
    Turns {
        /// What a value one turn later is worth, in (0, 1].
        discount: f64,
        /// Whether the total counts as earned by the last turn.
        total: bool,
    },
}

/// Returns of one episode: one for each of `turns` (ascending indices of its trained turns), or a
/// single one for all of them with [`Credit::Outcome`]. None when turns are to be credited but
/// the rewards gave no values: not knowing them is not the same as zero.
pub fn returns(
    credit: Credit,
    total: f64,
    values: &[TurnValue],
    turns: &[u32],
) -> Option<Vec<f64>> {
    let Credit::Turns { discount, total: add } = credit else { return Some(vec![total]) };
    if values.is_empty() {
        return None;
    }
    let last = turns.iter().copied().chain(values.iter().map(|value| value.turn)).max()?;
    let outcome = add.then_some(TurnValue { turn: last, value: total });
    let value = |turn: u32| -> f64 {
        values
            .iter()
            .chain(&outcome)
            .filter(|value| value.turn >= turn)
            .map(|value| value.value * discount.powf(f64::from(value.turn.saturating_sub(turn))))
            .sum()
    };
    Some(turns.iter().map(|turn| value(*turn)).collect())
}

/// Advantages in the shape of `groups`: group, episode, return.
pub fn advantages(estimator: Estimator, groups: &[Vec<Vec<f64>>]) -> Vec<Vec<Vec<f64>>> {
    let batch = Statistics::of(groups.iter().flatten().flatten());
    let each = |group: &Vec<Vec<f64>>, of: &dyn Fn(usize, f64) -> f64| {
        group
            .iter()
            .enumerate()
            .map(|(episode, returns)| returns.iter().map(|value| of(episode, *value)).collect())
            .collect()
    };
    groups
        .iter()
        .map(|group| {
            let own = Statistics::of(group.iter().flatten());
            match estimator {
                Estimator::Grpo => each(group, &|_, value| own.normalise(value)),
                Estimator::DrGrpo => each(group, &|_, value| value - own.mean),
                Estimator::Batch => each(group, &|_, value| batch.normalise(value)),
                Estimator::Plain => each(group, &|_, value| value),
                Estimator::Rloo => {
                    let baselines = without_own(group);
                    each(group, &|episode, value| {
                        value - baselines.get(episode).copied().unwrap_or(0.0)
                    })
                }
            }
        })
        .collect()
}

/// For each episode the mean of the other episodes' returns; 0 where there are none.
fn without_own(group: &[Vec<f64>]) -> Vec<f64> {
    let mean = |own: usize| {
        let others = || {
            let others = group.iter().enumerate().filter(|(other, _)| *other != own);
            others.flat_map(|(_, returns)| returns)
        };
        match others().count() {
            0 => 0.0,
            count => others().sum::<f64>() / as_f64(count),
        }
    };
    (0..group.len()).map(mean).collect()
}

struct Statistics {
    mean: f64,
    deviation: f64,
}

impl Statistics {
    fn of<'a>(values: impl Iterator<Item = &'a f64> + Clone) -> Self {
        let count = values.clone().count();
        if count < 2 {
            return Self { mean: 0.0, deviation: 1.0 };
        }
        let mean = values.clone().sum::<f64>() / as_f64(count);
        let squares = values.map(|value| (value - mean).powi(2)).sum::<f64>();
        Self { mean, deviation: (squares / as_f64(count.saturating_sub(1))).sqrt() }
    }

    fn normalise(&self, value: f64) -> f64 {
        (value - self.mean) / (self.deviation + EPSILON)
    }
}

/// Counts here are far below 2⁵³.
#[allow(clippy::cast_precision_loss)]
pub(crate) const fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(turn: u32, value: f64) -> TurnValue {
        TurnValue { turn, value }
    }

    #[test]
    fn a_turn_is_credited_with_what_follows_it() {
        let values = [value(0, 1.0), value(2, 4.0)];
        let turns = Credit::Turns { discount: 0.5, total: false };
        assert_eq!(returns(turns, 9.0, &values, &[0, 1, 2, 3]), Some(vec![2.0, 2.0, 4.0, 0.0]));
        let with_total = Credit::Turns { discount: 1.0, total: true };
        assert_eq!(returns(with_total, 9.0, &values, &[0, 2]), Some(vec![14.0, 13.0]));
        assert_eq!(returns(Credit::Outcome, 9.0, &values, &[0, 2]), Some(vec![9.0]));
    }

    #[test]
    fn values_that_nobody_gave_are_not_zero() {
        let turns = Credit::Turns { discount: 1.0, total: true };
        assert_eq!(returns(turns, 9.0, &[], &[0]), None);
    }

    proptest! {
        #[test]
        fn other_groups_change_nothing_but_what_is_normalised_by_batch(
            group in prop::collection::vec(prop::collection::vec(-5.0..5.0, 1..3), 1..6),
            other in prop::collection::vec(prop::collection::vec(-5.0..5.0, 1..3), 1..6),
        ) {
            for estimator in [Estimator::Grpo, Estimator::DrGrpo, Estimator::Rloo, Estimator::Plain]
            {
                let alone = advantages(estimator, std::slice::from_ref(&group));
                let both = advantages(estimator, &[group.clone(), other.clone()]);
                prop_assert_eq!(&both[0], &alone[0]);
            }
        }

        #[test]
        fn a_group_is_balanced(
            group in prop::collection::vec(-5.0..5.0_f64, 2..8),
        ) {
            let group: Vec<Vec<f64>> = group.into_iter().map(|value| vec![value]).collect();
            for estimator in [Estimator::Grpo, Estimator::DrGrpo, Estimator::Rloo, Estimator::Batch]
            {
                let sum: f64 =
                    advantages(estimator, std::slice::from_ref(&group)).iter().flatten().flatten().sum();
                prop_assert!(sum.abs() < 1e-9, "{estimator:?}: {sum}");
            }
        }
    }
}
