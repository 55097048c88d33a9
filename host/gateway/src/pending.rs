//! A reply that is being written.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use fulgurite_policy::{Chunk, ReplyRequest};
use fulgurite_trace::{Message, Part, Truncation};
use tokio::{sync::Notify, task::AbortHandle};

use crate::{
    LlmError, Reply, Session, TokenReply,
    board::{Board, Incomplete},
    call::{Answered, ChunkSink, Unanswered, call},
    conversation::Claim,
    error::Failure,
    ledger::Reservation,
    lock,
    tokens::Written,
};

/// Bytes of chunks that wait for a harness which does not fetch them.
const MOST_CHUNK_BYTES: usize = 1024 * 1024;

/// A reply that is being written. Dropping it before it is finished gives up on it.
pub struct PendingReply {
    session: Session,
    progress: Arc<Progress>,
    task: AbortHandle,
    turn: u32,
    stage: Stage,
}

enum Stage {
    /// The reply is not written down yet.
    Waiting(Box<Open>),
    /// Written down, not yet known to be durable.
    Recorded(Box<Written>, Claim),
    /// Every further question has this answer.
    Failed(LlmError),
    /// Released.
    Done,
}

/// What a call holds until it ends.
struct Open {
    claim: Claim,
    asked: Asked,
    reservation: Reservation,
}

/// What was asked, as far as writing the turn down needs it.
pub(crate) struct Asked {
    /// Messages that come into the history together with the reply.
    pub(crate) new: Vec<Message>,
    /// The prompt of a token-level policy.
    pub(crate) ids: Option<Arc<[u32]>>,
    /// Whether the harness asked with raw ids.
    pub(crate) raw: bool,
    pub(crate) temperature: f32,
    pub(crate) truncation: Truncation,
}

impl PendingReply {
    pub(crate) fn start(
        session: Session,
        claim: Claim,
        asked: Asked,
        reservation: Reservation,
        request: ReplyRequest,
        stream: bool,
    ) -> Self {
        let turn = reservation.index;
        let board = Arc::clone(&session.inner.board);
        let progress = Arc::new(Progress::new(stream, Arc::clone(&board)));
        let end = End { progress: Arc::clone(&progress), _incomplete: board.enter() };
        let gateway = Arc::clone(&session.inner.gateway);
        let model = claim.line.model.clone();
        let runtime = gateway.runtime.clone();
        let task = runtime.spawn(async move {
            let sink: Option<&dyn ChunkSink> = if stream { Some(&*end.progress) } else { None };
            let outcome = call(&model, &gateway.gate, &gateway.settings, request, sink).await;
            end.progress.complete(outcome);
        });
        let task = task.abort_handle();
        session.add_pending(turn, claim.line.id, Arc::clone(&progress), task.clone());
        let stage = Stage::Waiting(Box::new(Open { claim, asked, reservation }));
        Self { session, progress, task, turn, stage }
    }

    /// Number of the turn within the episode, in the order of starting.
    pub const fn turn(&self) -> u32 {
        self.turn
    }

    /// Returns when [`Self::next_chunk`] and [`Self::finish`] would answer (nearly) at once. All
    /// pending replies of a session become ready together, so that what a harness does next does
    /// not depend on which was faster; only a reply that was asked to stream is also ready when a
    /// chunk is there. Dropping the future loses nothing.
    pub async fn ready(&mut self) {
        let session = self.session.clone();
        let _waiting = session.inner.stopwatch.wait();
        if matches!(self.stage, Stage::Waiting(_)) {
            let progress = Arc::clone(&self.progress);
            session.inner.board.ready(|| progress.has_early_chunk()).await;
        }
    }

    /// The next chunk; none when the reply is complete. Chunks are provisional. Dropping the
    /// future loses nothing.
    pub async fn next_chunk(&mut self) -> Result<Option<Chunk>, LlmError> {
        let session = self.session.clone();
        let _waiting = session.inner.stopwatch.wait();
        loop {
            match &self.stage {
                Stage::Failed(error) => return Err(error.clone()),
                Stage::Recorded(..) | Stage::Done => return Ok(None),
                Stage::Waiting(_) => {}
            }
            let progress = Arc::clone(&self.progress);
            let changed = progress.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if session.alive().is_err() {
                self.cancel();
                continue;
            }
            match self.progress.next() {
                Next::Chunk(chunk) => return Ok(Some(chunk)),
                Next::Complete => return Ok(None),
                Next::Failed(unanswered) => {
                    self.fail(&unanswered.failure, unanswered.retries);
                }
                Next::Nothing => changed.await,
            }
        }
    }

    /// The complete reply, once the turn is durable. Asked a second time:
    /// [`LlmError::Invalid`]. Dropping the future loses nothing.
    pub async fn finish(&mut self) -> Result<Reply, LlmError> {
        self.written().await.map(|written| written.reply)
    }

    pub(crate) async fn finish_tokens(&mut self) -> Result<TokenReply, LlmError> {
        let Written { reply, tokens, log_probabilities } = self.written().await?;
        let Reply { finish, usage, turn, .. } = reply;
        Ok(TokenReply { tokens, log_probabilities, finish, usage, turn })
    }

    async fn written(&mut self) -> Result<Written, LlmError> {
        let session = self.session.clone();
        let _waiting = session.inner.stopwatch.wait();
        self.record().await;
        if matches!(self.stage, Stage::Recorded(..)) {
            // Until here is durable, the reply does not leave.
            let committed = session.inner.journal.commit().await;
            if let Err(detail) = committed {
                self.fail(&Failure::not_recorded(detail), 0);
            }
        }
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Recorded(written, _claim) => Ok(*written),
            Stage::Failed(error) => {
                self.stage = Stage::Failed(error.clone());
                Err(error)
            }
            Stage::Waiting(_) | Stage::Done => {
                Err(LlmError::invalid("the reply was finished already"))
            }
        }
    }

    /// Waits for the policy and writes down what it said.
    async fn record(&mut self) {
        while matches!(self.stage, Stage::Waiting(_)) {
            let progress = Arc::clone(&self.progress);
            let changed = progress.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.session.alive().is_err() {
                self.cancel();
                return;
            }
            match self.progress.take() {
                Some(Ok(answered)) => self.write(answered),
                Some(Err(Unanswered { failure, retries })) => self.fail(&failure, retries),
                None => changed.await,
            }
        }
    }

    fn write(&mut self, answered: Answered) {
        let Stage::Waiting(open) = std::mem::replace(&mut self.stage, Stage::Done) else { return };
        let retries = answered.retries;
        if let Err(failure) = self.session.check_answer(&open.claim.line, &open.asked, &answered) {
            self.stage = Stage::Waiting(open);
            self.fail(&failure, retries);
            return;
        }
        if !self.session.remove_pending(self.turn) {
            // The session was closed and has told the journal.
            lock(&self.session.inner.ledger).give_up(open.reservation);
            self.stage = Stage::Failed(LlmError::Cancelled);
            return;
        }
        let Open { claim, asked, reservation } = *open;
        let written = self.session.write_turn(&claim.line, self.turn, asked, answered);
        lock(&self.session.inner.ledger).settle(reservation, written.reply.usage, retries);
        self.stage = Stage::Recorded(Box::new(written), claim);
    }

    /// Gives up on the reply. What it had reserved counts as used; a later [`Self::finish`]
    /// answers [`LlmError::Cancelled`]. Without effect once the reply is written down.
    pub fn cancel(&mut self) {
        self.end(&Failure::cancelled(), |ledger, reservation| ledger.give_up(reservation));
    }

    fn fail(&mut self, failure: &Failure, retries: u32) {
        self.end(failure, |ledger, reservation| ledger.fail(reservation, retries));
    }

    fn end(
        &mut self,
        failure: &Failure,
        settle: impl FnOnce(&mut crate::ledger::Ledger, Reservation),
    ) {
        self.task.abort();
        match std::mem::replace(&mut self.stage, Stage::Failed(failure.error.clone())) {
            Stage::Waiting(open) => {
                if self.session.remove_pending(self.turn) {
                    self.session.failed(self.turn, &open.claim.line, failure);
                }
                settle(&mut lock(&self.session.inner.ledger), open.reservation);
            }
            // Written down already: only a commit that failed makes it worse.
            Stage::Recorded(written, claim) => {
                if failure.error == LlmError::Cancelled {
                    self.stage = Stage::Recorded(written, claim);
                } else {
                    self.session.note(&claim.line, failure);
                }
            }
            before => self.stage = before,
        }
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        self.cancel();
    }
}

/// What the task of a call and its pending reply share.
pub(crate) struct Progress {
    stream: bool,
    board: Arc<Board>,
    changed: Notify,
    state: Mutex<ProgressState>,
}

#[derive(Default)]
struct ProgressState {
    chunks: VecDeque<Chunk>,
    bytes: usize,
    /// The harness has seen chunks of the current or an earlier attempt.
    delivered: bool,
    /// No chunks any more: those of another attempt would not fit those delivered.
    muted: bool,
    outcome: Option<Result<Answered, Unanswered>>,
}

enum Next {
    Chunk(Chunk),
    Complete,
    Failed(Unanswered),
    Nothing,
}

impl Progress {
    fn new(stream: bool, board: Arc<Board>) -> Self {
        Self { stream, board, changed: Notify::new(), state: Mutex::default() }
    }

    pub(crate) fn wake(&self) {
        self.changed.notify_waiters();
    }

    fn has_early_chunk(&self) -> bool {
        self.stream && !lock(&self.state).chunks.is_empty()
    }

    fn next(&self) -> Next {
        let mut state = lock(&self.state);
        if let Some(chunk) = state.chunks.pop_front() {
            state.bytes = state.bytes.saturating_sub(length(&chunk));
            state.delivered = true;
            return Next::Chunk(chunk);
        }
        match state.outcome.take() {
            Some(Err(unanswered)) => Next::Failed(unanswered),
            Some(answered) => {
                state.outcome = Some(answered);
                Next::Complete
            }
            None => Next::Nothing,
        }
    }

    fn take(&self) -> Option<Result<Answered, Unanswered>> {
        lock(&self.state).outcome.take()
    }

    fn complete(&self, outcome: Result<Answered, Unanswered>) {
        {
            let mut state = lock(&self.state);
            match &outcome {
                Ok(answered) if !self.stream => {
                    state.chunks = whole(&answered.reply.message).collect();
                }
                Ok(_) => {}
                Err(_) => state.chunks.clear(),
            }
            state.outcome = Some(outcome);
        }
        self.wake();
    }
}

impl ChunkSink for Progress {
    fn restart(&self) {
        let mut state = lock(&self.state);
        state.muted = state.delivered;
        state.chunks.clear();
        state.bytes = 0;
    }

    fn push(&self, chunk: Chunk) {
        {
            let mut state = lock(&self.state);
            let bytes = state.bytes.saturating_add(length(&chunk));
            if state.muted || bytes > MOST_CHUNK_BYTES {
                state.muted = true;
                return;
            }
            state.bytes = bytes;
            match (state.chunks.back_mut(), chunk) {
                (Some(Chunk::Text(text)), Chunk::Text(more))
                | (Some(Chunk::Thinking(text)), Chunk::Thinking(more)) => text.push_str(&more),
                (_, chunk) => state.chunks.push_back(chunk),
            }
        }
        self.wake();
        self.board.wake();
    }
}

fn whole(message: &Message) -> impl Iterator<Item = Chunk> {
    message.parts.iter().filter_map(|part| match part {
        Part::Text(text) if !text.is_empty() => Some(Chunk::Text(text.clone())),
        Part::Thinking(text) if !text.is_empty() => Some(Chunk::Thinking(text.clone())),
        _ => None,
    })
}

const fn length(chunk: &Chunk) -> usize {
    match chunk {
        Chunk::Text(text) | Chunk::Thinking(text) => text.len(),
    }
}

/// Ends a call however its task ends: a policy that panics must not leave anybody waiting.
struct End {
    progress: Arc<Progress>,
    _incomplete: Incomplete,
}

impl Drop for End {
    fn drop(&mut self) {
        if lock(&self.progress.state).outcome.is_none() {
            let failure = Failure::broken_policy("the call ended without an answer");
            self.progress.complete(Err(Unanswered { failure, retries: 0 }));
        }
    }
}
