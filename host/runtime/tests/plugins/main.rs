//! Harnesses and rewards, from bytes to ending: small components written by hand, with real
//! engines, caches and threads.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests may fail loudly"
)]

mod alive;
mod guests;
mod hosts;
mod kinds;
mod load;
mod measure;
mod scores;

/// The compiling child of `load`: this very program, asked to run this one test.
#[test]
#[ignore = "not a test: the child that other tests start"]
fn compiling_child() {
    std::process::exit(fulgurite_runtime::compile::child_status().into());
}
