//! What a training step asks of a model.
//!
//! The step knows tokens, log-probabilities and named parameters; tensors, kernels and locks are
//! on the other side of this trait.

use fulgurite_model::{Packed, TokenGradient, TokenScore};

use crate::optimizer::ShapeError;

/// Anything that went wrong on the other side.
pub type LearnerError = Box<dyn std::error::Error + Send + Sync>;

/// Called with the scores of a pack; answers the derivatives of the loss by them.
pub type Loss<'step> =
    dyn FnMut(&[TokenScore]) -> Result<Vec<TokenGradient>, LearnerError> + Send + 'step;

/// Called for each trainable parameter with its name, its values, its gradient, and whether
/// weight decay applies to it (matrices, not vectors).
pub type Change<'step> =
    dyn FnMut(&str, &mut [f32], &[f32], bool) -> Result<(), ShapeError> + Send + 'step;

/// A model that is trained.
pub trait Learner: Send {
    /// Number of token ids.
    fn vocabulary(&self) -> usize;

    /// Log-probability and entropy of each target under the weights as they are.
    fn score(&self, packed: &Packed) -> Result<Vec<TokenScore>, LearnerError>;

    /// The same under the frozen reference: a LoRA's base, or a copy.
    fn score_reference(&self, packed: &Packed) -> Result<Vec<TokenScore>, LearnerError>;

    /// Scores the targets, asks `loss` for derivatives and adds what they come to for the
    /// parameters to the gradients.
    fn backward(&mut self, packed: &Packed, loss: &mut Loss<'_>) -> Result<(), LearnerError>;

    /// The norm of all gradients together. An error names a trainable parameter whose gradient is
    /// missing.
    fn gradient_norm(&self) -> Result<f64, LearnerError>;

    /// Changes the parameters in place while nobody reads them, and makes `version` their
    /// version. Gradients stay as they are.
    fn update(&mut self, version: u64, change: &mut Change<'_>) -> Result<(), LearnerError>;

    /// Forgets the gradients.
    fn clear_gradients(&mut self) -> Result<(), LearnerError>;
}
