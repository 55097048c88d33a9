//! The layered workspace tree: an immutable lower layer that all episodes of a task family
//! share, and what one episode made of it.
//!
//! What it promises:
//! - Paths resolve as POSIX resolves them, and never leave the tree: `..` at the root, absolute
//!   link targets and targets that lead out are [`NotPermitted`](FileError::NotPermitted).
//! - An operation that fails has changed nothing. Only a failing disk can stop a write half-way.
//! - The [`Quota`] is exact, whatever the order of operations.
//! - Listings are sorted; times are logical: they start at one fixed moment, each change moves
//!   them on by one second, reading does not. Nothing of the host shows.
//! - [`Tree::snapshot`], [`Tree::fork`] and a new tree over a lower layer copy pointers. What is
//!   shared is copied when written to, 64 KiB of a file at most at a time.
//! - The [digest](Tree::digest) covers names, kinds, contents and link targets: not times, and
//!   not which names are hard links of one file. It is remembered for whatever does not change.
//!
//! There are no owners, permissions, devices or extended attributes. All paths are UTF-8.

mod content;
mod export;
mod files;
mod handles;
mod import;
pub(crate) mod lay_down;
mod layer;
mod lower;
mod node;
mod paths;
mod quota;
mod resolve;
mod serve;
mod snapshot;
mod spill;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fulgurite_trace::{Digest, file::FileError};

use handles::Handles;
use state::State;

pub use export::{ExportError, Exported};
pub use lower::{Lower, LowerError};
pub use quota::{Quota, Usage};
pub use snapshot::Snapshot;
pub use spill::Spill;

pub(crate) use content::{Content, Room};
pub(crate) use layer::Layer;
pub(crate) use node::{Body, Entry, Inode, ROOT};
pub(crate) use quota::MAX_HOST_PATH_BYTES;
pub(crate) use snapshot::join;

/// One episode's workspace.
///
/// Guests use it through [`FileTree`](fulgurite_trace::file::FileTree). The inherent methods are
/// for the host: their paths start at the root, with or without a leading `/`, and follow links
/// within the tree unless they say otherwise.
#[derive(Debug)]
pub struct Tree {
    lower: Arc<Lower>,
    quota: Quota,
    state: Mutex<State>,
}

impl Tree {
    /// A tree that holds what `lower` holds, with the process's own [`Spill`].
    pub fn new(lower: Arc<Lower>, quota: Quota) -> Self {
        Self::with_spill(lower, quota, Spill::shared())
    }

    /// A tree that holds what `lower` holds.
    pub fn with_spill(lower: Arc<Lower>, quota: Quota, spill: Arc<Spill>) -> Self {
        let layer = lower.layer().clone();
        Self::over(lower, layer, quota, spill)
    }

    /// A tree that holds what a snapshot holds. What the snapshot used of its quota counts; a
    /// tree may start beyond its quota, and then cannot grow.
    pub fn from_snapshot(snapshot: Snapshot, quota: Quota) -> Self {
        Self::over(snapshot.lower, snapshot.layer, quota, Spill::shared())
    }

    fn over(lower: Arc<Lower>, layer: Layer, quota: Quota, spill: Arc<Spill>) -> Self {
        let quota = quota.bounded();
        let state = State { layer: layer.begin(), handles: Handles::default(), quota, spill };
        Self { lower, quota, state: Mutex::new(state) }
    }

    /// The same tree, whose quota of names and bytes begins at what it uses by now.
    pub(crate) fn with_room_on_top(mut self) -> Self {
        let used = self.usage();
        self.quota.bytes = self.quota.bytes.saturating_add(used.bytes);
        self.quota.files = self.quota.files.saturating_add(used.files);
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.quota = self.quota;
        self
    }

    /// Everything behind the lock. A panic elsewhere while it was held cannot be told from here;
    /// no operation of this module panics.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The layer below.
    pub fn lower(&self) -> &Arc<Lower> {
        &self.lower
    }

    /// What it may grow to.
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// What it uses of that.
    pub fn usage(&self) -> Usage {
        let state = self.state();
        Usage {
            bytes: state.layer.charged_bytes,
            files: state.layer.charged_names,
            handles: state.handles.len(),
            memory_bytes: state.layer.resident,
        }
    }

    /// This moment's content. Files that were removed and are only held open are not in it.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { lower: Arc::clone(&self.lower), layer: self.state().detached_layer() }
    }

    /// An independent tree with the same content and quota and no open handles.
    pub fn fork(&self) -> Self {
        let mut state = self.state();
        let (layer, spill) = (state.detached_layer(), Arc::clone(&state.spill));
        drop(state);
        Self::over(Arc::clone(&self.lower), layer, self.quota, spill)
    }

    /// The digest of everything; as of [`Lower::digest`] when nothing changed. Fails only when
    /// spilled contents cannot be read.
    pub fn digest(&self) -> Result<Digest, FileError> {
        // Hashing goes on beside other operations; what it finds out is remembered in the nodes,
        // which this copy shares.
        let layer = self.state().layer.share();
        layer.root_digest()
    }

    /// The changes against the lower layer, and this moment's content. Fails only when spilled
    /// contents cannot be read.
    pub fn seal(&self) -> Result<crate::Sealed, FileError> {
        crate::Sealed::of(self.snapshot())
    }
}
