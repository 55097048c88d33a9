//! A task's workspace, the shell line and the lanes commands run in.

pub mod seal;
pub mod tree;

pub use seal::{Change, ChangeKind, Manifest, Sealed};
pub use tree::{Lower, Quota, Snapshot, Spill, Tree, Usage};
