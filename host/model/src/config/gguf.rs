//! The shape that a GGUF file declares.

use super::{Architecture, ModelConfig, Rope};
use crate::gguf::{GgufFile, ModelError};

impl ModelConfig {
    /// The shape of the model in a GGUF file. Its `rope_freqs`, if any, are a tensor and not part
    /// of this.
    pub fn of_gguf(file: &GgufFile) -> Result<Self, ModelError> {
        let name = file.text("general.architecture").unwrap_or("none");
        let architecture = match name {
            "llama" => Architecture::Llama,
            "qwen3" => Architecture::Qwen3,
            other => {
                return Err(file.error(format!(
                    "the architecture is {other:?}; known are \"llama\" (Llama, SmolLM) and \
                     \"qwen3\" (dense)"
                )));
            }
        };
        let key = |key: &str| format!("{name}.{key}");
        let number = |part: &str, maximum: u64| match file.number(&key(part)) {
            Some(value) if (1..=maximum).contains(&value) => Ok(value as usize),
            Some(value) => Err(file.error(format!(
                "`{}` is {value}, which is not between 1 and {maximum}",
                key(part)
            ))),
            None => Err(file.error(format!("`{}` is missing", key(part)))),
        };
        let or = |part: &str, maximum: u64, default: usize| {
            if file.number(&key(part)).is_some() { number(part, maximum) } else { Ok(default) }
        };
        let vocabulary = file.texts("tokenizer.ggml.tokens").map_or(0, |tokens| tokens.len());
        if vocabulary == 0 {
            return Err(file.error("the vocabulary `tokenizer.ggml.tokens` is missing or empty"));
        }
        let hidden = number("embedding_length", 1 << 16)?;
        let heads = number("attention.head_count", 1 << 10)?;
        let fraction = |part: &str, default: f64| file.fraction(&key(part)).unwrap_or(default);
        let config = Self {
            architecture,
            vocabulary,
            hidden,
            feed_forward: number("feed_forward_length", 1 << 20)?,
            layers: number("block_count", 1 << 10)?,
            heads,
            key_value_heads: or("attention.head_count_kv", 1 << 10, heads)?,
            head: or("attention.key_length", 1 << 12, hidden / heads)?,
            epsilon: fraction("attention.layer_norm_rms_epsilon", 1e-5) as f32,
            rope: Rope {
                base: fraction("rope.freq_base", 10_000.0) as f32,
                scaling: None,
                // The converter reorders the rows of llama's queries and keys, and of no other's.
                interleaved: architecture == Architecture::Llama,
            },
            context: number("context_length", 1 << 24)?,
            tied: !file.has_tensor("output.weight"),
        };
        config.check().map_err(|reason| file.error(reason))?;
        if or("rope.dimension_count", 1 << 12, config.head)? != config.head {
            return Err(file.error("only rotary embeddings over the whole head are known"));
        }
        if or("attention.value_length", 1 << 12, config.head)? != config.head {
            return Err(file.error("only values as wide as keys are known"));
        }
        if let Some(kind) = file.text(&key("rope.scaling.type"))
            && kind != "none"
        {
            return Err(file.error(format!("the rope scaling {kind:?} is not known")));
        }
        if file.number(&key("expert_count")).unwrap_or(0) > 0 {
            return Err(file.error("mixtures of experts are not known"));
        }
        Ok(config)
    }
}
