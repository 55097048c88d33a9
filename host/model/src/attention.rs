//! Attention on the CPU, row by row.
//!
//! Each query is worked on by itself, its keys in order. So its result does not depend on what
//! else is in the batch, nothing as large as (queries × keys) is ever held, and no mask is
//! needed: each query says which slots it sees. There is no backward pass; training needs one
//! beside this forward pass.

use std::ops::Range;

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor, bail};
use rayon::prelude::*;

/// Multiplications below which splitting the work costs more than it saves.
const WORTH_SPLITTING: usize = 1 << 17;

/// The slots that each query sees, query by query (batch-major).
pub type Visible = Vec<Range<usize>>;

/// Softmax(q kᵀ / √head) v.
///
/// `queries` is (batch, heads, tokens, head); `keys` and `values` are (batch, key-value heads,
/// slots, head); the result is (batch, tokens, heads · head).
pub(crate) fn attention(
    queries: &Tensor,
    keys: &Tensor,
    values: &Tensor,
    visible: &[Range<usize>],
) -> Result<Tensor> {
    queries.apply_op3_no_bwd(keys, values, &Attention { visible })
}

struct Attention<'a> {
    visible: &'a [Range<usize>],
}

impl CustomOp3 for Attention<'_> {
    fn name(&self) -> &'static str {
        "row-attention"
    }

    fn cpu_fwd(
        &self,
        queries: &CpuStorage,
        query_layout: &Layout,
        keys: &CpuStorage,
        key_layout: &Layout,
        values: &CpuStorage,
        value_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let queries = numbers(queries, query_layout)?;
        let keys = numbers(keys, key_layout)?;
        let values = numbers(values, value_layout)?;
        let (batch, heads, tokens, head) = query_layout.shape().dims4()?;
        let (key_batch, key_heads, slots, key_head) = key_layout.shape().dims4()?;
        if key_batch != batch
            || key_head != head
            || key_heads == 0
            || !heads.is_multiple_of(key_heads)
            || value_layout.shape() != key_layout.shape()
            || self.visible.len() != batch * tokens
            || self.visible.iter().any(|range| range.is_empty() || range.end > slots)
        {
            bail!("queries, keys and what is visible do not fit together")
        }
        let group = heads / key_heads;
        let scale = 1.0 / (head as f32).sqrt();
        let row_width = heads * head;
        let mut output = vec![0f32; batch * tokens * row_width];
        // One row: one token of one sequence, all heads.
        let attend = |(row, output): (usize, &mut [f32])| {
            let (sequence, token) = (row / tokens, row % tokens);
            let Some(range) = self.visible.get(row) else { return };
            let mut weights = Vec::with_capacity(range.len());
            for (number, output) in output.chunks_exact_mut(head).enumerate() {
                let query_at = ((sequence * heads + number) * tokens + token) * head;
                let slots_at = (sequence * key_heads + number / group) * slots * head;
                let span = slots_at + range.start * head..slots_at + range.end * head;
                let (Some(query), Some(keys), Some(values)) = (
                    queries.get(query_at..query_at + head),
                    keys.get(span.clone()),
                    values.get(span),
                ) else {
                    return;
                };
                attend_one(query, keys, values, scale, &mut weights, output);
            }
        };
        let work: usize = self.visible.iter().map(|range| range.len() * row_width).sum();
        if work < WORTH_SPLITTING {
            output.chunks_exact_mut(row_width).enumerate().for_each(attend);
        } else {
            output.par_chunks_exact_mut(row_width).enumerate().for_each(attend);
        }
        Ok((CpuStorage::F32(output), (batch, tokens, row_width).into()))
    }
}

/// One head of one token.
fn attend_one(
    query: &[f32],
    keys: &[f32],
    values: &[f32],
    scale: f32,
    weights: &mut Vec<f32>,
    output: &mut [f32],
) {
    weights.clear();
    weights.extend(keys.chunks_exact(query.len()).map(|key| dot(query, key) * scale));
    let largest = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0f64;
    for weight in weights.iter_mut() {
        *weight = (*weight - largest).exp();
        sum += f64::from(*weight);
    }
    for (weight, value) in weights.iter().zip(values.chunks_exact(query.len())) {
        for (output, value) in output.iter_mut().zip(value) {
            *output += weight * value;
        }
    }
    let share = (1.0 / sum) as f32;
    for output in output {
        *output *= share;
    }
}

/// Eight sums side by side, which the compiler turns into vector instructions.
fn dot(left: &[f32], right: &[f32]) -> f32 {
    let mut sums = [0f32; 8];
    let (left_parts, left_rest) = left.as_chunks::<8>();
    let (right_parts, right_rest) = right.as_chunks::<8>();
    for (left, right) in left_parts.iter().zip(right_parts) {
        for ((sum, left), right) in sums.iter_mut().zip(left).zip(right) {
            *sum += left * right;
        }
    }
    let rest: f32 = left_rest.iter().zip(right_rest).map(|(left, right)| left * right).sum();
    sums.iter().sum::<f32>() + rest
}

fn numbers<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let (CpuStorage::F32(numbers), Some((start, end))) = (storage, layout.contiguous_offsets())
    else {
        bail!("attention needs contiguous f32 tensors")
    };
    match numbers.get(start..end) {
        Some(numbers) => Ok(numbers),
        None => bail!("attention was given a tensor beyond its storage"),
    }
}
