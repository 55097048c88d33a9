//! The shape of a model.

use crate::gguf::{GgufFile, ModelError};

/// The shape of a llama-family model.
#[derive(Debug, Clone, PartialEq)]
pub struct LlamaConfig {
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
    /// Key and value heads; divides [`LlamaConfig::heads`].
    pub key_value_heads: usize,
    /// Width of a head; even.
    pub head: usize,
    /// Added to the mean square in norms.
    pub epsilon: f32,
    /// Base of the rotary frequencies.
    pub rope_base: f32,
    /// Tokens of history and reply together.
    pub context: usize,
}

impl LlamaConfig {
    /// The shape that a GGUF file declares.
    pub fn of_gguf(file: &GgufFile) -> Result<Self, ModelError> {
        let architecture = file.text("general.architecture").unwrap_or("none");
        if architecture != "llama" {
            return Err(file.error(format!(
                "the architecture is {architecture:?}; only \"llama\" (Llama, SmolLM) is known"
            )));
        }
        let number = |key: &str, maximum: u64| match file.number(&format!("llama.{key}")) {
            Some(value) if (1..=maximum).contains(&value) => Ok(value as usize),
            Some(value) => Err(file
                .error(format!("`llama.{key}` is {value}, which is not between 1 and {maximum}"))),
            None => Err(file.error(format!("`llama.{key}` is missing"))),
        };
        let or = |key: &str, maximum: u64, default: usize| {
            if file.number(&format!("llama.{key}")).is_some() {
                number(key, maximum)
            } else {
                Ok(default)
            }
        };
        let hidden = number("embedding_length", 1 << 16)?;
        let heads = number("attention.head_count", 1 << 10)?;
        let config = Self {
            vocabulary: file.texts("tokenizer.ggml.tokens").map_or(0, |tokens| tokens.len()),
            hidden,
            feed_forward: number("feed_forward_length", 1 << 20)?,
            layers: number("block_count", 1 << 10)?,
            heads,
            key_value_heads: or("attention.head_count_kv", 1 << 10, heads)?,
            head: or("attention.key_length", 1 << 12, hidden / heads)?,
            epsilon: file.fraction("llama.attention.layer_norm_rms_epsilon").unwrap_or(1e-5) as f32,
            rope_base: file.fraction("llama.rope.freq_base").unwrap_or(10_000.0) as f32,
            context: number("context_length", 1 << 24)?,
        };
        if let Some(reason) = config.problem() {
            return Err(file.error(reason));
        }
        if or("rope.dimension_count", 1 << 12, config.head)? != config.head {
            return Err(file.error("only rotary embeddings over the whole head are known"));
        }
        if let Some(kind) = file.text("llama.rope.scaling.type")
            && kind != "none"
        {
            return Err(file.error(format!("the rope scaling {kind:?} is not known")));
        }
        if file.number("llama.expert_count").unwrap_or(0) > 0 {
            return Err(file.error("mixtures of experts are not known"));
        }
        Ok(config)
    }

    /// What keeps this from being a model, if anything.
    fn problem(&self) -> Option<String> {
        if self.vocabulary == 0 {
            return Some("the vocabulary `tokenizer.ggml.tokens` is missing or empty".to_owned());
        }
        if self.head == 0 || !self.head.is_multiple_of(2) {
            return Some(format!("heads are {} wide, which is not even", self.head));
        }
        if !self.heads.is_multiple_of(self.key_value_heads) {
            return Some(format!(
                "{} query heads cannot share {} key heads",
                self.heads, self.key_value_heads
            ));
        }
        if !(self.epsilon > 0.0 && self.epsilon < 1.0) {
            return Some(format!("the norms' epsilon is {}", self.epsilon));
        }
        if !(self.rope_base >= 1.0 && self.rope_base.is_finite()) {
            return Some(format!("the rotary base is {}", self.rope_base));
        }
        None
    }

    /// Bytes that one token's keys and values take.
    pub fn state_bytes_per_token(&self) -> usize {
        2 * self.layers * self.key_value_heads * self.head * size_of::<f32>()
    }
}
