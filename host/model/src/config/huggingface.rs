//! `config.json` of a checkpoint in Hugging Face's layout.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{Architecture, Llama3Scaling, ModelConfig, Rope};
use crate::gguf::ModelError;

/// No sensible `config.json` is larger.
const MAXIMUM_CONFIG: u64 = 1 << 20;

impl ModelConfig {
    /// Reads a `config.json`.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let fail = |reason: String| ModelError { path: path.to_owned(), reason };
        let size = std::fs::metadata(path).map_err(|error| fail(error.to_string()))?.len();
        if size > MAXIMUM_CONFIG {
            return Err(fail(format!("it has {size} bytes, too many for a configuration")));
        }
        let text = std::fs::read(path).map_err(|error| fail(error.to_string()))?;
        let value = serde_json::from_slice(&text).map_err(|error| fail(error.to_string()))?;
        Self::of_huggingface(&value).map_err(fail)
    }

    /// The shape that a `config.json` declares. Fails on what is not known here rather than
    /// computing something else.
    pub fn of_huggingface(value: &Value) -> Result<Self, String> {
        let fields = Fields(value.as_object().ok_or_else(|| "it is no JSON object".to_owned())?);
        let architecture = match fields.text("model_type")? {
            Some("llama") => Architecture::Llama,
            Some("qwen3") => Architecture::Qwen3,
            other => {
                return Err(format!(
                    "the architecture (`model_type`) is {:?}; known are \"llama\" (Llama, \
                     SmolLM) and \"qwen3\" (dense)",
                    other.unwrap_or("missing")
                ));
            }
        };
        for switch in ["attention_bias", "mlp_bias", "use_sliding_window"] {
            if fields.switch(switch)? == Some(true) {
                return Err(format!("`{switch}` is true, which is not known here"));
            }
        }
        match fields.text("hidden_act")? {
            Some("silu") | None => {}
            Some(other) => return Err(format!("`hidden_act` is {other:?}; only silu is known")),
        }
        let hidden = fields.required("hidden_size")?;
        let heads = fields.required("num_attention_heads")?;
        let config = Self {
            architecture,
            vocabulary: fields.required("vocab_size")?,
            hidden,
            feed_forward: fields.required("intermediate_size")?,
            layers: fields.required("num_hidden_layers")?,
            heads,
            key_value_heads: fields.number("num_key_value_heads")?.unwrap_or(heads),
            head: match fields.number("head_dim")? {
                Some(head) => head,
                None => hidden.checked_div(heads).unwrap_or(0),
            },
            epsilon: fields.fraction("rms_norm_eps")?.unwrap_or(1e-6) as f32,
            rope: rope(&fields)?,
            context: fields.number("max_position_embeddings")?.unwrap_or(2048),
            tied: fields.switch("tie_word_embeddings")?.unwrap_or(false),
        };
        config.check()?;
        Ok(config)
    }

    /// The `config.json` that transformers reads this model with.
    pub fn to_huggingface(&self) -> Value {
        let (name, class) = match self.architecture {
            Architecture::Llama => ("llama", "LlamaForCausalLM"),
            Architecture::Qwen3 => ("qwen3", "Qwen3ForCausalLM"),
        };
        let mut rope = json!({ "rope_type": "default", "rope_theta": self.rope.base });
        if let (Some(scaling), Some(rope)) = (&self.rope.scaling, rope.as_object_mut()) {
            rope.insert("rope_type".to_owned(), json!("llama3"));
            rope.insert("factor".to_owned(), json!(scaling.factor));
            rope.insert("low_freq_factor".to_owned(), json!(scaling.low));
            rope.insert("high_freq_factor".to_owned(), json!(scaling.high));
            rope.insert(
                "original_max_position_embeddings".to_owned(),
                json!(scaling.original as u64),
            );
        }
        // Older versions of transformers read `rope_theta` and `rope_scaling`.
        let scaling = self.rope.scaling.as_ref().map(|_| rope.clone());
        json!({
            "architectures": [class],
            "attention_bias": false,
            "head_dim": self.head,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "intermediate_size": self.feed_forward,
            "max_position_embeddings": self.context,
            "mlp_bias": false,
            "model_type": name,
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.key_value_heads,
            "rms_norm_eps": self.epsilon,
            "rope_parameters": rope,
            "rope_scaling": scaling,
            "rope_theta": self.rope.base,
            "tie_word_embeddings": self.tied,
            "torch_dtype": "float32",
            "vocab_size": self.vocabulary,
        })
    }
}

/// transformers 5 writes `rope_parameters`, older versions `rope_theta` and `rope_scaling`.
fn rope(fields: &Fields) -> Result<Rope, String> {
    let parameters = match fields.object("rope_parameters")? {
        Some(parameters) => Some(parameters),
        None => fields.object("rope_scaling")?,
    };
    let base = match &parameters {
        Some(parameters) => parameters.fraction("rope_theta")?,
        None => None,
    };
    let base = match base {
        Some(base) => base,
        None => fields.fraction("rope_theta")?.unwrap_or(10_000.0),
    };
    if fields.fraction("partial_rotary_factor")?.is_some_and(|factor| factor != 1.0) {
        return Err("only rotary embeddings over the whole head are known".to_owned());
    }
    let mut scaling = None;
    if let Some(parameters) = parameters {
        let kind = match parameters.text("rope_type")? {
            Some(kind) => Some(kind),
            None => parameters.text("type")?,
        };
        match kind {
            None | Some("default") => {}
            Some("llama3") => {
                let number = |name: &str| {
                    parameters
                        .fraction(name)?
                        .map(|number| number as f32)
                        .ok_or_else(|| format!("the rope scaling has no `{name}`"))
                };
                scaling = Some(Llama3Scaling {
                    factor: number("factor")?,
                    low: number("low_freq_factor")?,
                    high: number("high_freq_factor")?,
                    original: number("original_max_position_embeddings")?,
                });
            }
            Some(other) => {
                return Err(format!(
                    "the rope scaling {other:?} is not known; known are \"default\" and \"llama3\""
                ));
            }
        }
    }
    Ok(Rope { base: base as f32, scaling, interleaved: false })
}

/// Fields of an object; null is as good as absent.
struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    fn value(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn typed<T>(
        &self,
        name: &str,
        kind: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, String> {
        self.value(name)
            .map(|value| read(value).ok_or_else(|| format!("`{name}` is no {kind}")))
            .transpose()
    }

    fn number(&self, name: &str) -> Result<Option<usize>, String> {
        self.typed(name, "whole number", |value| {
            value.as_u64().and_then(|number| usize::try_from(number).ok())
        })
    }

    fn required(&self, name: &str) -> Result<usize, String> {
        self.number(name)?.ok_or_else(|| format!("`{name}` is missing"))
    }

    fn fraction(&self, name: &str) -> Result<Option<f64>, String> {
        self.typed(name, "number", Value::as_f64)
    }

    fn text(&self, name: &str) -> Result<Option<&'a str>, String> {
        self.typed(name, "text", Value::as_str)
    }

    fn switch(&self, name: &str) -> Result<Option<bool>, String> {
        self.typed(name, "true or false", Value::as_bool)
    }

    fn object(&self, name: &str) -> Result<Option<Fields<'a>>, String> {
        Ok(self.typed(name, "object", Value::as_object)?.map(Fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn smollm() -> Value {
        json!({
            "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
            "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
            "vocab_size": 49152, "rope_theta": 100_000.0, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 8192, "tie_word_embeddings": true, "hidden_act": "silu",
        })
    }

    fn with(name: &str, value: Value) -> Result<ModelConfig, String> {
        let mut config = smollm();
        config[name] = value;
        ModelConfig::of_huggingface(&config)
    }

    #[test]
    fn both_spellings_of_the_rotary_base_are_read() {
        let config = ModelConfig::of_huggingface(&smollm()).unwrap();
        assert_eq!((config.head, config.rope.base), (64, 100_000.0));
        assert_eq!(config.parameters(), 134_515_008);
        let newer = json!({ "rope_type": "default", "rope_theta": 5000.0 });
        assert_eq!(with("rope_parameters", newer).unwrap().rope.base, 5000.0);
        let older = json!({ "type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192 });
        let rope = with("rope_scaling", older).unwrap().rope;
        assert_eq!((rope.base, rope.scaling.unwrap().factor), (100_000.0, 8.0));
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        for (name, value, part) in [
            ("model_type", json!("mamba"), "mamba"),
            ("attention_bias", json!(true), "attention_bias"),
            ("hidden_act", json!("gelu"), "gelu"),
            ("rope_scaling", json!({ "rope_type": "yarn" }), "yarn"),
            ("rope_scaling", json!({ "rope_type": "llama3" }), "factor"),
            ("hidden_size", json!("wide"), "hidden_size"),
            ("hidden_size", Value::Null, "hidden_size"),
            ("num_attention_heads", json!(0), "query heads"),
            ("num_key_value_heads", json!(2), "cannot share"),
            ("head_dim", json!(63), "even"),
            ("rms_norm_eps", json!(0), "epsilon"),
            ("num_hidden_layers", json!(100_000), "layers"),
        ] {
            let error = with(name, value).unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut config = ModelConfig::of_huggingface(&smollm()).unwrap();
        assert_eq!(ModelConfig::of_huggingface(&config.to_huggingface()).unwrap(), config);
        config.rope.scaling =
            Some(Llama3Scaling { factor: 8.0, low: 1.0, high: 4.0, original: 8192.0 });
        config.architecture = Architecture::Qwen3;
        assert_eq!(ModelConfig::of_huggingface(&config.to_huggingface()).unwrap(), config);
    }
}
