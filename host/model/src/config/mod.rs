//! The shape of a model.

mod gguf;
mod huggingface;

use serde::{Deserialize, Serialize};

/// Which family a model belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// Llama, SmolLM and what is built like them.
    Llama,
    /// Qwen3 (dense): queries and keys are normed head by head.
    Qwen3,
}

impl Architecture {
    /// Whether queries and keys are normed before they are rotated.
    pub fn norms_heads(self) -> bool {
        self == Self::Qwen3
    }
}

/// Rotary embeddings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rope {
    /// Base of the frequencies.
    pub base: f32,
    /// How the frequencies were stretched for longer contexts.
    #[serde(default)]
    pub scaling: Option<Llama3Scaling>,
    /// Whether a rotation turns neighbours (llama in GGUF) instead of the halves of a head.
    #[serde(default)]
    pub interleaved: bool,
}

/// The stretching of Llama 3.1: frequencies with wavelengths beyond `original / low` are divided
/// by `factor`, those below `original / high` are kept, those between are blended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Llama3Scaling {
    /// How much slower the slow frequencies become.
    pub factor: f32,
    /// `low_freq_factor`.
    pub low: f32,
    /// `high_freq_factor`; greater than `low`.
    pub high: f32,
    /// The context that the model was first trained with, in tokens.
    pub original: f32,
}

impl Rope {
    /// One frequency for every two numbers of a head, in radians a position.
    pub(crate) fn frequencies(&self, head: usize) -> Vec<f32> {
        // In f32, as the reference implementations round it.
        let frequency = |at: usize| {
            let plain = 1.0 / self.base.powf(at as f32 / head as f32);
            let Some(Llama3Scaling { factor, low, high, original }) = self.scaling else {
                return plain;
            };
            let wavelength = 2.0 * std::f32::consts::PI / plain;
            let share = ((original / wavelength - low) / (high - low)).clamp(0.0, 1.0);
            (1.0 - share) * plain / factor + share * plain
        };
        (0..head).step_by(2).map(frequency).collect()
    }
}

/// The shape of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// The family.
    pub architecture: Architecture,
    /// Tokens of the vocabulary.
    pub vocabulary: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the feed-forward layers.
    pub feed_forward: usize,
    /// Number of layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub key_value_heads: usize,
    /// Width of a head; even.
    pub head: usize,
    /// Added to the mean square in norms.
    pub epsilon: f32,
    /// Rotary embeddings.
    pub rope: Rope,
    /// Tokens of history and reply together.
    pub context: usize,
    /// Whether one matrix embeds tokens and gives the logits.
    pub tied: bool,
}

impl ModelConfig {
    /// What keeps this from being a model, if anything.
    pub fn check(&self) -> Result<(), String> {
        for (name, value, maximum) in [
            ("vocabulary size", self.vocabulary, 1 << 22),
            ("hidden width", self.hidden, 1 << 16),
            ("feed-forward width", self.feed_forward, 1 << 20),
            ("number of layers", self.layers, 1 << 10),
            ("number of query heads", self.heads, 1 << 10),
            ("number of key heads", self.key_value_heads, 1 << 10),
            ("width of a head", self.head, 1 << 12),
            ("context", self.context, 1 << 24),
        ] {
            if !(1..=maximum).contains(&value) {
                return Err(format!("the {name} is {value}, which is not between 1 and {maximum}"));
            }
        }
        if !self.head.is_multiple_of(2) {
            return Err(format!("heads are {} wide, which is not even", self.head));
        }
        if !self.heads.is_multiple_of(self.key_value_heads) {
            return Err(format!(
                "{} query heads cannot share {} key heads",
                self.heads, self.key_value_heads
            ));
        }
        if !(self.epsilon > 0.0 && self.epsilon < 1.0) {
            return Err(format!("the norms' epsilon is {}", self.epsilon));
        }
        if !(self.rope.base >= 1.0 && self.rope.base.is_finite()) {
            return Err(format!("the rotary base is {}", self.rope.base));
        }
        if let Some(scaling) = &self.rope.scaling {
            let Llama3Scaling { factor, low, high, original } = *scaling;
            let sane = factor >= 1.0
                && low > 0.0
                && high > low
                && original >= 1.0
                && [factor, high, original].iter().all(|number| number.is_finite());
            if !sane {
                return Err(format!("the rope scaling makes no sense: {scaling:?}"));
            }
        }
        Ok(())
    }

    /// Width of all query heads together.
    pub fn query_width(&self) -> usize {
        self.heads * self.head
    }

    /// Width of all key heads together.
    pub fn key_width(&self) -> usize {
        self.key_value_heads * self.head
    }

    /// Bytes that one token's keys and values take.
    pub fn state_bytes_per_token(&self) -> usize {
        2 * self.layers * self.key_width() * size_of::<f32>()
    }

    /// Number of parameters.
    pub fn parameters(&self) -> usize {
        let heads = if self.architecture.norms_heads() { 2 * self.head } else { 0 };
        let attention = self.hidden * (2 * self.query_width() + 2 * self.key_width()) + heads;
        let layer = attention + 3 * self.hidden * self.feed_forward + 2 * self.hidden;
        let ends = if self.tied { 1 } else { 2 };
        self.layers * layer + ends * self.vocabulary * self.hidden + self.hidden
    }
}
