//! The durable store: one SQLite file with every run, episode, turn and score.
//!
//! What it promises:
//! - **Nothing acknowledged is lost.** A write that returned is on the disk (`synchronous=FULL`,
//!   write-ahead log), whatever happens to the process, the system or the power afterwards.
//!   Writers that wait at the same time share one sync.
//! - **Nothing is written behind a hole.** The entries of an episode are numbered without gaps and
//!   written in order; a store that failed to write once refuses everything that follows.
//! - **One writer.** A second process that wants to write is refused by name; any number may read
//!   meanwhile.
//! - **What episodes left behind is kept once.** Contents of sealed workspaces stand under their
//!   digests, compressed where that pays, and are compared with them when read.
//! - **It can be read for years.** The schema is versioned; older stores are migrated when opened,
//!   newer ones refused.
//!
//! Writing is asynchronous and waits for durability. Reading blocks for a moment: call it through
//! `spawn_blocking` where that matters. The last handle to go waits for the writer, closes the
//! file and gives the lock back.

mod apply;
mod bench;
mod codec;
mod commit;
mod compress;
mod contents;
mod error;
mod grade;
pub(crate) mod job;
mod open;
mod packed;
mod read;
mod schema;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread::JoinHandle,
};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use self::{
    apply::Trouble,
    commit::Committer,
    job::{Answer, Job, Target, Work},
};
use crate::{
    Digest, Entry, EpisodeRef, EpisodeSummary, EpisodeWriter, Graded, Grading, QueuedEpisode,
    ResumePlan, Run, RunRecord, RunStatus, Score,
    writer::{JournalLimits, not_finite},
};

pub use self::{
    bench::{BenchFigures, BenchOptions, bench},
    error::StoreError,
    read::SealedEnding,
};
pub(crate) use self::{
    codec::{EncodedEntry, encode},
    contents::EncodedContent,
};

/// Idle reading connections that are kept.
const IDLE_READERS: usize = 4;

/// How a store is used.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// What an episode may write to its journal.
    pub journal: JournalLimits,
    /// Requests that may wait for the writer; more make their callers wait.
    pub queue: usize,
    pub(crate) tuning: Tuning,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { journal: JournalLimits::default(), queue: 4096, tuning: Tuning::default() }
    }
}

/// Settings that only tests change.
#[derive(Debug, Clone)]
pub(crate) struct Tuning {
    pub(crate) vfs: Option<&'static str>,
    pub(crate) synchronous: &'static str,
    pub(crate) checkpoint_bytes: u32,
    pub(crate) max_pages: Option<u32>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { vfs: None, synchronous: "full", checkpoint_bytes: 16 << 20, max_pages: None }
    }
}

/// A handle to a store; clones are the same store.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    path: PathBuf,
    options: StoreOptions,
    readers: Mutex<Vec<Connection>>,
    failure: Arc<OnceLock<StoreError>>,
    /// None when opened for reading only.
    sender: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Store {
    /// Opens the store at `path` for writing; creates it, and its folder, when missing. New files
    /// are for their owner's eyes only. Runs that a dead process left behind become
    /// [`RunStatus::Interrupted`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, StoreOptions::default())
    }

    /// [`Self::open`] with options.
    pub fn open_with(path: impl AsRef<Path>, options: StoreOptions) -> Result<Self, StoreError> {
        let path = path.as_ref().to_owned();
        let open::Writing { connection, lock } = open::for_writing(&path, &options.tuning)?;
        let (sender, jobs) = mpsc::channel(options.queue.max(1));
        let failure = Arc::new(OnceLock::new());
        let committer = Committer {
            path: path.clone(),
            connection,
            lock,
            jobs,
            failure: Arc::clone(&failure),
            checkpoint_bytes: usize::try_from(options.tuning.checkpoint_bytes)
                .unwrap_or(usize::MAX),
        };
        let thread = std::thread::Builder::new()
            .name("trace-store".to_owned())
            .spawn(move || committer.run())
            .map_err(|error| StoreError::of_io(&path, &error))?;
        let readers = Mutex::default();
        let (sender, thread) = (Some(sender), Some(thread));
        Ok(Self { inner: Arc::new(Inner { path, options, readers, failure, sender, thread }) })
    }

    /// Opens an existing store for reading, while another process may be writing. A store of an
    /// older version is migrated first, for which nobody else may be writing.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref().to_owned();
        let options = StoreOptions::default();
        let mut reader = open::for_reading(&path, &options.tuning)?;
        if schema::version(&reader, &path)? < schema::CURRENT {
            drop(reader);
            drop(open::for_writing(&path, &options.tuning)?);
            reader = open::for_reading(&path, &options.tuning)?;
        }
        let readers = Mutex::new(vec![reader]);
        let failure = Arc::default();
        let (sender, thread) = (None, None);
        Ok(Self { inner: Arc::new(Inner { path, options, readers, failure, sender, thread }) })
    }

    /// Where the store is.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Records a new run as running. Creating the very same run again does nothing.
    pub async fn create_run(&self, record: RunRecord) -> Result<(), StoreError> {
        self.request(Work::CreateRun(Box::new(record))).await.map(drop)
    }

    /// Records that a run came to its end, or was stopped.
    pub async fn finish_run(&self, run: &str, status: RunStatus) -> Result<(), StoreError> {
        self.request(Work::FinishRun { run: run.to_owned(), status }).await.map(drop)
    }

    /// Queues episodes. Those that are queued already, or further, stay as they are, so a run's
    /// whole list may be given again on resume.
    pub async fn queue_episodes(
        &self,
        run: &str,
        episodes: &[QueuedEpisode],
    ) -> Result<(), StoreError> {
        let (run, episodes) = (run.to_owned(), episodes.to_vec());
        self.request(Work::Queue { run, episodes }).await.map(drop)
    }

    /// Takes an interrupted run up again: it is running, attempts that were interrupted become
    /// cancelled, and what is missing is queued. Answers what is recorded and what is to be run.
    pub async fn resume_run(&self, run: &str) -> Result<ResumePlan, StoreError> {
        match self.request(Work::ResumeRun { run: run.to_owned() }).await? {
            Answer::Resume(plan) => Ok(plan),
            Answer::Done | Answer::Grading(_) => Ok(ResumePlan::default()),
        }
    }

    /// Starts a queued attempt. The start is not waited for: it becomes durable with the first
    /// [`EpisodeWriter::commit`], and an attempt that was not queued is refused there.
    pub async fn start_attempt(
        &self,
        run: &str,
        episode: EpisodeRef,
    ) -> Result<EpisodeWriter, StoreError> {
        let target = Arc::new(Target { run: run.to_owned(), episode, row: OnceLock::new() });
        let permit = self.inner.permit().await?;
        permit.send(Job { work: Work::Start(Arc::clone(&target)), waiter: None });
        Ok(EpisodeWriter::recording(Arc::clone(&self.inner), target, self.inner.options.journal))
    }

    /// One run. A run whose process is gone is [`RunStatus::Interrupted`], also where the store
    /// is open for reading only and cannot say so in the file.
    pub fn run(&self, run: &str) -> Result<Run, StoreError> {
        let mut runs = self.alive(|connection| read::run(connection, run).map(|run| vec![run]))?;
        runs.pop().ok_or_else(|| StoreError::UnknownRun(run.to_owned()))
    }

    /// Every run, oldest first, each with the status that [`Self::run`] tells.
    pub fn runs(&self) -> Result<Vec<Run>, StoreError> {
        self.alive(read::runs)
    }

    /// Reads runs and corrects the status of those that a dead process left behind.
    fn alive(
        &self,
        read: impl Fn(&Connection) -> Result<Vec<Run>, Trouble>,
    ) -> Result<Vec<Run>, StoreError> {
        let is_running = |run: &Run| run.status == RunStatus::Running;
        let before = self.inner.read(&read)?;
        // Opening for writing has corrected what was in the file, and since then it is ours.
        if self.inner.sender.is_some()
            || !before.iter().any(is_running)
            || open::has_writer(&self.inner.path)
        {
            return Ok(before);
        }
        // Read again: the writer may have finished in between. What was running before, and still
        // is now that nobody writes, never will be finished.
        let mut after = self.inner.read(&read)?;
        for run in after.iter_mut().filter(|run| is_running(run)) {
            if before.iter().any(|old| is_running(old) && old.record.id == run.record.id) {
                run.status = RunStatus::Interrupted;
            }
        }
        Ok(after)
    }

    /// Every attempt of a run, by task, sample and attempt.
    pub fn episodes(&self, run: &str) -> Result<Vec<EpisodeSummary>, StoreError> {
        self.inner.read(|connection| read::episodes(connection, run))
    }

    /// One attempt.
    pub fn episode(&self, run: &str, episode: EpisodeRef) -> Result<EpisodeSummary, StoreError> {
        self.inner.read(|connection| read::episode(connection, run, episode))
    }

    /// The journal of an attempt, in order, as far as it is durable.
    pub fn entries(&self, run: &str, episode: EpisodeRef) -> Result<Vec<Entry>, StoreError> {
        self.inner.read(|connection| read::entries(connection, run, episode))
    }

    /// How an attempt ended; none while it has not.
    pub fn ending(
        &self,
        run: &str,
        episode: EpisodeRef,
    ) -> Result<Option<SealedEnding>, StoreError> {
        self.inner.read(|connection| read::ending(connection, run, episode))
    }

    /// The scores of an attempt, in the order in which they were given.
    pub fn scores(&self, run: &str, episode: EpisodeRef) -> Result<Vec<Score>, StoreError> {
        self.inner.read(|connection| read::scores(connection, run, episode))
    }

    /// A content of a sealed workspace, by the digest that the manifest names; none when it is not
    /// kept, because its episode's contents were too large or an older version recorded it.
    pub fn content(&self, digest: &Digest) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.read(|connection| contents::get(connection, digest))
    }

    /// Begins to grade a recorded run again, by the rewards that `plan` describes; answers the
    /// grading's number within the run.
    pub async fn begin_grading(
        &self,
        run: &str,
        plan: &serde_json::Value,
    ) -> Result<u32, StoreError> {
        let work = Work::BeginGrading { run: run.to_owned(), plan: plan.to_string() };
        match self.request(work).await? {
            Answer::Grading(position) => Ok(position),
            Answer::Done | Answer::Resume(_) => Ok(0),
        }
    }

    /// Records what an episode was given by a grading. Every number must be finite. Its own scores
    /// stay as they are.
    pub async fn grade(&self, run: &str, position: u32, graded: Graded) -> Result<(), StoreError> {
        if let Some(what) = not_finite(&graded.scores, graded.total.unwrap_or_default()) {
            let (run, episode) = (run.to_owned(), graded.episode);
            return Err(StoreError::NotFinite { run, episode, what });
        }
        let (run, graded) = (run.to_owned(), Box::new(graded));
        self.request(Work::Grade { run, position, graded }).await.map(drop)
    }

    /// The gradings of a run, oldest first.
    pub fn gradings(&self, run: &str) -> Result<Vec<Grading>, StoreError> {
        self.inner.read(|connection| grade::all(connection, run))
    }

    /// What a grading gave the episodes of a run.
    pub fn graded(&self, run: &str, position: u32) -> Result<Vec<Graded>, StoreError> {
        self.inner.read(|connection| grade::graded(connection, run, position))
    }

    /// What is recorded of a run and what is missing, without changing anything.
    pub fn resume_plan(&self, run: &str) -> Result<ResumePlan, StoreError> {
        self.episodes(run).map(ResumePlan::of)
    }

    /// Reads the whole file and checks its structure.
    pub fn check(&self) -> Result<(), StoreError> {
        let detail: String = self.inner.read(|connection| {
            Ok(connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?)
        })?;
        if detail == "ok" {
            Ok(())
        } else {
            Err(StoreError::Corrupt { path: self.inner.path.clone(), detail })
        }
    }

    async fn request(&self, work: Work) -> Result<Answer, StoreError> {
        let permit = self.inner.permit().await?;
        let (waiter, answer) = oneshot::channel();
        permit.send(Job { work, waiter: Some(waiter) });
        self.inner.answer(answer).await
    }
}

impl Inner {
    /// A place in the queue.
    pub(crate) async fn permit(&self) -> Result<mpsc::Permit<'_, Job>, StoreError> {
        let sender = self.sender()?;
        sender.reserve().await.map_err(|_| self.stopped())
    }

    /// A place in the queue if there is one at once.
    pub(crate) fn permit_now(&self) -> Option<mpsc::Permit<'_, Job>> {
        self.sender.as_ref()?.try_reserve().ok()
    }

    /// Waits until a request is durable.
    pub(crate) async fn answer(
        &self,
        answer: oneshot::Receiver<Result<Answer, StoreError>>,
    ) -> Result<Answer, StoreError> {
        answer.await.unwrap_or_else(|_| Err(self.stopped()))
    }

    fn sender(&self) -> Result<&mpsc::Sender<Job>, StoreError> {
        self.sender.as_ref().ok_or_else(|| StoreError::ReadOnly { path: self.path.clone() })
    }

    fn stopped(&self) -> StoreError {
        commit::stopped(&self.failure, &self.path)
    }

    fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Trouble>,
    ) -> Result<T, StoreError> {
        let lock = || self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => open::for_reading(&self.path, &self.options.tuning)?,
        };
        let result = read(&connection).map_err(|trouble| match trouble {
            Trouble::Refused(error) => error,
            Trouble::Sqlite(error) => StoreError::of_sqlite(&self.path, &error),
        });
        let mut idle = lock();
        if idle.len() < IDLE_READERS {
            idle.push(connection);
        }
        result
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Readers first: the last connection to close makes the final checkpoint.
        self.readers.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        self.sender = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(path = %self.path.display(), "the writer of the trace store panicked");
        }
    }
}

#[cfg(test)]
mod tests;
