//! The llama family.

use std::path::Path;

use candle_core::{D, DType, Device, Result, Tensor, bail};
use candle_nn::{
    ops::{rms_norm, silu},
    rotary_emb::rope_i,
};

use crate::gguf::{GgufFile, ModelError};
use crate::{
    KvState, LlamaConfig, Visible, Weights, attention::attention, linear::Matrix, load::Loader,
};

/// Tokens to run through a model: `batch` sequences side by side, equally many tokens of each.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Token ids, (batch, tokens) row by row.
    pub tokens: Vec<u32>,
    /// The position of each token in its sequence.
    pub positions: Vec<u32>,
    /// The slots of the state that each token sees, its own included.
    pub visible: Visible,
}

impl Batch {
    /// The tokens that follow what a state of one sequence holds.
    pub fn following(state: &KvState, tokens: &[u32]) -> Self {
        let start = state.len();
        let ends = start + 1..=start + tokens.len();
        Self {
            tokens: tokens.to_vec(),
            positions: (start..start + tokens.len()).map(|position| position as u32).collect(),
            visible: ends.map(|end| 0..end).collect(),
        }
    }
}

#[derive(Debug)]
struct Layer {
    attn_norm: Tensor,
    attn_q: Matrix,
    attn_k: Matrix,
    attn_v: Matrix,
    attn_output: Matrix,
    ffn_norm: Tensor,
    ffn_gate: Matrix,
    ffn_up: Matrix,
    ffn_down: Matrix,
}

/// A llama-family model.
#[derive(Debug)]
pub struct Llama {
    config: LlamaConfig,
    token_embd: Matrix,
    layers: Vec<Layer>,
    output_norm: Tensor,
    output: Matrix,
    /// One rotary frequency for every two numbers of a head.
    frequencies: Vec<f32>,
}

impl Llama {
    /// Loads the model in a GGUF file.
    pub fn open(path: &Path, form: Weights) -> std::result::Result<Self, ModelError> {
        Self::of_gguf(&mut GgufFile::open(path)?, form)
    }

    /// Loads the weights of a GGUF file.
    pub fn of_gguf(file: &mut GgufFile, form: Weights) -> std::result::Result<Self, ModelError> {
        let config = LlamaConfig::of_gguf(file)?;
        let (hidden, head) = (config.hidden, config.head);
        let (queries, keys) = (config.heads * head, config.key_value_heads * head);
        let mut loader = Loader::new(file, form);
        let token_embd = loader.matrix("token_embd.weight", config.vocabulary, hidden)?;
        let mut layers = Vec::with_capacity(config.layers);
        for number in 0..config.layers {
            let name = |part: &str| format!("blk.{number}.{part}.weight");
            layers.push(Layer {
                attn_norm: loader.vector(&name("attn_norm"), hidden)?,
                attn_q: loader.matrix(&name("attn_q"), queries, hidden)?,
                attn_k: loader.matrix(&name("attn_k"), keys, hidden)?,
                attn_v: loader.matrix(&name("attn_v"), keys, hidden)?,
                attn_output: loader.matrix(&name("attn_output"), hidden, queries)?,
                ffn_norm: loader.vector(&name("ffn_norm"), hidden)?,
                ffn_gate: loader.matrix(&name("ffn_gate"), config.feed_forward, hidden)?,
                ffn_up: loader.matrix(&name("ffn_up"), config.feed_forward, hidden)?,
                ffn_down: loader.matrix(&name("ffn_down"), hidden, config.feed_forward)?,
            });
        }
        let output_norm = loader.vector("output_norm.weight", hidden)?;
        // Small models use one matrix for both ends.
        let output = if loader.has("output.weight") {
            loader.matrix("output.weight", config.vocabulary, hidden)?
        } else {
            token_embd.clone()
        };
        let factors = if loader.has("rope_freqs.weight") {
            loader.numbers("rope_freqs.weight", head / 2)?
        } else {
            vec![1.0; head / 2]
        };
        loader.nothing_left()?;
        let frequencies = (0..head)
            .step_by(2)
            .zip(factors)
            .map(|(at, factor)| 1.0 / config.rope_base.powf(at as f32 / head as f32) / factor)
            .collect();
        Ok(Self { config, token_embd, layers, output_norm, output, frequencies })
    }

    /// The model's shape.
    pub fn config(&self) -> &LlamaConfig {
        &self.config
    }

    /// Runs tokens through the model and adds them to the state. Gives the normed hidden states,
    /// (batch, tokens, hidden).
    ///
    /// After an error the state may be longer in memory, but not in length: it can be used on.
    pub fn forward(&self, batch: &Batch, state: &mut KvState) -> Result<Tensor> {
        let sequences = state.batch();
        let count = batch.tokens.len();
        if count == 0
            || !count.is_multiple_of(sequences)
            || batch.positions.len() != count
            || batch.visible.len() != count
        {
            bail!("a batch of {count} tokens does not fit a state of {sequences} sequences")
        }
        if let Some(token) =
            batch.tokens.iter().find(|token| **token as usize >= self.config.vocabulary)
        {
            bail!("the token {token} is not in the vocabulary")
        }
        let tokens = count / sequences;
        state.reserve(tokens)?;
        let (cosines, sines) = self.rotations(&batch.positions, sequences, tokens)?;
        // (batch · tokens, hidden) throughout.
        let ids = Tensor::from_slice(&batch.tokens, count, &Device::Cpu)?;
        let mut stream = self.token_embd.rows(&ids)?;
        for (number, layer) in self.layers.iter().enumerate() {
            let normed = rms_norm(&stream, &layer.attn_norm, self.config.epsilon)?;
            // (batch · tokens, heads · head) → (batch, heads, tokens, head)
            let split = |rows: Tensor, heads: usize| {
                rows.reshape((sequences, tokens, heads, self.config.head))?
                    .transpose(1, 2)?
                    .contiguous()
            };
            let queries = split(layer.attn_q.forward(&normed)?, self.config.heads)?;
            let keys = split(layer.attn_k.forward(&normed)?, self.config.key_value_heads)?;
            let values = split(layer.attn_v.forward(&normed)?, self.config.key_value_heads)?;
            let queries = rope_i(&queries, &cosines, &sines)?;
            let keys = rope_i(&keys, &cosines, &sines)?;
            let (keys, values) = state.write(number, &keys, &values)?;
            let attended = attention(&queries, keys, values, &batch.visible)?;
            let attended = attended.reshape((count, self.config.heads * self.config.head))?;
            stream = (stream + layer.attn_output.forward(&attended)?)?;
            let normed = rms_norm(&stream, &layer.ffn_norm, self.config.epsilon)?;
            let gate = silu(&layer.ffn_gate.forward(&normed)?)?;
            let inner = (gate * layer.ffn_up.forward(&normed)?)?;
            stream = (stream + layer.ffn_down.forward(&inner)?)?;
        }
        state.advance(tokens);
        let normed = rms_norm(&stream, &self.output_norm, self.config.epsilon)?;
        normed.reshape((sequences, tokens, self.config.hidden))
    }

    /// Hidden states (…, hidden) to logits (…, vocabulary).
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let mut shape = hidden.dims().to_vec();
        let rows = hidden.reshape(((), hidden.dim(D::Minus1)?))?;
        let logits = self.output.forward(&rows)?.to_dtype(DType::F32)?;
        shape.pop();
        shape.push(self.config.vocabulary);
        logits.reshape(shape)
    }

    /// Cosines and sines of each token's rotations, (batch, tokens, head / 2) each.
    fn rotations(
        &self,
        positions: &[u32],
        sequences: usize,
        tokens: usize,
    ) -> Result<(Tensor, Tensor)> {
        let angles: Vec<f32> = positions
            .iter()
            .flat_map(|position| {
                self.frequencies.iter().map(move |frequency| *position as f32 * frequency)
            })
            .collect();
        let angles =
            Tensor::from_vec(angles, (sequences, tokens, self.frequencies.len()), &Device::Cpu)?;
        Ok((angles.cos()?, angles.sin()?))
    }
}
