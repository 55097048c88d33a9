//! Components in wasmtime: compile and cache, audit, limits, one store an episode. This room
//! alone names wasmtime.
//!
//! # What it promises
//! - A component reaches only what its caller hands over in [`capability`]; every other import is
//!   refused before the first instruction ([`audit`]).
//! - A component's failure never is the host's: each way to fail is a [`FailureKind`] of its own
//!   ([`limits`] holds the table), and everything a component can make grow is bounded.
//! - The same component with the same inputs uses the same fuel.
//!
//! # Where what is
//! [`audit`] tells what a component is and wants, [`limits`] decides how much it may use,
//! [`capability`] says what the outside must offer, [`clock`] is the backstop and the way to
//! cancel, [`wasi`] is the part of the world that WASI describes, [`program`] runs commands of
//! the wasm lane.
//!
//! [`FailureKind`]: fulgurite_trace::FailureKind

pub mod audit;
pub mod capability;
pub mod clock;
pub mod componentize;
mod failure;
pub mod limits;
pub mod program;
pub mod wasi;
