//! The loop: gather groups, take a step, validate, write a checkpoint, until the budget ends.
//!
//! **Sync** (the default): the groups of a step are played with one version of the policy, and
//! nothing runs while it changes. **Asynchronous** (`group.active`): groups stay under way across
//! updates; a step takes the first that are complete, the others wait their turn, and how old
//! their tokens are is reported and bounded by the step's own settings.
//!
//! **Going on.** A checkpoint holds everything that decides what comes next: weights, moments,
//! order of tasks, and the open groups. Open groups are played again by the same numbers; what of
//! them is recorded is not repeated. Training that was killed therefore makes the same next step
//! as training that was not, given a policy and rewards that repeat themselves.

mod episodes;
mod gather;
mod queue;
mod settings;

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use fulgurite_trace::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::{
    episodes::{Counts, Episodes, EpisodesError, GroupRequest, Played, Validated},
    queue::Queue,
    settings::{Budget, Gathering, RunSettings},
};
use self::gather::Gatherer;
use crate::{
    checkpoint::{CheckpointError, Checkpoints, State},
    learner::{Learner, LearnerError},
    metrics::{Metrics, MetricsWriter},
    order::TaskOrder,
    step::{StepError, StepReport, Trainer},
};

/// What training took so far, over all its processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spent {
    /// Wall clock in milliseconds.
    pub wall_ms: u64,
    /// CPU time in milliseconds.
    pub cpu_ms: u64,
    /// Episodes, validation included.
    pub episodes: u64,
    /// Model calls.
    pub turns: u64,
    /// Tokens the model wrote.
    pub sampled_tokens: u64,
    /// Tokens that went through the backward pass.
    pub trained_tokens: u64,
}

/// What a checkpoint keeps for the loop.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hand {
    /// Groups.
    pub queue: Queue,
    /// What it took.
    pub spent: Spent,
    /// Whatever the source of episodes needs to find what it recorded.
    #[serde(default)]
    pub episodes: serde_json::Value,
}

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
        /// Its number, from 1.
        step: u64,
        /// Its numbers.
        metrics: &'a Metrics,
        /// What the episodes of the step took.
        counts: &'a Counts,
    },
    /// Held-out tasks were played.
    Validated {
        /// Steps made before.
        step: u64,
        /// How they came out.
        validated: &'a Validated,
    },
    /// A checkpoint is on the disk.
    Saved {
        /// Its folder.
        folder: &'a Path,
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
    /// Step after step gave nothing to learn from.
    #[error(
        "{steps} steps in a row had nothing to learn from: every group was dropped\n  mend: see \
         `drop/…` in the metrics; a task that always or never passes teaches nothing, more \
         episodes a group or a reward with parts may help"
    )]
    Nothing {
        /// How many.
        steps: u64,
    },
    /// The thread of the step.
    #[error("the training thread ended unexpectedly")]
    Thread,
}

/// Steps without anything to learn from after which training gives up.
const MOST_EMPTY_STEPS: u64 = 50;

/// Everything that the loop works with.
pub struct Loop<L, E> {
    /// The model and its optimizer.
    pub trainer: Trainer<L>,
    /// Where episodes come from.
    pub episodes: Arc<E>,
    /// The order of tasks.
    pub order: TaskOrder,
    /// Steps made.
    pub step: u64,
    /// Groups and costs so far.
    pub hand: Hand,
    /// How training is run.
    pub settings: RunSettings,
    /// Where checkpoints go.
    pub checkpoints: Checkpoints,
    /// Where metrics go.
    pub metrics: MetricsWriter,
    /// CPU time of this process.
    pub cpu: fn() -> Duration,
}

impl<L, E> std::fmt::Debug for Loop<L, E> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Loop").field("step", &self.step).finish_non_exhaustive()
    }
}

/// How training went.
#[derive(Debug)]
pub struct Ended<L> {
    /// Why it ended.
    pub end: End,
    /// The model and its optimizer.
    pub trainer: Trainer<L>,
    /// Steps made.
    pub step: u64,
    /// What it took.
    pub spent: Spent,
    /// Validations of this process, in order, each with the steps made before.
    pub validations: Vec<(u64, Validated)>,
}

impl<L: Learner + Save + 'static, E: Episodes> Loop<L, E> {
    /// Trains until the budget ends or `stop` says so.
    ///
    /// `stop` is asked between groups; whoever sets it also makes the source of episodes give up.
    pub async fn run(
        mut self,
        stop: impl Fn() -> bool,
        mut watch: impl FnMut(Event<'_>),
    ) -> Result<Ended<L>, RunError> {
        let began = Instant::now();
        let (wall, cpu) = (self.hand.spent.wall_ms, self.hand.spent.cpu_ms);
        let mut gatherer = Gatherer::new(Arc::clone(&self.episodes), self.settings.group);
        gatherer.reopen(&self.hand.queue);
        let mut validations = Vec::new();
        let mut empty = 0;
        let mut saved = None;
        let mut end = self.validated(&mut validations, &mut watch).await?;
        while end.is_none() && !self.is_over(began) {
            let gathered = gatherer.gather(&mut self.hand.queue, &mut self.order, &mut |ready| {
                watch(Event::Group { ready, wanted: self.settings.group.groups });
            });
            let played = match gathered.await {
                Ok(played) => played,
                Err(EpisodesError::Stopped) => break,
                Err(error) => return Err(error.into()),
            };
            if played.is_empty() || stop() {
                break;
            }
            let asked = Instant::now();
            let (counts, report) = self.step(played).await?;
            empty = if report.trained_tokens == 0 { empty + 1 } else { 0 };
            if empty >= MOST_EMPTY_STEPS {
                return Err(RunError::Nothing { steps: empty });
            }
            self.hand.spent.wall_ms = wall.saturating_add(milliseconds(began.elapsed()));
            self.hand.spent.cpu_ms = cpu.saturating_add(milliseconds((self.cpu)()));
            let metrics = numbers(report.metrics, &counts, gatherer.waited(), asked.elapsed());
            self.metrics
                .write(self.step, Timestamp::now(), &metrics)
                .map_err(RunError::Metrics)?;
            watch(Event::Step { step: self.step, metrics: &metrics, counts: &counts });
            if is_due(self.step, self.settings.validate_every) {
                end = self.validated(&mut validations, &mut watch).await?;
            }
            if is_due(self.step, self.settings.checkpoint_every) {
                saved = Some(self.save(&mut watch)?);
            }
        }
        if end.is_none() && stop() {
            end = Some(End::Stopped);
        } else if end.is_none()
            && validations.last().is_none_or(|(step, _)| *step != self.step)
        {
            end = self.validated(&mut validations, &mut watch).await?;
        }
        gatherer.stop().await;
        if saved != Some(self.step) {
            self.save(&mut watch)?;
        }
        Ok(Ended {
            end: end.unwrap_or(End::Budget),
            trainer: self.trainer,
            step: self.step,
            spent: self.hand.spent,
            validations,
        })
    }

    fn is_over(&self, began: Instant) -> bool {
        let Budget { steps, tokens, .. } = self.settings.budget;
        steps.is_some_and(|most| self.step >= most)
            || tokens.is_some_and(|most| self.hand.spent.sampled_tokens >= most)
            || self.settings.budget.wall().is_some_and(|most| began.elapsed() >= most)
    }

    /// One step, on a thread of its own: it computes for seconds.
    async fn step(&mut self, played: Vec<Played>) -> Result<(Counts, StepReport), RunError> {
        let mut counts = Counts::default();
        let mut groups = Vec::with_capacity(played.len());
        let mut requests = Vec::with_capacity(played.len());
        for played in played {
            counts.add(&played.counts);
            groups.push(played.group);
            requests.push(played.request);
        }
        let report = {
            let trainer = &mut self.trainer;
            tokio::task::block_in_place(|| trainer.step(groups))
        }?;
        self.step = self.step.saturating_add(1);
        self.hand.queue.close(&requests);
        self.hand.queue.again.extend(&report.resample);
        self.spend(&counts);
        let spent = &mut self.hand.spent;
        spent.trained_tokens = spent.trained_tokens.saturating_add(report.trained_tokens);
        Ok((counts, report))
    }

    fn spend(&mut self, counts: &Counts) {
        let spent = &mut self.hand.spent;
        spent.episodes = spent.episodes.saturating_add(counts.episodes);
        spent.turns = spent.turns.saturating_add(counts.turns);
        spent.sampled_tokens = spent.sampled_tokens.saturating_add(counts.sampled_tokens);
    }

    /// Plays the held-out tasks; says whether that is enough.
    async fn validated(
        &mut self,
        validations: &mut Vec<(u64, Validated)>,
        watch: &mut impl FnMut(Event<'_>),
    ) -> Result<Option<End>, RunError> {
        let validated = match self.episodes.validate(self.step).await {
            Ok(Some(validated)) => validated,
            Ok(None) => return Ok(None),
            Err(EpisodesError::Stopped) => return Ok(Some(End::Stopped)),
            Err(error) => return Err(error.into()),
        };
        self.spend(&validated.counts);
        let mut metrics = Metrics::new();
        let counts = &validated.counts;
        let rates = [
            ("validation/reward", counts.mean_reward()),
            ("validation/pass", counts.pass_rate()),
        ];
        for (name, value) in rates {
            metrics.extend(value.map(|value| (name.to_owned(), value)));
        }
        self.metrics.write(self.step, Timestamp::now(), &metrics).map_err(RunError::Metrics)?;
        watch(Event::Validated { step: self.step, validated: &validated });
        let enough = self
            .settings
            .budget
            .reward
            .is_some_and(|enough| counts.mean_reward().is_some_and(|mean| mean >= enough));
        validations.push((self.step, validated));
        // A model that is good enough before its first step has nothing to learn, but whoever
        // asked for training wants to see a step.
        Ok((enough && self.step > 0).then_some(End::Reward))
    }

    fn save(&mut self, watch: &mut impl FnMut(Event<'_>)) -> Result<u64, RunError> {
        self.hand.episodes = self.episodes.remember();
        let state = State {
            step: self.step,
            version: self.trainer.version(),
            updates: self.trainer.optimizer().step,
            order: self.order,
            queue: serde_json::to_value(&self.hand).unwrap_or_default(),
        };
        let learner = self.trainer.learner();
        let folder = tokio::task::block_in_place(|| {
            self.checkpoints.save(&state, self.trainer.optimizer(), |folder| learner.save(folder))
        })?;
        watch(Event::Saved { folder: &folder });
        Ok(self.step)
    }
}

/// Writes the weights, or what of them is trained.
pub trait Save {
    /// Writes them into a folder that is there and empty.
    fn save(&self, folder: &Path) -> Result<(), LearnerError>;
}

/// Whether something is due after this step that is due every so many.
fn is_due(step: u64, every: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}

/// The numbers of a step, with those of its episodes.
fn numbers(
    mut metrics: Metrics,
    counts: &Counts,
    gathering: Duration,
    training: Duration,
) -> Metrics {
    let rates = [
        ("reward/train", counts.mean_reward()),
        ("reward/pass", counts.pass_rate()),
        ("time/episodes_s", Some(gathering.as_secs_f64())),
        ("time/step_s", Some(training.as_secs_f64())),
        ("episodes/count", Some(counts.episodes as f64)),
        ("episodes/turns", Some(counts.turns as f64)),
        ("tokens/sampled", Some(counts.sampled_tokens as f64)),
    ];
    for (name, value) in rates {
        metrics.extend(value.map(|value| (name.to_owned(), value)));
    }
    let whole = (gathering + training).as_secs_f64();
    if whole > 0.0 {
        metrics.insert("speed/episodes_per_s".to_owned(), counts.episodes as f64 / whole);
        let sampling = gathering.as_secs_f64().max(1e-9);
        let tokens = counts.sampled_tokens as f64 / sampling;
        metrics.insert("speed/sampled_tokens_per_s".to_owned(), tokens);
    }
    for (kind, count) in &counts.kinds {
        metrics.insert(format!("ended/{kind}"), *count as f64);
    }
    metrics
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
