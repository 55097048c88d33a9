//! Commands: a builder over the contract's request, and methods on its output.

use crate::Metadata;
use crate::bindings::harness::fulgurite::plugin::commands::{self, Output, Request};
use crate::text::clip;

/// A command to run, in a workspace or in a grading sandbox.
#[derive(Debug, Clone)]
pub struct Command {
    request: Request,
}

impl Command {
    /// A shell line, in the documented subset of the shell.
    pub fn line(line: impl Into<String>) -> Self {
        Self::new(commands::Command::Line(line.into()))
    }

    /// A program and its arguments, taken literally.
    pub fn argv<I, S>(argv: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<String>,
    {
        Self::new(commands::Command::Argv(argv.into_iter().map(Into::into).collect()))
    }

    fn new(command: commands::Command) -> Self {
        Self {
            request: Request {
                command,
                cwd: None,
                env: Vec::new(),
                stdin: Vec::new(),
                timeout_ms: None,
                output_bytes: None,
                metadata: Metadata::new(),
            },
        }
    }

    /// The directory to run in; the workspace root otherwise.
    pub fn cwd(mut self, directory: impl Into<String>) -> Self {
        self.request.cwd = Some(directory.into());
        self
    }

    /// Sets a variable. Nothing is inherited.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.request.env.push((name.into(), value.into()));
        self
    }

    /// What the command reads on its standard input.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.request.stdin = bytes.into();
        self
    }

    /// Stops the command after this long. The run's limits cap it.
    pub fn timeout_ms(mut self, milliseconds: u32) -> Self {
        self.request.timeout_ms = Some(milliseconds);
        self
    }

    /// How much of its output to keep. The run's limits cap it.
    pub fn output_bytes(mut self, bytes: u32) -> Self {
        self.request.output_bytes = Some(bytes);
        self
    }

    /// The request as the contract has it.
    pub fn into_request(self) -> Request {
        self.request
    }
}

impl Output {
    /// Whether the command ended by itself with status 0.
    pub fn success(&self) -> bool {
        self.status == 0 && self.stopped.is_none()
    }

    /// Standard output as text; bytes that are not UTF-8 are replaced.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout.bytes).into_owned()
    }

    /// Standard error as text; bytes that are not UTF-8 are replaced.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr.bytes).into_owned()
    }

    /// Both streams and the status, cut to about `limit` bytes: what a model is usually told.
    pub fn transcript(&self, limit: usize) -> String {
        let mut text = self.stdout_text();
        let stderr = self.stderr_text();
        if !stderr.is_empty() {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&stderr);
        }
        let mut text = clip(&text, limit);
        if !self.success() {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            match self.stopped {
                Some(commands::Stop::Timeout) => text.push_str("[stopped: it took too long]"),
                Some(commands::Stop::Memory) => text.push_str("[stopped: out of memory]"),
                Some(commands::Stop::Trap) => text.push_str("[stopped: it crashed]"),
                None => text.push_str(&format!("[exit status {}]", self.status)),
            }
        }
        if text.is_empty() { "[no output]".to_string() } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(status: i32, stdout: &str, stderr: &str) -> Output {
        let captured = |text: &str| commands::Captured {
            bytes: text.as_bytes().to_vec(),
            total: text.len() as u64,
        };
        Output {
            status,
            stopped: None,
            stdout: captured(stdout),
            stderr: captured(stderr),
            metadata: Metadata::new(),
        }
    }

    #[test]
    fn transcripts_say_what_a_model_needs() {
        assert_eq!(output(0, "", "").transcript(100), "[no output]");
        assert_eq!(output(0, "a\n", "").transcript(100), "a\n");
        assert_eq!(output(2, "a", "b").transcript(100), "a\nb\n[exit status 2]");
    }
}
