//! Making a model from the tensors of a file, or from chance.

mod gguf;
mod random;
mod safetensors;
mod save;

use candle_core::{Device, Tensor, quantized::QTensor};

use crate::{
    Model, ModelConfig, ModelError,
    layer::{HeadNorms, Layer, Vector},
    linear::{Linear, Matrices, Part, Stored},
};

/// A tensor of a file.
pub(crate) enum Loaded {
    Plain(Vec<f32>),
    Stored(QTensor),
}

/// Where tensors come from, by the names that Hugging Face's checkpoints have.
pub(crate) trait Source {
    /// A matrix, (out, in).
    fn matrix(&mut self, name: &str, outputs: usize, inputs: usize) -> Result<Loaded, ModelError>;
    /// A vector.
    fn vector(&mut self, name: &str, length: usize) -> Result<Vec<f32>, ModelError>;
    /// An error about the source.
    fn error(&self, reason: String) -> ModelError;
}

/// Builds a model, numbering its parameters as it goes.
pub(crate) struct Builder<'a, S> {
    config: &'a ModelConfig,
    source: &'a mut S,
    next: usize,
}

impl<'a, S: Source> Builder<'a, S> {
    pub(crate) fn build(
        config: &'a ModelConfig,
        source: &'a mut S,
        frequencies: Vec<f32>,
    ) -> Result<Model, ModelError> {
        config.check().map_err(|reason| source.error(reason))?;
        let mut builder = Self { config, source, next: 0 };
        let (vocabulary, hidden) = (config.vocabulary, config.hidden);
        let embedding =
            builder.linear(&[("model.embed_tokens.weight".to_owned(), vocabulary)], hidden)?;
        let mut layers = Vec::with_capacity(config.layers);
        for number in 0..config.layers {
            layers.push(builder.layer(&format!("model.layers.{number}"))?);
        }
        let norm = builder.vector("model.norm.weight".to_owned(), hidden)?;
        let head = if config.tied {
            None
        } else {
            Some(builder.linear(&[("lm_head.weight".to_owned(), vocabulary)], hidden)?)
        };
        let parameters = builder.next;
        let shape = config.clone();
        Model::new(shape, embedding, layers, norm, head, frequencies, parameters)
            .map_err(|error| builder.source.error(error.to_string()))
    }

    fn layer(&mut self, prefix: &str) -> Result<Layer, ModelError> {
        let config = self.config;
        let (hidden, queries, keys) = (config.hidden, config.query_width(), config.key_width());
        let attention = |part: &str| format!("{prefix}.self_attn.{part}.weight");
        let feed_forward = |part: &str| format!("{prefix}.mlp.{part}.weight");
        Ok(Layer {
            attention_norm: self.vector(format!("{prefix}.input_layernorm.weight"), hidden)?,
            projections: self.linear(
                &[
                    (attention("q_proj"), queries),
                    (attention("k_proj"), keys),
                    (attention("v_proj"), keys),
                ],
                hidden,
            )?,
            head_norms: if config.architecture.norms_heads() {
                Some(HeadNorms {
                    queries: self.vector(attention("q_norm"), config.head)?,
                    keys: self.vector(attention("k_norm"), config.head)?,
                })
            } else {
                None
            },
            output: self.linear(&[(attention("o_proj"), hidden)], queries)?,
            feed_forward_norm: self
                .vector(format!("{prefix}.post_attention_layernorm.weight"), hidden)?,
            gates: self.linear(
                &[
                    (feed_forward("gate_proj"), config.feed_forward),
                    (feed_forward("up_proj"), config.feed_forward),
                ],
                hidden,
            )?,
            down: self.linear(&[(feed_forward("down_proj"), hidden)], config.feed_forward)?,
        })
    }

    fn id(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    fn vector(&mut self, name: String, length: usize) -> Result<Vector, ModelError> {
        let numbers = self.source.vector(&name, length)?;
        let tensor = self.tensor(&name, numbers, &[length])?;
        Ok(Vector { id: self.id(), name, tensor })
    }

    fn tensor(&self, name: &str, numbers: Vec<f32>, shape: &[usize]) -> Result<Tensor, ModelError> {
        if let Some(number) = numbers.iter().find(|number| !number.is_finite()) {
            return Err(self.source.error(format!("the tensor `{name}` holds {number}")));
        }
        Tensor::from_vec(numbers, shape, &Device::Cpu).map_err(|error| self.unusable(name, &error))
    }

    fn unusable(&self, name: &str, error: &candle_core::Error) -> ModelError {
        self.source.error(format!("the tensor `{name}` cannot be used: {error}"))
    }

    /// Matrices over one input. If all are plain, they become one.
    fn linear(&mut self, named: &[(String, usize)], input: usize) -> Result<Linear, ModelError> {
        let (mut parts, mut loaded, mut start) = (Vec::new(), Vec::new(), 0);
        for (name, outputs) in named {
            loaded.push(self.source.matrix(name, *outputs, input)?);
            parts.push(Part { name: name.clone(), start, outputs: *outputs });
            start += outputs;
        }
        let name = named.first().map_or("", |(name, _)| name.as_str());
        let plain = loaded.iter().all(|loaded| matches!(loaded, Loaded::Plain(_)));
        let matrices = if plain {
            let mut all = Vec::with_capacity(if loaded.len() > 1 { start * input } else { 0 });
            for loaded in loaded {
                let Loaded::Plain(numbers) = loaded else { continue };
                if all.is_empty() {
                    all = numbers;
                } else {
                    all.extend_from_slice(&numbers);
                }
            }
            Matrices::Plain(self.tensor(name, all, &[start, input])?)
        } else {
            let mut stored = Vec::with_capacity(loaded.len());
            for (loaded, part) in loaded.into_iter().zip(&parts) {
                stored.push(match loaded {
                    Loaded::Plain(numbers) => {
                        Stored::Plain(self.tensor(&part.name, numbers, &[part.outputs, input])?)
                    }
                    Loaded::Stored(tensor) => {
                        Stored::new(tensor).map_err(|error| self.unusable(&part.name, &error))?
                    }
                });
            }
            Matrices::Stored(stored)
        };
        Ok(Linear { id: self.id(), parts, input, matrices, adapters: Vec::new() })
    }
}
