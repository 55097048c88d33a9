//! Memory of a pass.

use crate::layer::{Activations, Scratch};

/// Memory of a pass that is kept for the next one: what is given back to the kernel it hands out
/// again page by page and cleared, which takes a tenth of a step.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// What layers computed.
    pub(super) activations: Vec<Activations>,
    /// Inputs of layers.
    pub(super) inputs: Vec<Vec<f32>>,
    pub(super) stream: Vec<f32>,
    pub(super) scratch: Scratch,
    /// The gradient of what a part of a layer gave.
    pub(super) slope: Vec<f32>,
    /// The gradient of the gates.
    pub(super) gates: Vec<f32>,
}
