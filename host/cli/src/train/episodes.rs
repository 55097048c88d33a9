//! Episodes for training, by the same path as those of `fulgurite run`.

use std::sync::{Arc, Mutex, PoisonError};
};

use async_trait::async_trait;
use fulgurite_episode::{
    Equipment,
    plan::Plan,
    run::{RunEnd, run as run_episodes},
};
use fulgurite_runtime::clock::Cancellation;
use fulgurite_trace::{
    EpisodeRef, EpisodeSummary, FailureKind, QueuedEpisode, RunStatus, State, Store,
    samples::{SampleSettings, samples},
};
use fulgurite_train::{
    group::{Grade, Group, GroupEpisode},
    run::{Counts, Episodes, EpisodesError, GroupRequest, Played, Validated},
};
use tokio::sync::mpsc;

use super::begin_run;
use crate::run::equip::Equipped;

/// Plays groups on the training tasks, and the held-out tasks as runs of their own.
pub(super) struct Player {
    plan: Arc<Plan>,
    equipment: Arc<Equipment>,
    store: Store,
    run: String,
    rows: SampleSettings,
    validation: Option<Validation>,
    stop: Cancellation,
}

/// Held-out tasks.
pub(super) struct Validation {
    pub(super) equipped: Equipped,
    /// Runs so far, for the store.
    pub(super) runs: Mutex<Vec<String>>,
}

impl Player {
    /// `run` is recorded in `store`; episodes of it that are recorded are not played again.
    pub(super) fn new(
        equipped: Equipped,
        (store, run): (Store, String),
        rows: SampleSettings,
        validation: Option<Equipped>,
        stop: Cancellation,
    ) -> Self {
        let Equipped { plan, mut equipment } = equipped;
        equipment.store = Some((store.clone(), run.clone()));
        let validation =
            validation.map(|equipped| Validation { equipped, runs: Mutex::default() });
        let (plan, equipment) = (Arc::new(plan), Arc::new(equipment));
        Self { plan, equipment, store, run, rows, validation, stop }
    }

    /// The ids of the validation runs of this process.
    pub(super) fn validation_runs(&self) -> Vec<String> {
        match &self.validation {
            Some(validation) => {
                validation.runs.lock().unwrap_or_else(PoisonError::into_inner).clone()
            }
            None => Vec::new(),
        }
    }

    /// What is recorded of a group: of each episode the last attempt.
    fn recorded(&self, request: GroupRequest) -> Result<Vec<EpisodeSummary>, EpisodesError> {
        let mut recorded = Vec::new();
        for sample in request.first..request.first.saturating_add(request.count) {
            recorded.extend(self.last_attempt(request.task, sample)?);
        }
        Ok(recorded)
    }

    fn last_attempt(
        &self,
        task: u32,
        sample: u32,
    ) -> Result<Option<EpisodeSummary>, EpisodesError> {
        let mut last = None;
        let mut episode = EpisodeRef::first(task, sample);
        loop {
            match self.store.episode(&self.run, episode) {
                Ok(summary) => last = Some(summary),
                Err(fulgurite_trace::StoreError::UnknownEpisode { .. }) => return Ok(last),
                Err(error) => return Err(failed(error)),
            }
            episode = episode.next_attempt();
        }
    }

    fn played(&self, request: GroupRequest) -> Result<Played, EpisodesError> {
        let mut counts = Counts::default();
        let mut episodes = Vec::new();
        for summary in self.recorded(request)? {
            let scores = self.store.scores(&self.run, summary.episode).map_err(failed)?;
            let kind = summary.kind.unwrap_or(FailureKind::SandboxError);
            let scored = summary.state == State::Scored;
            let grade = summary.total.filter(|_| scored).map(|total| Grade {
                total,
                turns: scores
                    .iter()
                    .flat_map(|score| {
                        score.turns.iter().map(|value| fulgurite_trace::TurnValue {
                            value: value.value * score.weight,
                            ..*value
                        })
                    })
                    .collect(),
            });
            let entries = self.store.entries(&self.run, summary.episode).map_err(failed)?;
            let passed = kind == FailureKind::Completed
                && scores.first().is_some_and(|score| score.total >= 1.0);
            count(&mut counts, kind, grade.as_ref().map(|grade| (grade.total, passed)), &summary);
            episodes.push(GroupEpisode {
                samples: samples(summary.episode, &entries, &self.rows),
                kind,
                grade,
            });
        }
        Ok(Played { request, group: Group { task: request.task, episodes }, counts })
    }
}

fn count(
    counts: &mut Counts,
    kind: FailureKind,
    scored: Option<(f64, bool)>,
    summary: &EpisodeSummary,
) {
    counts.episodes += 1;
    counts.turns += summary.turns;
    counts.prompt_tokens += summary.prompt_tokens;
    counts.sampled_tokens += summary.completion_tokens;
    *counts.kinds.entry(kind.name().to_owned()).or_default() += 1;
    if let Some((total, passed)) = scored {
        counts.scored += 1;
        counts.reward += total;
        counts.passed += u64::from(passed);
    }
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> EpisodesError {
    EpisodesError::Failed(error.into())
}

/// Plays episodes and waits for all of them.
async fn play_all(
    plan: &Arc<Plan>,
    equipment: &Arc<Equipment>,
    episodes: Vec<EpisodeRef>,
    stop: &Cancellation,
) -> Result<(), EpisodesError> {
    let (sender, mut results) = mpsc::channel(64);
    let running = tokio::spawn(run_episodes(
        Arc::clone(plan),
        Arc::clone(equipment),
        episodes.into_iter(),
        stop.clone(),
        sender,
    ));
    while results.recv().await.is_some() {}
    match running.await.map_err(failed)?.map_err(failed)? {
        RunEnd::Complete => Ok(()),
        RunEnd::Stopped => Err(EpisodesError::Stopped),
    }
}

/// Whether an episode has come to an end that counts.
fn is_final(summary: &EpisodeSummary) -> bool {
    matches!(summary.state, State::Scored | State::Failed | State::Dropped)
}

#[async_trait]
impl Episodes for Player {
    async fn play(&self, request: GroupRequest) -> Result<Played, EpisodesError> {
        let Some(task) = self.equipment.tasks.get(request.task as usize) else {
            return Err(failed(format!("there is no task {}", request.task)));
        };
        let mut missing = Vec::new();
        let mut queued = Vec::new();
        for sample in request.first..request.first.saturating_add(request.count) {
            match self.last_attempt(request.task, sample)? {
                Some(summary) if is_final(&summary) => {}
                Some(summary) if summary.state == State::Queued => missing.push(summary.episode),
                Some(summary) => {
                    let episode = summary.episode.next_attempt();
                    queued.push(QueuedEpisode { episode, task_id: task.id.clone() });
                }
                None => {
                    let episode = EpisodeRef::first(request.task, sample);
                    queued.push(QueuedEpisode { episode, task_id: task.id.clone() });
                }
            }
        }
        self.store.queue_episodes(&self.run, &queued).await.map_err(failed)?;
        missing.extend(queued.into_iter().map(|queued| queued.episode));
        play_all(&self.plan, &self.equipment, missing, &self.stop).await?;
        self.played(request)
    }

    async fn validate(&self, step: u64) -> Result<Option<Validated>, EpisodesError> {
        let Some(Validation { equipped, runs }) = &self.validation else { return Ok(None) };
        let mut plan = equipped.plan.clone();
        plan.policy = format!("{} (training step {step})", plan.policy);
        let (run, episodes) =
            begin_run(&self.store, &plan, &equipped.equipment.tasks).await.map_err(failed)?;
        let mut equipment = equipped.equipment.clone();
        equipment.store = Some((self.store.clone(), run.clone()));
        let (plan, equipment) = (Arc::new(plan), Arc::new(equipment));
        let played = play_all(&plan, &equipment, episodes, &self.stop).await;
        let status =
            if played.is_ok() { RunStatus::Finished } else { RunStatus::Interrupted };
        self.store.finish_run(&run, status).await.map_err(failed)?;
        played?;
        let mut counts = Counts::default();
        for summary in self.store.episodes(&run).map_err(failed)? {
            let scores = self.store.scores(&run, summary.episode).map_err(failed)?;
            let kind = summary.kind.unwrap_or(FailureKind::SandboxError);
            let passed = kind == FailureKind::Completed
                && scores.first().is_some_and(|score| score.total >= 1.0);
            let total = summary.total.filter(|_| summary.state == State::Scored);
            count(&mut counts, kind, total.map(|total| (total, passed)), &summary);
        }
        runs.lock().unwrap_or_else(PoisonError::into_inner).push(run.clone());
        Ok(Some(Validated { counts, run }))
    }

    fn remember(&self) -> serde_json::Value {
        serde_json::Value::String(self.run.clone())
    }
}
