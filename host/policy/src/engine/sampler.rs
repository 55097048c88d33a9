//! Choosing a token.
//!
//! What is drawn depends on the logits, the settings, the seed and the number of the token in its
//! reply, and on nothing else: each token has its own number of the seed's stream. A reply that
//! is interrupted, moved to another slot or computed together with others draws the same.

use std::cmp::Ordering;

use fulgurite_trace::Truncation;
use rand::RngExt;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use crate::Sampling;

/// Candidates that are sorted at first; four times as many when they do not suffice.
const FIRST_SORTED: usize = 256;

/// A token with its log-probabilities.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Choice {
    pub(super) token: u32,
    /// Under the distribution it was drawn from.
    pub(super) log_probability: f32,
    /// Under the whole softmax(logits / temperature).
    pub(super) untruncated: f32,
}

/// The distribution and the stream of one call.
#[derive(Debug, Clone)]
pub(super) struct Sampler {
    temperature: f32,
    truncation: Truncation,
    random: ChaCha8Rng,
}

impl Sampler {
    pub(super) fn new(sampling: &Sampling) -> Self {
        Self {
            temperature: sampling.temperature,
            truncation: sampling.truncation,
            random: ChaCha8Rng::seed_from_u64(sampling.seed),
        }
    }

    /// Whether the distribution is softmax(logits / temperature) as a whole. At temperature 0
    /// there is nothing to cut.
    pub(super) fn is_whole(&self) -> bool {
        self.temperature == 0.0 || self.truncation.is_none()
    }

    /// Draws the reply's token of this number. At temperature 0 the distribution is a single
    /// point: the largest logit, of equal ones the first, with log-probability 0.
    ///
    /// `None` where the logits are no numbers.
    pub(super) fn draw(&self, logits: &[f32], number: u64) -> Option<Choice> {
        let (best, largest) = largest(logits)?;
        if self.temperature == 0.0 {
            return Some(Choice { token: best, log_probability: 0.0, untruncated: 0.0 });
        }
        // Differences to the largest are never positive, so nothing overflows, however cold it is.
        let scaled = |logit: f32| f64::from((logit - largest) / self.temperature);
        let weights: Vec<f64> = logits.iter().map(|logit| scaled(*logit).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let part = self.uniform(number);
        let (token, mass) = if self.is_whole() {
            (pick(weights.iter().copied().zip(0..), part * sum, best), sum)
        } else {
            let kept = cut(logits, &weights, sum, self.truncation);
            let weighted = || kept.iter().filter_map(|id| Some((weight(&weights, *id)?, *id)));
            let mass: f64 = weighted().map(|(weight, _)| weight).sum();
            (pick(weighted(), part * mass, best), mass)
        };
        let logit = scaled(*logits.get(usize::try_from(token).ok()?)?);
        Some(Choice {
            token,
            log_probability: (logit - mass.ln()) as f32,
            untruncated: (logit - sum.ln()) as f32,
        })
    }

    /// In [0, 1), from the seed and the number alone.
    fn uniform(&self, number: u64) -> f64 {
        let mut random = self.random.clone();
        random.set_stream(number);
        random.random()
    }
}

fn weight(weights: &[f64], id: u32) -> Option<f64> {
    weights.get(usize::try_from(id).ok()?).copied()
}

fn largest(logits: &[f32]) -> Option<(u32, f32)> {
    let mut best: Option<(u32, f32)> = None;
    for (token, logit) in (0..).zip(logits) {
        if logit.is_nan() {
            return None;
        }
        if best.is_none_or(|(_, largest)| *logit > largest) {
            best = Some((token, *logit));
        }
    }
    best.filter(|(_, largest)| largest.is_finite())
}

/// The token at which the running sum passes `part`. Rounding may leave a little of it behind the
/// last token; the likeliest takes it.
fn pick(weighted: impl Iterator<Item = (f64, u32)>, mut part: f64, best: u32) -> u32 {
    for (weight, token) in weighted {
        if weight > 0.0 && part < weight {
            return token;
        }
        part -= weight;
    }
    best
}

/// The tokens that are left, the likeliest first, of equal ones the first.
fn cut(logits: &[f32], weights: &[f64], sum: f64, truncation: Truncation) -> Vec<u32> {
    let Truncation { top_k, top_p, min_p } = truncation;
    let logit = |id: &u32| logits.get(*id as usize).copied().unwrap_or(f32::NEG_INFINITY);
    let order = |one: &u32, other: &u32| -> Ordering {
        logit(other).total_cmp(&logit(one)).then(one.cmp(other))
    };
    let mut kept: Vec<u32> = (0..).zip(logits).map(|(id, _)| id).collect();
    let mut mass = sum;
    if let Some(top_k) = top_k.and_then(|count| usize::try_from(count.get()).ok())
        && top_k < kept.len()
    {
        kept.select_nth_unstable_by(top_k, order);
        kept.truncate(top_k);
        kept.sort_unstable_by(order);
        mass = kept.iter().filter_map(|id| weight(weights, *id)).sum();
    }
    if let Some(top_p) = top_p.filter(|share| *share < 1.0) {
        let wanted = f64::from(top_p) * mass;
        let count = count_with_mass(&mut kept, weights, wanted, order);
        kept.truncate(count);
    }
    if let Some(min_p) = min_p.filter(|share| *share > 0.0) {
        // The likeliest has the weight 1.
        kept.retain(|id| weight(weights, *id).is_some_and(|weight| weight >= f64::from(min_p)));
    }
    kept.sort_unstable_by(order);
    kept
}

/// How many of the likeliest have this mass together; those stand sorted at the beginning
/// afterwards. At least one.
fn count_with_mass(
    ids: &mut [u32],
    weights: &[f64],
    wanted: f64,
    order: impl Fn(&u32, &u32) -> Ordering + Copy,
) -> usize {
    let mut sorted = FIRST_SORTED;
    loop {
        if sorted < ids.len() {
            ids.select_nth_unstable_by(sorted, order);
        }
        let whole = sorted >= ids.len();
        let Some(likeliest) = ids.get_mut(..sorted.min(weights.len())) else {
            ids.sort_unstable_by(order);
            return enough(ids, weights, wanted).unwrap_or(ids.len());
        };
        likeliest.sort_unstable_by(order);
        match enough(likeliest, weights, wanted) {
            Some(count) => return count,
            None if whole => return ids.len(),
            None => sorted *= 4,
        }
    }
}

fn enough(sorted: &[u32], weights: &[f64], wanted: f64) -> Option<usize> {
    let mut mass = 0.0;
    for (count, id) in (1..).zip(sorted) {
        mass += weight(weights, *id).unwrap_or_default();
        if mass >= wanted {
            return Some(count);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;

    fn sampler(temperature: f32, truncation: Truncation, seed: u64) -> Sampler {
        Sampler::new(&Sampling { temperature, truncation, seed, ..Default::default() })
    }

    fn plain(temperature: f32) -> Sampler {
        sampler(temperature, Truncation::default(), 7)
    }

    #[test]
    fn zero_is_greedy_and_certain() {
        let choice = plain(0.0).draw(&[0.5, 2.0, 2.0, -1.0], 0).unwrap();
        assert_eq!(choice, Choice { token: 1, log_probability: 0.0, untruncated: 0.0 });
    }

    #[test]
    fn frequencies_and_log_probabilities_follow_the_temperature() {
        let logits = [1.0f32, 0.0, 2.0, f32::NEG_INFINITY];
        for temperature in [0.5f32, 1.0, 2.0] {
            let weights: Vec<f64> =
                logits.iter().map(|logit| f64::from(logit / temperature).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let mut counts = [0u32; 4];
            let sampler = plain(temperature);
            let draws = 20_000u32;
            for number in 0..draws {
                let choice = sampler.draw(&logits, u64::from(number)).unwrap();
                counts[choice.token as usize] += 1;
                let expected = (weights[choice.token as usize] / sum).ln();
                assert!((f64::from(choice.log_probability) - expected).abs() < 1e-6);
                assert_eq!(choice.log_probability, choice.untruncated);
            }
            assert_eq!(counts[3], 0, "what is impossible is never drawn");
            for (count, weight) in counts.iter().zip(&weights) {
                let difference = f64::from(*count) / f64::from(draws) - weight / sum;
                assert!(difference.abs() < 0.015, "{temperature}: {counts:?}");
            }
        }
    }

    #[test]
    fn seed_and_number_decide_and_nothing_before_them() {
        let logits: Vec<f32> = (0..100).map(|number| (number as f32).sin()).collect();
        let draw = |seed, numbers: &[u64]| -> Vec<u32> {
            let sampler = sampler(1.0, Truncation::default(), seed);
            numbers.iter().map(|number| sampler.draw(&logits, *number).unwrap().token).collect()
        };
        let all: Vec<u64> = (0..50).collect();
        assert_eq!(draw(1, &all), draw(1, &all));
        assert_ne!(draw(1, &all), draw(2, &all));
        assert_eq!(draw(1, &all)[30..], draw(1, &all[30..]), "the first 30 take no part");
    }

    #[test]
    fn extremes_are_survived() {
        let cold = plain(1e-30).draw(&[1.0, 1.0 + 1e-3], 0).unwrap();
        assert_eq!((cold.token, cold.log_probability), (1, 0.0));
        assert_eq!(plain(1.0).draw(&[f32::MAX, f32::MIN], 0).unwrap().token, 0);
        assert_eq!(plain(1.0).draw(&[0.0, f32::NAN], 0), None);
        assert_eq!(plain(1.0).draw(&[f32::INFINITY, 0.0], 0), None);
        assert_eq!(plain(1.0).draw(&[], 0), None);
    }

    #[test]
    fn each_cut_leaves_what_it_says() {
        // Probabilities 0.4, 0.3, 0.2, 0.1 in another order.
        let logits: Vec<f32> = [0.2f32, 0.4, 0.1, 0.3].iter().map(|share| share.ln()).collect();
        let left = |truncation: Truncation| {
            let weights: Vec<f64> =
                logits.iter().map(|logit| f64::from(logit - logits[1]).exp()).collect();
            cut(&logits, &weights, weights.iter().sum(), truncation)
        };
        let none = Truncation::default();
        assert_eq!(left(Truncation { top_k: NonZeroU32::new(2), ..none }), [1, 3]);
        assert_eq!(left(Truncation { top_k: NonZeroU32::new(9), ..none }), [1, 3, 0, 2]);
        assert_eq!(left(Truncation { top_p: Some(0.3), ..none }), [1]);
        assert_eq!(left(Truncation { top_p: Some(0.65), ..none }), [1, 3]);
        assert_eq!(left(Truncation { top_p: Some(0.75), ..none }), [1, 3, 0]);
        assert_eq!(left(Truncation { min_p: Some(0.45), ..none }), [1, 3, 0]);
        assert_eq!(left(Truncation { min_p: Some(1.0), ..none }), [1]);
        // Of the two that top-k leaves, the first has 4/7 of the mass.
        let both = Truncation { top_k: NonZeroU32::new(2), top_p: Some(0.56), min_p: None };
        assert_eq!(left(both), [1]);
    }

    #[test]
    fn both_log_probabilities_of_a_cut_distribution_are_right() {
        let logits: Vec<f32> = [0.2f32, 0.4, 0.1, 0.3].iter().map(|share| share.ln()).collect();
        let truncation = Truncation { top_k: NonZeroU32::new(2), ..Default::default() };
        let sampler = sampler(1.0, truncation, 3);
        let mut counts = [0u32; 4];
        for number in 0..10_000 {
            let choice = sampler.draw(&logits, number).unwrap();
            let share = [0.2f32, 0.4, 0.1, 0.3][choice.token as usize];
            assert!((choice.log_probability - (share / 0.7).ln()).abs() < 1e-6);
            assert!((choice.untruncated - share.ln()).abs() < 1e-6);
            counts[choice.token as usize] += 1;
        }
        assert_eq!((counts[0], counts[2]), (0, 0));
        assert!((f64::from(counts[1]) / 10_000.0 - 4.0 / 7.0).abs() < 0.02, "{counts:?}");
    }

    proptest! {
        /// Sorting everything gives the same as sorting as little as needed.
        #[test]
        fn cuts_are_those_of_the_definition(
            logits in proptest::collection::vec(-8.0..8.0f32, 1..900),
            top_k in 0u32..900, top_p in 0.01..1.0f32, min_p in 0.0..0.2f32, which in 0u8..8,
        ) {
            let truncation = Truncation {
                top_k: NonZeroU32::new(top_k).filter(|_| which & 1 > 0),
                top_p: Some(top_p).filter(|_| which & 2 > 0),
                min_p: Some(min_p).filter(|_| which & 4 > 0),
            };
            let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let weights: Vec<f64> =
                logits.iter().map(|logit| f64::from(logit - largest).exp()).collect();
            let mut expected: Vec<u32> = (0..logits.len() as u32).collect();
            expected.sort_by(|a, b| logits[*b as usize].total_cmp(&logits[*a as usize]).then(a.cmp(b)));
            if let Some(count) = truncation.top_k {
                expected.truncate(count.get() as usize);
            }
            if let Some(share) = truncation.top_p {
                let mass: f64 = expected.iter().map(|id| weights[*id as usize]).sum();
                let mut sum = 0.0;
                let needed = expected.iter().position(|id| {
                    sum += weights[*id as usize];
                    sum >= f64::from(share) * mass * (1.0 - 1e-12)
                });
                expected.truncate(needed.map_or(expected.len(), |last| last + 1));
            }
            if let Some(share) = truncation.min_p {
                expected.retain(|id| weights[*id as usize] >= f64::from(share));
            }
            let got = cut(&logits, &weights, weights.iter().sum(), truncation);
            prop_assert_eq!(got, expected);
        }
    }
}
