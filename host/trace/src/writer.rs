//! Writing the journal of one attempt.
//!
//! Pushing is cheap and never waits: an entry gets its number and is kept in memory. What was
//! pushed becomes durable with [`EpisodeWriter::commit`], or with the step that ends the attempt.
//! Entries that a harness can produce without end (events, metrics, output, denials) are kept up
//! to a limit and counted beyond it; turns and commands, which the run's budgets bound, are never
//! dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};

use crate::{
    Digest, Ending, EntryBody, EpisodeRef, Score, StoreError,
    store::{
        EncodedContent, EncodedEntry, Inner, encode,
        job::{Change, Job, Target, Work},
    },
};

/// What waits in memory beyond this is handed to the store ahead of the next commit.
const HAND_OVER_BYTES: usize = 256 * 1024;

/// SQLite refuses values of a gigabyte, and a refused write stops the store.
const LARGEST_CONTENT: usize = 512 << 20;

/// What an episode may write to its journal of the kinds that have no budget of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalLimits {
    /// Events, metrics, outputs and denials together.
    pub entries: u64,
    /// Their bytes together.
    pub bytes: u64,
}

impl Default for JournalLimits {
    fn default() -> Self {
        Self { entries: 10_000, bytes: 4 << 20 }
    }
}

/// What was pushed so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalCounts {
    /// Entries of the journal.
    pub entries: u32,
    /// Turns among them.
    pub turns: u64,
    /// Commands among them.
    pub commands: u64,
    /// Entries that were dropped at the limit.
    pub dropped: u64,
    /// Tokens that the model read.
    pub prompt_tokens: u64,
    /// Tokens that the model wrote.
    pub completion_tokens: u64,
}

/// Writes the journal of one attempt; clones write to the same one.
#[derive(Debug, Clone)]
pub struct EpisodeWriter {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limits: JournalLimits,
    journal: Mutex<Journal>,
    /// None for a writer that discards.
    recording: Option<(Arc<Inner>, Arc<Target>)>,
}

#[derive(Debug, Default)]
struct Journal {
    pending: Vec<EncodedEntry>,
    pending_bytes: usize,
    counts: JournalCounts,
    limited_entries: u64,
    limited_bytes: u64,
    closed: bool,
}

impl EpisodeWriter {
    pub(crate) fn recording(inner: Arc<Inner>, target: Arc<Target>, limits: JournalLimits) -> Self {
        let recording = Some((inner, target));
        Self { shared: Arc::new(Shared { limits, journal: Mutex::default(), recording }) }
    }

    /// A writer for benchmarks without a trace: it counts and keeps nothing, and everything
    /// succeeds at once.
    pub fn discarding() -> Self {
        let limits = JournalLimits::default();
        Self { shared: Arc::new(Shared { limits, journal: Mutex::default(), recording: None }) }
    }

    /// The attempt; none for a writer that discards.
    pub fn episode(&self) -> Option<EpisodeRef> {
        self.shared.recording.as_ref().map(|(_, target)| target.episode)
    }

    /// Adds an entry to the journal and answers its number. At the limit, and after the end, the
    /// entry is dropped and the answer is the number that the next one gets. A metric that is not
    /// finite becomes an event of the name `metric-not-finite`.
    pub fn push(&self, entry: EntryBody) -> u32 {
        let limited = is_limited(&entry);
        {
            // Before the entry is packed: a flood of entries should cost as little as it can.
            let mut journal = self.journal();
            if let Some(next) = journal.refuse(limited, &self.shared.limits, 0) {
                return next;
            }
        }
        let entry = finite(entry);
        if self.shared.recording.is_none() {
            let mut journal = self.journal();
            return journal.count(&entry);
        }
        let (turn, command) = (usage(&entry), matches!(entry, EntryBody::Command { .. }));
        let mut encoded = encode(entry);
        let size = encoded.size();
        let mut journal = self.journal();
        let bytes = u64::try_from(encoded.full_bytes).unwrap_or(u64::MAX);
        if let Some(next) = journal.refuse(limited, &self.shared.limits, bytes) {
            return next;
        }
        if limited {
            journal.limited_entries += 1;
            journal.limited_bytes = journal.limited_bytes.saturating_add(bytes);
        }
        let sequence = journal.number(turn, command);
        encoded.sequence = sequence;
        journal.pending.push(encoded);
        journal.pending_bytes = journal.pending_bytes.saturating_add(size);
        if journal.pending_bytes >= HAND_OVER_BYTES {
            self.hand_over(&mut journal);
        }
        sequence
    }

    /// Waits until everything pushed so far is durable. When it fails, nothing that depends on
    /// those entries may be released.
    pub async fn commit(&self) -> Result<(), StoreError> {
        let Some((inner, target)) = &self.shared.recording else { return Ok(()) };
        let permit = inner.permit().await?;
        // Taking the entries and handing them over happens under the journal's lock, so that two
        // commits of one episode reach the store in the order of their entries.
        let answer = {
            let mut journal = self.journal();
            if journal.closed {
                let (run, episode) = (target.run.clone(), target.episode);
                return Err(StoreError::JournalClosed { run, episode });
            }
            send(permit, target, journal.take(), None)
        };
        inner.answer(answer).await.map(drop)
    }

    /// Keeps contents of the workspace by their digests, each once in the store. They are durable
    /// with the next step at the latest, so call this before [`Self::end`]; much is waited for, so
    /// that it does not gather in memory. One of more than 512 MiB is left out.
    pub async fn keep(
        &self,
        contents: impl IntoIterator<Item = (Digest, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        let Some((inner, _)) = &self.shared.recording else { return Ok(()) };
        let mut contents = contents.into_iter().peekable();
        while contents.peek().is_some() {
            let mut encoded = Vec::new();
            let mut bytes = 0_usize;
            while bytes < HAND_OVER_BYTES
                && let Some((digest, content)) = contents.next()
            {
                if content.len() > LARGEST_CONTENT {
                    continue;
                }
                let content = EncodedContent::new(digest, &content);
                bytes = bytes.saturating_add(content.len());
                encoded.push(content);
            }
            let permit = inner.permit().await?;
            let work = Work::Keep(encoded);
            if bytes < HAND_OVER_BYTES {
                permit.send(Job { work, waiter: None });
            } else {
                let (waiter, answer) = oneshot::channel();
                permit.send(Job { work, waiter: Some(waiter) });
                inner.answer(answer).await?;
            }
        }
        Ok(())
    }

    /// Records that the harness ended, closes the journal and waits until all of it is durable.
    /// `changes` is the sealed manifest of the workspace, usually JSON.
    pub async fn end(
        &self,
        ending: Ending,
        tree: Option<Digest>,
        changes: Vec<u8>,
    ) -> Result<(), StoreError> {
        self.step(|counts| Change::End {
            kind: ending.kind,
            ending: serde_json::to_string(&ending).unwrap_or_default(),
            tree,
            changes,
            counts,
        })
        .await
    }

    /// Records the scores of an ended attempt. Every number must be finite.
    pub async fn score(&self, scores: Vec<Score>, total: f64) -> Result<(), StoreError> {
        if let Some(what) = not_finite(&scores, total) {
            return match &self.shared.recording {
                Some((_, target)) => {
                    let (run, episode) = (target.run.clone(), target.episode);
                    Err(StoreError::NotFinite { run, episode, what })
                }
                None => Ok(()),
            };
        }
        self.step(|_| Change::Score { scores, total }).await
    }

    /// Records that the attempt is no result and an alarm for the run's owner (a reward that
    /// fails, a harness that breaks before the model spoke).
    pub async fn fail(&self, reason: impl Into<String>) -> Result<(), StoreError> {
        let reason = reason.into();
        self.step(|counts| Change::Fail { reason, retry: false, counts }).await
    }

    /// Records that the attempt is no result and queues the next one, both or neither. Answers
    /// the next one.
    pub async fn retry(&self, reason: impl Into<String>) -> Result<EpisodeRef, StoreError> {
        let reason = reason.into();
        self.step(|counts| Change::Fail { reason, retry: true, counts }).await?;
        Ok(self.episode().unwrap_or(EpisodeRef::first(0, 0)).next_attempt())
    }

    /// Records that retries are used up: the episode is counted and has no score.
    pub async fn abandon(&self, reason: impl Into<String>) -> Result<(), StoreError> {
        let reason = reason.into();
        self.step(|counts| Change::Drop { reason, counts }).await
    }

    /// Records that the run is being stopped; the episode runs again on resume. An attempt that
    /// is final already stays as it is.
    pub async fn cancel(&self) -> Result<(), StoreError> {
        self.step(|counts| Change::Cancel { counts }).await
    }

    /// What was pushed so far.
    pub fn counts(&self) -> JournalCounts {
        self.journal().counts
    }

    async fn step(&self, change: impl FnOnce(JournalCounts) -> Change) -> Result<(), StoreError> {
        let Some((inner, target)) = &self.shared.recording else { return Ok(()) };
        let permit = inner.permit().await?;
        let answer = {
            let mut journal = self.journal();
            journal.close();
            let change = change(journal.counts);
            send(permit, target, journal.take(), Some(change))
        };
        inner.answer(answer).await.map(drop)
    }

    /// Gives what waits to the store without waiting for it, if the store has room.
    fn hand_over(&self, journal: &mut Journal) {
        if let Some((inner, target)) = &self.shared.recording
            && let Some(permit) = inner.permit_now()
        {
            let target = Arc::clone(target);
            let work = Work::Journal { target, entries: journal.take(), change: None };
            permit.send(Job { work, waiter: None });
        }
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.shared.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Answer = oneshot::Receiver<Result<crate::store::job::Answer, StoreError>>;

fn send(
    permit: mpsc::Permit<'_, Job>,
    target: &Arc<Target>,
    entries: Vec<EncodedEntry>,
    change: Option<Change>,
) -> Answer {
    let (waiter, answer) = oneshot::channel();
    let work = Work::Journal { target: Arc::clone(target), entries, change };
    permit.send(Job { work, waiter: Some(waiter) });
    answer
}

impl Journal {
    /// Drops an entry that comes too late or goes beyond the limits; answers the next number.
    fn refuse(&mut self, limited: bool, limits: &JournalLimits, bytes: u64) -> Option<u32> {
        if self.closed {
            if !limited {
                tracing::warn!("a call came after the end of its episode and is not recorded");
            }
            return Some(self.counts.entries);
        }
        let full = self.limited_entries >= limits.entries
            || self.limited_bytes.saturating_add(bytes) > limits.bytes;
        if limited && full {
            self.counts.dropped += 1;
            return Some(self.counts.entries);
        }
        None
    }

    fn count(&mut self, entry: &EntryBody) -> u32 {
        self.limited_entries += u64::from(is_limited(entry));
        self.number(usage(entry), matches!(entry, EntryBody::Command { .. }))
    }

    fn number(&mut self, turn: Option<crate::Usage>, command: bool) -> u32 {
        let sequence = self.counts.entries;
        self.counts.entries = sequence.saturating_add(1);
        self.counts.commands += u64::from(command);
        if let Some(usage) = turn {
            self.counts.turns += 1;
            let counts = &mut self.counts;
            counts.prompt_tokens = counts.prompt_tokens.saturating_add(usage.prompt_tokens);
            counts.completion_tokens =
                counts.completion_tokens.saturating_add(usage.completion_tokens);
        }
        sequence
    }

    /// Nothing is taken any more; what was dropped is told in one last entry.
    fn close(&mut self) {
        if !self.closed && self.counts.dropped > 0 {
            let mut entry = encode(EntryBody::Truncated { dropped: self.counts.dropped });
            entry.sequence = self.number(None, false);
            self.pending.push(entry);
        }
        self.closed = true;
    }

    fn take(&mut self) -> Vec<EncodedEntry> {
        self.pending_bytes = 0;
        std::mem::take(&mut self.pending)
    }
}

/// The kinds that only the journal's own limits bound.
const fn is_limited(entry: &EntryBody) -> bool {
    match entry {
        EntryBody::Event { .. }
        | EntryBody::Metric { .. }
        | EntryBody::Denied { .. }
        | EntryBody::Output { .. } => true,
        EntryBody::Turn(_)
        | EntryBody::TurnFailed { .. }
        | EntryBody::Command { .. }
        | EntryBody::Truncated { .. } => false,
    }
}

fn usage(entry: &EntryBody) -> Option<crate::Usage> {
    match entry {
        EntryBody::Turn(turn) => Some(turn.usage),
        _ => None,
    }
}

/// JSON has no words for what is not finite, and a record that cannot be read back is none.
fn finite(entry: EntryBody) -> EntryBody {
    match entry {
        EntryBody::Metric { name, value } if !value.is_finite() => EntryBody::Event {
            name: "metric-not-finite".to_owned(),
            fields: vec![(name, value.to_string())],
        },
        EntryBody::Turn(mut turn) if !turn.temperature.is_finite() => {
            tracing::warn!(temperature = turn.temperature, "a turn without a real temperature");
            turn.temperature = 0.0;
            EntryBody::Turn(turn)
        }
        entry => entry,
    }
}

pub(crate) fn not_finite(scores: &[Score], total: f64) -> Option<String> {
    if !total.is_finite() {
        return Some("the total".to_owned());
    }
    scores.iter().find_map(|score| {
        let reward = &score.reward;
        if !score.weight.is_finite() || !score.total.is_finite() {
            return Some(format!("weight or total of reward `{reward}`"));
        }
        let parts = score.components.iter().map(|part| part.value);
        let turns = score.turns.iter().map(|turn| turn.value);
        (!parts.chain(turns).all(f64::is_finite)).then(|| format!("a part of reward `{reward}`"))
    })
}
