//! What people and machines read: results on standard output, remarks and progress on standard
//! error, errors as a headline with its causes.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this module is the output")]

use std::io::{IsTerminal as _, Write as _};

use fulgurite_trace::escape::{Lines, escape};
use serde::Serialize;

use crate::args::{Color, Global};

/// How to talk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
    quiet: bool,
    color: Color,
}

impl Output {
    pub(crate) fn new(global: &Global) -> Self {
        Self { json: global.json, quiet: global.quiet, color: global.color }
    }

    /// Whether progress bars make sense.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.quiet && !self.json && std::io::stderr().is_terminal()
    }

    /// Whether remarks are wanted.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether results are for machines.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether standard output takes colour.
    pub(crate) fn colored(&self) -> bool {
        match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                std::io::stdout().is_terminal()
                    && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }
        }
    }

    /// The result of a command: one value, as text or as JSON.
    pub(crate) fn result<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        if self.json {
            self.text(&serde_json::to_string_pretty(value)?)
        } else {
            self.text(text(value).trim_end_matches('\n'))
        }
    }

    /// Text that is the result itself. A reader that went away is no error.
    pub(crate) fn text(&self, text: &str) -> anyhow::Result<()> {
        match writeln!(std::io::stdout(), "{text}") {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            done => Ok(done?),
        }
    }

    /// A remark for people.
    pub(crate) fn remark(&self, text: impl std::fmt::Display) {
        if !self.quiet {
            eprintln!("{text}");
        }
    }

    /// An error: headline, causes, how to mend it.
    pub(crate) fn error(&self, error: &anyhow::Error) {
        eprintln!("{}", error_text(error));
    }
}

fn escaped(text: &str) -> std::borrow::Cow<'_, str> {
    escape(text, Lines::Keep)
}

/// The headline, then a `caused by` line for each cause that adds something.
fn error_text(error: &anyhow::Error) -> String {
    let mut text = format!("error: {}", escaped(&error.to_string()));
    let mut shown = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // Some libraries print their cause within their own text.
        if !shown.contains(&cause) {
            text.push_str("\n  caused by: ");
            text.push_str(&escaped(&cause));
        }
        shown = cause;
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn an_error_shows_each_cause_once_and_no_control_characters() {
        let error = anyhow!("no \u{1b}[31msuch file").context("cannot read it");
        let text = error_text(&error);
        assert!(text.starts_with("error: cannot read it\n  caused by: no "), "{text}");
        assert!(!text.contains('\u{1b}'));
        let doubled = anyhow!("inner").context("outer: inner");
        assert_eq!(error_text(&doubled), "error: outer: inner");
    }
}
