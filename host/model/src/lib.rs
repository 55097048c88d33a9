//! The models themselves: configuration, weights, kernels, forward and backward.
//!
//! - **Families**: llama (Llama, SmolLM) and Qwen3 (dense), from safetensors
//!   ([`Model::open_folder`]), GGUF ([`Model::open_gguf`]) or chance ([`Model::random`]).
//! - **Ragged batches** ([`Batch`]): one pass takes any mixture of prompts and single tokens of
//!   any sequences; keys and values live in [`KvSlots`] that the caller owns.
//! - **All positions**: [`Model::forward`] gives the hidden state of every row,
//!   [`Model::logits`] turns any of them into logits.
//! - **One set of kernels** for sampling and training, f32 throughout. Instructions are chosen
//!   when the program runs. With [`Precision::BatchInvariant`] a row's numbers never depend on
//!   the other rows.
//! - **Weights are shared and change in place**: an update is seen by whoever samples, without a
//!   copy. Callers keep passes and updates apart.

mod batch;
mod config;
mod gguf;
mod kernels;
mod layer;
mod linear;
mod load;
mod lora;
mod model;
mod numbers;
mod placed;
mod training;

pub use batch::{Batch, KvSlots, Row};
/// What computing on tensors gives and how it fails.
pub use candle_core::{Error, Result, Tensor};
pub use config::{Architecture, Llama3Scaling, ModelConfig, Rope};
pub use gguf::{GgufFile, ModelError};
pub use linear::Weights;
pub use lora::LoraConfig;
pub use model::{Model, Precision};
pub use placed::{NumberType, Placement};
pub use training::{
    BackwardError, GradientError, Gradients, Packed, Target, TokenGradient, TokenScore,
    TrainingMemory,
};
