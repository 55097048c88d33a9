//! What a reward sees and works with: the finished episode, and sandboxes to grade it in.

use std::sync::Arc;

use async_trait::async_trait;
use fulgurite_trace::{CommandOutput, CommandRequest, Ending, Metadata, Turn, file::FileKind};

use super::ExecError;
use crate::clock::EpisodeClock;

/// The task as graders see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GradedTask {
    /// Its id.
    pub id: String,
    /// What the agent was asked.
    pub input: String,
    /// Room for growth.
    pub metadata: Metadata,
    /// Hidden grading data, a JSON object as text.
    pub grading: String,
}

/// What became of an entry of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Added(FileKind),
    /// It was there and differs.
    Modified(FileKind),
    /// It is gone.
    Removed,
}

/// One change of the sealed workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Relative path.
    pub path: String,
    /// What became of it.
    pub kind: ChangeKind,
    /// Bytes of the entry now.
    pub size: u64,
}

/// Why a file of the sealed workspace cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No such entry, or a link on the way.
    #[error("no such file")]
    NotFound,
    /// Not a regular file.
    #[error("not a regular file")]
    NotAFile,
    /// More was asked for than is given at once.
    #[error("too large")]
    TooLarge,
}

/// The recorded turns of an episode cannot be read. The host's failure, of which no score must
/// come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the recorded turns of the episode cannot be read")]
pub struct TurnsUnreadable;

/// A finished episode, as a reward reads it.
#[async_trait]
pub trait EpisodeView: Send + Sync {
    /// The task, hidden part included.
    fn task(&self) -> GradedTask;
    /// How the episode ended.
    fn ending(&self) -> Ending;
    /// How many turns there are.
    fn turn_count(&self) -> u32;
    /// The turns from `start` on, at most `count` (which this room keeps small).
    async fn turns(&self, start: u32, count: u32) -> Result<Vec<Arc<Turn>>, TurnsUnreadable>;
    /// How many changes there are.
    fn change_count(&self) -> u32;
    /// The changes from `start` on, sorted by path, at most `count` (which this room keeps small).
    fn changes(&self, start: u32, count: u32) -> Vec<Change>;
    /// Bytes of a file of the sealed workspace; no link is followed.
    fn read_file(&self, path: &str, offset: u64, length: u32) -> Result<Vec<u8>, ReadError>;
}

/// What a grading sandbox starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraderBase {
    /// Nothing.
    Empty,
    /// The task's workspace as it was.
    Pristine,
    /// With the episode's changes on top.
    Changed,
}

/// Why an operation on a grading sandbox failed, as `grader-error` of the contract.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraderError {
    /// The path is not relative, leaves the tree or passes through a link.
    #[error("bad path")]
    BadPath,
    /// A quota (also of open sandboxes) is used up.
    #[error("quota")]
    Quota,
    /// No such entry.
    #[error("not found")]
    NotFound,
    /// A code of a later minor version.
    #[error("error {0}: {1}")]
    Other(u32, String),
}

/// Names an open grading sandbox of one [`GraderHost`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SandboxId(pub u32);

/// Sandboxes to grade one episode in. Unknown ids never come in; a sandbox is open until
/// [`GraderHost::close`] or until the host is dropped.
#[async_trait]
pub trait GraderHost: Send + Sync {
    /// Opens a fresh tree.
    async fn open(&self, base: GraderBase) -> Result<SandboxId, GraderError>;
    /// Gives one back.
    fn close(&self, sandbox: SandboxId);
    /// Lays down a file; see `grader` of the contract for what is promised.
    fn put_file(
        &self,
        sandbox: SandboxId,
        path: &str,
        contents: Vec<u8>,
    ) -> Result<(), GraderError>;
    /// At most `limit` bytes of a file.
    fn read_file(&self, sandbox: SandboxId, path: &str, limit: u32)
    -> Result<Vec<u8>, GraderError>;
    /// Removes a file, link or folder.
    fn remove(&self, sandbox: SandboxId, path: &str) -> Result<(), GraderError>;
    /// Runs a command to its end; `clock` as in [`super::ExecHost::run`].
    async fn run(
        &self,
        sandbox: SandboxId,
        request: CommandRequest,
        clock: &EpisodeClock,
    ) -> Result<CommandOutput, ExecError>;
    /// Runs two programs with their standard streams connected crosswise.
    async fn run_connected(
        &self,
        left: (SandboxId, CommandRequest),
        right: (SandboxId, CommandRequest),
        clock: &EpisodeClock,
    ) -> Result<(CommandOutput, CommandOutput), ExecError>;
}
