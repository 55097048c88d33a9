//! How token losses become one number: which denominator a token has.
//!
//! A batch is a list of episodes, an episode a list of rows, a row a number of trained tokens.
//! Rows are an accident (a compaction, a branch or a re-rendered history makes another one), so
//! no denominator counts rows of the batch: whatever an episode is split into, its tokens
//! together keep their weight.

use serde::{Deserialize, Serialize};

use crate::advantage::as_f64;

/// The denominator. "Episodes" are those of the batch with at least one trained token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregation {
    /// Trained tokens of the batch: every token weighs the same, long episodes weigh more.
    TokenMean,
    /// Trained tokens of the row × rows of the episode × episodes: a mean over tokens, then over
    /// rows, then over episodes.
    SequenceMean,
    /// Trained tokens of the episode × episodes: every episode weighs the same. With one row an
    /// episode this is Agent Lightning's.
    #[default]
    EpisodeMean,
    /// A fixed number of tokens × episodes (Dr.GRPO, arXiv:2503.20783): no length is favoured.
    Constant {
        /// The number, usually the longest response allowed; not 0.
        tokens: u32,
    },
}

impl Aggregation {
    /// The weight (one over the denominator) of each row's tokens. `batch` holds trained tokens:
    /// episodes, then rows. Rows without any have weight 0.
    pub fn weights(self, batch: &[Vec<usize>]) -> Vec<Vec<f64>> {
        let of = |rows: &[usize]| rows.iter().sum::<usize>();
        let tokens = batch.iter().map(|rows| of(rows)).sum::<usize>();
        let episodes = batch.iter().filter(|rows| of(rows) > 0).count();
        batch
            .iter()
            .map(|rows| {
                let trained_rows = rows.iter().filter(|row| **row > 0).count();
                rows.iter()
                    .map(|row| {
                        let denominator = match self {
                            Self::TokenMean => as_f64(tokens),
                            Self::SequenceMean => {
                                as_f64(*row) * as_f64(trained_rows) * as_f64(episodes)
                            }
                            Self::EpisodeMean => as_f64(of(rows)) * as_f64(episodes),
                            Self::Constant { tokens } => f64::from(tokens) * as_f64(episodes),
                        };
                        if *row == 0 || denominator == 0.0 { 0.0 } else { denominator.recip() }
                    })
                    .collect()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Aggregation; 4] = [
        Aggregation::TokenMean,
        Aggregation::SequenceMean,
        Aggregation::EpisodeMean,
        Aggregation::Constant { tokens: 16 },
    ];

    fn mass(rows: &[usize], weights: &[f64]) -> f64 {
        rows.iter().zip(weights).map(|(row, weight)| as_f64(*row) * weight).sum()
    }

    proptest! {
        /// Compaction or branches split an episode; nobody's weight changes.
        #[test]
        fn splitting_an_episode_moves_no_weight(
            batch in prop::collection::vec(prop::collection::vec(0..9_usize, 1..4), 1..6),
            at in 0..6_usize,
            row in 0..4_usize,
            cut in 0..9_usize,
        ) {
            let at = at % batch.len();
            let row = row % batch[at].len();
            let cut = cut.min(batch[at][row]);
            let mut split = batch.clone();
            split[at][row] -= cut;
            split[at].push(cut);
            for aggregation in ALL {
                let before = aggregation.weights(&batch);
                let after = aggregation.weights(&split);
                for (episode, rows) in batch.iter().enumerate() {
                    let (one, other) = (
                        mass(rows, &before[episode]),
                        mass(&split[episode], &after[episode]),
                    );
                    prop_assert!((one - other).abs() < 1e-12, "{aggregation:?} {one} {other}");
                }
            }
        }

        #[test]
        fn means_have_weight_one(
            batch in prop::collection::vec(prop::collection::vec(0..9_usize, 1..4), 1..6),
        ) {
            prop_assume!(batch.iter().flatten().any(|row| *row > 0));
            for aggregation in [ALL[0], ALL[1], ALL[2]] {
                let weights = aggregation.weights(&batch);
                let all: f64 = batch.iter().zip(&weights).map(|(rows, own)| mass(rows, own)).sum();
                prop_assert!((all - 1.0).abs() < 1e-12, "{aggregation:?} {all}");
            }
        }
    }

    #[test]
    fn denominators_are_the_documented_ones() {
        let batch = [vec![2, 6], vec![4], vec![0]];
        let weights = |aggregation: Aggregation| aggregation.weights(&batch);
        assert_eq!(weights(ALL[0]), [vec![1.0 / 12.0; 2], vec![1.0 / 12.0], vec![0.0]]);
        assert_eq!(weights(ALL[1]), [vec![1.0 / 8.0, 1.0 / 24.0], vec![1.0 / 8.0], vec![0.0]]);
        assert_eq!(weights(ALL[2]), [vec![1.0 / 16.0; 2], vec![1.0 / 8.0], vec![0.0]]);
        assert_eq!(weights(ALL[3]), [vec![1.0 / 32.0; 2], vec![1.0 / 32.0], vec![0.0]]);
    }
}
