//! From scored episodes to a better policy: advantages, losses, the optimizer, the step,
//! checkpoints and metrics.

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
pub mod optimizer;
pub mod order;
pub mod over_long;
pub mod pack;
mod prepare;
pub mod queue;
mod report;
pub mod schedule;
pub mod settings;
pub mod step;
pub mod tensorboard;
mod tensors;
pub mod training;
mod update;

pub use advantage::{Credit, Estimator};
pub use aggregate::Aggregation;
pub use group::{Grade, Group, GroupEpisode};
pub use kl::{KlEstimator, KlPenalty, KlPlace};
pub use learner::Learner;
pub use settings::TrainSettings;
pub use step::{StepReport, Trainer};
