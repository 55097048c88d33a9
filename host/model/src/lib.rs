//! Our own model: the llama family on candle's tensors.
//!
//! - **Explicit positions, explicit state.** [`Llama::forward`] is told the position of every
//!   token and what each may look at ([`Batch`]), and works on a [`KvState`] that the caller
//!   owns, so that batching, rewinding and forking are the caller's business.
//! - **All positions.** [`Llama::forward`] gives the hidden state of every token;
//!   [`Llama::logits`] turns any of them into logits.
//! - **Weights as stored or plain** ([`Weights`]), named as in the checkpoint.
//! - **f32** for norms, softmax, rotary embeddings and logits.
//! - Kernels work on each row by itself. With quantised weights a token's numbers therefore do
//!   not depend on how its sequence was cut into batches, so a cached prefix changes nothing.

mod attention;
mod config;
mod gguf;
mod linear;
mod llama;
mod load;
mod state;

pub use attention::Visible;
/// What computing on tensors gives and how it fails.
pub use candle_core::{Error, Result, Tensor};
pub use config::LlamaConfig;
pub use gguf::{GgufFile, ModelError};
pub use linear::Weights;
pub use llama::{Batch, Llama};
pub use state::KvState;
