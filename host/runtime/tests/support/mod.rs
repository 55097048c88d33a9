//! What the tests of this crate share: a file tree in memory and the real Python interpreter.

#![allow(dead_code, reason = "each test binary uses a part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests may fail loudly"
)]

pub(crate) mod python;
pub(crate) mod tree;
