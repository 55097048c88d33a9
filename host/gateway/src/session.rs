//! One episode's way to the policies.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use fulgurite_trace::{EntryBody, EpisodeRef, EpisodeWriter, FailureKind};
use tokio::task::AbortHandle;

use crate::{
    Conversation, ConversationConfig, LlmError, ModelInfo, Remaining, SessionUsage,
    board::Board,
    chat::Remembered,
    conversation::Line,
    error::Failure,
    gateway::Shared,
    journal::Journal,
    ledger::{Ledger, Reservation},
    lock,
    pending::Progress,
    stopwatch::Stopwatch,
};

/// Which episode a session serves and where its turns are written.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Id of the task.
    pub task: String,
    /// Name of the harness, from its description.
    pub harness: String,
    /// The episode.
    pub episode: EpisodeRef,
    /// The episode's journal.
    pub writer: EpisodeWriter,
}

/// One episode's way to the policies. Clones share everything. Works from any thread.
#[derive(Clone)]
pub struct Session {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) gateway: Arc<Shared>,
    pub(crate) task: String,
    pub(crate) harness: String,
    pub(crate) episode: EpisodeRef,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) ledger: Mutex<Ledger>,
    pub(crate) stopwatch: Stopwatch,
    pub(crate) board: Arc<Board>,
    /// Bytes that all conversations hold.
    pub(crate) held: Arc<AtomicUsize>,
    pub(crate) state: Mutex<State>,
}

#[derive(Default)]
pub(crate) struct State {
    /// By the run's owner.
    cancelled: bool,
    /// Cancelled or closed.
    stopped: bool,
    conversations: u32,
    pending: BTreeMap<u32, Pending>,
    /// Failures that no later success in the same conversation made good.
    failures: BTreeMap<u32, FailureKind>,
    /// What the owner is told of the last failure.
    detail: Option<String>,
    pub(crate) chats: VecDeque<Remembered>,
}

/// What the session knows of a reply that is pending.
struct Pending {
    conversation: u32,
    progress: Arc<Progress>,
    task: AbortHandle,
}

#[async_trait]
impl Journal for EpisodeWriter {
    fn push(&self, body: EntryBody) {
        Self::push(self, body);
    }

    async fn commit(&self) -> Result<(), String> {
        Self::commit(self).await.map_err(|error| error.to_string())
    }
}

impl Session {
    pub(crate) fn new(gateway: Arc<Shared>, config: SessionConfig) -> Self {
        let SessionConfig { task, harness, episode, writer } = config;
        Self::with_journal(gateway, task, harness, episode, Arc::new(writer))
    }

    pub(crate) fn with_journal(
        gateway: Arc<Shared>,
        task: String,
        harness: String,
        episode: EpisodeRef,
        journal: Arc<dyn Journal>,
    ) -> Self {
        let ledger = Mutex::new(Ledger::new(gateway.settings.budgets));
        let inner = Inner {
            gateway,
            task,
            harness,
            episode,
            journal,
            ledger,
            stopwatch: Stopwatch::default(),
            board: Arc::default(),
            held: Arc::default(),
            state: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Opens a conversation.
    pub fn open(&self, config: ConversationConfig) -> Result<Conversation, LlmError> {
        Conversation::open(self, config)
    }

    /// What the policy behind a model role can do.
    pub fn info(&self, model_role: &str) -> Result<ModelInfo, LlmError> {
        self.alive()?;
        self.inner.gateway.info(model_role)
    }

    /// What is left of the budgets.
    pub fn remaining(&self) -> Remaining {
        lock(&self.inner.ledger).remaining()
    }

    /// What was used so far.
    pub fn usage(&self) -> SessionUsage {
        lock(&self.inner.ledger).usage()
    }

    /// For how long somebody has waited for a reply of this session: in queues, pauses and retries
    /// as well as for the policy itself. Clocks that must stand still then subtract it.
    pub fn waited(&self) -> Duration {
        self.inner.stopwatch.total()
    }

    /// Gives up on all pending replies; from now on every call answers `cancelled`.
    pub fn cancel(&self) {
        lock(&self.inner.state).cancelled = true;
        self.stop();
    }

    fn stop(&self) {
        let pending: Vec<_> = {
            let mut state = lock(&self.inner.state);
            state.stopped = true;
            let pending = state.pending.values();
            pending.map(|reply| (reply.task.clone(), Arc::clone(&reply.progress))).collect()
        };
        for (task, progress) in pending {
            task.abort();
            progress.wake();
        }
        self.inner.board.wake();
    }

    /// Ends the session as [`Self::cancel`] does, but by itself and not by the run's owner: the
    /// verdict stays. What was still pending is written down in the order of the turns. Call it
    /// before the episode's journal is closed; nothing is written afterwards.
    pub fn close(&self) {
        self.stop();
        let pending = std::mem::take(&mut lock(&self.inner.state).pending);
        for (index, reply) in pending {
            self.write_failure(index, reply.conversation, &Failure::cancelled());
        }
        lock(&self.inner.state).chats.clear();
    }

    /// What the calls of this session mean for an episode whose harness returned an error: the
    /// worst failure that no later success in the same conversation made good. None when the
    /// policy did nothing to explain it.
    pub fn verdict(&self) -> Option<FailureKind> {
        let exhausted = lock(&self.inner.ledger).exhausted();
        let state = lock(&self.inner.state);
        let failed = |kind| state.failures.values().any(|failure| *failure == kind);
        let candidates = [
            (FailureKind::SandboxError, failed(FailureKind::SandboxError)),
            (FailureKind::Cancelled, state.cancelled),
            (FailureKind::PolicyError, failed(FailureKind::PolicyError)),
            (FailureKind::Budget, exhausted),
            (FailureKind::ContextLength, failed(FailureKind::ContextLength)),
        ];
        candidates.into_iter().find_map(|(kind, applies)| applies.then_some(kind))
    }

    /// The cause of the last call that failed, in the words of the policy or its server: for the
    /// run's owner, never for a component.
    pub fn last_failure(&self) -> Option<String> {
        lock(&self.inner.state).detail.clone()
    }

    pub(crate) fn alive(&self) -> Result<(), LlmError> {
        if lock(&self.inner.state).stopped { Err(LlmError::Cancelled) } else { Ok(()) }
    }

    /// The number of a new conversation.
    pub(crate) fn number_conversation(&self) -> Result<u32, LlmError> {
        let most = self.inner.gateway.settings.limits.conversations;
        let mut state = lock(&self.inner.state);
        if state.stopped {
            return Err(LlmError::Cancelled);
        }
        if state.conversations >= most {
            let text = format!("an episode may open {most} conversations");
            return Err(LlmError::Invalid(text));
        }
        let id = state.conversations;
        state.conversations += 1;
        Ok(id)
    }

    /// Takes a turn and tokens for a call, if the call may be made at all.
    pub(crate) fn reserve(&self, wish: u32, more_bytes: usize) -> Result<Reservation, LlmError> {
        let limits = &self.inner.gateway.settings.limits;
        let pending = {
            let state = lock(&self.inner.state);
            if state.stopped {
                return Err(LlmError::Cancelled);
            }
            state.pending.len()
        };
        if u32::try_from(pending).unwrap_or(u32::MAX) >= limits.pending {
            let text = format!("an episode may have {} replies pending at once", limits.pending);
            return Err(LlmError::Invalid(text));
        }
        self.check_held(more_bytes)?;
        lock(&self.inner.ledger).reserve(wish).map_err(LlmError::Budget)
    }

    /// Refuses what would make the histories too large.
    pub(crate) fn check_held(&self, more_bytes: usize) -> Result<(), LlmError> {
        let most = self.inner.gateway.settings.limits.history_bytes;
        if self.inner.held.load(Ordering::Relaxed).saturating_add(more_bytes) > most {
            return Err(LlmError::Invalid(format!(
                "the histories of an episode may hold {most} bytes together"
            )));
        }
        Ok(())
    }

    pub(crate) fn add_pending(
        &self,
        index: u32,
        conversation: u32,
        progress: Arc<Progress>,
        task: AbortHandle,
    ) {
        let mut state = lock(&self.inner.state);
        if state.stopped {
            // Stopped while the call was being started.
            task.abort();
        }
        state.pending.insert(index, Pending { conversation, progress, task });
    }

    /// Takes a reply off the pending ones; false when the session was closed before.
    pub(crate) fn remove_pending(&self, index: u32) -> bool {
        lock(&self.inner.state).pending.remove(&index).is_some()
    }

    /// A reply was written down.
    pub(crate) fn succeeded(&self, line: &Line) {
        lock(&self.inner.state).failures.remove(&line.id);
    }

    /// Writes a failed call down.
    pub(crate) fn failed(&self, index: u32, line: &Line, failure: &Failure) {
        self.note(line, failure);
        self.write_failure(index, line.id, failure);
    }

    /// Remembers a failure and tells the owner: loudly of an episode's first attempt only, since
    /// a policy that is down fails the same call in each attempt.
    pub(crate) fn note(&self, line: &Line, failure: &Failure) {
        if let Some(kind) = failure.kind {
            lock(&self.inner.state).failures.insert(line.id, kind);
        }
        if let Some(detail) = &failure.detail {
            lock(&self.inner.state).detail = Some(detail.clone());
            let (task, harness) = (&self.inner.task, &self.inner.harness);
            let (conversation, code) = (line.id, failure.error.code());
            let EpisodeRef { attempt, .. } = self.inner.episode;
            if attempt == 0 {
                tracing::warn!(task, harness, conversation, code, detail, "a model call failed");
            } else {
                tracing::debug!(
                    task,
                    harness,
                    conversation,
                    code,
                    detail,
                    attempt,
                    "a model call failed again"
                );
            }
        }
    }

    fn write_failure(&self, index: u32, conversation: u32, failure: &Failure) {
        self.inner.journal.push(EntryBody::TurnFailed {
            index,
            conversation,
            error: failure.error.code().to_owned(),
            detail: failure.detail.clone(),
        });
    }
}
