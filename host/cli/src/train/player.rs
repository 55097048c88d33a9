//! Episodes for training, by the same path as those of `fulgurite run`.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use fulgurite_episode::{
    Equipment,
    plan::Plan,
    run::{RunEnd, run as run_episodes},
};
use fulgurite_policy::Policy;
use fulgurite_runtime::clock::Cancellation;
use fulgurite_trace::{
    EpisodeRef, FailureKind, QueuedEpisode, ResumePlan, RunStatus, SampleSettings, State, Store,
    passed, transcript::EpisodeRecord,
};
use fulgurite_train::{
    Group, GroupEpisode,
    run::{Counts, Episodes, EpisodesError, GroupRequest, Played, Speaker, Validated},
};
use tokio::sync::{Semaphore, mpsc};

use crate::run::{
    equip::{self, Equipped},
    record,
};

/// Plays groups on the training tasks, and the held-out tasks as runs of their own.
pub(super) struct Player {
    pub(super) store: Store,
    /// The run that training episodes are recorded in.
    pub(super) run: String,
    pub(super) training: Cast,
    /// The tasks' references in the policy's place.
    pub(super) references: Option<Cast>,
    pub(super) validation: Option<Equipped>,
    /// Who plays the held-out tasks.
    pub(super) policy: Arc<dyn Policy>,
    /// Its version when this process began.
    pub(super) version: u64,
    pub(super) rows: SampleSettings,
    /// What earlier processes left behind, until it is taken up.
    pub(super) left: Left,
    /// Episodes that may be alive.
    pub(super) room: Semaphore,
    pub(super) stop: Cancellation,
}

/// What episodes are played with.
#[derive(Clone)]
pub(super) struct Cast {
    pub(super) plan: Arc<Plan>,
    pub(super) equipment: Arc<Equipment>,
}

impl Cast {
    pub(super) fn new(equipped: Equipped) -> Self {
        let Equipped { plan, equipment, .. } = equipped;
        Self { plan: Arc::new(plan), equipment: Arc::new(equipment) }
    }

    /// Plays episodes and waits for all of them; the attempts that count.
    async fn play(
        &self,
        episodes: Vec<EpisodeRef>,
        stop: &Cancellation,
    ) -> Result<Vec<EpisodeRef>, EpisodesError> {
        let (sender, mut results) = mpsc::channel(64);
        let (plan, equipment) = (Arc::clone(&self.plan), Arc::clone(&self.equipment));
        let episodes = episodes.into_iter();
        let running = tokio::spawn(run_episodes(plan, equipment, episodes, stop.clone(), sender));
        let mut played = Vec::new();
        while let Some(result) = results.recv().await {
            played.push(result.episode);
        }
        match running.await.map_err(failed)?.map_err(failed)? {
            RunEnd::Complete => Ok(played),
            RunEnd::Stopped => Err(EpisodesError::Stopped),
        }
    }
}

/// What is in the store of an interrupted training: episodes with their end, and attempts that
/// are queued.
#[derive(Default)]
pub(super) struct Left(Mutex<HashMap<(u32, u32), Rest>>);

#[derive(Debug, Clone, Copy)]
enum Rest {
    Recorded(EpisodeRef),
    Queued(EpisodeRef),
}

impl Left {
    pub(super) fn of(plan: &ResumePlan) -> Self {
        let recorded = plan.recorded.iter().map(|summary| Rest::Recorded(summary.episode));
        let missing = plan.missing.iter().map(|queued| Rest::Queued(queued.episode));
        let rests = recorded.chain(missing).map(|rest| {
            let (Rest::Recorded(episode) | Rest::Queued(episode)) = rest;
            ((episode.task, episode.sample), rest)
        });
        Self(Mutex::new(rests.collect()))
    }

    fn take(&self, episode: EpisodeRef) -> Option<Rest> {
        let mut rests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rests.remove(&(episode.task, episode.sample))
    }
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> EpisodesError {
    EpisodesError::Failed(error.into())
}

impl Player {
    fn load(&self, run: &str, episode: EpisodeRef) -> Result<EpisodeRecord, EpisodesError> {
        EpisodeRecord::load(&self.store, run, episode).map_err(failed)
    }

    /// Whether a recorded episode was sampled by a later policy than the one this process began
    /// with: that policy was lost with the process that made it.
    fn is_lost(&self, record: &EpisodeRecord) -> bool {
        let version = self.version;
        GroupEpisode::of(record, &self.rows).is_some_and(|episode| {
            let mut rows = episode.samples.samples.iter();
            rows.any(|row| row.versions().is_some_and(|(_, newest)| newest > version))
        })
    }

    /// What of a group is recorded, and what has to be played; the latter is queued.
    async fn missing(
        &self,
        request: GroupRequest,
        episodes: impl Iterator<Item = EpisodeRef> + Send,
    ) -> Result<(Vec<EpisodeRef>, Vec<EpisodeRef>), EpisodesError> {
        let index = usize::try_from(request.task).unwrap_or(usize::MAX);
        let Some(task) = self.training.equipment.tasks.get(index) else {
            return Err(failed(format!("there is no task {}", request.task)));
        };
        let (mut recorded, mut missing, mut queued) = (Vec::new(), Vec::new(), Vec::new());
        let mut queue = |episode| {
            queued.push(QueuedEpisode { episode, task_id: task.id.clone() });
            missing.push(episode);
        };
        let mut waiting = Vec::new();
        for episode in episodes {
            match self.left.take(episode) {
                None => queue(episode),
                Some(Rest::Queued(episode)) => waiting.push(episode),
                Some(Rest::Recorded(episode)) => {
                    let lost = self.is_lost(&self.load(&self.run, episode)?);
                    if lost { queue(episode.next_attempt()) } else { recorded.push(episode) }
                }
            }
        }
        if !queued.is_empty() {
            self.store.queue_episodes(&self.run, &queued).await.map_err(failed)?;
        }
        missing.extend(waiting);
        Ok((recorded, missing))
    }
}

#[async_trait]
impl Episodes for Player {
    async fn play(&self, request: GroupRequest, speaker: Speaker) -> Result<Played, EpisodesError> {
        // References say the same every time.
        let (cast, size) = match (speaker, &self.references) {
            (Speaker::References, Some(references)) => (references, 1),
            _ => (&self.training, usize::MAX),
        };
        let episodes = request.episodes().take(size);
        let (mut ended, missing) = self.missing(request, episodes).await?;
        if !missing.is_empty() {
            let wanted = u32::try_from(missing.len()).unwrap_or(u32::MAX);
            let room = wanted.min(self.training.plan.concurrency);
            let _room = self.room.acquire_many(room).await.map_err(failed)?;
            ended.extend(cast.play(missing, &self.stop).await?);
        }
        ended.sort_unstable_by_key(|episode| episode.sample);
        let mut counts = Counts::default();
        let mut episodes = Vec::with_capacity(ended.len());
        for episode in ended {
            let mut record = self.load(&self.run, episode)?;
            // Where a workspace could not be made, no harness ended.
            if matches!(record.summary.state, State::Failed | State::Dropped) {
                record.summary.kind.get_or_insert(FailureKind::SandboxError);
            }
            count(&mut counts, &record);
            let unfinished = || failed(format!("{episode} has not ended"));
            episodes.push(GroupEpisode::of(&record, &self.rows).ok_or_else(unfinished)?);
        }
        Ok(Played { request, group: Group { task: request.task, episodes }, counts })
    }

    async fn validate(&self, step: u64) -> Result<Option<Validated>, EpisodesError> {
        let Some(validation) = &self.validation else { return Ok(None) };
        // The weights stay as they are meanwhile. Groups under way go on beside it: waiting for
        // them could take as long as an episode may.
        let plan = Plan {
            policy_name: format!("{} after step {step}", validation.plan.policy_name),
            ..validation.plan.clone()
        };
        let tasks = validation.equipment.tasks.clone();
        let mut equipped = validation.by(plan, tasks, &self.policy).map_err(failed)?;
        let run = record(&self.store, &equipped.plan).await.map_err(failed)?;
        let queued = equip::episodes(&equipped);
        self.store.queue_episodes(&run, &queued).await.map_err(failed)?;
        equipped.equipment.store = Some((self.store.clone(), run.clone()));
        let episodes = queued.into_iter().map(|queued| queued.episode).collect();
        let played = Cast::new(equipped).play(episodes, &self.stop).await;
        let status = if played.is_ok() { RunStatus::Finished } else { RunStatus::Interrupted };
        self.store.finish_run(&run, status).await.map_err(failed)?;
        let mut counts = Counts::default();
        for episode in played? {
            count(&mut counts, &self.load(&run, episode)?);
        }
        Ok(Some(Validated { counts, run }))
    }

    fn give_up(&self) {
        self.stop.cancel();
    }
}

/// Adds what an episode took and how it came out.
fn count(counts: &mut Counts, record: &EpisodeRecord) {
    let summary = &record.summary;
    let kind = summary.kind.unwrap_or(FailureKind::SandboxError);
    let scored = summary.total.filter(|_| summary.state == State::Scored);
    let passed = passed(summary.kind, &record.scores);
    counts.add(&Counts {
        episodes: 1,
        scored: u64::from(scored.is_some()),
        passed: u64::from(scored.is_some() && passed),
        reward: scored.unwrap_or_default(),
        turns: summary.turns,
        prompt_tokens: summary.prompt_tokens,
        sampled_tokens: summary.completion_tokens,
        dropped: u64::from(summary.state == State::Dropped),
        alarms: u64::from(summary.state == State::Failed),
        kinds: [(kind.name().to_owned(), 1)].into(),
    });
}
