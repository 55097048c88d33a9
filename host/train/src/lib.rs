//! From scored episodes to a better policy.
//!
//! ```text
//! store of traces ─▶ GroupEpisode ─▶ Group ─▶ Trainer::step ─▶ StepReport
//!                                                  │  ▲
//!                                     scores, gradients, updates
//!                                                  ▼  │
//!                                               Learner
//! ```
//!
//! - **Pure**: [`advantage`], [`loss`], [`kl`], [`aggregate`], [`pack`], [`schedule`],
//!   [`optimizer`] take numbers and give numbers; each is held against PyTorch
//!   (`tests/golden`).
//! - **[`group`]** decides which episodes take part, after [`failure`] and [`over_long`];
//!   whatever does not is counted.
//! - **[`step`]** makes a training step over any [`Learner`]; [`model`] makes one of a model.
//! - **[`run`]** is the loop around it, with [`order`] (which tasks next), [`queue`] (which groups
//!   are in hand), [`checkpoint`], [`metrics`]. All state of a training is in a
//!   [`checkpoint::State`], the optimizer and the weights.
//!
//! Every update of the weights is a policy version of its own.

pub mod advantage;
pub mod aggregate;
mod batch;
pub mod checkpoint;
pub mod demonstration;
pub mod failure;
pub mod group;
mod inspect;
pub mod kl;
pub mod learner;
pub mod loss;
pub mod metrics;
pub mod model;
pub mod optimizer;
pub mod order;
pub mod over_long;
pub mod pack;
mod prepare;
pub mod queue;
mod report;
pub mod run;
pub mod schedule;
pub mod settings;
pub mod step;
pub mod tensorboard;
mod tensors;
mod update;

pub use advantage::{Credit, Estimator};
pub use aggregate::Aggregation;
pub use group::{Grade, Group, GroupEpisode};
pub use kl::{KlEstimator, KlPenalty, KlPlace};
pub use learner::Learner;
pub use settings::TrainSettings;
pub use step::{StepReport, Trainer};
