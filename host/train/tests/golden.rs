//! Algorithms against PyTorch: `golden/golden.py` made `golden/golden.json`.

// Clippy sees tests only inside `#[test]` functions.
#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

use fulgurite_model::TokenScore;
use fulgurite_train::{
    Estimator, KlEstimator,
    advantage::advantages,
    loss::{Clip, Objective, PolicyLoss, Token, correction, evaluate},
    optimizer::{AdamW, AdamWSettings, clip},
    schedule::{Decay, Schedule},
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    advantages: Vec<AdvantageCase>,
    tokens: Tokens,
    losses: Vec<LossCase>,
    adam: Adam,
    schedules: Schedules,
}

#[derive(Deserialize)]
struct AdvantageCase {
    estimator: Estimator,
    groups: Vec<Vec<Vec<f64>>>,
    advantages: Vec<Vec<Vec<f64>>>,
}

#[derive(Deserialize)]
struct Tokens {
    new: Vec<f64>,
    entropy: Vec<f64>,
    old: Vec<f64>,
    reference: Vec<f64>,
    behaviour: Vec<f64>,
    advantage: Vec<f64>,
    weight: Vec<f64>,
}

#[derive(Deserialize)]
struct LossCase {
    policy: String,
    clip: Option<[f64; 3]>,
    kl: Option<KlEstimator>,
    beta: f64,
    bonus: f64,
    threshold: Option<f64>,
    value: f64,
    log_probability: Vec<f64>,
    entropy: Vec<f64>,
}

#[derive(Deserialize)]
struct Adam {
    start: [Vec<f32>; 2],
    most: f64,
    steps: Vec<AdamStep>,
}

#[derive(Deserialize)]
struct AdamStep {
    rate: f64,
    gradients: [Vec<f32>; 2],
    norm: f64,
    values: [Vec<f32>; 2],
}

#[derive(Deserialize)]
struct Schedules {
    cosine: Vec<f64>,
    linear: Vec<f64>,
    warm_up: Vec<f64>,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("golden/golden.json")).unwrap()
}

/// At most a millionth off, of what is large; a millionth of a tenth of what is small.
#[track_caller]
fn close(found: f64, expected: f64, what: &str) {
    let most = 1e-6 * expected.abs().max(0.1);
    assert!((found - expected).abs() <= most, "{what}: {found} instead of {expected}");
}

fn objective(case: &LossCase) -> Objective {
    let policy = match (case.policy.as_str(), case.clip) {
        ("reinforce", _) => PolicyLoss::Reinforce,
        ("likelihood", _) => PolicyLoss::Likelihood,
        (_, Some([low, high, dual])) => PolicyLoss::Ppo(Clip { low, high, dual }),
        other => panic!("{other:?}"),
    };
    Objective { policy, kl: case.kl.map(|estimator| (estimator, case.beta)), entropy: case.bonus }
}

fn tokens(golden: &Tokens, threshold: Option<f64>) -> (Vec<TokenScore>, Vec<Token>) {
    let scores = golden
        .new
        .iter()
        .zip(&golden.entropy)
        .map(|(new, entropy)| TokenScore { log_probability: *new as f32, entropy: *entropy as f32 })
        .collect();
    let tokens = (0..golden.new.len())
        .map(|at| Token {
            old: golden.old[at],
            reference: Some(golden.reference[at]),
            advantage: golden.advantage[at],
            correction: threshold
                .map_or(1.0, |most| correction(golden.old[at], golden.behaviour[at], most)),
            weight: golden.weight[at],
        })
        .collect();
    (scores, tokens)
}

#[test]
fn advantages_are_those_of_the_reference() {
    for case in golden().advantages {
        let found = advantages(case.estimator, &case.groups);
        let flat = |groups: &[Vec<Vec<f64>>]| -> Vec<Vec<f64>> { groups.concat() };
        let (found, expected) = (flat(&found), flat(&case.advantages));
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(expected) {
                close(*found, *expected, &format!("{:?}", case.estimator));
            }
        }
    }
}

#[test]
fn losses_and_their_gradients_are_those_of_the_reference() {
    let golden = golden();
    let mut seen = [0.0; 3];
    for case in &golden.losses {
        let (scores, tokens) = tokens(&golden.tokens, case.threshold);
        let found = evaluate(&objective(case), &scores, &tokens);
        let what = format!("{} {:?} {} {:?}", case.policy, case.kl, case.bonus, case.threshold);
        close(found.value, case.value, &what);
        assert_eq!(found.gradients.len(), case.log_probability.len());
        for (at, gradient) in found.gradients.iter().enumerate() {
            let what = format!("{what}, token {at}");
            close(gradient.log_probability.into(), case.log_probability[at], &what);
            close(gradient.entropy.into(), case.entropy[at], &what);
        }
        for (seen, count) in seen.iter_mut().zip([
            found.sums.clipped_low,
            found.sums.clipped_high,
            found.sums.clipped_dual,
        ]) {
            *seen += count;
        }
    }
    assert!(seen.iter().all(|count| *count > 0.0), "the tokens meet every bound: {seen:?}");
}

#[test]
fn gradients_are_those_of_finite_differences() {
    let golden = golden();
    for case in &golden.losses {
        let (scores, tokens) = tokens(&golden.tokens, case.threshold);
        let objective = objective(case);
        let gradients = evaluate(&objective, &scores, &tokens).gradients;
        for at in 0..scores.len() {
            // Powers of two, which float32 adds to log-probabilities nearly exactly.
            let step = 2.0_f32.powi(-10);
            for by_entropy in [false, true] {
                let moved = |step: f32| {
                    let mut score = scores[at];
                    let field =
                        if by_entropy { &mut score.entropy } else { &mut score.log_probability };
                    *field += step;
                    let at = f64::from(*field);
                    (at, score)
                };
                let value = |score| evaluate(&objective, &[score], &tokens[at..=at]).value;
                let (above, below) = (moved(step), moved(-step));
                let slope = (value(above.1) - value(below.1)) / (above.0 - below.0);
                let gradient = &gradients[at];
                let given =
                    f64::from(if by_entropy { gradient.entropy } else { gradient.log_probability });
                let most = 2e-6 + 2e-6 * given.abs().max(slope.abs());
                // Next to a bound the loss has a corner, and neither side is wrong.
                let corner = {
                    let side = |score| {
                        evaluate(&objective, &[score], &tokens[at..=at]).gradients[0]
                            .log_probability
                    };
                    (side(above.1) - side(below.1)).abs() > 1e-2 * side(above.1).abs().max(1e-6)
                };
                assert!(
                    (slope - given).abs() <= most || corner,
                    "{} {:?}, token {at}: {given} instead of {slope}",
                    case.policy,
                    case.kl
                );
            }
        }
    }
}

#[test]
fn adam_takes_the_steps_of_the_reference() {
    let Adam { start, most, steps } = golden().adam;
    let settings = AdamWSettings { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1 };
    let mut adam = AdamW::new(settings);
    let mut values = start;
    let mut clipped = 0;
    for (index, step) in steps.into_iter().enumerate() {
        let squares = step.gradients.iter().flatten().map(|value| f64::from(*value).powi(2));
        let norm = squares.sum::<f64>().sqrt();
        close(norm, step.norm, "norm");
        let scale = clip(norm, most);
        clipped += usize::from(scale < 1.0);
        let mut update = adam.begin(step.rate, scale);
        let names = [("matrix", true), ("vector", false)];
        for (((name, decays), values), gradient) in
            names.into_iter().zip(&mut values).zip(&step.gradients)
        {
            update.apply(name, values, gradient, decays).unwrap();
        }
        for (found, expected) in values.iter().flatten().zip(step.values.iter().flatten()) {
            close((*found).into(), (*expected).into(), &format!("step {index}"));
        }
    }
    assert!((1..10).contains(&clipped), "some steps are clipped and some are not");
}

#[test]
fn schedules_are_those_of_the_reference() {
    let Schedules { cosine, linear, warm_up } = golden().schedules;
    let schedule = |decay| Schedule { decay, steps: 9, floor: 0.1, ..Schedule::constant(0.3) };
    for (decay, rates) in [(Decay::Cosine, cosine), (Decay::Linear, linear)] {
        for (step, rate) in (0..).zip(rates) {
            close(schedule(decay).at(step), rate, &format!("{decay:?} {step}"));
        }
    }
    let rising = Schedule { warm_up: 4, ..Schedule::constant(0.3) };
    for (step, rate) in (0..).zip(warm_up) {
        close(rising.at(step), rate, &format!("warm-up {step}"));
    }
}
