//! What an episode left behind: its changes against the lower layer, and their contents.
//!
//! A sealed tree is immutable and read without following links. Its manifest lists every entry
//! that differs; its bytes ([`Sealed::to_bytes`]) hold what the lower layer does not, and are
//! read back only over the same lower layer and only when they give the same tree again. A store
//! that keeps each content once has the manifest and [`Sealed::contents`] instead, and
//! [`Sealed::from_contents`] puts them together again.
//! Hard links become files of their own in the bytes and in [`Sealed::tree`].

mod bytes;
mod contents;
mod difference;

use std::sync::Arc;

use fulgurite_trace::{
    Digest,
    file::{FileError, FileKind},
};
use serde::{Deserialize, Serialize};

use crate::tree::{
    Body, Lower, Quota, Snapshot, Tree,
    lay_down::{Placed, Placement},
};

/// How an entry differs from the lower layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// It was not there.
    Added,
    /// It was there with another content, or was something else.
    Modified,
    /// It is gone.
    Removed,
}

/// One changed entry. A folder is listed when it is new, gone, or was something else; not when
/// only something in it changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// From the root, without a leading `/`.
    pub path: String,
    /// How it differs.
    pub kind: ChangeKind,
    /// What it is; for removed entries, what it was.
    pub entry: FileKind,
    /// Bytes of the content or of the link's target (what they were for removed entries); 0 for
    /// folders.
    pub size: u64,
    /// SHA-256 of the same; `None` for folders.
    pub digest: Option<Digest>,
}

/// The list of changes, and the digests it stands between.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Of the lower layer.
    pub lower: Digest,
    /// Of the tree as it was sealed.
    pub tree: Digest,
    /// Sorted by path. Folders stand before what they hold.
    pub changes: Vec<Change>,
}

/// A sealed tree could not be written, read or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The bytes are not a sealed tree, or are damaged.
    #[error(
        "the sealed tree is damaged: {0}; restore its store from a backup or run the episode again"
    )]
    Damaged(&'static str),
    /// It belongs to another lower layer.
    #[error(
        "the sealed tree stands on the files {expected}, not on {given}: the task's workspace has \
         changed since"
    )]
    OtherLower {
        /// Of the lower layer it was made over.
        expected: Digest,
        /// Of the lower layer it was given.
        given: Digest,
    },
    /// It is larger than the quota it was to be read under.
    #[error(
        "the sealed tree exceeds the quota of {limit} {what}; read it under the quota it was made with"
    )]
    TooLarge {
        /// Of what there is too much.
        what: &'static str,
        /// How much is allowed.
        limit: u64,
    },
    /// A change does not fit into the tree it is made in.
    #[error("the sealed change of `{path}` cannot be made")]
    Apply {
        /// From the root.
        path: String,
        /// Why.
        source: FileError,
    },
    /// The sealed contents cannot be read from the spill file.
    #[error("the sealed tree cannot be read; is the disk of the spill file in order?")]
    Contents(#[from] FileError),
}

/// What an episode left behind. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Sealed {
    manifest: Arc<Manifest>,
    snapshot: Snapshot,
}

impl Sealed {
    pub(crate) fn of(snapshot: Snapshot) -> Result<Self, FileError> {
        let tree = snapshot.digest()?;
        let lower = snapshot.lower.digest();
        let changes = difference::between(snapshot.lower.layer(), &snapshot.layer)?;
        Ok(Self { manifest: Arc::new(Manifest { lower, tree, changes }), snapshot })
    }

    /// The changes.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The tree as it was sealed.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The layer below.
    pub fn lower(&self) -> &Arc<Lower> {
        &self.snapshot.lower
    }

    /// At most `length` bytes of a file of the sealed tree from `offset`, as
    /// [`Snapshot::read`].
    pub fn read(&self, path: &str, offset: u64, length: u64) -> Result<Vec<u8>, FileError> {
        self.snapshot.read(path, offset, length)
    }

    /// A new tree for a grader: the lower layer with the changes made to it. It is the same
    /// whether this came from a live tree or from its bytes.
    ///
    /// `room` is what the grader may add: its names and bytes come on top of what the changes use,
    /// so that an episode that filled its workspace leaves a grader no less room than any other.
    pub fn tree(&self, room: Quota) -> Result<Tree, SealError> {
        let tree = Tree::new(Arc::clone(&self.snapshot.lower), room);
        self.apply_to(&tree)?;
        Ok(tree.with_room_on_top())
    }

    /// Makes the changes in a tree, following nothing: what stands in the way is removed. The
    /// quota of names and bytes is not asked, that of depth is.
    pub fn apply_to(&self, tree: &Tree) -> Result<(), SealError> {
        let placed = self.placed()?;
        tree.place_all(placed).map_err(|(path, source)| SealError::Apply { path, source })
    }

    /// The changes in an order in which they can be made: first what goes, from below.
    fn placed(&self) -> Result<Vec<Placed>, FileError> {
        let (removed, made): (Vec<_>, Vec<_>) =
            self.manifest.changes.iter().partition(|change| change.kind == ChangeKind::Removed);
        let removed = removed
            .into_iter()
            .rev()
            .map(|change| Ok(Placed { path: change.path.clone(), what: Placement::Nothing }));
        let made = made.into_iter().map(|change| {
            let layer = &self.snapshot.layer;
            let what = match &layer.node(layer.find_unfollowed(&change.path)?)?.body {
                Body::File(content) => Placement::File(content.clone()),
                Body::Folder(_) => Placement::Folder,
                Body::Link(target) => Placement::Link(Arc::clone(target)),
            };
            Ok(Placed { path: change.path.clone(), what })
        });
        removed.chain(made).collect()
    }
}
