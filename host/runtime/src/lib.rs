//! Components in wasmtime: compile and cache, audit, limits, one store an episode. This room
//! alone names wasmtime.
//!
//! # What it promises
//! - A component reaches only what its caller hands over in [`capability`]; every other import is
//!   refused before the first instruction ([`audit`]).
//! - A component's failure never is the host's: each way to fail is a [`FailureKind`] of its own
//!   ([`limits`] holds the table), and everything a component can make grow is bounded.
//! - The same component with the same inputs uses the same fuel and sees the same answers.
//! - Guests run on threads of their own ([`executor`]); a full pool makes guests wait, never fail.
//!
//! # Where what is
//! [`Runtime`] puts everything together. It loads a [`Harness`], a [`Reward`] or a
//! [`LaneProgram`] from bytes: [`audit`] tells what they are and want, [`compile`] compiles them in
//! a child process, [`cache`] keeps the result, [`engine`] and [`machine`] size the pools.
//! [`limits`] decides how much a guest may use, [`capability`] says what the outside must offer,
//! [`clock`] is the backstop and the way to cancel, [`wasi`] is the part of the world that WASI
//! describes, [`program`] runs one command, [`componentize`] makes components of older modules.
//!
//! The program that uses this crate has to call [`compile::child_main`] when its first argument
//! is [`compile::CHILD_ARGUMENT`].
//!
//! [`FailureKind`]: fulgurite_trace::FailureKind

pub mod audit;
mod bindings;
pub mod cache;
pub mod capability;
pub mod clock;
pub mod compile;
pub mod componentize;
mod convert;
pub mod engine;
pub mod executor;
mod failure;
mod guest;
pub mod harness;
pub mod lane;
pub mod limits;
pub mod machine;
pub mod program;
mod resource;
pub mod reward;
pub mod runtime;
pub mod wasi;

pub use audit::Inspection;
pub use harness::Harness;
pub use lane::LaneProgram;
pub use reward::Reward;
pub use runtime::{LoadError, Runtime, Settings, SetupError};
