//! Write Fulgurite plugins in Rust.
//!
//! A *harness* is an agent program, a *reward* scores finished episodes. Each is a library crate
//! with `crate-type = ["cdylib"]` that implements one trait and names it to one macro:
//!
//! - [`harness::Harness`] and [`export_harness!`](crate::export_harness),
//! - [`reward::Reward`] and [`export_reward!`](crate::export_reward).
//!
//! Start with [`harness`] or [`reward`]; each module brings what its plugins need into scope with
//! one `use`. Files of the task's workspace are plain [`std::fs`] under `/workspace`.
//!
//! What this crate promises: nothing here reaches further than the contract in `wit/`; whatever a
//! model or a task wrote is data (a tool call that does not parse is an `Err` to answer, never a
//! panic); and a plugin imports only the interfaces it calls.

pub mod bindings;
mod command;
mod configuration;
mod fence;
pub mod harness;
mod message;
pub mod reward;
mod text;
mod tool;

#[doc(hidden)]
pub use schemars;
#[doc(hidden)]
pub use serde;
#[doc(hidden)]
pub use serde_json;

/// Name and value pairs, where the contract leaves room for growth.
pub type Metadata = Vec<(String, String)>;
