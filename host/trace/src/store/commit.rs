//! The writer thread: group commit.
//!
//! Everyone who writes hands a request to one thread over a bounded queue and waits. The thread
//! takes all that has come in, writes it in one transaction, syncs once, and only then releases
//! everyone of the batch. While it syncs the next batch gathers by itself, so batches grow with
//! the load and a lone writer waits for one sync.
//!
//! A write that fails stops the store for good: after a failed sync nobody can tell what the disk
//! holds, and whatever came later would stand behind a hole.

use std::{
    fs::File,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::mpsc;

use super::{
    apply::{self, Trouble},
    error::StoreError,
    job::{Answer, Job},
};

/// Bounds of one transaction, so that a flood delays nobody for long.
const BATCH_REQUESTS: usize = 4096;
const BATCH_BYTES: usize = 8 << 20;

/// What the thread owns.
#[derive(Debug)]
pub(crate) struct Committer {
    pub(crate) path: PathBuf,
    pub(crate) connection: Connection,
    /// Held until the thread ends.
    pub(crate) lock: File,
    pub(crate) jobs: mpsc::Receiver<Job>,
    pub(crate) failure: Arc<OnceLock<StoreError>>,
    /// A checkpoint is made after about so many bytes.
    pub(crate) checkpoint_bytes: usize,
}

impl Committer {
    /// Serves until every handle of the store is gone, then closes the file.
    pub(crate) fn run(mut self) {
        let mut since_checkpoint = 0;
        while let Some(first) = self.jobs.blocking_recv() {
            let (batch, bytes) = self.gather(first);
            match self.write(&batch) {
                Ok(answers) => {
                    for (job, answer) in batch.into_iter().zip(answers) {
                        release(job, answer);
                    }
                }
                Err(error) => {
                    self.stop(&error, batch);
                    break;
                }
            }
            since_checkpoint += bytes;
            if since_checkpoint >= self.checkpoint_bytes {
                since_checkpoint = 0;
                if let Err(error) = self.checkpoint() {
                    self.stop(&error, Vec::new());
                    break;
                }
            }
        }
        while let Some(job) = self.jobs.blocking_recv() {
            let answer = self.stopped();
            release(job, Err(answer));
        }
        // Closing makes the last checkpoint; the lock goes afterwards.
        drop(self.connection);
        drop(self.lock);
    }

    fn gather(&mut self, first: Job) -> (Vec<Job>, usize) {
        let mut bytes = first.work.size();
        let mut batch = vec![first];
        while batch.len() < BATCH_REQUESTS && bytes < BATCH_BYTES {
            let Ok(job) = self.jobs.try_recv() else { break };
            bytes += job.work.size();
            batch.push(job);
        }
        (batch, bytes)
    }

    fn write(&mut self, batch: &[Job]) -> rusqlite::Result<Vec<Result<Answer, StoreError>>> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut answers = Vec::with_capacity(batch.len());
        for job in batch {
            answers.push(match apply::apply(&transaction, &job.work) {
                Ok(answer) => Ok(answer),
                Err(Trouble::Refused(error)) => Err(error),
                Err(Trouble::Sqlite(error)) => return Err(error),
            });
        }
        transaction.commit()?;
        Ok(answers)
    }

    /// Moves the log into the main file as far as readers allow.
    fn checkpoint(&self) -> rusqlite::Result<()> {
        self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
    }

    fn stop(&mut self, error: &rusqlite::Error, batch: Vec<Job>) {
        let error = StoreError::of_sqlite(&self.path, error);
        tracing::error!(%error, "the trace store stopped");
        let error = self.failure.get_or_init(|| error).clone();
        for job in batch {
            release(job, Err(error.clone()));
        }
        // What is under way is answered; what comes later is refused at the door.
        self.jobs.close();
    }

    fn stopped(&self) -> StoreError {
        stopped(&self.failure, &self.path)
    }
}

/// Why nothing is written any more.
pub(crate) fn stopped(failure: &OnceLock<StoreError>, path: &std::path::Path) -> StoreError {
    match failure.get() {
        Some(error) => StoreError::Stopped(Box::new(error.clone())),
        None => StoreError::Io {
            path: path.to_owned(),
            detail: "its writer ended unexpectedly; please report this".to_owned(),
        },
    }
}

fn release(job: Job, answer: Result<Answer, StoreError>) {
    match (job.waiter, answer) {
        // A waiter that went away does not mind.
        (Some(waiter), answer) => drop(waiter.send(answer)),
        (None, Err(error)) => tracing::debug!(%error, "a request nobody waits for was refused"),
        (None, Ok(_)) => {}
    }
}
