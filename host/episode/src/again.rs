//! Grading a recorded run again, with other rewards.
//!
//! Nothing is run again but the rewards: each reads the recorded ending and turns, and grades in
//! the recorded workspace, which is put together from the task's files and the kept contents.
//! The run's own scores stay; what is new stands beside them in the store.

use std::sync::Arc;

use fulgurite_runtime::{Reward, Runtime, clock::Cancellation};
use fulgurite_trace::{
    EpisodeSummary, FailureKind, Graded, Store, StoreError, Task, episode::Cause,
};
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    adapt::{programs::Programs, view::Turns},
    bounds::{quota, seed},
    grading::{self, Finished, Grading},
    kept,
    plan::{Plan, RewardPlan},
    run::RunError,
    workspaces::Workspaces,
};

/// What a run is graded again with.
pub struct Regrading {
    /// The store, the run, and the number of this grading ([`Store::begin_grading`]).
    pub record: (Store, String, u32),
    /// The run's plan: limits, floor and seed are its own.
    pub plan: Plan,
    /// The rewards, and their components in the same order.
    pub rewards: (Vec<RewardPlan>, Vec<Reward>),
    /// What the rewards run in.
    pub runtime: Runtime,
    /// Programs of the wasm lane.
    pub programs: Programs,
    /// The run's tasks, in the order of their file.
    pub tasks: Vec<Arc<Task>>,
}

/// Whether a recorded attempt is one that rewards grade: it came to an end of its own making.
pub fn is_graded(summary: &EpisodeSummary) -> bool {
    summary.kind.is_some_and(|kind| matches!(kind.cause(summary.turns > 0), Cause::Policy))
}

/// Grades the attempts, at most so many at once, and tells each result through `results` once it
/// is recorded. `stop` begins no further one. An attempt whose workspace cannot be had again, or
/// whose reward fails, is recorded with the reason and without a total.
pub async fn grade_again(
    regrading: Arc<Regrading>,
    attempts: Vec<EpisodeSummary>,
    concurrency: u32,
    stop: Cancellation,
    results: mpsc::Sender<Graded>,
) -> Result<(), RunError> {
    let workspaces = Arc::new(Workspaces::new());
    let mut running = JoinSet::new();
    let mut attempts = attempts.into_iter();
    loop {
        while running.len() < concurrency.max(1) as usize
            && !stop.is_cancelled()
            && let Some(attempt) = attempts.next()
        {
            let (regrading, workspaces) = (Arc::clone(&regrading), Arc::clone(&workspaces));
            let stop = stop.clone();
            running.spawn(async move { regrading.one(attempt, &workspaces, &stop).await });
        }
        match running.join_next().await {
            None => return Ok(()),
            Some(Ok(Ok(Some(graded)))) => {
                // Whoever listened may be gone; the store has the result.
                let _ = results.send(graded).await;
            }
            Some(Ok(Ok(None))) => {}
            Some(Ok(Err(error))) => return Err(error.into()),
            Some(Err(error)) => return Err(RunError::Host(error.to_string())),
        }
    }
}

impl Regrading {
    /// None when it was stopped.
    async fn one(
        &self,
        attempt: EpisodeSummary,
        workspaces: &Workspaces,
        stop: &Cancellation,
    ) -> Result<Option<Graded>, StoreError> {
        let episode = attempt.episode;
        let graded = match self.score(&attempt, workspaces, stop).await {
            Ok(grading::Graded { scores, total, passed: _ }) => {
                Graded { episode, total: Some(total), reason: None, scores }
            }
            Err(None) => return Ok(None),
            Err(Some(reason)) => {
                Graded { episode, total: None, reason: Some(reason), scores: Vec::new() }
            }
        };
        let (store, run, position) = &self.record;
        store.grade(run, *position, graded.clone()).await?;
        Ok(Some(graded))
    }

    /// An error is the reason why there is no score; none when it was stopped.
    async fn score(
        &self,
        attempt: &EpisodeSummary,
        workspaces: &Workspaces,
        stop: &Cancellation,
    ) -> Result<grading::Graded, Option<String>> {
        let episode = attempt.episode;
        let index = usize::try_from(episode.task).unwrap_or(usize::MAX);
        let task = self.tasks.get(index).filter(|task| task.id == attempt.task_id);
        let task = Arc::clone(task.ok_or_else(|| "the task is not in the task file".to_owned())?);
        let lower = workspaces.lower(&task).await?;
        let (store, run, _) = self.record.clone();
        let quota = quota(&self.plan.limits);
        let (ending, sealed) = tokio::task::spawn_blocking({
            let (store, run) = (store.clone(), run.clone());
            move || {
                let ending = store.ending(&run, episode)?.ok_or(kept::KeptError::NotEnded)?;
                let sealed = kept::sealed(&store, &ending, lower, quota)?;
                Ok::<_, kept::KeptError>((ending.ending, sealed))
            }
        })
        .await
        .map_err(|error| error.to_string())?
        .map_err(|error| error.to_string())?;
        let count = u32::try_from(attempt.turns).unwrap_or(u32::MAX);
        let source = Some((store, run, episode));
        let turns = Turns { source, count, read: tokio::sync::OnceCell::new() };
        let seed = seed(self.plan.seed, &task.id, episode.sample);
        let grading = Grading {
            runtime: &self.runtime,
            programs: &self.programs,
            rewards: &self.rewards.0,
            loaded: &self.rewards.1,
            limits: &self.plan.limits,
            floor: self.plan.floor,
            cancellation: stop,
        };
        grading.score(Finished { task, ending, sealed, turns, seed }).await.map_err(
            |(reward, failure)| match failure.kind {
                FailureKind::Cancelled => None,
                _ => Some(format!("reward `{reward}`: {failure}")),
            },
        )
    }
}
