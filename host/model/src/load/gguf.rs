//! Models in GGUF files.

use std::{collections::HashSet, path::Path};

use candle_core::{DType, Device, quantized::GgmlDType};

use super::{Builder, Loaded, Source};
use crate::{GgufFile, Model, ModelConfig, ModelError, Weights};

impl Model {
    /// Loads the model in a GGUF file.
    pub fn open_gguf(path: &Path, form: Weights) -> Result<Self, ModelError> {
        Self::of_gguf(&mut GgufFile::open(path)?, form)
    }

    /// Loads the weights of an open GGUF file.
    ///
    /// With [`Weights::Plain`], queries and keys of a llama get the order of rows that they have
    /// in Hugging Face's checkpoints, so that the model can be trained and saved as one.
    pub fn of_gguf(file: &mut GgufFile, form: Weights) -> Result<Self, ModelError> {
        let mut config = ModelConfig::of_gguf(file)?;
        let reorder = config.rope.interleaved && form == Weights::Plain;
        config.rope.interleaved &= !reorder;
        let reorder = reorder.then_some(config.head);
        let mut frequencies = config.rope.frequencies(config.head);
        let mut source = Tensors { file, form, reorder, used: HashSet::new() };
        if source.file.has_tensor("rope_freqs.weight") {
            let factors = source.numbers("rope_freqs.weight", &[config.head / 2])?;
            for (frequency, factor) in frequencies.iter_mut().zip(factors) {
                if !(factor >= 1.0 && factor.is_finite()) {
                    let reason = format!("the tensor `rope_freqs.weight` holds {factor}");
                    return Err(source.error(reason));
                }
                *frequency /= factor;
            }
        }
        let mut model = Builder::build(&config, &mut source, frequencies)?;
        source.nothing_left()?;
        if source.file.has_tensor("rope_freqs.weight") {
            model.rotations_are_foreign();
        }
        Ok(model)
    }
}

struct Tensors<'a> {
    file: &'a mut GgufFile,
    form: Weights,
    /// The width of heads whose rows are put into Hugging Face's order.
    reorder: Option<usize>,
    used: HashSet<String>,
}

impl Tensors<'_> {
    fn numbers(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        self.used.insert(name.to_owned());
        self.file
            .tensor(name, shape)?
            .dequantize(&Device::Cpu)
            .and_then(|tensor| tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1())
            .map_err(|error| {
                self.file.error(format!("the tensor `{name}` cannot be used: {error}"))
            })
    }

    /// A tensor that is not used would be a part of the model that is missing.
    fn nothing_left(&self) -> Result<(), ModelError> {
        match self.file.tensor_names().find(|name| !self.used.contains(*name)) {
            None => Ok(()),
            Some(name) => Err(self.file.error(format!(
                "the tensor `{}` is no part of the architecture as it is known here",
                name.escape_debug()
            ))),
        }
    }
}

impl Source for Tensors<'_> {
    fn matrix(&mut self, name: &str, outputs: usize, inputs: usize) -> Result<Loaded, ModelError> {
        let own = own_name(name);
        if self.form == Weights::Stored {
            self.used.insert(own.clone());
            let tensor = self.file.tensor(&own, &[outputs, inputs])?;
            if !matches!(tensor.dtype(), GgmlDType::F32 | GgmlDType::F16 | GgmlDType::BF16) {
                return Ok(Loaded::Stored(tensor));
            }
        }
        let numbers = self.numbers(&own, &[outputs, inputs])?;
        let turned = own.ends_with("attn_q.weight") || own.ends_with("attn_k.weight");
        match self.reorder {
            Some(head) if turned => Ok(Loaded::Plain(halves(&numbers, head, inputs))),
            _ => Ok(Loaded::Plain(numbers)),
        }
    }

    fn vector(&mut self, name: &str, length: usize) -> Result<Vec<f32>, ModelError> {
        self.numbers(&own_name(name), &[length])
    }

    fn error(&self, reason: String) -> ModelError {
        self.file.error(reason)
    }
}

/// GGUF's name for a tensor.
fn own_name(name: &str) -> String {
    let own = match name {
        "model.embed_tokens.weight" => "token_embd.weight",
        "model.norm.weight" => "output_norm.weight",
        "lm_head.weight" => "output.weight",
        _ => {
            let rest = name.strip_prefix("model.layers.").unwrap_or(name);
            let (number, part) = rest.split_once('.').unwrap_or((rest, ""));
            let part = match part {
                "input_layernorm.weight" => "attn_norm",
                "self_attn.q_proj.weight" => "attn_q",
                "self_attn.k_proj.weight" => "attn_k",
                "self_attn.v_proj.weight" => "attn_v",
                "self_attn.o_proj.weight" => "attn_output",
                "self_attn.q_norm.weight" => "attn_q_norm",
                "self_attn.k_norm.weight" => "attn_k_norm",
                "post_attention_layernorm.weight" => "ffn_norm",
                "mlp.gate_proj.weight" => "ffn_gate",
                "mlp.up_proj.weight" => "ffn_up",
                "mlp.down_proj.weight" => "ffn_down",
                other => other,
            };
            return format!("blk.{number}.{part}.weight");
        }
    };
    own.to_owned()
}

/// Rows of heads in pairs that turn together, to rows whose halves do.
fn halves(numbers: &[f32], head: usize, inputs: usize) -> Vec<f32> {
    let mut turned = Vec::with_capacity(numbers.len());
    for rows in numbers.chunks_exact(head * inputs) {
        for first in [0, 1] {
            for row in rows.chunks_exact(inputs).skip(first).step_by(2) {
                turned.extend_from_slice(row);
            }
        }
    }
    turned
}
