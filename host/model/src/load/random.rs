//! Models of chance.

use std::path::PathBuf;

use rand::RngExt;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use super::{Builder, Loaded, Source};
use crate::{Model, ModelConfig, ModelError};

impl Model {
    /// A model that has learned nothing: normal random numbers, the same for the same seed.
    /// Embeddings have the deviation 0.02, matrices 1/√in (less by √(2 · layers) where they write
    /// to the residual stream), norms are 1.
    pub fn random(config: &ModelConfig, seed: u64) -> Result<Self, ModelError> {
        let mut source = Chance { random: ChaCha8Rng::seed_from_u64(seed), layers: config.layers };
        Builder::build(config, &mut source, config.rope.frequencies(config.head))
    }
}

struct Chance {
    random: ChaCha8Rng,
    layers: usize,
}

impl Source for Chance {
    fn matrix(&mut self, name: &str, outputs: usize, inputs: usize) -> Result<Loaded, ModelError> {
        let deviation = if name.starts_with("model.layers") {
            let written = name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
            let share = if written { (2.0 * self.layers as f32).sqrt() } else { 1.0 };
            1.0 / (inputs as f32).sqrt() / share
        } else {
            0.02
        };
        Ok(Loaded::Plain(normal(&mut self.random, outputs * inputs, deviation)))
    }

    fn vector(&mut self, _: &str, length: usize) -> Result<Vec<f32>, ModelError> {
        Ok(vec![1.0; length])
    }

    fn error(&self, reason: String) -> ModelError {
        ModelError { path: PathBuf::from("(random)"), reason }
    }
}

/// Normal random numbers, by Box and Muller.
pub(crate) fn normal(random: &mut ChaCha8Rng, count: usize, deviation: f32) -> Vec<f32> {
    let mut numbers = Vec::with_capacity(count + 1);
    while numbers.len() < count {
        let (first, second): (f64, f64) = (random.random(), random.random());
        let radius = (-2.0 * (1.0 - first).ln()).sqrt() * f64::from(deviation);
        let (sine, cosine) = (second * std::f64::consts::TAU).sin_cos();
        numbers.extend([(radius * cosine) as f32, (radius * sine) as f32]);
    }
    numbers.truncate(count);
    numbers
}
