//! Scores, descriptions and failures: methods on the contract's own types.

use super::{Component, Description, ExecError, Failure, GraderError, ReadError, Score, TurnValue};
use crate::Metadata;

impl Description {
    /// A reward of this name and version. The schema of its configuration is filled in by the
    /// export macro.
    pub fn new(name: &str, version: &str) -> Self {
        Self { name: name.to_string(), version: version.to_string(), config_schema: String::new() }
    }
}

impl Score {
    /// A score without parts. It must be finite.
    pub fn new(total: f64) -> Self {
        Self { total, components: Vec::new(), turns: Vec::new(), notes: Metadata::new() }
    }

    /// Adds a named part, for people and metrics; the total stays as it is.
    pub fn component(mut self, name: &str, value: f64) -> Self {
        self.components.push(Component { name: name.to_string(), value });
        self
    }

    /// Gives one turn a value.
    pub fn turn(mut self, turn: u32, value: f64) -> Self {
        self.turns.push(TurnValue { turn, value });
        self
    }

    /// Adds a note.
    pub fn note(mut self, name: &str, value: impl Into<String>) -> Self {
        self.notes.push((name.to_string(), value.into()));
        self
    }
}

/// 1 for true, 0 for false.
impl From<bool> for Score {
    fn from(passed: bool) -> Self {
        Self::new(if passed { 1.0 } else { 0.0 })
    }
}

impl From<f64> for Score {
    fn from(total: f64) -> Self {
        Self::new(total)
    }
}

impl Failure {
    /// An alarm for the owner of the run.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

impl From<GraderError> for Failure {
    fn from(error: GraderError) -> Self {
        Self::new(match error {
            GraderError::BadPath => {
                "a path is not relative, leaves the sandbox or passes through a link".to_string()
            }
            GraderError::Quota => "the grading sandbox is full".to_string(),
            GraderError::NotFound => "a file of the grading sandbox is missing".to_string(),
            GraderError::Other((code, text)) => format!("grading sandbox, error {code}: {text}"),
        })
    }
}

impl From<ExecError> for Failure {
    fn from(error: ExecError) -> Self {
        Self::new(format!("a grading command could not run: {}", error.explain()))
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::new(match error {
            ReadError::NotFound => "a file of the workspace is missing",
            ReadError::NotAFile => "something in the workspace is not a file",
            ReadError::TooLarge => "a file of the workspace is too large",
        })
    }
}
