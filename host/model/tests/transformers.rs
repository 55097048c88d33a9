//! Both families against torch and transformers: logits, scores, gradients, adapters
//! (`fixtures/make.py`).
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic, in its helpers too"
)]

use std::path::{Path, PathBuf};

use candle_core::{Device, safetensors::load};
use fulgurite_model::{
    Batch, Gradients, KvSlots, LoraConfig, Model, Packed, Precision, Target, Tensor, TokenGradient,
    TokenScore, TrainingMemory,
};

const FAMILIES: [&str; 3] = ["llama", "llama3", "qwen3"];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

struct Expected(std::collections::HashMap<String, Tensor>);

impl Expected {
    fn of(name: &str) -> Self {
        Self(load(folder(name).join("expected.safetensors"), &Device::Cpu).unwrap())
    }

    fn numbers(&self, name: &str) -> Vec<f32> {
        self.0[name].flatten_all().unwrap().to_vec1().unwrap()
    }

    fn pairs(&self, name: &str) -> Vec<[f32; 2]> {
        self.numbers(name).as_chunks::<2>().0.to_vec()
    }

    fn whole(&self, name: &str) -> Vec<Vec<i32>> {
        self.0[name].to_vec2::<i32>().unwrap()
    }

    fn sequences(&self) -> Vec<Vec<u32>> {
        let lengths = self.0["lengths"].to_vec1::<i32>().unwrap();
        let rows = self.whole("ids").into_iter().zip(lengths);
        rows.map(|(row, length)| row[..length as usize].iter().map(|id| *id as u32).collect())
            .collect()
    }

    fn packed(&self) -> Packed {
        let target = |pair: Vec<i32>| Target { sequence: pair[0] as u32, position: pair[1] as u32 };
        Packed {
            sequences: self.sequences(),
            targets: self.whole("targets").into_iter().map(target).collect(),
            temperature: 0.7,
        }
    }

    fn slopes(&self) -> Vec<TokenGradient> {
        let slope =
            |[log_probability, entropy]: [f32; 2]| TokenGradient { log_probability, entropy };
        self.pairs("slopes").into_iter().map(slope).collect()
    }
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

fn largest_difference(left: &[f32], right: &[f32]) -> f32 {
    assert_eq!(left.len(), right.len());
    left.iter().zip(right).map(|(left, right)| (left - right).abs()).fold(0.0, f32::max)
}

/// |left − right| / |right|, as vectors.
fn relative(left: &[f32], right: &[f32]) -> f64 {
    assert_eq!(left.len(), right.len());
    let norm = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|n| n * n).sum::<f64>().sqrt();
    let difference = left.iter().zip(right).map(|(l, r)| f64::from(*l) - f64::from(*r));
    norm(&mut { difference }) / norm(&mut right.iter().map(|n| f64::from(*n)))
}

fn check_scores(scores: &[TokenScore], expected: &[[f32; 2]]) {
    assert_eq!(scores.len(), expected.len());
    for (score, [log_probability, entropy]) in scores.iter().zip(expected) {
        assert!((score.log_probability - log_probability).abs() < 2e-5, "{score:?}");
        assert!((score.entropy - entropy).abs() < 2e-5, "{score:?} {entropy}");
    }
}

#[test]
fn all_logits_are_those_of_transformers() {
    for name in FAMILIES {
        let mut model = Model::open_folder(&folder(name)).unwrap();
        let expected = Expected::of(name);
        for precision in [Precision::Usual, Precision::BatchInvariant] {
            model.set_precision(precision);
            let mut slots = KvSlots::new(model.config(), 2, 64).unwrap();
            let mut batch = Batch::default();
            for (slot, ids) in expected.sequences().iter().enumerate() {
                batch.push(&slots, slot as u32, ids);
            }
            let hidden = model.forward(&batch, &mut slots).unwrap();
            let logits = numbers(&model.logits(&hidden).unwrap());
            let difference = largest_difference(&logits, &expected.numbers("logits"));
            assert!(difference <= 2e-5, "{name}, {precision:?}: {difference}");
        }
    }
}

#[test]
fn scores_and_all_gradients_are_those_of_autograd() {
    for name in FAMILIES {
        let mut model = Model::open_folder(&folder(name)).unwrap();
        let expected = Expected::of(name);
        check_scores(&model.score(&expected.packed()).unwrap(), &expected.pairs("scores"));
        // With everything kept and with everything computed again.
        for memory in [1 << 30, 0] {
            model.set_training_memory(TrainingMemory { activations: memory, logits: memory });
            let mut gradients = Gradients::new(&model).unwrap();
            assert!(gradients.check().is_err(), "nothing has reached them yet");
            let scores = model
                .backward(&expected.packed(), &mut gradients, |_| Ok::<_, ()>(expected.slopes()))
                .unwrap();
            check_scores(&scores, &expected.pairs("scores"));
            gradients.check().unwrap();
            let mut sum = 0f64;
            for (parameter, _) in model.trainable() {
                let ours = numbers(gradients.get(parameter).unwrap());
                let theirs = expected.numbers(&format!("gradient.{parameter}"));
                let difference = relative(&ours, &theirs);
                assert!(difference <= 1e-4, "{name}, {parameter}: {difference}");
                sum += theirs.iter().map(|number| f64::from(*number).powi(2)).sum::<f64>();
            }
            let count = expected.0.keys().filter(|key| key.starts_with("gradient.")).count();
            assert_eq!(model.trainable().count(), count, "every parameter was compared");
            assert!((gradients.norm().unwrap() / sum.sqrt() - 1.0).abs() < 1e-5);
        }
    }
}

#[test]
fn adapters_and_their_gradients_are_those_of_autograd() {
    for name in FAMILIES {
        let mut model = Model::open_folder(&folder(name)).unwrap();
        let expected = Expected::of(name);
        let targets = ["q_proj", "v_proj", "down_proj"].map(str::to_owned).to_vec();
        model.add_lora(&LoraConfig { rank: 3, alpha: 6.0, targets, seed: 1 }).unwrap();
        let packed = expected.packed();
        // New adapters change nothing.
        check_scores(&model.score(&packed).unwrap(), &expected.pairs("scores"));
        let names: Vec<String> = model.trainable().map(|(name, _)| name.to_owned()).collect();
        assert!(names.iter().all(|name| name.contains(".lora_")), "the others are frozen");
        for parameter in &names {
            let values = expected.numbers(&format!("adapter.{parameter}"));
            model.write_parameter(parameter, &values).unwrap();
        }
        check_scores(&model.score(&packed).unwrap(), &expected.pairs("lora_scores"));
        check_scores(&model.score_base(&packed).unwrap(), &expected.pairs("scores"));
        let mut gradients = Gradients::new(&model).unwrap();
        let slopes = expected.slopes();
        model.backward(&packed, &mut gradients, |_| Ok::<_, ()>(slopes)).unwrap();
        gradients.check().unwrap();
        for parameter in &names {
            let ours = numbers(gradients.get(parameter).unwrap());
            let theirs = expected.numbers(&format!("lora.{parameter}"));
            let difference = relative(&ours, &theirs);
            assert!(difference <= 1e-4, "{name}, {parameter}: {difference}");
        }
        // Merged, the model computes the same without them.
        model.merge_lora().unwrap();
        check_scores(&model.score(&packed).unwrap(), &expected.pairs("lora_scores"));
        assert!(model.trainable().all(|(name, _)| !name.contains(".lora_")));
    }
}
