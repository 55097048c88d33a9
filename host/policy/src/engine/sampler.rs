//! Choosing a token.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// A token and its log-probability under the distribution it was drawn from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Choice {
    pub(super) token: u32,
    pub(super) log_probability: f32,
}

/// Draws from softmax(logits / temperature). At temperature 0 that is a single point: the
/// largest logit (of equal ones the first), with log-probability 0.
///
/// `None` where the logits are no numbers.
pub(super) fn choose(logits: &[f32], temperature: f32, random: &mut ChaCha8Rng) -> Option<Choice> {
    let mut best: Option<(usize, f32)> = None;
    for (token, logit) in logits.iter().enumerate() {
        if logit.is_nan() {
            return None;
        }
        if best.is_none_or(|(_, largest)| *logit > largest) {
            best = Some((token, *logit));
        }
    }
    let (best, largest) = best.filter(|(_, largest)| largest.is_finite())?;
    if temperature == 0.0 {
        return Some(Choice { token: u32::try_from(best).ok()?, log_probability: 0.0 });
    }
    // Differences to the largest are never positive, so nothing overflows, however cold it is.
    let scaled = |logit: f32| f64::from((logit - largest) / temperature);
    let weights: Vec<f64> = logits.iter().map(|logit| scaled(*logit).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let mut rest = random.random::<f64>() * sum;
    let mut chosen = best;
    for (token, weight) in weights.iter().enumerate() {
        // Rounding may leave a little of `rest` behind the last token; the likeliest takes it.
        if *weight > 0.0 && rest < *weight {
            chosen = token;
            break;
        }
        rest -= weight;
    }
    let logit = logits.get(chosen)?;
    let log_probability = (scaled(*logit) - sum.ln()) as f32;
    Some(Choice { token: u32::try_from(chosen).ok()?, log_probability })
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    fn random() -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(7)
    }

    #[test]
    fn zero_is_greedy_and_certain() {
        let choice = choose(&[0.5, 2.0, 2.0, -1.0], 0.0, &mut random()).unwrap();
        assert_eq!(choice, Choice { token: 1, log_probability: 0.0 });
    }

    #[test]
    fn frequencies_and_log_probabilities_follow_the_temperature() {
        let logits = [1.0f32, 0.0, 2.0, f32::NEG_INFINITY];
        for temperature in [0.5f32, 1.0, 2.0] {
            let weights: Vec<f64> =
                logits.iter().map(|logit| f64::from(logit / temperature).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let mut counts = [0u32; 4];
            let mut random = random();
            let draws = 20_000;
            for _ in 0..draws {
                let choice = choose(&logits, temperature, &mut random).unwrap();
                counts[choice.token as usize] += 1;
                let expected = (weights[choice.token as usize] / sum).ln();
                assert!((f64::from(choice.log_probability) - expected).abs() < 1e-6);
            }
            assert_eq!(counts[3], 0, "what is impossible is never drawn");
            for (count, weight) in counts.iter().zip(&weights) {
                let difference = f64::from(*count) / f64::from(draws) - weight / sum;
                assert!(difference.abs() < 0.015, "{temperature}: {counts:?}");
            }
        }
    }

    #[test]
    fn equal_seeds_draw_equally() {
        let logits: Vec<f32> = (0..100).map(|number| (number as f32).sin()).collect();
        let draw = |seed| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            (0..50).map(|_| choose(&logits, 1.0, &mut random).unwrap().token).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn extremes_are_survived() {
        let cold = choose(&[1.0, 1.0 + 1e-3], 1e-30, &mut random()).unwrap();
        assert_eq!(cold, Choice { token: 1, log_probability: 0.0 });
        let large = choose(&[f32::MAX, f32::MIN], 1.0, &mut random()).unwrap();
        assert_eq!(large.token, 0);
        assert_eq!(choose(&[0.0, f32::NAN], 1.0, &mut random()), None);
        assert_eq!(choose(&[f32::INFINITY, 0.0], 1.0, &mut random()), None);
        assert_eq!(choose(&[], 1.0, &mut random()), None);
    }
}
