//! Kernels for the CPU, on plain slices.
//!
//! One set for sampling and training. Shapes are checked here, once a call; kernels that were
//! given what does not fit say so (`false`, `None`) and compute nothing.

pub(crate) mod attention;
pub(crate) mod combine;
#[cfg(test)]
mod differences;
pub(crate) mod dot;
mod lanes;
mod packing;
pub(crate) mod product;
pub(crate) mod rows;
mod simd;
mod tile;
