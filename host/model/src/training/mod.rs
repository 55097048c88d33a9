//! Training: scores of given tokens, and gradients.
//!
//! [`Model::score`] gives log-probability and entropy of chosen tokens; [`Model::backward`] gives
//! them too, lets the caller turn them into the gradient of a loss, and carries that back through
//! the model into [`Gradients`]. The backward pass is written by hand, layer by layer, on the
//! kernels of the forward pass; no graph of operations is kept.
//!
//! Several sequences are packed into one pass. They never see each other.

mod backward;
mod buffers;
mod gradients;
mod head;
mod packed;
mod parameters;

pub use backward::BackwardError;
pub use gradients::{GradientError, Gradients};
pub use packed::{Packed, Target, TokenGradient, TokenScore};
pub(crate) use parameters::{adapter_views, views};

/// How much memory a training pass may keep for its backward pass, beyond what it needs anyway.
/// What does not fit is computed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrainingMemory {
    /// Bytes of layers' activations.
    pub activations: usize,
    /// Bytes of logits.
    pub logits: usize,
}

impl Default for TrainingMemory {
    /// 1.25 GiB of activations and 256 MiB of logits.
    fn default() -> Self {
        Self { activations: 5 << 28, logits: 256 << 20 }
    }
}
