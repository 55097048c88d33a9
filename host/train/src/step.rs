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
//! for inspection. Nothing here is random: the same groups and weights give the same update.

use std::path::PathBuf;

use fulgurite_trace::{EpisodeRef, EpisodeSamples};

use crate::{
    advantage::{self, as_f64},
    batch::{self, Row},
    checkpoint::{Checkpoint, CheckpointError, State},
    group::{Chosen, DropReason, Drops, Grade, Group, Selection, select},
    inspect,
    kl::KlPlace,
    learner::{Learner, LearnerError},
    loss::{LossSums, Objective, PolicyLoss, Token, correction, evaluate},
    metrics::Metrics,
    optimizer::{AdamW, clip},
    order::TaskOrder,
    report,
    settings::{OldLogProbabilities, TrainSettings},
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
    #[error("step {step} stopped before it changed the weights: {problem}{}", saved(.batch))]
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
    settings: TrainSettings,
    optimizer: AdamW,
    step: u64,
    version: u64,
    inspection: PathBuf,
}

/// What all parts of a step come to.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) loss: f64,
    pub(crate) sums: LossSums,
    pub(crate) updates: u64,
    pub(crate) norm: f64,
    pub(crate) norm_max: f64,
    pub(crate) clipped: u64,
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
        let needs_turns = matches!(self.settings.credit, advantage::Credit::Turns { .. });
        let Selection { mut groups, drops, resample } =
            select(groups, &self.settings.groups, needs_turns, &admit);
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
        let totals = self.learn(learner, &rows, episodes, self.settings.objective(), None)?;
        report::of_updates(&mut metrics, &totals, self.rate(), true);
        Ok(self.finish(&rows, episodes, totals, drops, resample, metrics))
    }

    /// Trains on what is simply to be imitated: demonstrations, or the best of what was sampled
    /// ([`best_of`]). Cross-entropy at temperature 1; no advantages, no reference.
    pub fn imitate(
        &mut self,
        learner: &mut dyn Learner,
        episodes: Vec<EpisodeSamples>,
    ) -> Result<StepReport, StepError> {
        let vocabulary = learner.vocabulary();
        let mut drops = Drops::new();
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
        let totals = self.learn(learner, &rows, episodes, objective, Some(1.0))?;
        let mut metrics = Metrics::new();
        report::of_drops(&mut metrics, &drops);
        report::of_updates(&mut metrics, &totals, self.rate(), false);
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

    /// Log-probabilities before the step, and the correction for what sampled the tokens.
    fn old(
        &self,
        learner: &dyn Learner,
        rows: &mut [Row],
        metrics: &mut Metrics,
    ) -> Result<(), StepError> {
        let (asked, version) = (self.settings.old, self.version);
        let recorded = |row: &Row| {
            asked == OldLogProbabilities::WhereRecorded
                && row.sample.untruncated.is_none()
                && row.sample.versions() == Some((version, version))
        };
        let wanted = |row: &Row| !recorded(row) || row.sample.log_probabilities.is_none();
        let packs = batch::packs(rows, self.settings.pack_tokens, None, wanted);
        let scores = batch::score_rows(rows, &packs, |packed| learner.score(packed));
        let scores = scores.map_err(StepError::Learner)?;
        let mut mismatch = report::Mismatch::default();
        for (row, computed) in rows.iter_mut().zip(scores) {
            let wide =
                |values: &Vec<f32>| -> Vec<f64> { values.iter().copied().map(f64::from).collect() };
            let behaviour = row.sample.log_probabilities.as_ref().map(wide);
            match computed {
                Some(computed) => row.old = computed,
                None => row.old = behaviour.clone().unwrap_or_default(),
            }
            let Some(behaviour) = behaviour else {
                mismatch.unknown += row.sample.trained();
                continue;
            };
            // Without the cut, sampling and training kernels should agree on the same version.
            let whole = row.sample.untruncated.as_ref().map_or_else(|| behaviour.clone(), wide);
            let tokens = row.sample.targets().zip(row.old.iter().zip(&whole));
            for ((_, stretch), (old, whole)) in tokens {
                if stretch.version == version {
                    mismatch.add(old - whole);
                }
            }
            if let Some(most) = self.settings.importance_threshold {
                let pairs = row.old.iter().zip(&behaviour);
                row.correction = pairs.map(|(old, own)| correction(*old, *own, most)).collect();
            }
        }
        mismatch.report(metrics);
        if let Some(row) = rows.iter().find(|row| !row.old.iter().all(|old| old.is_finite())) {
            let problem = format!(
                "a log-probability of {} before the step is not finite",
                row.sample.episode
            );
            return Err(self.stop(problem, rows));
        }
        Ok(())
    }

    fn reference(&self, learner: &dyn Learner, rows: &mut [Row]) -> Result<(), StepError> {
        if self.settings.kl.is_none() {
            return Ok(());
        }
        let packs = batch::packs(rows, self.settings.pack_tokens, None, |_| true);
        let scores = batch::score_rows(rows, &packs, |packed| learner.score_reference(packed));
        for (row, scores) in rows.iter_mut().zip(scores.map_err(StepError::Learner)?) {
            row.reference = scores;
        }
        Ok(())
    }

    /// Takes the divergence from the reference off the rewards, where it belongs there.
    fn penalise(&self, groups: &mut [Vec<Chosen>], rows: &[Row]) {
        let Some(kl) = self.settings.kl.filter(|kl| kl.place == KlPlace::Reward) else { return };
        let by_turn = matches!(self.settings.credit, advantage::Credit::Turns { .. });
        for (episode, chosen) in groups.iter_mut().flatten().enumerate() {
            for row in rows.iter().filter(|row| row.episode == episode) {
                let reference = row.reference.iter().flatten();
                for (((_, stretch), old), reference) in
                    row.sample.targets().zip(&row.old).zip(reference)
                {
                    let penalty = kl.coefficient * kl.estimator.value(*old, *reference);
                    if by_turn {
                        let (turn, value) = (stretch.turn, -penalty);
                        chosen.grade.turns.push(fulgurite_trace::TurnValue { turn, value });
                    } else {
                        chosen.grade.total -= penalty;
                    }
                }
            }
        }
    }

    fn advantages(&self, groups: &[Vec<Chosen>], rows: &mut [Row], metrics: &mut Metrics) {
        let turns: Vec<Vec<u32>> = groups.iter().flatten().map(trained_turns).collect();
        let mut numbers = turns.iter();
        let returns: Vec<Vec<Vec<f64>>> = groups
            .iter()
            .map(|group| {
                let own = group.iter().zip(numbers.by_ref());
                own.map(|(chosen, turns)| {
                    let Grade { total, turns: values } = &chosen.grade;
                    // Episodes without values of turns were dropped when groups were chosen.
                    advantage::returns(self.settings.credit, *total, values, turns)
                        .unwrap_or_default()
                })
                .collect()
            })
            .collect();
        let advantages = advantage::advantages(self.settings.estimator, &returns).concat();
        report::of_advantages(metrics, &advantages);
        for row in rows {
            let (Some(own), Some(turns)) = (advantages.get(row.episode), turns.get(row.episode))
            else {
                continue;
            };
            let of = |turn: u32| match own.as_slice() {
                [single] if self.settings.credit == advantage::Credit::Outcome => *single,
                own => turns
                    .binary_search(&turn)
                    .ok()
                    .and_then(|at| own.get(at))
                    .copied()
                    .unwrap_or_default(),
            };
            row.advantage = row.sample.targets().map(|(_, stretch)| of(stretch.turn)).collect();
        }
    }

    /// Forward, backward and update, for each part of the episodes in each pass.
    fn learn(
        &mut self,
        learner: &mut dyn Learner,
        rows: &[Row],
        episodes: usize,
        objective: Objective,
        temperature: Option<f32>,
    ) -> Result<Totals, StepError> {
        let mut totals = Totals::default();
        let parts = self.settings.parts.min(episodes.max(1));
        for _ in 0..self.settings.passes {
            for part in 0..parts {
                let from = episodes.saturating_mul(part) / parts;
                let to = episodes.saturating_mul(part.saturating_add(1)) / parts;
                let made = self.part(learner, rows, from..to, objective, temperature, &mut totals);
                learner.clear_gradients();
                made?;
            }
        }
        Ok(totals)
    }

    fn part(
        &mut self,
        learner: &mut dyn Learner,
        rows: &[Row],
        episodes: std::ops::Range<usize>,
        objective: Objective,
        temperature: Option<f32>,
        totals: &mut Totals,
    ) -> Result<(), StepError> {
        let wanted = |row: &Row| row.trained && episodes.contains(&row.episode);
        let weights = self.weights(rows, &episodes, wanted);
        let packs = batch::packs(rows, self.settings.pack_tokens, temperature, wanted);
        if packs.is_empty() {
            return Ok(());
        }
        for pack in &packs {
            let mut tokens = Vec::with_capacity(pack.packed.targets.len());
            for at in &pack.rows {
                if let (Some(row), Some(weight)) = (rows.get(*at), weights.get(*at)) {
                    tokens.extend(row_tokens(row, *weight));
                }
            }
            let mut problem = None;
            let made = learner.backward(&pack.packed, &mut |scores| {
                if scores.len() != tokens.len() {
                    return Err(format!(
                        "the model gave {} scores for {} targets",
                        scores.len(),
                        tokens.len()
                    )
                    .into());
                }
                let evaluated = evaluate(&objective, scores, &tokens);
                let finite = evaluated.gradients.iter().all(|gradient| {
                    gradient.log_probability.is_finite() && gradient.entropy.is_finite()
                });
                if !finite || !evaluated.value.is_finite() {
                    let text = format!("the loss of a pack is {}", evaluated.value);
                    problem = Some(text.clone());
                    return Err(text.into());
                }
                totals.loss += evaluated.value;
                totals.sums.add(&evaluated.sums);
                Ok(evaluated.gradients)
            });
            if let Some(problem) = problem {
                return Err(self.stop(problem, rows));
            }
            made.map_err(StepError::Learner)?;
        }
        let norm = learner.gradient_norm().map_err(StepError::Learner)?;
        if !norm.is_finite() {
            return Err(self.stop(format!("the norm of the gradients is {norm}"), rows));
        }
        let scale = self.settings.max_gradient_norm.map_or(1.0, |most| clip(norm, most));
        let mut update = self.optimizer.begin(self.settings.schedule.at(self.step), scale);
        self.version = self.version.saturating_add(1);
        learner
            .update(self.version, &mut |name, values, gradient, decays| {
                update.apply(name, values, gradient, decays)
            })
            .map_err(StepError::Learner)?;
        totals.updates = totals.updates.saturating_add(1);
        totals.norm += norm;
        totals.norm_max = totals.norm_max.max(norm);
        totals.clipped = totals.clipped.saturating_add(u64::from(scale < 1.0));
        Ok(())
    }

    /// The weight of each row's tokens; 0 for rows that do not take part.
    fn weights(
        &self,
        rows: &[Row],
        episodes: &std::ops::Range<usize>,
        wanted: impl Fn(&Row) -> bool,
    ) -> Vec<f64> {
        let mut lengths = vec![Vec::new(); episodes.len()];
        let mut places = Vec::with_capacity(rows.len());
        for row in rows {
            let episode = row.episode.checked_sub(episodes.start).filter(|_| wanted(row));
            places.push(episode.and_then(|episode| {
                let own = lengths.get_mut(episode)?;
                own.push(row.sample.trained());
                Some((episode, own.len().saturating_sub(1)))
            }));
        }
        let weights = self.settings.aggregation.weights(&lengths);
        places
            .into_iter()
            .map(|place| {
                let (episode, row) = place?;
                weights.get(episode)?.get(row).copied()
            })
            .map(Option::unwrap_or_default)
            .collect()
    }

    fn stop(&self, problem: String, rows: &[Row]) -> StepError {
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

/// Of each group the rows of the `count` best graded episodes, those with at least `least`; the
/// earlier of equals.
pub fn best_of(groups: Vec<Group>, count: usize, least: f64) -> Vec<EpisodeSamples> {
    let mut best = Vec::new();
    for group in groups {
        let mut graded: Vec<(f64, EpisodeSamples)> = group
            .episodes
            .into_iter()
            .filter_map(|episode| Some((episode.grade?.total, episode.samples)))
            .filter(|(total, _)| *total >= least)
            .collect();
        graded.sort_by(|one, other| other.0.total_cmp(&one.0));
        best.extend(graded.into_iter().take(count).map(|(_, samples)| samples));
    }
    best
}

fn row_tokens(row: &Row, weight: f64) -> impl Iterator<Item = Token> {
    row.old.iter().zip(&row.advantage).zip(&row.correction).enumerate().map(
        move |(at, ((old, advantage), correction))| Token {
            old: *old,
            reference: row.reference.as_ref().and_then(|values| values.get(at)).copied(),
            advantage: *advantage,
            correction: *correction,
            weight,
        },
    )
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

/// Ascending turns with trained tokens.
fn trained_turns(chosen: &Chosen) -> Vec<u32> {
    let rows = chosen.samples.samples.iter();
    let mut turns: Vec<u32> =
        rows.flat_map(|row| row.stretches.iter().map(|stretch| stretch.turn)).collect();
    turns.sort_unstable();
    turns.dedup();
    turns
}
