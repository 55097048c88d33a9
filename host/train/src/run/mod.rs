//! The loop: gather groups, take a step, validate, write a checkpoint, until the budget ends.
//!
//! **Sync** (the default): the groups of a step are played with one version of the policy, and
//! nothing runs while it changes. **Asynchronous** ([`Gathering::active`]): groups stay under way
//! across updates; a step takes the first that are complete, the others wait their turn, and how
//! old their tokens are is reported and bounded by the step's own settings.
//!
//! **Going on.** A checkpoint holds everything that decides what comes next: weights, moments,
//! order of tasks, and the groups in hand ([`Hand`]). These are played again by the same numbers;
//! what of them is recorded is not repeated. Training that was killed therefore makes the same
//! next step as training that was not, given a policy and rewards that repeat themselves.

mod episodes;
mod gather;
mod numbers;
mod settings;

use std::{path::Path, sync::Arc, time::Instant};

use fulgurite_trace::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::{
    episodes::{Counts, Episodes, EpisodesError, GroupRequest, Played, Speaker, Validated},
    gather::Hand,
    numbers::Spent,
    settings::{Budget, Gathering, RunSettings, WarmSource, WarmStart},
};
use self::{
    gather::Gatherer,
    numbers::{Clock, Took, of_step, of_validation},
};
use crate::{
    checkpoint::{CheckpointError, Checkpoints, State},
    learner::{Learner, LearnerError},
    metrics::{Metrics, MetricsWriter},
    order::TaskOrder,
    step::{StepError, StepReport, Trainer, best_of},
};

/// What happens, for whoever watches.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A group is complete.
    Group {
        /// Complete groups of the coming step.
        ready: usize,
        /// How many it takes.
        wanted: usize,
    },
    /// A step was made.
    Step {
        /// How many there are now.
        step: u64,
        /// Its numbers.
        metrics: &'a Metrics,
    },
    /// Held-out tasks are about to be played.
    Validating,
    /// Held-out tasks were played.
    Validated {
        /// Steps made before.
        step: u64,
        /// How they came out.
        validated: &'a Validated,
    },
}

/// Why training ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// The budget ran out.
    Budget,
    /// The wanted reward was reached.
    Reward,
    /// [`MOST_EMPTY_STEPS`] in a row gave nothing to learn from.
    Nothing,
    /// It was stopped; it can go on later.
    Stopped,
}

/// Training failed. What the last checkpoint holds is not lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Episodes.
    #[error("episodes could not be played")]
    Episodes(#[from] EpisodesError),
    /// The step.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The metrics.
    #[error("the metrics cannot be written")]
    Metrics(#[source] std::io::Error),
    /// What is kept of the loop cannot be read.
    #[error("the checkpoint's queue cannot be read: {0}")]
    Queue(serde_json::Error),
}

/// Steps without anything to learn from after which training gives up.
pub const MOST_EMPTY_STEPS: u64 = 50;

/// Writes the weights, or what of them is trained.
pub trait Save {
    /// Writes them into a folder that is there and empty.
    fn save(&self, folder: &Path) -> Result<(), LearnerError>;
}

/// Everything that the loop works with.
pub struct Loop<L, E> {
    /// The step, the optimizer and the version.
    pub trainer: Trainer,
    /// The model.
    pub learner: L,
    /// Where episodes come from.
    pub episodes: Arc<E>,
    /// The order of tasks.
    pub order: TaskOrder,
    /// Groups and costs so far.
    pub kept: Kept,
    /// How training is run.
    pub settings: RunSettings,
    /// Where checkpoints go.
    pub checkpoints: Checkpoints,
    /// Where metrics go.
    pub metrics: MetricsWriter,
    /// CPU time of this process.
    pub cpu: fn() -> std::time::Duration,
}

/// What a checkpoint keeps for the loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// The run that episodes are recorded in.
    pub run: String,
    /// Groups.
    pub hand: Hand,
    /// What it took.
    #[serde(default)]
    pub spent: Spent,
    /// How held-out tasks came out first.
    #[serde(default)]
    pub first_validation: Option<Validation>,
    /// And last.
    #[serde(default)]
    pub validation: Option<Validation>,
    /// Lines of metrics that were written by then.
    #[serde(default)]
    pub lines: u64,
}

/// How held-out tasks came out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Validation {
    /// Steps made before.
    pub step: u64,
    /// The run that they are recorded as.
    pub run: String,
    /// Their mean reward; none when no episode has a score.
    pub reward: Option<f64>,
}

impl Kept {
    /// Nothing yet: a training that is recorded in this run, with groups of so many episodes.
    pub fn new(run: String, episodes: u32) -> Self {
        Self {
            run,
            hand: Hand::new(episodes),
            spent: Spent::default(),
            first_validation: None,
            validation: None,
            lines: 0,
        }
    }

    /// What a checkpoint's [`State::queue`] holds.
    pub fn read(state: &State) -> Result<Self, RunError> {
        serde_json::from_value(state.queue.clone()).map_err(RunError::Queue)
    }
}

impl<L, E> std::fmt::Debug for Loop<L, E> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Loop").field("trainer", &self.trainer).finish_non_exhaustive()
    }
}

/// How training went.
#[derive(Debug)]
pub struct Ended<L> {
    /// Why it ended.
    pub end: End,
    /// The model.
    pub learner: L,
    /// Steps made.
    pub step: u64,
    /// What it took.
    pub spent: Spent,
    /// The first and the last validation, where there were two.
    pub validations: Option<(Validation, Validation)>,
}

impl<L: Learner + Save, E: Episodes> Loop<L, E> {
    /// Trains until the budget ends or `is_stopped` says so, which is asked between steps;
    /// whoever answers yes also makes the source of episodes give up. Needs a runtime with
    /// several threads, since a step computes for seconds.
    pub async fn run(
        mut self,
        is_stopped: impl Fn() -> bool,
        mut watch: impl FnMut(Event<'_>),
    ) -> Result<Ended<L>, RunError> {
        let clock = Clock::start(self.kept.spent, self.cpu);
        let mut gatherer = Gatherer::new(Arc::clone(&self.episodes), self.settings.group);
        let ended = self.steps(&mut gatherer, &clock, &is_stopped, &mut watch).await;
        // No update takes what is still under way.
        self.episodes.give_up();
        let failure = gatherer.stop().await;
        // A source that fails may stop everything else, and the failure is what has to be told.
        let end = match (ended?, failure) {
            (End::Stopped, Some(failure)) => return Err(failure.into()),
            (end, _) => end,
        };
        let Kept { first_validation, validation, spent, .. } = self.kept;
        let validations = first_validation.zip(validation).filter(|(a, b)| a.run != b.run);
        Ok(Ended { end, step: self.trainer.steps(), spent, validations, learner: self.learner })
    }

    async fn steps(
        &mut self,
        gatherer: &mut Gatherer<E>,
        clock: &Clock,
        is_stopped: &impl Fn() -> bool,
        watch: &mut impl FnMut(Event<'_>),
    ) -> Result<End, RunError> {
        let mut end = None;
        if self.trainer.steps() == 0 && self.kept.validation.is_none() {
            // Training that is killed in its first step goes on with what it recorded.
            self.save()?;
            end = self.validate(clock, watch).await?;
        } else if is_due(self.trainer.steps(), self.settings.validate_every) && !self.is_validated()
        {
            // Training was stopped in this validation.
            end = self.validate(clock, watch).await?;
        } else if self.is_good_enough() {
            // It had ended, and was called once more.
            end = Some(End::Reward);
        }
        let mut saved = self.trainer.steps();
        let mut empty = 0_u64;
        if end.is_none() {
            match gatherer.reopen(&self.kept.hand, self.speaker()).await {
                Err(EpisodesError::Stopped) => end = Some(End::Stopped),
                opened => opened?,
            }
        }
        while end.is_none() {
            if is_stopped() {
                end = Some(End::Stopped);
            } else if self.is_over() {
                end = Some(End::Budget);
            }
            if end.is_some() {
                break;
            }
            let (speaker, wanted) = (self.speaker(), self.settings.group.groups);
            let mut tell = |ready| watch(Event::Group { ready, wanted });
            let next = self.trainer.steps().saturating_add(1);
            let goes_on = self.settings.budget.steps.is_none_or(|steps| next < steps);
            let (hand, order) = (&mut self.kept.hand, &mut self.order);
            let gathered = gatherer.gather(hand, order, speaker, goes_on, &mut tell).await;
            let played = match gathered {
                Err(EpisodesError::Stopped) => {
                    end = Some(End::Stopped);
                    break;
                }
                gathered => gathered?,
            };
            let report = self.step(played, gatherer.waited(), clock, watch)?;
            empty = if report.trained_tokens == 0 { empty.saturating_add(1) } else { 0 };
            if empty >= MOST_EMPTY_STEPS {
                end = Some(End::Nothing);
                break;
            }
            if is_due(self.trainer.steps(), self.settings.validate_every) {
                end = self.validate(clock, watch).await?;
            }
            // A stopped validation is repeated: nothing is written that says it was made.
            if end != Some(End::Stopped)
                && is_due(self.trainer.steps(), self.settings.checkpoint_every)
            {
                self.save()?;
                saved = self.trainer.steps();
            }
        }
        if matches!(end, Some(End::Budget | End::Nothing)) && !self.is_validated() {
            if let Some(other) = self.validate(clock, watch).await? {
                end = Some(other);
            }
            self.save()?;
        } else if saved != self.trainer.steps() {
            self.save()?;
        }
        Ok(end.unwrap_or(End::Stopped))
    }

    /// Who speaks in the groups begun now.
    fn speaker(&self) -> Speaker {
        match self.warm_start().map(|warm| warm.from) {
            Some(WarmSource::References) => Speaker::References,
            Some(WarmSource::BestOf) | None => Speaker::Policy,
        }
    }

    fn warm_start(&self) -> Option<WarmStart> {
        self.settings.warm_start.filter(|warm| self.trainer.steps() < warm.steps)
    }

    fn is_over(&self) -> bool {
        let Budget { steps, tokens, .. } = self.settings.budget;
        let wall = self.settings.budget.wall();
        let spent = &self.kept.spent;
        steps.is_some_and(|most| self.trainer.steps() >= most)
            || tokens.is_some_and(|most| spent.sampled_tokens >= most)
            || wall.is_some_and(|most| spent.wall() >= most)
    }

    /// One step of training on what was played.
    fn step(
        &mut self,
        played: Vec<Played>,
        waited: std::time::Duration,
        clock: &Clock,
        watch: &mut impl FnMut(Event<'_>),
    ) -> Result<StepReport, RunError> {
        let mut counts = Counts::default();
        let mut groups = Vec::with_capacity(played.len());
        for played in played {
            counts.add(&played.counts);
            groups.push(played.group);
        }
        let began = Instant::now();
        let warm = self.warm_start();
        let (trainer, learner) = (&mut self.trainer, &mut self.learner);
        let report = tokio::task::block_in_place(|| match warm {
            Some(WarmStart { keep, least, from, rate, .. }) => {
                let least = match from {
                    WarmSource::References => f64::NEG_INFINITY,
                    WarmSource::BestOf => least,
                };
                trainer.imitate(learner, best_of(groups, keep, least), rate)
            }
            None => trainer.step(learner, groups),
        })?;
        self.kept.hand.again.extend(&report.resample);
        let spent = &mut self.kept.spent;
        spent.add(&counts);
        spent.trained_tokens = spent.trained_tokens.saturating_add(report.trained_tokens);
        clock.read(spent);
        let took = Took { waiting: waited, training: began.elapsed() };
        let metrics = of_step(report.metrics.clone(), &counts, &took, report.trained_tokens);
        let step = self.trainer.steps();
        self.metrics.write(step, Timestamp::now(), &metrics).map_err(RunError::Metrics)?;
        watch(Event::Step { step, metrics: &metrics });
        Ok(report)
    }

    /// Plays the held-out tasks; says whether that ends training.
    async fn validate(
        &mut self,
        clock: &Clock,
        watch: &mut impl FnMut(Event<'_>),
    ) -> Result<Option<End>, RunError> {
        let step = self.trainer.steps();
        watch(Event::Validating);
        let validated = match self.episodes.validate(step).await {
            Ok(Some(validated)) => validated,
            Ok(None) => return Ok(None),
            Err(EpisodesError::Stopped) => return Ok(Some(End::Stopped)),
            Err(error) => return Err(error.into()),
        };
        self.kept.spent.add(&validated.counts);
        clock.read(&mut self.kept.spent);
        let metrics = of_validation(&validated.counts);
        self.metrics.write(step, Timestamp::now(), &metrics).map_err(RunError::Metrics)?;
        watch(Event::Validated { step, validated: &validated });
        let reward = validated.counts.mean_reward();
        let validation = Validation { step, run: validated.run, reward };
        self.kept.first_validation.get_or_insert_with(|| validation.clone());
        self.kept.validation = Some(validation);
        Ok(self.is_good_enough().then_some(End::Reward))
    }

    /// The validation of the weights as they are.
    fn validation(&self) -> Option<&Validation> {
        let step = self.trainer.steps();
        self.kept.validation.as_ref().filter(|validation| validation.step == step)
    }

    fn is_validated(&self) -> bool {
        self.validation().is_some()
    }

    /// Whether the weights as they are earned the wanted reward. Whoever asked for training of
    /// what is good enough already wants to see a step.
    fn is_good_enough(&self) -> bool {
        let earned = self.validation().and_then(|validation| validation.reward);
        let wanted = self.settings.budget.reward;
        self.trainer.steps() > 0 && wanted.zip(earned).is_some_and(|(wanted, mean)| mean >= wanted)
    }

    fn save(&mut self) -> Result<(), RunError> {
        self.kept.lines = self.metrics.written();
        let queue = serde_json::to_value(&self.kept).map_err(RunError::Queue)?;
        let state = self.trainer.state(self.order, queue);
        let learner = &self.learner;
        tokio::task::block_in_place(|| {
            self.checkpoints.save(&state, self.trainer.optimizer(), |folder| learner.save(folder))
        })?;
        Ok(())
    }
}

/// Whether something is due after this step that is due every so many.
const fn is_due(step: u64, every: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}
