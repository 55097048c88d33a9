//! One training step: groups of scored episodes in, a better policy out.
//!
//! 1. Groups are chosen ([`crate::group`]): failures, missing rewards, stale and broken rows,
//!    small groups and groups that teach nothing are dropped and counted.
//! 2. Log-probabilities before the step are taken from the trace or computed; those under the
//!    reference are computed where a penalty needs them.
//! 3. Advantages are made by episode (or turn) and laid on every trained token of it.
//! 4. For each part of the episodes: packs go forward and backward, gradients add up, are checked
//!    and clipped, the optimizer changes the weights in place, and the version grows by one.
//!
//! Whatever is not finite stops the step before it reaches the weights, and the batch is saved
//! for inspection; with several parts, updates of earlier parts stand, so go on from the last
//! checkpoint. Nothing here is random: the same groups and weights give the same update.

use std::path::PathBuf;

use fulgurite_trace::{EpisodeRef, EpisodeSamples, FailureKind};

use crate::{
    advantage::as_f64,
    batch::{self, Row},
    checkpoint::{Checkpoint, CheckpointError, State},
    group::{Chosen, DropReason, Drops, Grade, Group, GroupEpisode, Selection, select},
    inspect,
    learner::{Learner, LearnerError},
    loss::{Objective, PolicyLoss},
    metrics::Metrics,
    optimizer::AdamW,
    order::TaskOrder,
    report,
    settings::TrainSettings,
    update::{Aim, Totals},
};

/// A step was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The settings contradict themselves.
    #[error("the training settings are wrong: {0}")]
    Settings(String),
    /// Greedy tokens have no probability to raise.
    #[error(
        "{0} was sampled at temperature 0, which leaves nothing to learn from; sample episodes \
         for training at a temperature above 0"
    )]
    Greedy(EpisodeRef),
    /// A loss, a log-probability or a gradient is infinite or no number.
    #[error("step {step} stopped before its next update of the weights: {problem}{}", saved(.batch))]
    NotFinite {
        /// The step.
        step: u64,
        /// What is not finite.
        problem: String,
        /// Where the batch was saved; none when that failed too.
        batch: Option<PathBuf>,
    },
    /// The model.
    #[error("the model failed: {0}")]
    Learner(#[source] LearnerError),
}

fn saved(batch: &Option<PathBuf>) -> String {
    batch.as_ref().map_or_else(
        || " (the batch could not be saved)".to_owned(),
        |path| format!("; the batch is in {}", path.display()),
    )
}

/// What a step did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepReport {
    /// The step, counted from 0.
    pub step: u64,
    /// The policy version after it.
    pub version: u64,
    /// Updates of the weights; 0 when there was nothing to train on.
    pub updates: u64,
    /// Tokens that were trained, counted once.
    pub trained_tokens: u64,
    /// Episodes that took part.
    pub episodes: u64,
    /// Episodes that did not.
    pub drops: Drops,
    /// Tasks to sample once more.
    pub resample: Vec<u32>,
    /// Everything to watch.
    pub metrics: Metrics,
}

/// Makes steps; see the module.
#[derive(Debug)]
pub struct Trainer {
    pub(crate) settings: TrainSettings,
    pub(crate) optimizer: AdamW,
    pub(crate) step: u64,
    pub(crate) version: u64,
    inspection: PathBuf,
}

impl Trainer {
    /// At step 0 with the policy at `version`. Batches that stop the training are saved below
    /// `inspection`.
    pub fn new(
        settings: TrainSettings,
        version: u64,
        inspection: PathBuf,
    ) -> Result<Self, StepError> {
        match settings.problem() {
            Some(problem) => Err(StepError::Settings(problem)),
            None => {
                let optimizer = AdamW::new(settings.optimizer);
                Ok(Self { settings, optimizer, step: 0, version, inspection })
            }
        }
    }

    /// Goes on where a checkpoint stands; its weights are for the caller to load.
    pub fn resume(
        settings: TrainSettings,
        checkpoint: &Checkpoint,
        inspection: PathBuf,
    ) -> Result<Self, ResumeError> {
        let optimizer = checkpoint.optimizer(settings.optimizer)?;
        let State { step, version, .. } = checkpoint.state;
        Ok(Self { optimizer, step, ..Self::new(settings, version, inspection)? })
    }

    /// Steps made so far.
    pub const fn steps(&self) -> u64 {
        self.step
    }

    /// The policy version.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The settings.
    pub const fn settings(&self) -> &TrainSettings {
        &self.settings
    }

    /// The optimizer, for a checkpoint.
    pub const fn optimizer(&self) -> &AdamW {
        &self.optimizer
    }

    /// What a checkpoint says, with what the loop adds.
    pub const fn state(&self, order: TaskOrder, queue: serde_json::Value) -> State {
        let Self { step, version, .. } = *self;
        State { step, version, updates: self.optimizer.step, order, queue }
    }

    /// Trains on groups of scored episodes.
    pub fn step(
        &mut self,
        learner: &mut dyn Learner,
        groups: Vec<Group>,
    ) -> Result<StepReport, StepError> {
        let vocabulary = learner.vocabulary();
        let (version, staleness) = (self.version, self.settings.max_staleness);
        let admit = |samples: &EpisodeSamples| {
            sound(samples, vocabulary)?;
            let age = age(samples, version);
            if staleness.is_some_and(|most| age > most) { Err(DropReason::Stale) } else { Ok(()) }
        };
        let Selection { mut groups, drops, resample } =
            select(groups, &self.settings.groups, self.settings.credit, &admit);
        let mut rows = batch::rows(&groups);
        if self.settings.policy != PolicyLoss::Likelihood
            && let Some(row) = rows.iter().find(|row| row.sample.temperature <= 0.0)
        {
            return Err(StepError::Greedy(row.sample.episode));
        }
        let mut metrics = report::of_episodes(&groups, &drops, version);
        self.old(learner, &mut rows, &mut metrics)?;
        self.reference(learner, &mut rows)?;
        self.penalise(&mut groups, &rows);
        self.advantages(&groups, &mut rows, &mut metrics);
        let episodes: usize = groups.iter().map(Vec::len).sum();
        let aim =
            Aim { objective: self.settings.objective(), temperature: None, rate: self.rate() };
        let totals = self.learn(learner, &rows, episodes, aim)?;
        report::of_updates(&mut metrics, &totals, aim.rate);
        report::of_policy(&mut metrics, &totals, rows.iter().any(|row| row.reference.is_some()));
        Ok(self.finish(&rows, episodes, totals, drops, resample, metrics))
    }

    /// Trains on what is simply to be imitated: demonstrations, or the best of what was sampled
    /// ([`best_of`]). Cross-entropy at temperature 1; no advantages, no reference. `rate` is the
    /// learning rate, in absence that of the schedule.
    pub fn imitate(
        &mut self,
        learner: &mut dyn Learner,
        examples: Examples,
        rate: Option<f64>,
    ) -> Result<StepReport, StepError> {
        let vocabulary = learner.vocabulary();
        let Examples { episodes, mut drops } = examples;
        let mut chosen = Vec::with_capacity(episodes.len());
        for samples in episodes {
            match sound(&samples, vocabulary) {
                Ok(()) => {
                    let grade = Grade { total: 0.0, turns: Vec::new() };
                    chosen.push(Chosen { samples, grade, masked: false });
                }
                Err(reason) => crate::group::count(&mut drops, reason, 1),
            }
        }
        let episodes = chosen.len();
        let mut rows = batch::rows(&[chosen]);
        for row in &mut rows {
            let trained = row.sample.trained();
            row.old = vec![0.0; trained];
            row.advantage = vec![1.0; trained];
        }
        let objective =
            Objective { policy: PolicyLoss::Likelihood, kl: None, entropy: self.settings.entropy };
        let rate = rate.unwrap_or_else(|| self.rate());
        let aim = Aim { objective, temperature: Some(1.0), rate };
        let totals = self.learn(learner, &rows, episodes, aim)?;
        let mut metrics = Metrics::new();
        report::of_drops(&mut metrics, &drops);
        report::of_updates(&mut metrics, &totals, rate);
        Ok(self.finish(&rows, episodes, totals, drops, Vec::new(), metrics))
    }

    fn rate(&self) -> f64 {
        self.settings.schedule.at(self.step)
    }

    fn finish(
        &mut self,
        rows: &[Row],
        episodes: usize,
        totals: Totals,
        drops: Drops,
        resample: Vec<u32>,
        mut metrics: Metrics,
    ) -> StepReport {
        let tokens = |row: &Row| if row.trained { row.sample.trained() } else { 0 };
        let trained: usize = rows.iter().map(tokens).sum();
        metrics.insert("tokens/trained".to_owned(), as_f64(trained));
        metrics.insert("rows".to_owned(), as_f64(rows.len()));
        let step = self.step;
        self.step = self.step.saturating_add(1);
        StepReport {
            step,
            version: self.version,
            updates: totals.updates,
            trained_tokens: trained as u64,
            episodes: episodes as u64,
            drops,
            resample,
            metrics,
        }
    }

    /// Saves the batch.
    pub(crate) fn stop(&self, problem: String, rows: &[Row]) -> StepError {
        let folder = self.inspection.join(format!("step-{:08}", self.step));
        let batch = match inspect::save(&folder, self.step, &problem, &self.settings, rows) {
            Ok(()) => Some(folder),
            Err(error) => {
                tracing::error!(%error, folder = %folder.display(), "the batch is not saved");
                None
            }
        };
        StepError::NotFinite { step: self.step, problem, batch }
    }
}

/// A run cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// The checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The settings.
    #[error(transparent)]
    Step(#[from] StepError),
}

/// What is to be imitated.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Examples {
    /// Rows of the episodes.
    pub episodes: Vec<EpisodeSamples>,
    /// Episodes that cannot be examples, by reason.
    pub drops: Drops,
}

/// Of each group the rows of the `count` best graded episodes, those with at least `least`; the
/// earlier of equals. What has no grade is counted among the drops.
pub fn best_of(groups: Vec<Group>, count: usize, least: f64) -> Examples {
    let mut examples = Examples::default();
    for group in groups {
        let mut graded = Vec::with_capacity(group.episodes.len());
        for GroupEpisode { samples, kind, grade } in group.episodes {
            match grade {
                Some(grade) if grade.total >= least => graded.push((grade.total, samples)),
                Some(_) => {}
                None => {
                    let reason = match kind {
                        FailureKind::Completed => DropReason::NoReward,
                        kind => DropReason::Failed(kind),
                    };
                    crate::group::count(&mut examples.drops, reason, 1);
                }
            }
        }
        graded.sort_by(|one, other| other.0.total_cmp(&one.0));
        examples.episodes.extend(graded.into_iter().take(count).map(|(_, samples)| samples));
    }
    examples
}

/// Whether all rows fit together and the vocabulary.
fn sound(samples: &EpisodeSamples, vocabulary: usize) -> Result<(), DropReason> {
    for sample in &samples.samples {
        let ids = sample.prompt.iter().chain(&sample.response);
        let foreign = ids.copied().find(|id| usize::try_from(*id).is_ok_and(|id| id >= vocabulary));
        let problem = match foreign {
            Some(id) => Some(format!("token {id} is outside the vocabulary of {vocabulary}")),
            None => sample.check().err(),
        };
        if let Some(problem) = problem {
            tracing::warn!(episode = %sample.episode, problem, "an episode is dropped");
            return Err(DropReason::BrokenSample);
        }
    }
    Ok(())
}

/// How many versions ago the oldest trained token was sampled.
pub(crate) fn age(samples: &EpisodeSamples, version: u64) -> u64 {
    let oldest = samples.samples.iter().filter_map(|sample| sample.versions()).map(|own| own.0);
    oldest.min().map_or(0, |oldest| version.saturating_sub(oldest))
}
