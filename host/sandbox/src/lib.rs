//! A task's workspace, the shell line and the lanes commands run in.

mod commands;
pub mod lane;
pub mod seal;
mod shell;
pub mod tree;

pub use lane::{
    CommandLimits, Lane, LaneError, NoPrograms, OutputState, ProgramCall, ProgramEnd,
    ProgramOutput, ProgramRunner,
};
pub use seal::{Change, ChangeKind, Manifest, SealError, Sealed};
pub use tree::{ExportError, Exported, Lower, LowerError, Quota, Snapshot, Spill, Tree, Usage};
