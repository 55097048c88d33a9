//! Writing checkpoints and adapters.

use std::{
    borrow::Cow,
    fs::File,
    io::{BufWriter, Read, Write},
    path::Path,
};

use candle_core::Tensor;
use safetensors::{Dtype, View, serialize_to_file};
use serde_json::{Value, json};

use super::safetensors::Checkpoint;
use crate::{LoraConfig, Model, ModelError, numbers::numbers};

/// Files of an adapter in PEFT's layout.
const ADAPTER: &str = "adapter_model.safetensors";
const ADAPTER_CONFIG: &str = "adapter_config.json";
/// No sensible `adapter_config.json` is larger.
const MAXIMUM_CONFIG: u64 = 1 << 20;

impl Model {
    /// Writes `config.json` and `model.safetensors` (f32) into a folder that exists. Each file
    /// appears whole or not at all. Adapters must be merged first.
    pub fn save(&self, folder: &Path) -> Result<(), ModelError> {
        let path = folder.join("model.safetensors");
        let fail = |reason: String| ModelError { path: path.clone(), reason };
        if self.lora().is_some() {
            return Err(fail("the model has adapters; merge them, or save these".to_owned()));
        }
        if !self.is_plain() {
            return Err(fail("quantised weights cannot be saved; load them as plain".to_owned()));
        }
        if self.has_foreign_rotations() || self.config().rope.interleaved {
            return Err(fail(
                "its rotary embeddings are those of a GGUF file, which `config.json` cannot \
                 express"
                    .to_owned(),
            ));
        }
        write_tensors(&path, self.trainable())?;
        write_json(&folder.join("config.json"), &self.config().to_huggingface())
    }

    /// Writes the adapters into a folder that exists, as PEFT does: `adapter_config.json` and
    /// `adapter_model.safetensors`. `base` says which model they belong to.
    pub fn save_peft(&self, folder: &Path, base: &str) -> Result<(), ModelError> {
        let path = folder.join(ADAPTER);
        let Some(lora) = self.lora() else {
            return Err(ModelError { path, reason: "the model has no adapters".to_owned() });
        };
        write_tensors(&path, self.trainable())?;
        let config = json!({
            "base_model_name_or_path": base,
            "bias": "none",
            "fan_in_fan_out": false,
            "inference_mode": true,
            "init_lora_weights": true,
            "lora_alpha": lora.alpha,
            "lora_dropout": 0.0,
            "modules_to_save": null,
            "peft_type": "LORA",
            "r": lora.rank,
            "target_modules": lora.targets,
            "task_type": "CAUSAL_LM",
            "use_dora": false,
            "use_rslora": false,
        });
        write_json(&folder.join(ADAPTER_CONFIG), &config)
    }

    /// Gives the model the adapters in a folder of PEFT's layout.
    pub fn load_peft(&mut self, folder: &Path) -> Result<(), ModelError> {
        let path = folder.join(ADAPTER_CONFIG);
        let fail = |reason: String| ModelError { path: path.clone(), reason };
        let mut text = Vec::new();
        File::open(&path)
            .and_then(|file| file.take(MAXIMUM_CONFIG).read_to_end(&mut text))
            .map_err(|error| fail(error.to_string()))?;
        let value = serde_json::from_slice(&text).map_err(|error| fail(error.to_string()))?;
        let config = peft_config(&value).map_err(fail)?;
        let mut checkpoint = Checkpoint::open_file(&folder.join(ADAPTER))?;
        self.add_lora(&config)?;
        let wanted: Vec<(String, Vec<usize>)> = self
            .trainable()
            .map(|(name, tensor)| (name.to_owned(), tensor.dims().to_vec()))
            .collect();
        for (name, shape) in wanted {
            let values = checkpoint.numbers(&name, &shape)?;
            self.write_parameter(&name, &values).map_err(|error| ModelError {
                path: folder.join(ADAPTER),
                reason: error.to_string(),
            })?;
        }
        checkpoint.nothing_left(self.config())
    }
}

fn peft_config(value: &Value) -> Result<LoraConfig, String> {
    if value.get("peft_type").and_then(Value::as_str) != Some("LORA") {
        return Err("`peft_type` is not \"LORA\"".to_owned());
    }
    for switch in ["use_dora", "use_rslora", "fan_in_fan_out"] {
        if value.get(switch).and_then(Value::as_bool) == Some(true) {
            return Err(format!("`{switch}` is true, which is not known here"));
        }
    }
    for table in ["rank_pattern", "alpha_pattern"] {
        if value.get(table).and_then(Value::as_object).is_some_and(|table| !table.is_empty()) {
            return Err(format!("`{table}` is given, which is not known here"));
        }
    }
    if value.get("bias").and_then(Value::as_str).is_some_and(|bias| bias != "none") {
        return Err("`bias` is not \"none\"".to_owned());
    }
    let rank = value.get("r").and_then(Value::as_u64).ok_or("`r` is no whole number")?;
    let alpha = value.get("lora_alpha").and_then(Value::as_f64).ok_or("`lora_alpha` is missing")?;
    let targets = value.get("target_modules").and_then(Value::as_array);
    let targets = targets.ok_or("`target_modules` is no list")?;
    let config = LoraConfig {
        rank: usize::try_from(rank).unwrap_or(usize::MAX),
        alpha: alpha as f32,
        targets: targets.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        seed: 0,
    };
    config.check()?;
    Ok(config)
}

struct Numbers<'a>(&'a Tensor);

impl View for Numbers<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        self.0.dims()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        // What is not f32 in main memory was refused before.
        let bytes = numbers(self.0)
            .map(|numbers| numbers.iter().flat_map(|number| number.to_le_bytes()).collect());
        Cow::Owned(bytes.unwrap_or_default())
    }

    fn data_len(&self) -> usize {
        self.0.elem_count() * size_of::<f32>()
    }
}

fn write_tensors<'a>(
    path: &Path,
    tensors: impl Iterator<Item = (&'a str, &'a Tensor)>,
) -> Result<(), ModelError> {
    let fail = |reason: String| ModelError { path: path.to_owned(), reason };
    let tensors: Vec<_> = tensors.map(|(name, tensor)| (name, Numbers(tensor))).collect();
    for (_, Numbers(tensor)) in &tensors {
        numbers(tensor).map_err(|error| fail(error.to_string()))?;
    }
    let format = std::collections::HashMap::from([("format".to_owned(), "pt".to_owned())]);
    serialize_to_file(tensors, Some(format), path)
        .map_err(|error| fail(format!("cannot be written: {error}")))
}

fn write_json(path: &Path, value: &Value) -> Result<(), ModelError> {
    let fail = |error: std::io::Error| ModelError {
        path: path.to_owned(),
        reason: format!("cannot be written: {error}"),
    };
    let partial = path.with_extension("json.partial");
    let mut file = BufWriter::new(File::create(&partial).map_err(fail)?);
    serde_json::to_writer_pretty(&mut file, value).map_err(|error| fail(error.into()))?;
    file.write_all(b"\n").and_then(|()| file.flush()).map_err(fail)?;
    std::fs::rename(&partial, path).map_err(fail)
}
