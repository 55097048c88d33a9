//! A finished episode, as its rewards read it.

use std::sync::Arc;

use async_trait::async_trait;
use fulgurite_runtime::capability::{
    Change, ChangeKind, EpisodeView, GradedTask, ReadError, TurnsUnreadable,
};
use fulgurite_sandbox::{ChangeKind as SealedKind, Sealed};
use fulgurite_trace::{Ending, EntryBody, EpisodeRef, Store, Task, Turn, file::FileError};
use tokio::sync::OnceCell;

/// Most bytes of one read.
const READ_LIMIT: u32 = 4 << 20;

/// Where the turns are read from when a reward asks for them: they are durable by then, and few
/// rewards do ask.
pub(crate) struct Turns {
    pub(crate) source: Option<(Store, String, EpisodeRef)>,
    pub(crate) count: u32,
    pub(crate) read: OnceCell<Vec<Arc<Turn>>>,
}

impl Turns {
    async fn all(&self) -> Result<&[Arc<Turn>], TurnsUnreadable> {
        self.read.get_or_try_init(|| self.load()).await.map(Vec::as_slice)
    }

    async fn load(&self) -> Result<Vec<Arc<Turn>>, TurnsUnreadable> {
        let Some((store, run, episode)) = self.source.clone() else { return Ok(Vec::new()) };
        let entries = tokio::task::spawn_blocking(move || store.entries(&run, episode)).await;
        let entries = entries.map_err(|error| unreadable(&error))?;
        let mut turns: Vec<_> = entries
            .map_err(|error| unreadable(&error))?
            .into_iter()
            .filter_map(|entry| match entry.body {
                EntryBody::Turn(turn) => Some(Arc::from(turn)),
                _ => None,
            })
            .collect();
        turns.sort_by_key(|turn: &Arc<Turn>| turn.index);
        Ok(turns)
    }
}

fn unreadable(error: &dyn std::fmt::Display) -> TurnsUnreadable {
    tracing::error!(%error, "the turns of a recorded episode cannot be read");
    TurnsUnreadable
}

/// One finished episode.
pub(crate) struct View {
    pub(crate) task: Arc<Task>,
    pub(crate) ending: Ending,
    pub(crate) sealed: Sealed,
    pub(crate) turns: Turns,
}

#[async_trait]
impl EpisodeView for View {
    fn task(&self) -> GradedTask {
        GradedTask {
            id: self.task.id.clone(),
            input: self.task.input.clone(),
            metadata: self.task.metadata.clone(),
            grading: serde_json::Value::Object(self.task.grading.clone()).to_string(),
        }
    }

    fn ending(&self) -> Ending {
        self.ending.clone()
    }

    fn turn_count(&self) -> u32 {
        self.turns.count
    }

    async fn turns(&self, start: u32, count: u32) -> Result<Vec<Arc<Turn>>, TurnsUnreadable> {
        let all = self.turns.all().await?;
        Ok(all.iter().skip(start as usize).take(count as usize).cloned().collect())
    }

    fn change_count(&self) -> u32 {
        u32::try_from(self.sealed.manifest().changes.len()).unwrap_or(u32::MAX)
    }

    fn changes(&self, start: u32, count: u32) -> Vec<Change> {
        let changes = &self.sealed.manifest().changes;
        let chosen = changes.iter().skip(start as usize).take(count as usize);
        chosen
            .map(|change| Change {
                path: change.path.clone(),
                kind: match change.kind {
                    SealedKind::Added => ChangeKind::Added(change.entry),
                    SealedKind::Modified => ChangeKind::Modified(change.entry),
                    SealedKind::Removed => ChangeKind::Removed,
                },
                size: change.size,
            })
            .collect()
    }

    fn read_file(&self, path: &str, offset: u64, length: u32) -> Result<Vec<u8>, ReadError> {
        if length > READ_LIMIT {
            return Err(ReadError::TooLarge);
        }
        self.sealed.read(path, offset, length.into()).map_err(|error| match error {
            FileError::IsDirectory | FileError::Invalid => ReadError::NotAFile,
            _ => ReadError::NotFound,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn turns_that_cannot_be_read_are_an_error_and_not_an_episode_without_any() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("trace.db")).unwrap();
        let episode = EpisodeRef { task: 0, sample: 0, attempt: 0 };
        let source = Some((store, "a-run-that-is-gone".to_owned(), episode));
        let turns = Turns { source, count: 1, read: OnceCell::new() };
        assert!(turns.all().await.is_err());
        let unrecorded = Turns { source: None, count: 0, read: OnceCell::new() };
        assert!(unrecorded.all().await.unwrap().is_empty());
    }
}
