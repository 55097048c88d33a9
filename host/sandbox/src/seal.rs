//! What an episode left behind: the changes against its lower layer, and their contents.

use std::sync::Arc;

use fulgurite_trace::{
    Digest,
    file::{FileError, FileKind},
};
use serde::{Deserialize, Serialize};

use crate::tree::{Lower, Quota, Snapshot, Tree};

/// How an entry differs from the lower layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// It was not there.
    Added,
    /// It was there with another content or of another kind.
    Modified,
    /// It is gone.
    Removed,
}

/// One changed entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// From the root, without a leading `/`.
    pub path: String,
    /// How it differs.
    pub kind: ChangeKind,
    /// What it is; for removed entries, what it was.
    pub entry: FileKind,
    /// Bytes of the content or link target; 0 for folders.
    pub size: u64,
    /// SHA-256 of the content or link target; `None` for folders.
    pub digest: Option<Digest>,
}

/// The list of changes with the digests it stands between.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Of the lower layer.
    pub lower: Digest,
    /// Of the tree afterwards.
    pub tree: Digest,
    /// Sorted by path.
    pub changes: Vec<Change>,
}

/// A sealed upper layer could not be read or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {}

/// What an episode left behind. Immutable.
#[derive(Debug, Clone)]
pub struct Sealed {
    manifest: Arc<Manifest>,
}

#[allow(unused_variables)]
impl Sealed {
    pub(crate) fn stub() -> Self {
        let manifest =
            Manifest { lower: Digest::of(b""), tree: Digest::of(b""), changes: Vec::new() };
        Self { manifest: Arc::new(manifest) }
    }
    /// The changes.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }
    /// The whole tree as it was sealed.
    pub fn snapshot(&self) -> Option<Snapshot> {
        None
    }
    /// At most `length` bytes of a file of the sealed tree; links are not followed.
    pub fn read(&self, path: &str, offset: u64, length: u64) -> Result<Vec<u8>, FileError> {
        Err(FileError::Unsupported)
    }
    /// A new tree: the lower layer with the changes made to it.
    pub fn tree(&self, quota: Quota) -> Result<Tree, SealError> {
        Ok(Tree::new(Lower::empty(), quota))
    }
    /// Makes the changes in another tree, following nothing.
    pub fn apply_to(&self, tree: &Tree) -> Result<(), SealError> {
        Ok(())
    }
    /// The compact form for a store.
    pub fn to_bytes(&self) -> Result<Vec<u8>, SealError> {
        Ok(Vec::new())
    }
    /// Reads what [`Sealed::to_bytes`] wrote, over the same lower layer.
    pub fn from_bytes(bytes: &[u8], lower: Arc<Lower>, quota: Quota) -> Result<Self, SealError> {
        Ok(Self::stub())
    }
}
