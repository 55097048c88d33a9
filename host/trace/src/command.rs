//! Commands inside a workspace, as in `wit/capabilities.wit`.

use serde::{Deserialize, Serialize};

use crate::Metadata;

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandLine {
    /// A program and its arguments, taken literally.
    Argv(Vec<String>),
    /// A shell line in the documented subset.
    Line(String),
}

/// One command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandRequest {
    /// What to run.
    pub command: CommandLine,
    /// Absolute, or relative to the workspace root; default: the root.
    pub cwd: Option<String>,
    /// The whole environment; nothing is inherited.
    pub env: Vec<(String, String)>,
    /// Standard input.
    pub stdin: Vec<u8>,
    /// A wish, capped by the run's limits. Milliseconds of the command's own clock.
    pub timeout_ms: Option<u32>,
    /// A wish for the cap of each output stream, in bytes.
    pub output_bytes: Option<u32>,
    /// Room for growth.
    pub metadata: Metadata,
}

impl CommandRequest {
    /// A shell line with every other field at its default.
    pub fn line(line: impl Into<String>) -> Self {
        Self::new(CommandLine::Line(line.into()))
    }

    /// A program with arguments and every other field at its default.
    pub fn argv<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self::new(CommandLine::Argv(argv.into_iter().map(Into::into).collect()))
    }

    fn new(command: CommandLine) -> Self {
        Self {
            command,
            cwd: None,
            env: Vec::new(),
            stdin: Vec::new(),
            timeout_ms: None,
            output_bytes: None,
            metadata: Metadata::new(),
        }
    }
}

/// Output that was kept, head and tail.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Captured {
    /// The kept bytes; when output was cut, a note stands between head and tail.
    pub bytes: Vec<u8>,
    /// Bytes written in all.
    pub total: u64,
}

/// Why a command ended other than by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandStop {
    /// Fuel or time. Status 124.
    Timeout,
    /// Memory. Status 137.
    Memory,
    /// Any other trap. Status 134.
    Trap,
}

/// How a command ended. A failing command is a result, never an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandOutput {
    /// Exit status.
    pub status: i32,
    /// Set when the command did not end by itself.
    pub stopped: Option<CommandStop>,
    /// Standard output.
    pub stdout: Captured,
    /// Standard error.
    pub stderr: Captured,
    /// Room for growth.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metadata: Metadata,
}
