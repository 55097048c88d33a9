//! One layer: attention and the gated feed-forward, each on a normed residual stream.

use candle_core::{Result, Tensor, bail};
use rayon::prelude::*;

use crate::{
    ModelConfig,
    batch::{KvSlots, Run},
    kernels::{
        attention::{Heads, Queries, Span, attend},
        rows::{gate, norm, norm_in_place, rotate_halves, rotate_neighbours},
    },
    linear::{Linear, Pass},
    numbers::numbers,
};

/// Numbers below which splitting work by rows costs more than it saves.
const WORTH_SPLITTING: usize = 1 << 15;

/// A vector of parameters.
#[derive(Debug, Clone)]
pub(crate) struct Vector {
    /// Which parameter this is, among those of the model.
    pub(crate) id: usize,
    /// As in the checkpoint.
    pub(crate) name: String,
    pub(crate) tensor: Tensor,
}

/// The norms of queries and keys, head by head.
#[derive(Debug, Clone)]
pub(crate) struct HeadNorms {
    pub(crate) queries: Vector,
    pub(crate) keys: Vector,
}

#[derive(Debug, Clone)]
pub(crate) struct Layer {
    pub(crate) attention_norm: Vector,
    /// Queries, keys and values side by side.
    pub(crate) projections: Linear,
    pub(crate) head_norms: Option<HeadNorms>,
    pub(crate) output: Linear,
    pub(crate) feed_forward_norm: Vector,
    /// Gate and up side by side.
    pub(crate) gates: Linear,
    pub(crate) down: Linear,
}

/// What a layer computed on the way, (rows, …) each.
#[derive(Debug, Default, Clone)]
pub(crate) struct Activations {
    /// Projections before norms and rotation; only where a backward pass needs them.
    pub(crate) raw: Vec<f32>,
    /// Queries, keys and values, normed and rotated.
    pub(crate) projections: Vec<f32>,
    pub(crate) attended: Vec<f32>,
    /// ln Σ e^score of each head.
    pub(crate) sums: Vec<f32>,
    /// The stream between the two halves.
    pub(crate) middle: Vec<f32>,
    pub(crate) gates: Vec<f32>,
}

/// Buffers that hold nothing between calls.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) normed: Vec<f32>,
    pub(crate) inner: Vec<f32>,
    pub(crate) output: Vec<f32>,
}

/// Where keys and values of earlier tokens are.
pub(crate) enum Memory<'a> {
    /// In slots, to which the batch's own are added.
    Slots { slots: &'a mut KvSlots, runs: &'a [Run] },
    /// In the batch itself: whole sequences, by first row and number of rows.
    Packed(&'a [(usize, usize)]),
}

/// What is common to all layers of a pass.
pub(crate) struct Context<'a> {
    pub(crate) config: &'a ModelConfig,
    pub(crate) rotations: &'a Rotations,
    pub(crate) rows: usize,
    pub(crate) pass: Pass,
    /// Whether a backward pass follows.
    pub(crate) keep: bool,
}

/// Cosines and sines of each row's rotations, (rows, head / 2) each.
#[derive(Debug)]
pub(crate) struct Rotations {
    pub(crate) cosines: Vec<f32>,
    pub(crate) sines: Vec<f32>,
}

impl Rotations {
    pub(crate) fn new(frequencies: &[f32], positions: impl Iterator<Item = usize>) -> Self {
        let angles: Vec<f32> = positions
            .flat_map(|position| frequencies.iter().map(move |one| position as f32 * one))
            .collect();
        Self {
            cosines: angles.iter().map(|angle| angle.cos()).collect(),
            sines: angles.iter().map(|angle| angle.sin()).collect(),
        }
    }
}

impl Layer {
    /// Runs the layer on the stream, (rows, hidden), in place.
    pub(crate) fn forward(
        &self,
        number: usize,
        context: &Context<'_>,
        stream: &mut [f32],
        kept: &mut Activations,
        scratch: &mut Scratch,
        memory: &mut Memory<'_>,
    ) -> Result<()> {
        let (config, rows) = (context.config, context.rows);
        let epsilon = config.epsilon;
        norm_rows(stream, &self.attention_norm, epsilon, &mut scratch.normed)?;
        self.projections.forward(&scratch.normed, rows, &mut kept.projections, context.pass)?;
        if context.keep && self.head_norms.is_some() {
            kept.raw.clone_from(&kept.projections);
        }
        self.turn(context, &mut kept.projections)?;
        attend_rows(number, context, kept, memory)?;
        self.output.forward(&kept.attended, rows, &mut scratch.output, context.pass)?;
        add(stream, &scratch.output);
        if context.keep {
            kept.middle.clear();
            kept.middle.extend_from_slice(stream);
        }
        norm_rows(stream, &self.feed_forward_norm, epsilon, &mut scratch.normed)?;
        self.gates.forward(&scratch.normed, rows, &mut kept.gates, context.pass)?;
        gate_rows(&kept.gates, config.feed_forward, &mut scratch.inner);
        self.down.forward(&scratch.inner, rows, &mut scratch.output, context.pass)?;
        add(stream, &scratch.output);
        Ok(())
    }

    /// Norms (where the family does) and rotates queries and keys in place.
    fn turn(&self, context: &Context<'_>, projections: &mut [f32]) -> Result<()> {
        let config = context.config;
        let stride = config.query_width() + 2 * config.key_width();
        let norms = match &self.head_norms {
            Some(norms) => Some((numbers(&norms.queries.tensor)?, numbers(&norms.keys.tensor)?)),
            None => None,
        };
        let norms = norms.as_ref().map(|(queries, keys)| (&**queries, &**keys));
        let half = config.head / 2;
        let Rotations { cosines, sines } = context.rotations;
        let turn = |(row, numbers): (usize, &mut [f32])| {
            let (Some(cosines), Some(sines)) = (
                cosines.get(row * half..(row + 1) * half),
                sines.get(row * half..(row + 1) * half),
            ) else {
                return;
            };
            let turned = config.heads + config.key_value_heads;
            for (head, numbers) in numbers.chunks_exact_mut(config.head).enumerate().take(turned) {
                if let Some((queries, keys)) = norms {
                    let weight = if head < config.heads { queries } else { keys };
                    norm_in_place(numbers, weight, config.epsilon);
                }
                if config.rope.interleaved {
                    rotate_neighbours(numbers, cosines, sines);
                } else {
                    rotate_halves(numbers, cosines, sines);
                }
            }
        };
        each_row(projections, stride, turn);
        Ok(())
    }
}

fn attend_rows(
    number: usize,
    context: &Context<'_>,
    kept: &mut Activations,
    memory: &mut Memory<'_>,
) -> Result<()> {
    let (config, rows) = (context.config, context.rows);
    let (width, key_width) = (config.query_width(), config.key_width());
    let stride = width + 2 * key_width;
    let heads = heads(config);
    kept.attended.resize(rows * width, 0.0);
    kept.sums.resize(if context.keep { rows * config.heads } else { 0 }, 0.0);
    let queries = Queries { numbers: &kept.projections, stride };
    let spans: Option<Vec<Span<'_>>> = match memory {
        Memory::Slots { slots, runs } => {
            slots.write(number, runs, &kept.projections, stride, width)?;
            let slots = &**slots;
            runs.iter()
                .map(|run| {
                    let (keys, values) = slots.held(number, run.slot)?;
                    let Run { row, rows, position, .. } = *run;
                    Some(Span { row, rows, position, keys, values, stride: slots.stride() })
                })
                .collect()
        }
        Memory::Packed(sequences) => sequences
            .iter()
            .map(|(first, rows)| {
                let own = kept.projections.get(first * stride..(first + rows) * stride)?;
                let (keys, values) = (own.get(width..)?, own.get(width + key_width..)?);
                Some(Span { row: *first, rows: *rows, position: 0, keys, values, stride })
            })
            .collect(),
    };
    let done =
        spans.and_then(|spans| attend(heads, queries, &spans, &mut kept.attended, &mut kept.sums));
    if done.is_none() {
        bail!("queries, keys and values do not fit together")
    }
    Ok(())
}

pub(crate) fn heads(config: &ModelConfig) -> Heads {
    Heads { heads: config.heads, key_heads: config.key_value_heads, head: config.head }
}

/// Runs a function on each row, on several threads where that pays.
pub(crate) fn each_row(
    numbers: &mut [f32],
    width: usize,
    row: impl Fn((usize, &mut [f32])) + Sync + Send,
) {
    if numbers.len() < WORTH_SPLITTING || rayon::current_num_threads() == 1 {
        numbers.chunks_exact_mut(width).enumerate().for_each(row);
    } else {
        let least = (WORTH_SPLITTING / 2 / width).max(1);
        numbers.par_chunks_exact_mut(width).enumerate().with_min_len(least).for_each(row);
    }
}

/// Norms rows of the weight's length.
pub(crate) fn norm_rows(
    rows: &[f32],
    weight: &Vector,
    epsilon: f32,
    output: &mut Vec<f32>,
) -> Result<()> {
    let weight = numbers(&weight.tensor)?;
    let (weight, width) = (&*weight, weight.len());
    if width == 0 || !rows.len().is_multiple_of(width) {
        bail!("{} numbers are no rows of {width}", rows.len())
    }
    output.resize(rows.len(), 0.0);
    each_row(output, width, |(row, output)| {
        if let Some(row) = rows.get(row * width..(row + 1) * width) {
            norm(row, weight, epsilon, output);
        }
    });
    Ok(())
}

/// (rows, gate and up) → silu(gate) · up, (rows, width).
pub(crate) fn gate_rows(gates: &[f32], width: usize, output: &mut Vec<f32>) {
    output.resize(gates.len() / 2, 0.0);
    each_row(output, width, |(row, output)| {
        if let Some(row) = gates.get(2 * row * width..2 * (row + 1) * width) {
            let (left, right) = row.split_at(width);
            gate(left, right, output);
        }
    });
}

pub(crate) fn add(to: &mut [f32], from: &[f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += from;
    }
}
