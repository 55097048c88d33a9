//! What is sampled and what is trained are the same distribution, and packing changes nothing.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic, in its helpers too"
)]

use fulgurite_model::{
    Architecture, Batch, Gradients, KvSlots, Model, ModelConfig, Packed, Precision, Rope, Target,
    TokenGradient,
};

fn config(architecture: Architecture) -> ModelConfig {
    ModelConfig {
        architecture,
        vocabulary: 257,
        hidden: 48,
        feed_forward: 80,
        layers: 3,
        heads: 6,
        key_value_heads: 2,
        head: 12,
        epsilon: 1e-6,
        rope: Rope { base: 10_000.0, scaling: None, interleaved: false },
        context: 1024,
        tied: architecture == Architecture::Qwen3,
    }
}

/// A model whose distributions are as steep as those of trained ones: the rarest of 4,096 sampled
/// tokens has a log-probability of −9. What f32 rounds grows with the logits.
fn model(architecture: Architecture, precision: Precision) -> Model {
    let mut model = Model::random(&config(architecture), 5).unwrap();
    model.set_precision(precision);
    let name = if model.config().tied { "model.embed_tokens.weight" } else { "lm_head.weight" };
    let (_, head) = model.trainable().find(|(known, _)| *known == name).unwrap();
    let mut head: Vec<f32> = head.flatten_all().unwrap().to_vec1().unwrap();
    head.iter_mut().for_each(|number| *number *= 8.0);
    model.write_parameter(name, &head).unwrap();
    model
}

struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % below
    }

    /// From softmax(logits), with the log-probability.
    fn choose(&mut self, logits: &[f32]) -> (u32, f64) {
        let largest = logits.iter().copied().fold(f32::MIN, f32::max);
        let weights: Vec<f64> = logits.iter().map(|l| f64::from(l - largest).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let mut rest = self.next(1 << 30) as f64 / f64::from(1 << 30) * sum;
        let chosen = weights.iter().position(|weight| {
            rest -= weight;
            rest < 0.0
        });
        let chosen = chosen.unwrap_or(logits.len() - 1);
        (chosen as u32, (weights[chosen] / sum).ln())
    }
}

struct Conversation {
    tokens: Vec<u32>,
    /// Tokens of a prompt that the model has not read yet.
    unread: usize,
    /// Tokens still to be sampled in this turn.
    open: usize,
    sampled: Vec<(u32, f64)>,
}

/// Samples conversations of several turns side by side: prompts are read in parts while others
/// write, and everything stays in the cache, which has room for messages as long as the replies.
fn converse(model: &Model, count: usize, length: usize) -> Vec<Conversation> {
    let mut random = Random(3);
    let mut slots = KvSlots::new(model.config(), count, 2 * length).unwrap();
    let mut all: Vec<Conversation> = (0..count)
        .map(|_| Conversation { tokens: Vec::new(), unread: 0, open: 0, sampled: Vec::new() })
        .collect();
    while all.iter().any(|one| one.sampled.len() < length) {
        let mut batch = Batch::default();
        let mut ends = Vec::new();
        for (slot, one) in (0u32..).zip(&mut all) {
            if one.sampled.len() >= length {
                continue;
            }
            if one.unread == 0 && one.open == 0 {
                // The next turn: a message of chance, and how long the reply may be.
                one.unread = 3 + random.next(40);
                one.open = 5 + random.next(60);
                let room = slots.capacity() - slots.length(slot);
                if room < one.unread + one.open + 1 {
                    slots.truncate(slot, 0);
                    one.tokens.clear();
                    one.sampled.clear();
                }
                one.tokens.extend((0..one.unread).map(|_| random.next(257) as u32));
            }
            let known = slots.length(slot);
            let take = (one.tokens.len() - known).min(1 + random.next(24));
            batch.push(&slots, slot, &one.tokens[known..known + take]);
            one.unread = one.unread.saturating_sub(take);
            if known + take == one.tokens.len() {
                ends.push((slot as usize, batch.len() - 1));
            }
        }
        let hidden = model.forward(&batch, &mut slots).unwrap();
        let logits = model.logits(&hidden).unwrap().to_vec2::<f32>().unwrap();
        for (slot, row) in ends {
            let one = &mut all[slot];
            let (token, log_probability) = random.choose(&logits[row]);
            one.sampled.push((one.tokens.len() as u32, log_probability));
            one.tokens.push(token);
            one.open = one.open.saturating_sub(1);
        }
    }
    all
}

#[test]
fn log_probabilities_of_sampling_and_training_agree_over_thousands_of_tokens() {
    for architecture in [Architecture::Llama, Architecture::Qwen3] {
        for precision in [Precision::Usual, Precision::BatchInvariant] {
            let model = model(architecture, precision);
            let conversations = converse(&model, 8, 512);
            let mut targets = Vec::new();
            let mut expected = Vec::new();
            for (sequence, one) in (0u32..).zip(&conversations) {
                for (position, log_probability) in &one.sampled {
                    targets.push(Target { sequence, position: *position });
                    expected.push(*log_probability);
                }
            }
            assert!(targets.len() >= 4096, "{}", targets.len());
            let sequences = conversations.iter().map(|one| one.tokens.clone()).collect();
            let packed = Packed { sequences, targets, temperature: 1.0 };
            let scores = model.score(&packed).unwrap();
            let differences = scores
                .iter()
                .zip(&expected)
                .map(|(score, expected)| (f64::from(score.log_probability) - expected).abs());
            let largest = differences.fold(0.0, f64::max);
            assert!(largest <= 1e-5, "{architecture:?}, {precision:?}: {largest}");
            let spread = expected.iter().copied().fold(0.0, f64::min);
            assert!(spread < -8.0, "the distributions are not flat: {spread}");
        }
    }
}

fn some_sequences() -> Packed {
    let mut random = Random(9);
    let sequences: Vec<Vec<u32>> = [90, 7, 33]
        .iter()
        .map(|length| (0..*length).map(|_| random.next(257) as u32).collect())
        .collect();
    let target = |sequence, position| Target { sequence, position };
    let targets = (1..90).map(|position| target(0, position));
    let targets = targets.chain([target(2, 32), target(1, 3), target(2, 5)]).collect();
    Packed { sequences, targets, temperature: 0.8 }
}

/// The targets of one sequence, by itself.
fn alone(packed: &Packed, number: usize) -> Packed {
    let own = packed.targets.iter().filter(|target| target.sequence as usize == number);
    Packed {
        sequences: vec![packed.sequences[number].clone()],
        targets: own.map(|target| Target { sequence: 0, ..*target }).collect(),
        temperature: packed.temperature,
    }
}

fn slopes(packed: &Packed) -> Vec<TokenGradient> {
    let slope = |target: &Target| TokenGradient {
        log_probability: (target.position as f32).sin(),
        entropy: 0.1,
    };
    packed.targets.iter().map(slope).collect()
}

#[test]
fn packed_sequences_never_see_each_other() {
    let model = model(Architecture::Qwen3, Precision::BatchInvariant);
    let packed = some_sequences();
    let together = model.score(&packed).unwrap();
    for number in 0..3 {
        let scores = model.score(&alone(&packed, number)).unwrap();
        let own = packed.targets.iter().zip(&together);
        let own: Vec<_> =
            own.filter(|(target, _)| target.sequence as usize == number).map(|(_, s)| *s).collect();
        assert_eq!(scores, own, "bit by bit");
    }
    // What stands behind a target has no influence either.
    let mut longer = packed.clone();
    longer.sequences[1].extend([1, 2, 3]);
    assert_eq!(model.score(&longer).unwrap(), together);
}

#[test]
fn gradients_of_packed_sequences_are_sums() {
    let model = model(Architecture::Qwen3, Precision::Usual);
    let packed = some_sequences();
    let mut together = Gradients::new(&model).unwrap();
    model.backward(&packed, &mut together, |_| Ok::<_, ()>(slopes(&packed))).unwrap();
    // Added up over passes.
    let mut sum = Gradients::new(&model).unwrap();
    for number in 0..3 {
        let one = alone(&packed, number);
        model.backward(&one, &mut sum, |_| Ok::<_, ()>(slopes(&one))).unwrap();
    }
    for ((name, left), (other, right)) in together.iter().zip(sum.iter()) {
        assert_eq!(name, other);
        let difference = (left - right).unwrap().sqr().unwrap().sum_all().unwrap();
        let size = right.sqr().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap();
        let relative = (difference.to_scalar::<f32>().unwrap() / size).sqrt();
        assert!(relative < 1e-5, "{name}: {relative}");
    }
    let norm = sum.norm().unwrap();
    sum.scale(0.5).unwrap();
    assert!((sum.norm().unwrap() / norm - 0.5).abs() < 1e-6);
    sum.clear().unwrap();
    assert_eq!(sum.norm().unwrap(), 0.0);
    assert!(sum.check().is_err(), "cleared gradients were not reached");
}

#[test]
fn an_update_is_seen_at_once_by_whoever_shares_the_model() {
    let trained = model(Architecture::Llama, Precision::Usual);
    let sampling = trained.clone();
    let packed = some_sequences();
    let sum = |model: &Model| {
        model.score(&packed).unwrap().iter().map(|s| f64::from(s.log_probability)).sum::<f64>()
    };
    let mut last = sum(&sampling);
    let mut gradients = Gradients::new(&trained).unwrap();
    for _ in 0..3 {
        gradients.clear().unwrap();
        // The loss is minus the sum of the log-probabilities.
        let minus = TokenGradient { log_probability: -1.0, entropy: 0.0 };
        trained
            .backward(&packed, &mut gradients, |scores| Ok::<_, ()>(vec![minus; scores.len()]))
            .unwrap();
        gradients.check().unwrap();
        let rate = 0.5 / gradients.norm().unwrap() as f32;
        trained
            .update(&gradients, |_, values, gradient| {
                values.iter_mut().zip(gradient).for_each(|(value, slope)| *value -= rate * slope);
            })
            .unwrap();
        let now = sum(&sampling);
        assert!(now > last + 1.0, "{last} → {now}");
        last = now;
    }
}

#[test]
fn passes_that_make_no_sense_are_errors() {
    let model = model(Architecture::Llama, Precision::Usual);
    let good = some_sequences();
    let target = |sequence, position| vec![Target { sequence, position }];
    for bad in [
        Packed { temperature: 0.0, ..good.clone() },
        Packed { temperature: f32::NAN, ..good.clone() },
        Packed { targets: target(3, 1), ..good.clone() },
        Packed { targets: target(1, 0), ..good.clone() },
        Packed { targets: target(1, 7), ..good.clone() },
        Packed { sequences: vec![vec![1, 99_999]], targets: target(0, 1), ..good.clone() },
    ] {
        assert!(model.score(&bad).is_err(), "{bad:?}");
    }
    let mut gradients = Gradients::new(&model).unwrap();
    let short = model.backward(&good, &mut gradients, |_| Ok::<_, ()>(vec![]));
    assert!(short.unwrap_err().to_string().contains("0 gradients for"));
    let failed = model.backward(&good, &mut gradients, |_| Err("no loss"));
    assert!(failed.unwrap_err().to_string().contains("loss"));
    let nothing = Packed { targets: vec![], ..good };
    assert!(model.score(&nothing).unwrap().is_empty());
    assert!(model.write_parameter("model.norm.weight", &[1.0]).is_err());
    assert!(model.write_parameter("no such", &[1.0]).is_err());
}

#[test]
fn gradients_that_are_no_numbers_are_named() {
    let model = model(Architecture::Llama, Precision::Usual);
    let packed = some_sequences();
    let mut gradients = Gradients::new(&model).unwrap();
    let bad = TokenGradient { log_probability: f32::INFINITY, entropy: 0.0 };
    model.backward(&packed, &mut gradients, |scores| Ok::<_, ()>(vec![bad; scores.len()])).unwrap();
    let error = gradients.check().unwrap_err().to_string();
    assert!(error.contains("not finite") && error.contains("weight"), "{error}");
}
