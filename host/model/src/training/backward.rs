//! The pass through the layers and back.

use candle_core::{Result, bail};
use rayon::prelude::*;

use super::{
    TrainingMemory,
    buffers::Buffers,
    gradients::Gradients,
    packed::{Packed, Rows, TokenGradient, TokenScore},
};
use crate::{
    Model,
    kernels::{
        attention::{Backward, attend_backward},
        product::{Output, View, product},
        rows::{gate_backward, norm_backward, rotate_halves, rotate_neighbours},
    },
    layer::{
        Activations, Context, Layer, Memory, Rotations, Scratch, Vector, each_row, gate_rows,
        heads, norm_rows,
    },
    linear::{Linear, Pass, multiply},
    numbers::numbers,
};

/// A backward pass that came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum BackwardError<E> {
    /// The loss could not be computed.
    #[error("the loss cannot be computed")]
    Loss(#[source] E),
    /// The model could not be computed.
    #[error(transparent)]
    Model(#[from] candle_core::Error),
}

impl Model {
    /// Log-probability and entropy of every target, in the order of the targets.
    pub fn score(&self, packed: &Packed) -> Result<Vec<TokenScore>> {
        self.score_with(packed, true)
    }

    /// [`Model::score`] without adapters: what the frozen model thinks.
    pub fn score_base(&self, packed: &Packed) -> Result<Vec<TokenScore>> {
        self.score_with(packed, false)
    }

    fn score_with(&self, packed: &Packed, adapters: bool) -> Result<Vec<TokenScore>> {
        self.trains_here()?;
        let rows = Rows::new(packed, self.config())?;
        if rows.target_rows.is_empty() {
            return Ok(Vec::new());
        }
        let rotations = Rotations::new(&self.frequencies, rows.positions());
        let context = self.context(&rows, &rotations, self.pass(adapters), false);
        let (mut stream, mut scratch) = (Vec::new(), Scratch::default());
        self.embedding.rows(&rows.tokens, &mut stream)?;
        let mut kept = Activations::default();
        for (number, layer) in self.layers.iter().enumerate() {
            let mut memory = Memory::Packed(&rows.sequences);
            layer.forward(number, &context, &mut stream, &mut kept, &mut scratch, &mut memory)?;
        }
        drop((kept, scratch));
        let hidden = self.targets_hidden(&rows, &stream)?;
        let (scores, _) =
            self.head_forward(hidden, &rows.target_tokens, packed.temperature, adapters, 0)?;
        Ok(scores)
    }

    fn trains_here(&self) -> Result<()> {
        if self.placed().is_some() {
            bail!("a model on another device samples and does not train; place it on the CPU")
        }
        Ok(())
    }

    /// How much memory training passes may keep for their backward pass.
    pub fn set_training_memory(&mut self, memory: TrainingMemory) {
        self.memory = memory;
    }

    fn context<'a>(
        &'a self,
        rows: &Rows,
        rotations: &'a Rotations,
        pass: Pass,
        keep: bool,
    ) -> Context<'a> {
        Context { config: self.config(), rotations, rows: rows.len(), pass, keep }
    }

    /// Normed hidden states of the rows that predict targets.
    fn targets_hidden(&self, rows: &Rows, stream: &[f32]) -> Result<Vec<f32>> {
        let width = self.config().hidden;
        let mut chosen = Vec::with_capacity(rows.target_rows.len() * width);
        for row in &rows.target_rows {
            chosen
                .extend_from_slice(stream.get(row * width..(row + 1) * width).unwrap_or_default());
        }
        let mut hidden = Vec::new();
        norm_rows(&chosen, &self.norm, self.config().epsilon, &mut hidden)?;
        Ok(hidden)
    }

    /// Scores the targets, asks `loss` how the loss depends on each score, and adds the gradients
    /// of all trainable parameters to `gradients`.
    ///
    /// Layers whose activations do not fit into the training memory are computed twice; the
    /// results are the same bits. After an error the gradients hold a part of the pass and must
    /// be cleared.
    pub fn backward<E>(
        &self,
        packed: &Packed,
        gradients: &mut Gradients,
        loss: impl FnOnce(&[TokenScore]) -> std::result::Result<Vec<TokenGradient>, E>,
    ) -> std::result::Result<Vec<TokenScore>, BackwardError<E>> {
        self.trains_here()?;
        let rows = Rows::new(packed, self.config())?;
        let rotations = Rotations::new(&self.frequencies, rows.positions());
        let context = self.context(&rows, &rotations, self.pass(true), true);
        let mut buffers = std::mem::take(&mut gradients.buffers);
        let mut stream = std::mem::take(&mut buffers.stream);
        self.embedding.rows(&rows.tokens, &mut stream)?;
        // The last layers are the first to be gone back through: theirs are kept.
        let fits = self.memory.activations / self.activation_bytes(rows.len()).max(1);
        let first_kept = self.layers.len().saturating_sub(fits);
        let (mut inputs, mut kept) = (Vec::new(), Vec::new());
        for (number, layer) in self.layers.iter().enumerate() {
            let mut input = buffers.inputs.pop().unwrap_or_default();
            input.clone_from(&stream);
            inputs.push(input);
            let mut memory = Memory::Packed(&rows.sequences);
            let mut own = buffers.activations.pop().unwrap_or_default();
            let scratch = &mut buffers.scratch;
            layer.forward(number, &context, &mut stream, &mut own, scratch, &mut memory)?;
            let place = if number >= first_kept { &mut kept } else { &mut buffers.activations };
            place.push(own);
        }
        let hidden = self.targets_hidden(&rows, &stream)?;
        let (tokens, temperature) = (&rows.target_tokens, packed.temperature);
        let (scores, head) =
            self.head_forward(hidden, tokens, temperature, true, self.memory.logits)?;
        let slopes = loss(&scores).map_err(BackwardError::Loss)?;
        if slopes.len() != scores.len() {
            let (given, needed) = (slopes.len(), scores.len());
            return Err(candle_core::Error::Msg(format!(
                "the loss gave {given} gradients for {needed} scores"
            ))
            .into());
        }
        let hidden = self.head_backward(head, tokens, temperature, &slopes, gradients)?;
        let mut gradient = self.targets_backward(&rows, &stream, &hidden, gradients)?;
        drop(hidden);
        for (number, layer) in self.layers.iter().enumerate().rev() {
            let Some(input) = inputs.pop() else { break };
            let activations = match kept.pop() {
                Some(activations) => activations,
                None => {
                    let mut again = buffers.activations.pop().unwrap_or_default();
                    let mut memory = Memory::Packed(&rows.sequences);
                    stream.clone_from(&input);
                    let scratch = &mut buffers.scratch;
                    layer.forward(
                        number,
                        &context,
                        &mut stream,
                        &mut again,
                        scratch,
                        &mut memory,
                    )?;
                    again
                }
            };
            layer.backward(
                &context,
                &rows.sequences,
                &input,
                &activations,
                &mut gradient,
                &mut buffers,
                gradients,
            )?;
            buffers.activations.push(activations);
            buffers.inputs.push(input);
        }
        // One more than fits was needed at a time.
        buffers.activations.truncate(fits.saturating_add(1));
        buffers.stream = stream;
        gradients.buffers = buffers;
        self.embedding_backward(&rows, &gradient, gradients)?;
        Ok(scores)
    }

    /// Bytes of what a layer keeps for so many rows.
    fn activation_bytes(&self, rows: usize) -> usize {
        let config = self.config();
        let projections = config.query_width() + 2 * config.key_width();
        let raw = if config.architecture.norms_heads() { projections } else { 0 };
        let attended = config.query_width() + config.heads;
        let row = raw + projections + attended + config.hidden + 2 * config.feed_forward;
        rows * row * size_of::<f32>()
    }

    /// Through the last norm: the gradient of the stream, (rows, hidden).
    fn targets_backward(
        &self,
        rows: &Rows,
        stream: &[f32],
        slopes: &[f32],
        gradients: &mut Gradients,
    ) -> Result<Vec<f32>> {
        let width = self.config().hidden;
        let mut gradient = vec![0f32; rows.len() * width];
        let mut weight_gradient = vec![0f32; width];
        let weight = numbers(&self.norm.tensor)?;
        for (row, slope) in rows.target_rows.iter().zip(slopes.chunks_exact(width)) {
            let span = row * width..(row + 1) * width;
            let (Some(row), Some(to)) = (stream.get(span.clone()), gradient.get_mut(span)) else {
                bail!("a target is in no row")
            };
            let epsilon = self.config().epsilon;
            norm_backward(row, &weight, epsilon, slope, to, &mut weight_gradient);
        }
        add_to(gradients, &self.norm, &weight_gradient)?;
        Ok(gradient)
    }

    fn embedding_backward(
        &self,
        rows: &Rows,
        gradient: &[f32],
        gradients: &mut Gradients,
    ) -> Result<()> {
        let width = self.config().hidden;
        gradients.accumulate(self.embedding.id, |all| {
            for (token, gradient) in rows.tokens.iter().zip(gradient.chunks_exact(width)) {
                let start = *token as usize * width;
                let Some(to) = all.get_mut(start..start + width) else { return false };
                to.iter_mut().zip(gradient).for_each(|(to, from)| *to += from);
            }
            true
        })
    }
}

impl Layer {
    /// Turns the gradient of the layer's output into that of its input, in place.
    #[allow(clippy::too_many_arguments, reason = "what the forward pass had, and its results")]
    fn backward(
        &self,
        context: &Context<'_>,
        sequences: &[(usize, usize)],
        input: &[f32],
        kept: &Activations,
        gradient: &mut [f32],
        buffers: &mut Buffers,
        gradients: &mut Gradients,
    ) -> Result<()> {
        let (config, rows, pass) = (context.config, context.rows, context.pass);
        let (epsilon, width) = (config.epsilon, config.feed_forward);
        let Buffers { scratch, slope, gates, .. } = buffers;
        // The feed-forward half.
        gate_rows(&kept.gates, width, &mut scratch.inner);
        self.down.backward(&scratch.inner, rows, gradient, slope, pass, gradients)?;
        gates.resize(kept.gates.len(), 0.0);
        each_row(gates, 2 * width, |(row, to)| {
            let (Some(known), Some(slope)) = (
                kept.gates.get(2 * row * width..2 * (row + 1) * width),
                slope.get(row * width..(row + 1) * width),
            ) else {
                return;
            };
            let (gate, up) = known.split_at(width);
            let (gate_to, up_to) = to.split_at_mut(width);
            gate_backward(gate, up, slope, gate_to, up_to);
        });
        norm_rows(&kept.middle, &self.feed_forward_norm, epsilon, &mut scratch.normed)?;
        self.gates.backward(&scratch.normed, rows, gates, slope, pass, gradients)?;
        let norm = &self.feed_forward_norm;
        norm_rows_backward(&kept.middle, norm, epsilon, slope, gradient, gradients)?;
        // The attention half.
        self.output.backward(&kept.attended, rows, gradient, slope, pass, gradients)?;
        let projections = attend_backward(Backward {
            heads: heads(config),
            numbers: &kept.projections,
            sequences,
            output: &kept.attended,
            sums: &kept.sums,
            gradient: slope,
        });
        let Some(mut projections) = projections else {
            bail!("queries, keys and values do not fit together")
        };
        self.turn_back(context, kept, &mut projections, gradients)?;
        norm_rows(input, &self.attention_norm, epsilon, &mut scratch.normed)?;
        self.projections.backward(&scratch.normed, rows, &projections, slope, pass, gradients)?;
        norm_rows_backward(input, &self.attention_norm, epsilon, slope, gradient, gradients)
    }

    /// Undoes rotation and norms of queries and keys, for their gradients.
    fn turn_back(
        &self,
        context: &Context<'_>,
        kept: &Activations,
        projections: &mut [f32],
        gradients: &mut Gradients,
    ) -> Result<()> {
        let config = context.config;
        let stride = config.query_width() + 2 * config.key_width();
        let half = config.head / 2;
        let cosines = &context.rotations.cosines;
        let sines: Vec<f32> = context.rotations.sines.iter().map(|sine| -sine).collect();
        let turned = config.heads + config.key_value_heads;
        each_row(projections, stride, |(row, numbers)| {
            let span = row * half..(row + 1) * half;
            let (Some(cosines), Some(sines)) = (cosines.get(span.clone()), sines.get(span)) else {
                return;
            };
            for head in numbers.chunks_exact_mut(config.head).take(turned) {
                if config.rope.interleaved {
                    rotate_neighbours(head, cosines, sines);
                } else {
                    rotate_halves(head, cosines, sines);
                }
            }
        });
        let Some(norms) = &self.head_norms else { return Ok(()) };
        let (queries, keys) = (numbers(&norms.queries.tensor)?, numbers(&norms.keys.tensor)?);
        let (queries, keys) = (&*queries, &*keys);
        let one = |(row, raw): (&mut [f32], &[f32])| {
            let mut sums = vec![0f32; 2 * config.head];
            let (query_sums, key_sums) = sums.split_at_mut(config.head);
            let mut slope = vec![0f32; config.head];
            let heads = row.chunks_exact_mut(config.head).zip(raw.chunks_exact(config.head));
            for (number, (head, raw)) in heads.enumerate().take(turned) {
                let (weight, sums) = if number < config.heads {
                    (queries, &mut *query_sums)
                } else {
                    (keys, &mut *key_sums)
                };
                slope.copy_from_slice(head);
                head.fill(0.0);
                norm_backward(raw, weight, config.epsilon, &slope, head, sums);
            }
            sums
        };
        // Sums of blocks of rows, added in order.
        let block = 64 * stride;
        let sums: Vec<Vec<f32>> = projections
            .par_chunks_mut(block)
            .zip(kept.raw.par_chunks(block))
            .map(|(rows, raw)| {
                let pairs = rows.chunks_exact_mut(stride).zip(raw.chunks_exact(stride));
                pairs.map(one).fold(vec![0f32; 2 * config.head], summed)
            })
            .collect();
        let sums = sums.into_iter().fold(vec![0f32; 2 * config.head], summed);
        let (query_sums, key_sums) = sums.split_at(config.head);
        add_to(gradients, &norms.queries, query_sums)?;
        add_to(gradients, &norms.keys, key_sums)
    }
}

fn summed(mut sums: Vec<f32>, more: Vec<f32>) -> Vec<f32> {
    sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    sums
}

fn add_to(gradients: &mut Gradients, vector: &Vector, sums: &[f32]) -> Result<()> {
    gradients.accumulate(vector.id, |to| {
        to.iter_mut().zip(sums).for_each(|(to, from)| *to += from);
        to.len() == sums.len()
    })
}

/// Adds the gradient of normed rows to that of the rows.
fn norm_rows_backward(
    rows: &[f32],
    vector: &Vector,
    epsilon: f32,
    slope: &[f32],
    gradient: &mut [f32],
    gradients: &mut Gradients,
) -> Result<()> {
    let weight = numbers(&vector.tensor)?;
    let (weight, width) = (&*weight, weight.len());
    let wanted = gradients.wants(vector.id);
    let block = 64 * width;
    let sums: Vec<Vec<f32>> = gradient
        .par_chunks_mut(block)
        .zip(rows.par_chunks(block).zip(slope.par_chunks(block)))
        .map(|(gradient, (rows, slope))| {
            let mut sums = if wanted { vec![0f32; width] } else { Vec::new() };
            let lines = rows.chunks_exact(width).zip(slope.chunks_exact(width));
            for (gradient, (row, slope)) in gradient.chunks_exact_mut(width).zip(lines) {
                norm_backward(row, weight, epsilon, slope, gradient, &mut sums);
            }
            sums
        })
        .collect();
    if wanted {
        let sums = sums.into_iter().fold(vec![0f32; width], summed);
        add_to(gradients, vector, &sums)?;
    }
    Ok(())
}

impl Linear {
    /// From the gradient of the outputs, (rows, out), to those of the inputs, (rows, in), and of
    /// whatever is trained here. `rows` is what the forward pass was given.
    pub(crate) fn backward(
        &self,
        rows: &[f32],
        count: usize,
        slope: &[f32],
        input_slope: &mut Vec<f32>,
        pass: Pass,
        gradients: &mut Gradients,
    ) -> Result<()> {
        let (input, outputs) = (self.input, self.outputs());
        let mismatch = || candle_core::Error::Msg(format!("({outputs}, {input}) does not fit"));
        let slope_view = View::new(slope, count, outputs);
        gradients.accumulate(self.id, |gradient| {
            product(
                slope_view.transposed(),
                View::new(rows, count, input),
                1.0,
                Output { numbers: gradient, stride: input, add: true },
            )
        })?;
        input_slope.resize(count * input, 0.0);
        let matrix = numbers(self.plain()?)?;
        let output = Output { numbers: input_slope, stride: input, add: false };
        if !product(slope_view, View::new(&matrix, outputs, input), 1.0, output) {
            return Err(mismatch());
        }
        for adapter in self.adapters.iter().filter(|_| pass.adapters) {
            let Some(part) = self.parts.get(adapter.part) else { continue };
            let (rank, scale) = (adapter.rank, adapter.scale);
            let (a, b) = (numbers(&adapter.a)?, numbers(&adapter.b)?);
            let own = View::part(slope, count, outputs, part.start, part.outputs);
            let mut down = vec![0f32; count * rank];
            multiply(rows, count, &a, (rank, input), &mut down, rank, pass)?;
            gradients.accumulate(adapter.id + 1, |gradient| {
                product(
                    own.transposed(),
                    View::new(&down, count, rank),
                    scale,
                    Output { numbers: gradient, stride: rank, add: true },
                )
            })?;
            let output = Output { numbers: &mut down, stride: rank, add: false };
            if !product(own, View::new(&b, part.outputs, rank), scale, output) {
                return Err(mismatch());
            }
            let down = View::new(&down, count, rank);
            gradients.accumulate(adapter.id, |gradient| {
                product(
                    down.transposed(),
                    View::new(rows, count, input),
                    1.0,
                    Output { numbers: gradient, stride: input, add: true },
                )
            })?;
            let output = Output { numbers: input_slope, stride: input, add: true };
            if !product(down, View::new(&a, rank, input), 1.0, output) {
                return Err(mismatch());
            }
        }
        Ok(())
    }
}
