//! The life of an episode: queue, run, seal, grade, record.
//!
//! This room introduces `runtime`, `gateway` and `sandbox` to each other; the adapters between
//! their traits live here and nowhere else.

pub mod dataset;
pub mod limits;
pub mod plan;
