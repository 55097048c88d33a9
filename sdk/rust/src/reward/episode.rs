//! The finished episode.

use serde::de::DeserializeOwned;

use super::{ChangeEntry, Ending, Failure, GradedTask, ReadError, Turn};
use crate::bindings::reward::fulgurite::plugin::episode;

/// How many turns or changes one call to the host asks for.
const PAGE: u32 = 64;
/// How many bytes of a file one call to the host asks for.
const CHUNK: u32 = 256 * 1024;

/// The episode to score: a window on records that the host keeps.
#[derive(Debug)]
pub struct Episode {
    _only_the_export_makes_one: (),
}

impl Episode {
    pub(super) fn current() -> Self {
        Self { _only_the_export_makes_one: () }
    }

    /// The task, hidden part included.
    pub fn task(&self) -> GradedTask {
        episode::task()
    }

    /// The hidden grading data as a typed value. Data that does not fit is a mistake in the task
    /// file, so the error is fit for `?`.
    pub fn grading<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let task = episode::task();
        serde_json::from_str(&task.grading).map_err(|error| {
            Failure::new(format!("the grading data of task {} does not fit: {error}", task.id))
        })
    }

    /// How the episode ended.
    pub fn ending(&self) -> Ending {
        episode::ending()
    }

    /// How many turns there are.
    pub fn turn_count(&self) -> u32 {
        episode::turn_count()
    }

    /// The turns, in order, read page by page.
    pub fn turns(&self) -> impl Iterator<Item = Turn> {
        pages(episode::turns)
    }

    /// Changes of the sealed workspace, sorted by path, read page by page.
    pub fn changes(&self) -> impl Iterator<Item = ChangeEntry> {
        pages(episode::changes)
    }

    /// A file of the sealed workspace, whole. No link is followed. A file of more than `limit`
    /// bytes is [`ReadError::TooLarge`].
    pub fn read_file(&self, path: &str, limit: usize) -> Result<Vec<u8>, ReadError> {
        let mut contents = Vec::new();
        loop {
            let chunk = episode::read_file(path, contents.len() as u64, CHUNK)?;
            if chunk.is_empty() {
                return Ok(contents);
            }
            if contents.len() + chunk.len() > limit {
                return Err(ReadError::TooLarge);
            }
            contents.extend_from_slice(&chunk);
        }
    }
}

/// Reads a paged list to its end. A page may be shorter than asked for; only an empty one ends.
fn pages<T>(mut page: impl FnMut(u32, u32) -> Vec<T>) -> impl Iterator<Item = T> {
    let mut next = 0u32;
    std::iter::from_fn(move || {
        let items = page(next, PAGE);
        next = next.saturating_add(items.len() as u32);
        (!items.is_empty()).then_some(items)
    })
    .flatten()
}

#[cfg(test)]
mod tests {
    #[test]
    fn short_pages_do_not_end_the_list() {
        let all: Vec<u32> = (0..10).collect();
        let read: Vec<u32> =
            super::pages(|start, _| all.iter().skip(start as usize).take(3).copied().collect())
                .collect();
        assert_eq!(read, all);
    }
}
