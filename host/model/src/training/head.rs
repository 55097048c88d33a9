//! From hidden states to scores and back, without ever holding all logits.

use candle_core::{Result, bail};

use super::{TokenGradient, TokenScore, gradients::Gradients};
use crate::{
    Model,
    kernels::{
        product::{Output, View, product},
        rows::{Distribution, distribution, distribution_backward},
    },
    layer::each_row,
    numbers::numbers,
};

/// Bytes of logits that are worked on together.
const CHUNK: usize = 64 << 20;

/// What the forward pass of the head leaves for the backward pass.
pub(crate) struct Kept {
    /// (targets, hidden).
    hidden: Vec<f32>,
    distributions: Vec<Distribution>,
    /// Logits of the first chunks, as many as there was room for.
    logits: Vec<Vec<f32>>,
}

fn rows_of_a_chunk(vocabulary: usize) -> usize {
    (CHUNK / size_of::<f32>() / vocabulary.max(1)).max(16)
}

impl Model {
    /// Scores of tokens, from the normed hidden states (targets, hidden) that predict them.
    pub(crate) fn head_forward(
        &self,
        hidden: Vec<f32>,
        tokens: &[u32],
        temperature: f32,
        adapters: bool,
        memory: usize,
    ) -> Result<(Vec<TokenScore>, Kept)> {
        let (vocabulary, width) = (self.config().vocabulary, self.config().hidden);
        let rows = rows_of_a_chunk(vocabulary);
        let mut kept = Kept { hidden, distributions: Vec::new(), logits: Vec::new() };
        let mut scores = Vec::with_capacity(tokens.len());
        let (mut logits, mut room) = (Vec::new(), memory / size_of::<f32>());
        for (hidden, tokens) in kept.hidden.chunks(rows * width).zip(tokens.chunks(rows)) {
            self.head().forward(hidden, tokens.len(), &mut logits, self.pass(adapters))?;
            let mut found: Vec<Option<Distribution>> = vec![None; tokens.len()];
            {
                let logits = &logits;
                each_row_of(&mut found, vocabulary, |(row, found)| {
                    if let Some(row) = logits.get(row * vocabulary..(row + 1) * vocabulary) {
                        *found = Some(distribution(row, 1.0 / temperature));
                    }
                });
            }
            for ((row, token), found) in logits.chunks_exact(vocabulary).zip(tokens).zip(found) {
                let (Some(logit), Some(found)) = (row.get(*token as usize), found) else {
                    bail!("the token {token} is not in the vocabulary")
                };
                let below = f64::from(logit / temperature - found.largest);
                scores.push(TokenScore {
                    log_probability: (below - found.above) as f32,
                    entropy: found.entropy as f32,
                });
                kept.distributions.push(found);
            }
            if room >= logits.len() {
                room -= logits.len();
                kept.logits.push(std::mem::take(&mut logits));
            } else {
                room = 0;
            }
        }
        Ok((scores, kept))
    }

    /// Carries the scores' gradients back to the hidden states, (targets, hidden).
    pub(crate) fn head_backward(
        &self,
        kept: Kept,
        tokens: &[u32],
        temperature: f32,
        slopes: &[TokenGradient],
        gradients: &mut Gradients,
    ) -> Result<Vec<f32>> {
        let (vocabulary, width) = (self.config().vocabulary, self.config().hidden);
        let rows = rows_of_a_chunk(vocabulary);
        let scale = 1.0 / temperature;
        let head = self.head();
        let matrix = numbers(head.plain()?)?;
        let mut result = vec![0f32; kept.hidden.len()];
        let mut known_logits = kept.logits.into_iter();
        let chunks = kept.hidden.chunks(rows * width).zip(result.chunks_mut(rows * width));
        let targets = tokens.chunks(rows).zip(slopes.chunks(rows));
        let mut again = Vec::new();
        for (((hidden, result), (tokens, slopes)), known) in
            chunks.zip(targets).zip(kept.distributions.chunks(rows))
        {
            let count = tokens.len();
            let mut logits = match known_logits.next() {
                Some(logits) => logits,
                None => {
                    let pass = self.pass(true);
                    head.forward(hidden, count, &mut again, pass)?;
                    std::mem::take(&mut again)
                }
            };
            if slopes.iter().all(|slope| *slope == TokenGradient::default()) {
                continue;
            }
            each_row(&mut logits, vocabulary, |(row, logits)| {
                let (Some(slope), Some(known), Some(token)) =
                    (slopes.get(row), known.get(row), tokens.get(row))
                else {
                    return;
                };
                let TokenGradient { log_probability, entropy } = *slope;
                distribution_backward(logits, scale, *known, log_probability, entropy);
                if let Some(own) = logits.get_mut(*token as usize) {
                    *own += log_probability * scale;
                }
            });
            let slope = View::new(&logits, count, vocabulary);
            let output = Output { numbers: result, stride: width, add: false };
            if !product(slope, View::new(&matrix, vocabulary, width), 1.0, output) {
                bail!("the head does not fit the model")
            }
            gradients.accumulate(head.id, |gradient| {
                product(
                    slope.transposed(),
                    View::new(hidden, count, width),
                    1.0,
                    Output { numbers: gradient, stride: width, add: true },
                )
            })?;
            again = logits;
        }
        // A parameter of the head is reached even where every slope is zero.
        gradients.accumulate(head.id, |_| true)?;
        Ok(result)
    }
}

/// [`each_row`] for results that are one value a row of `width` numbers.
fn each_row_of<T: Send>(
    results: &mut [T],
    width: usize,
    row: impl Fn((usize, &mut T)) + Sync + Send,
) {
    use rayon::prelude::*;
    if results.len() * width < 1 << 16 {
        results.iter_mut().enumerate().for_each(row);
    } else {
        results.par_iter_mut().enumerate().for_each(row);
    }
}
