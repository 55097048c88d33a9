//! The canonical form of a run: JSON Lines that are equal, byte by byte, for equal runs.
//!
//! Left out is whatever may differ between two runs of the same thing: ids and times of the
//! store, latencies, retries, cache hits, attempts that did not count, words of upstream servers.
//! The order is that of task, sample and turn, not that of completion: an episode's turns come
//! first, by their number, and what else its journal holds follows in the order of the journal.
//! Sub-agents that wait for replies at the same time therefore give the same lines whichever
//! reply was there first.
//!
//! Every field is documented in `host/trace/TRACE.md`; a test compares.

mod lines;

use std::io::{self, Write};

use self::lines::{Line, Place, ending_line, entry_line, episode_line, run_line, score_line};
use crate::{EntryBody, EpisodeSummary, Store, StoreError};

/// Version of the form; counted up when a field changes its meaning or goes away.
pub const FORMAT: u32 = 1;

/// An export ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The output could not be written.
    #[error("the export could not be written: {0}; free space or choose another file")]
    Write(#[from] io::Error),
}

/// Writes a whole run. One episode is in memory at a time. An export of a run that is still
/// written to is one of what was there at the time of reading.
pub fn export(store: &Store, run: &str, output: &mut dyn Write) -> Result<(), ExportError> {
    line(output, &run_line(&store.run(run)?))?;
    let mut attempts = store.episodes(run)?.into_iter().peekable();
    while let Some(attempt) = attempts.next() {
        let place = |attempt: &EpisodeSummary| (attempt.episode.task, attempt.episode.sample);
        // Only the last attempt counts.
        if attempts.peek().is_none_or(|next| place(next) != place(&attempt)) {
            export_episode(store, run, &attempt, output)?;
        }
    }
    output.flush()?;
    Ok(())
}

/// Writes the lines of one attempt.
pub fn export_episode(
    store: &Store,
    run: &str,
    attempt: &EpisodeSummary,
    output: &mut dyn Write,
) -> Result<(), ExportError> {
    let place = Place { task: attempt.episode.task, sample: attempt.episode.sample };
    line(output, &episode_line(place, attempt))?;
    let entries = store.entries(run, attempt.episode)?;
    let (mut turns, others): (Vec<_>, Vec<_>) =
        entries.into_iter().map(|entry| entry.body).partition(|body| turn_index(body).is_some());
    turns.sort_by_key(turn_index);
    for turn in &turns {
        line(output, &entry_line(place, 0, turn))?;
    }
    for (position, body) in (0..).zip(&others) {
        line(output, &entry_line(place, position, body))?;
    }
    if let Some(sealed) = store.ending(run, attempt.episode)? {
        line(output, &ending_line(place, &sealed))?;
    }
    for score in &store.scores(run, attempt.episode)? {
        line(output, &score_line(place, score))?;
    }
    Ok(())
}

fn line(output: &mut dyn Write, record: &Line<'_>) -> Result<(), ExportError> {
    serde_json::to_writer(&mut *output, record).map_err(io::Error::from)?;
    output.write_all(b"\n")?;
    Ok(())
}

const fn turn_index(body: &EntryBody) -> Option<u32> {
    match body {
        EntryBody::Turn(turn) => Some(turn.index),
        EntryBody::TurnFailed { index, .. } => Some(*index),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
