//! What a training pass works on.

use candle_core::{Result, bail};

use crate::{ModelConfig, batch::check_tokens};

/// Sequences, and which of their tokens are scored.
#[derive(Debug, Clone, PartialEq)]
pub struct Packed {
    /// Token ids of each sequence.
    pub sequences: Vec<Vec<u32>>,
    /// The tokens that are scored, in any order.
    pub targets: Vec<Target>,
    /// Scores are those of softmax(logits / temperature). Positive.
    pub temperature: f32,
}

/// A token whose prediction is scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Which sequence.
    pub sequence: u32,
    /// Its position there, at least 1: it is predicted from what stands before it.
    pub position: u32,
}

/// What the model thinks of a target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenScore {
    /// Of the token, in nats.
    pub log_probability: f32,
    /// Of the whole distribution at its place, in nats.
    pub entropy: f32,
}

/// How a loss depends on a [`TokenScore`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TokenGradient {
    /// d loss / d log-probability.
    pub log_probability: f32,
    /// d loss / d entropy.
    pub entropy: f32,
}

/// [`Packed`] as rows of one pass.
pub(crate) struct Rows {
    pub(crate) tokens: Vec<u32>,
    /// First row and number of rows of each sequence.
    pub(crate) sequences: Vec<(usize, usize)>,
    /// The row that predicts each target.
    pub(crate) target_rows: Vec<usize>,
    /// The token that is predicted.
    pub(crate) target_tokens: Vec<u32>,
}

impl Rows {
    /// What stands behind a sequence's last target is left out, and so are sequences without one.
    pub(crate) fn new(packed: &Packed, config: &ModelConfig) -> Result<Self> {
        if !(packed.temperature > 0.0 && packed.temperature.is_finite()) {
            bail!("scores at the temperature {} do not exist", packed.temperature)
        }
        let mut needed = vec![0usize; packed.sequences.len()];
        for target in &packed.targets {
            let (number, position) = (target.sequence as usize, target.position as usize);
            let Some(sequence) = packed.sequences.get(number) else {
                bail!("a target is in sequence {number}, and there are {}", needed.len())
            };
            if position == 0 || position >= sequence.len() {
                bail!(
                    "a target has position {position} in sequence {number}, which has {} tokens",
                    sequence.len()
                )
            }
            if let Some(needed) = needed.get_mut(number) {
                *needed = position.max(*needed);
            }
        }
        let (mut tokens, mut sequences) = (Vec::new(), Vec::new());
        let mut first = Vec::with_capacity(needed.len());
        for (sequence, needed) in packed.sequences.iter().zip(needed) {
            first.push(tokens.len());
            check_tokens(sequence, config)?;
            if needed > 0 {
                sequences.push((tokens.len(), needed));
                tokens.extend(sequence.iter().take(needed));
            }
        }
        let mut rows =
            Self { tokens, sequences, target_rows: Vec::new(), target_tokens: Vec::new() };
        for Target { sequence, position } in &packed.targets {
            let (sequence, position) = (*sequence as usize, *position as usize);
            rows.target_rows.push(first.get(sequence).copied().unwrap_or(0) + position - 1);
            let tokens = packed.sequences.get(sequence);
            rows.target_tokens
                .push(tokens.and_then(|tokens| tokens.get(position)).copied().unwrap_or(0));
        }
        Ok(rows)
    }

    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(crate) fn positions(&self) -> impl Iterator<Item = usize> {
        self.sequences.iter().flat_map(|(_, rows)| 0..*rows)
    }
}
