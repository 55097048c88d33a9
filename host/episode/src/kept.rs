//! What a recorded episode left behind in its workspace, read back from the trace store.

use std::sync::Arc;

use fulgurite_sandbox::{ChangeKind, Lower, Manifest, Quota, SealError, Sealed, Tree};
use fulgurite_trace::{
    Digest, EpisodeRef, SealedEnding, Store, StoreError,
    file::{FileError, FileKind},
};

/// A recorded workspace cannot be had again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeptError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The attempt did not come to an end.
    #[error("the episode did not come to an end, so nothing of its workspace was recorded")]
    NotEnded,
    /// The record cannot be read.
    #[error("the recorded list of changes cannot be read: {0}")]
    Manifest(#[from] serde_json::Error),
    /// A content is not in the store.
    #[error(
        "the contents of the workspace were not kept: they took more than the run's `keep_files`, \
         or an older version recorded the run"
    )]
    NotKept,
    /// The contents do not fit the list, or the layer below.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The layer below is not the one of the run.
    #[error("the task's workspace has changed since the run")]
    OtherWorkspace,
    /// The sandbox's own storage failed.
    #[error(transparent)]
    Files(#[from] FileError),
}

/// A changed entry of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFile {
    /// From the root, without a leading `/`; never leads out of it.
    pub path: String,
    /// What it is; for removed entries, what it was.
    pub entry: FileKind,
    /// What became of it.
    pub change: KeptChange,
    /// Bytes of the content or of the link's target.
    pub size: u64,
    /// Of the same; `None` for folders.
    pub digest: Option<Digest>,
}

/// What became of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptChange {
    /// It is new.
    Added,
    /// It is another.
    Modified,
    /// It is gone.
    Removed,
}

/// The changed entries of a recorded workspace, sorted by path; their contents are found by
/// digest ([`Store::content`]).
pub fn files(store: &Store, run: &str, episode: EpisodeRef) -> Result<Vec<KeptFile>, KeptError> {
    let ending = store.ending(run, episode)?.ok_or(KeptError::NotEnded)?;
    let Some(manifest) = manifest(&ending)? else { return Ok(Vec::new()) };
    let files = manifest.changes.into_iter().map(|change| KeptFile {
        path: change.path,
        entry: change.entry,
        change: match change.kind {
            ChangeKind::Added => KeptChange::Added,
            ChangeKind::Modified => KeptChange::Modified,
            ChangeKind::Removed => KeptChange::Removed,
        },
        size: change.size,
        digest: change.digest,
    });
    Ok(files.collect())
}

/// The sealed workspace itself, over the task's files.
pub(crate) fn sealed(
    store: &Store,
    ending: &SealedEnding,
    lower: Arc<Lower>,
    quota: Quota,
) -> Result<Sealed, KeptError> {
    let Some(manifest) = manifest(ending)? else {
        let sealed = Tree::new(lower, quota).seal()?;
        return match ending.tree {
            Some(tree) if tree == sealed.manifest().tree => Ok(sealed),
            _ => Err(KeptError::OtherWorkspace),
        };
    };
    if ending.tree != Some(manifest.tree) {
        return Err(SealError::Damaged("its record names another tree").into());
    }
    let find = |digest: &Digest| match store.content(digest) {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => Err(KeptError::NotKept),
        Err(error) => Err(error.into()),
    };
    Sealed::from_contents(&manifest, lower, quota, find)?
}

/// None when nothing was changed.
fn manifest(ending: &SealedEnding) -> Result<Option<Manifest>, KeptError> {
    if ending.changes.is_empty() {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&ending.changes)?))
}
