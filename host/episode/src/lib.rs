//! The life of an episode: queue, run, seal, grade, record.
//!
//! This room introduces `runtime`, `gateway` and `sandbox` to each other; the adapters between
//! their traits live here and nowhere else (`adapt`).
//!
//! What it promises:
//! - An episode that [`run()`](run::run) tells of is recorded, durably, with its ending and its
//!   scores; what is told is what is in the trace.
//! - A harness gets the task without its hidden part, a workspace, the policy, commands, notes and
//!   budgets, and nothing else. Rewards run afterwards, each in a store of its own, over records
//!   that the host owns.
//! - An ending that the policy caused is graded, with the plan's floor as the most it can earn; an
//!   ending that the infrastructure caused is tried again, then dropped and counted; a reward that
//!   fails is an alarm, never a zero ([`fulgurite_trace::FailureKind::cause`] is the table).
//! - The same plan gives the same canonical trace, at any concurrency, with a policy that does.

mod adapt;
pub mod again;
mod attempt;
mod bounds;
pub mod compare;
pub mod dataset;
mod grading;
pub mod kept;
pub mod limits;
pub mod plan;
pub mod run;
pub mod summary;
mod workspaces;

pub use adapt::programs::Programs;
pub use attempt::Equipment;
