//! A run: its queue of episodes, retries, and how it is stopped.

use std::{sync::Arc, time::Duration};

use fulgurite_runtime::clock::Cancellation;
use fulgurite_trace::{EpisodeRef, EpisodeWriter, FailureKind, StoreError};
use tokio::{sync::mpsc, task::JoinSet};

use crate::{
    attempt::{After, Attempt, Attempted, Equipment},
    plan::Plan,
    summary::{EpisodeResult, Verdict},
    workspaces::Workspaces,
};

/// Wait before a second attempt; doubled for each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// A run cannot go on. What was recorded until then stays.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Nothing can be recorded any more, so nothing may go on.
    #[error("the run was stopped because its trace cannot be written")]
    Store(#[from] StoreError),
    /// An episode names a task that the run does not have.
    #[error("episode {0:?} names a task that is not in the task file")]
    UnknownTask(EpisodeRef),
    /// The host itself failed.
    #[error("the host failed while it ran an episode: {0}; please report this")]
    Host(String),
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// Every episode was brought to an end.
    Complete,
    /// It was stopped; some episodes are cancelled or were never begun.
    Stopped,
}

/// Runs episodes, at most `plan.concurrency` at once, and tells each result through `results`.
/// `stop` drains: no further episode begins and those that run are cancelled and recorded as such.
/// Memory does not grow with the number of episodes.
pub async fn run(
    plan: Arc<Plan>,
    equipment: Arc<Equipment>,
    episodes: impl Iterator<Item = EpisodeRef>,
    stop: Cancellation,
    results: mpsc::Sender<EpisodeResult>,
) -> Result<RunEnd, RunError> {
    let workspaces = Arc::new(Workspaces::new());
    let mut running = JoinSet::new();
    let mut failure = None;
    let mut episodes = episodes.fuse();
    loop {
        while running.len() < plan.concurrency as usize
            && failure.is_none()
            && !stop.is_cancelled()
            && let Some(episode) = episodes.next()
        {
            let worker = Worker {
                plan: Arc::clone(&plan),
                equipment: Arc::clone(&equipment),
                workspaces: Arc::clone(&workspaces),
                stop: stop.clone(),
            };
            running.spawn(worker.episode(episode));
        }
        match running.join_next().await {
            None => break,
            Some(Ok(Ok(result))) => {
                // Whoever listened may be gone; the trace has the result.
                let _ = results.send(result).await;
            }
            Some(Ok(Err(error))) => {
                // What still runs cannot be recorded either: it is stopped.
                stop.cancel();
                failure.get_or_insert(error);
            }
            Some(Err(error)) => {
                stop.cancel();
                failure.get_or_insert(RunError::Host(error.to_string()));
            }
        }
    }
    match failure {
        Some(error) => Err(error),
        None if stop.is_cancelled() => Ok(RunEnd::Stopped),
        None => Ok(RunEnd::Complete),
    }
}

/// What one episode's task of the executor owns.
struct Worker {
    plan: Arc<Plan>,
    equipment: Arc<Equipment>,
    workspaces: Arc<Workspaces>,
    stop: Cancellation,
}

impl Worker {
    /// One episode with its retries.
    async fn episode(self, mut episode: EpisodeRef) -> Result<EpisodeResult, RunError> {
        let tasks = &self.equipment.tasks;
        let task = usize::try_from(episode.task).ok().and_then(|index| tasks.get(index));
        let task = Arc::clone(task.ok_or(RunError::UnknownTask(episode))?);
        let mut tries = 1;
        let mut pause = FIRST_PAUSE;
        loop {
            let writer = match &self.equipment.store {
                Some((store, run)) => store.start_attempt(run, episode).await?,
                None => EpisodeWriter::discarding(),
            };
            let attempt = Attempt {
                plan: &self.plan,
                equipment: &self.equipment,
                workspaces: &self.workspaces,
                cancellation: &self.stop,
                task: Arc::clone(&task),
                episode,
                writer: writer.clone(),
            };
            let Attempted { kind, usage, after } = attempt.run().await?;
            let (kind, verdict, reason) = match after {
                After::Scored { total, passed } => (kind, Verdict::Scored { total, passed }, None),
                After::Unscored => (kind, Verdict::Unscored, None),
                After::Alarm { reason } => {
                    writer.fail(reason.clone()).await?;
                    (kind, Verdict::Alarm, Some(reason))
                }
                After::Cancelled => {
                    writer.cancel().await?;
                    (FailureKind::Cancelled, Verdict::Cancelled, None)
                }
                After::Retry { reason } if tries < self.plan.attempts => {
                    tracing::debug!(task = task.id, %episode, reason, "an attempt is repeated");
                    episode = writer.retry(reason).await?;
                    tries += 1;
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = self.stop.cancelled() => {}
                    }
                    pause = pause.saturating_mul(2);
                    continue;
                }
                After::Retry { reason } => {
                    writer.abandon(reason.clone()).await?;
                    (kind, Verdict::Dropped, Some(reason))
                }
            };
            return Ok(EpisodeResult {
                episode,
                task_id: task.id.clone(),
                kind,
                verdict,
                reason,
                turns: usage.turns,
                prompt_tokens: usage.prompt_tokens,
                completion_tokens: usage.completion_tokens,
            });
        }
    }
}
