//! The wasm lane: how a command of a workspace is run.
//!
//! [`Lane::run`] takes one command, either a program with arguments (no shell) or a shell line,
//! and runs it inside one file tree. Nothing of the host is reachable from here: names are looked
//! up among the commands of this crate (`SHELL.md` lists them) and the programs that a
//! [`ProgramRunner`] registers, and nowhere else.
//!
//! What it promises:
//! - *A failing command is a result.* [`LaneError`] means that the lane could not do its work.
//! - *Everything is metered.* Built-in commands and programs spend the same fuel; a command that
//!   used it up ends with status 124 and [`CommandStop::Timeout`]. No clock of the host is read.
//! - *Memory is bounded* by [`CommandLimits`]; a command over a bound ends with status 137 and
//!   [`CommandStop::Memory`] and says which bound it was. Long output is cut, never a failure.
//! - *Same inputs, same result.* The stages of a pipeline run one after another.
//! - *Dropping the future stops the command* at its next pause; what it wrote stays in the tree.
//!
//! [`CommandStop::Timeout`]: fulgurite_trace::CommandStop::Timeout
//! [`CommandStop::Memory`]: fulgurite_trace::CommandStop::Memory

use std::sync::Arc;

use async_trait::async_trait;
use fulgurite_trace::file::FileTree;
use fulgurite_trace::{CommandOutput, CommandRequest, CommandStop};

use crate::shell;

/// Runs registered WASI programs. The lane knows nothing of how.
#[async_trait]
pub trait ProgramRunner: Send + Sync {
    /// Names that can be run, such as `python3`; no name holds a `/`.
    fn programs(&self) -> Vec<String>;

    /// Runs one program to its end, a fresh instance each time. An exit status other than zero, a
    /// trap and a used-up limit are a [`ProgramEnd`]; an error is a failure of the host.
    async fn run(&self, call: ProgramCall) -> Result<ProgramEnd, LaneError>;
}

/// Everything that a program is given.
pub struct ProgramCall {
    /// The registered name.
    pub program: String,
    /// All arguments; the first is the name the program was called by.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// Absolute path of the working folder within the tree, `/` being its root.
    pub cwd: String,
    /// All of standard input.
    pub stdin: Vec<u8>,
    /// The tree that the program sees as `/`.
    pub tree: Arc<dyn FileTree>,
    /// Fuel left to the command; the program may use all of it.
    pub fuel: u64,
    /// Most bytes of linear memories and tables, summed.
    pub memory_bytes: u64,
    /// Where the program's output goes, in the order in which it was written.
    pub output: Arc<dyn ProgramOutput>,
}

/// Takes a program's output. It is safe to write without end: output that nobody keeps is counted
/// and dropped.
pub trait ProgramOutput: Send + Sync {
    /// Takes bytes of standard output.
    fn stdout(&self, bytes: &[u8]) -> OutputState;
    /// Takes bytes of standard error.
    fn stderr(&self, bytes: &[u8]) -> OutputState;
}

/// Whether more output makes sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputState {
    /// More is welcome.
    Open,
    /// A pipe or a file is full. The command will be stopped for it; the runner may end the
    /// program now, or let it write on into nothing.
    Full,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramEnd {
    /// Its exit status; any value when `stop` is set.
    pub status: i32,
    /// Set when it did not end by itself.
    pub stop: Option<CommandStop>,
    /// Fuel it used.
    pub fuel_used: u64,
}

/// The bounds of one command. Every number is a cap; requests may ask for less, never for more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLimits {
    /// Fuel of the whole command, all its stages and programs together.
    pub fuel: u64,
    /// Fuel that stands for one millisecond of the command's own clock: turns a wished timeout
    /// into fuel, and `sleep` into a charge.
    pub fuel_per_millisecond: u64,
    /// Memory of one program.
    pub program_memory_bytes: u64,
    /// Bytes in a pipe, in `$(…)`, or of a file that a command must hold as a whole.
    pub buffer_bytes: usize,
    /// Bytes of all variables and arguments together.
    pub variable_bytes: usize,
    /// Kept bytes of each output stream, head and tail.
    pub output_bytes: usize,
    /// What `date` shows before any `sleep`: seconds since 1970.
    pub clock_seconds: u64,
}

impl Default for CommandLimits {
    fn default() -> Self {
        Self {
            fuel: 30_000_000_000,
            fuel_per_millisecond: 1_000_000,
            program_memory_bytes: 512 << 20,
            buffer_bytes: 32 << 20,
            variable_bytes: 2 << 20,
            output_bytes: 64 << 10,
            clock_seconds: 1_767_225_600,
        }
    }
}

/// Why the lane could not do its work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaneError {
    /// The request makes no sense; the caller has to change it.
    #[error("the command cannot be run: {0}")]
    Invalid(String),
    /// A program's runner failed.
    #[error("the program `{program}` could not be run: {reason}")]
    Program {
        /// Its registered name.
        program: String,
        /// What the runner said.
        reason: String,
    },
    /// The episode was cancelled while the command ran.
    #[error("the command was cancelled")]
    Cancelled,
}

/// No program at all: a lane of built-in commands.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPrograms;

#[async_trait]
impl ProgramRunner for NoPrograms {
    fn programs(&self) -> Vec<String> {
        Vec::new()
    }

    async fn run(&self, call: ProgramCall) -> Result<ProgramEnd, LaneError> {
        Err(LaneError::Program {
            program: call.program,
            reason: "no programs are registered in this lane".to_owned(),
        })
    }
}

/// The way commands are run. Cheap to clone; holds no state of any command.
#[derive(Clone)]
pub struct Lane {
    runner: Arc<dyn ProgramRunner>,
}

impl Lane {
    /// A lane whose programs are those of `runner`.
    pub fn new(runner: Arc<dyn ProgramRunner>) -> Self {
        Self { runner }
    }

    /// The names of all commands and programs that exist, sorted, each once.
    pub fn programs(&self) -> Vec<String> {
        let mut names = self.runner.programs();
        names.extend(crate::commands::names().map(str::to_owned));
        names.sort();
        names.dedup();
        names
    }

    /// Runs one command to its end within `tree`. The fuel it used is in the output's metadata
    /// under `fuel`.
    pub async fn run(
        &self,
        request: &CommandRequest,
        tree: Arc<dyn FileTree>,
        limits: &CommandLimits,
    ) -> Result<CommandOutput, LaneError> {
        shell::run(Arc::clone(&self.runner), request, tree, limits).await
    }
}
