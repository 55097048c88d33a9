//! A model: its parameters and the pass that samples.

use std::sync::Arc;

use candle_core::{Device, Result, Tensor, bail};

use crate::{
    Batch, KvSlots, LoraConfig, ModelConfig,
    layer::{Activations, Context, Layer, Memory, Rotations, Scratch, Vector, norm_rows},
    linear::{Linear, Matrices, Pass},
    placed::Placed,
};

/// What a row's numbers may depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// The kernel is chosen by the number of rows, so a row's last bits may depend on how many
    /// others are computed with it.
    #[default]
    Usual,
    /// A row's numbers never depend on which other rows are in the batch, nor on how its sequence
    /// was cut into batches.
    BatchInvariant,
}

/// A model of the llama family or of Qwen3.
///
/// Clones share the parameters: what one is trained to, the other computes.
#[derive(Debug, Clone)]
pub struct Model {
    config: ModelConfig,
    pub(crate) embedding: Linear,
    pub(crate) layers: Vec<Layer>,
    pub(crate) norm: Vector,
    pub(crate) head: Option<Linear>,
    /// One rotary frequency for every two numbers of a head.
    pub(crate) frequencies: Vec<f32>,
    foreign_rotations: bool,
    /// Numbers of parameters, without and with adapters.
    parameters: (usize, usize),
    lora: Option<LoraConfig>,
    /// Names and views of what is trained.
    views: Vec<(String, Tensor)>,
    precision: Precision,
    /// The weights on another device, if the model is computed there.
    placed: Option<Arc<Placed>>,
    pub(crate) memory: crate::training::TrainingMemory,
}

impl Model {
    pub(crate) fn new(
        config: ModelConfig,
        embedding: Linear,
        layers: Vec<Layer>,
        norm: Vector,
        head: Option<Linear>,
        frequencies: Vec<f32>,
        parameters: usize,
    ) -> Result<Self> {
        let mut model = Self {
            config,
            embedding,
            layers,
            norm,
            head,
            frequencies,
            foreign_rotations: false,
            parameters: (parameters, parameters),
            lora: None,
            views: Vec::new(),
            precision: Precision::default(),
            placed: None,
            memory: crate::training::TrainingMemory::default(),
        };
        model.views = crate::training::views(&model)?;
        Ok(model)
    }

    /// The model's shape.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The adapters' shape, if the model has some.
    pub fn lora(&self) -> Option<&LoraConfig> {
        self.lora.as_ref()
    }

    /// Chooses what a row's numbers may depend on, for sampling and training.
    pub fn set_precision(&mut self, precision: Precision) {
        self.precision = precision;
    }

    /// What a row's numbers may depend on.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Whether all weights are plain numbers, so that the model can be trained and saved.
    pub fn is_plain(&self) -> bool {
        self.linears().all(|linear| matches!(linear.matrices, Matrices::Plain(_)))
    }

    /// Runs a batch through the model and adds it to the slots. Gives the hidden states after the
    /// last norm, (rows, hidden).
    ///
    /// After an error the slots hold what they held.
    pub fn forward(&self, batch: &Batch, slots: &mut KvSlots) -> Result<Tensor> {
        let runs = batch.runs(&self.config, slots)?;
        let positions = batch.rows.iter().map(|row| row.position as usize);
        let rotations = Rotations::new(&self.frequencies, positions);
        if let Some(placed) = &self.placed {
            let tokens = &batch.tokens;
            let hidden = placed.forward(&self.config, tokens, &rotations, &runs, slots)?;
            slots.advance(&runs);
            return Ok(hidden);
        }
        if slots.placed().is_some() {
            bail!("the slots are on a device, and the model is not")
        }
        let context = Context {
            config: &self.config,
            rotations: &rotations,
            rows: batch.len(),
            pass: self.pass(true),
            keep: false,
        };
        let (mut stream, mut kept, mut scratch) =
            (Vec::new(), Activations::default(), Scratch::default());
        self.embedding.rows(&batch.tokens, &mut stream)?;
        for (number, layer) in self.layers.iter().enumerate() {
            let mut memory = Memory::Slots { slots: &mut *slots, runs: &runs };
            layer.forward(number, &context, &mut stream, &mut kept, &mut scratch, &mut memory)?;
        }
        slots.advance(&runs);
        norm_rows(&stream, &self.norm, self.config.epsilon, &mut scratch.normed)?;
        Tensor::from_vec(scratch.normed, (batch.len(), self.config.hidden), &Device::Cpu)
    }

    /// Hidden states (n, hidden) to logits (n, vocabulary), f32.
    pub fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        let (count, width) = hidden.dims2()?;
        if width != self.config.hidden {
            bail!("hidden states are {width} wide, not {}", self.config.hidden)
        }
        if let Some(placed) = &self.placed {
            return placed.logits(hidden);
        }
        let hidden = hidden.contiguous()?;
        let mut logits = Vec::new();
        let rows = crate::numbers::numbers(&hidden)?;
        self.head().forward(&rows, count, &mut logits, self.pass(true))?;
        Tensor::from_vec(logits, (count, self.config.vocabulary), &Device::Cpu)
    }

    /// The weights on another device, if the model is computed there.
    pub(crate) fn placed(&self) -> Option<&Placed> {
        self.placed.as_deref()
    }

    pub(crate) fn set_placed(&mut self, placed: Option<Placed>) {
        self.placed = placed.map(Arc::new);
    }

    pub(crate) fn pass(&self, adapters: bool) -> Pass {
        Pass { precision: self.precision, adapters }
    }

    /// The matrix that gives logits.
    pub(crate) fn head(&self) -> &Linear {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    pub(crate) fn linears(&self) -> impl Iterator<Item = &Linear> {
        let layers = self
            .layers
            .iter()
            .flat_map(|layer| [&layer.projections, &layer.output, &layer.gates, &layer.down]);
        std::iter::once(&self.embedding).chain(layers).chain(&self.head)
    }

    pub(crate) fn linears_mut(&mut self) -> impl Iterator<Item = &mut Linear> {
        let layers = self.layers.iter_mut().flat_map(|layer| {
            [&mut layer.projections, &mut layer.output, &mut layer.gates, &mut layer.down]
        });
        std::iter::once(&mut self.embedding).chain(layers).chain(&mut self.head)
    }

    pub(crate) fn vectors(&self) -> impl Iterator<Item = &Vector> {
        let layers = self.layers.iter().flat_map(|layer| {
            let heads = layer.head_norms.iter().flat_map(|norms| [&norms.queries, &norms.keys]);
            [&layer.attention_norm, &layer.feed_forward_norm].into_iter().chain(heads)
        });
        layers.chain([&self.norm])
    }

    pub(crate) fn first_free_parameter(&self) -> usize {
        self.parameters.0
    }

    /// Parameters that have a number.
    pub(crate) fn numbered_parameters(&self) -> usize {
        self.parameters.1
    }

    pub(crate) fn set_lora(&mut self, lora: Option<LoraConfig>, next: usize) -> Result<()> {
        self.parameters.1 = next.max(self.parameters.0);
        self.lora = lora;
        self.views = match self.lora {
            Some(_) => crate::training::adapter_views(self),
            None => crate::training::views(self)?,
        };
        Ok(())
    }

    /// Names and views of what is trained.
    pub(crate) fn views(&self) -> &[(String, Tensor)] {
        &self.views
    }

    /// The rotary frequencies were changed by a tensor that `config.json` cannot express.
    pub(crate) fn rotations_are_foreign(&mut self) {
        self.foreign_rotations = true;
    }

    pub(crate) fn has_foreign_rotations(&self) -> bool {
        self.foreign_rotations
    }
}
