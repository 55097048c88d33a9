//! Sandboxes to grade in.

use super::{Base, Command, ExecError, GraderError, Output};
use crate::bindings::reward::fulgurite::plugin::grader;

/// A fresh tree. Programs in it reach nothing but the tree and their standard streams.
#[derive(Debug)]
pub struct Sandbox {
    inner: grader::Sandbox,
}

impl Sandbox {
    /// Makes one: empty, the task's workspace as it was, or as the episode left it.
    pub fn open(base: Base) -> Result<Self, GraderError> {
        Ok(Self { inner: grader::Sandbox::open(base)? })
    }

    /// Lays down a file. Whatever the episode left at the path is removed first; no link is
    /// followed, neither at the path nor on the way to it.
    pub fn put_file(&self, path: &str, contents: &[u8]) -> Result<(), GraderError> {
        self.inner.put_file(path, contents)
    }

    /// Reads a file of at most `limit` bytes.
    pub fn read_file(&self, path: &str, limit: u32) -> Result<Vec<u8>, GraderError> {
        self.inner.read_file(path, limit)
    }

    /// Removes a file or folder.
    pub fn remove(&self, path: &str) -> Result<(), GraderError> {
        self.inner.remove(path)
    }

    /// Runs a command. One that fails is an `Ok` with its status.
    pub fn run(&self, command: Command) -> Result<Output, ExecError> {
        self.inner.run(&command.into_request())
    }
}

/// Runs two commands at once, each in its own sandbox, each reading what the other writes. Only
/// bytes cross, which is how to test code that must not reach its test.
///
/// ```no_run
/// # use fulgurite_sdk::reward::*;
/// # fn grade() -> Result<bool, Failure> {
/// let (tests, work) = (Sandbox::open(Base::Empty)?, Sandbox::open(Base::Changed)?);
/// tests.put_file("ask.py", b"print(20, flush=True)\nassert input() == '40'")?;
/// let (ask, _) = run_connected(
///     (&tests, Command::argv(["python", "-I", "ask.py"])),
///     (&work, Command::argv(["python", "-I", "double.py"])),
/// )?;
/// # Ok(ask.success()) }
/// ```
pub fn run_connected(
    left: (&Sandbox, Command),
    right: (&Sandbox, Command),
) -> Result<(Output, Output), ExecError> {
    grader::run_connected(
        &left.0.inner,
        &left.1.into_request(),
        &right.0.inner,
        &right.1.into_request(),
    )
}
