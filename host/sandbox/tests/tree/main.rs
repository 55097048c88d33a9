//! The workspace tree against a reference model, against a real folder, and in its single
//! promises.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail the test"
)]

mod escapes;
mod import_export;
mod model;
mod model_walk;
mod operations;
mod quotas;
mod random;
mod real_folder;
mod seals;
mod snapshots;
mod threads;
