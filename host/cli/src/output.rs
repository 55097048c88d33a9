//! What people and machines read: results on standard output, remarks and progress on standard
//! error, errors as a headline with its causes.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this module is the output")]

use std::{
    io::{IsTerminal as _, Write as _},
    process::ExitCode,
};

use fulgurite_trace::escape::{Lines, escape};
use serde::Serialize;

use crate::{
    args::{Color, Global},
    exit,
};

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

    /// An error: headline, causes, how to mend it. For machines it is one line, the last one on
    /// standard error.
    pub(crate) fn error(&self, error: &anyhow::Error, exit_code: u8) {
        if self.json {
            eprintln!("{}", Told::of(error, exit_code).line());
        } else {
            eprintln!("{}", error_text(error));
        }
    }
}

/// A command line that clap did not accept, or that asked for help or the version. Shown here,
/// and not by clap, because `--json` holds for these errors too.
pub(crate) fn wrong_arguments(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") {
        let text = error.to_string();
        let (headline, rest) = text.split_once("\n\n").unwrap_or((&text, ""));
        let headline = headline.strip_prefix("error: ").unwrap_or(headline);
        let hint = Some(rest.trim()).filter(|rest| !rest.is_empty()).map(str::to_owned);
        let (headline, causes) = (headline.trim().to_owned(), Vec::new());
        eprintln!("{}", Told { headline, causes, hint, exit_code: exit::USAGE }.line());
    } else {
        // A reader that went away is no error.
        let _ = error.print();
    }
    ExitCode::from(if error.use_stderr() { exit::USAGE } else { 0 })
}

/// An error for machines.
#[derive(Debug, PartialEq, Serialize)]
struct Told {
    /// What was wrong.
    headline: String,
    /// Why, from the outermost to the innermost.
    causes: Vec<String>,
    /// How to mend it, where the error knows.
    hint: Option<String>,
    /// What the program exits with.
    exit_code: u8,
}

impl Told {
    fn of(error: &anyhow::Error, exit_code: u8) -> Self {
        let mut hints = Vec::new();
        let mut said = messages(error).into_iter().map(|text| {
            let (said, hint) =
                text.split_once(MEND).map_or((&*text, None), |(said, hint)| (said, Some(hint)));
            hints.extend(hint.map(|hint| hint.trim().to_owned()));
            said.trim().to_owned()
        });
        let headline = said.next().unwrap_or_default();
        let causes = said.filter(|cause| !cause.is_empty()).collect();
        let hint = (!hints.is_empty()).then(|| hints.join("\n"));
        Self { headline, causes, hint, exit_code }
    }

    fn line(&self) -> String {
        // Plain text and a number: it always serialises. JSON escapes control characters itself.
        serde_json::json!({ "error": self }).to_string()
    }
}

/// What stands before the advice in the text of an error.
const MEND: &str = "\n  mend: ";

/// A number with its noun.
pub(crate) fn counted(number: usize, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

/// Text of a guest or a model, fit to be shown; line breaks stay.
pub(crate) fn escaped(text: &str) -> std::borrow::Cow<'_, str> {
    escape(text, Lines::Keep)
}

/// The headline, then a `caused by` line for each cause that adds something.
fn error_text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for message in messages(error) {
        text.push_str(if text.is_empty() { "error: " } else { "\n  caused by: " });
        text.push_str(&escaped(&message));
    }
    text
}

/// What the error and its causes say, without what is said twice.
fn messages(error: &anyhow::Error) -> Vec<String> {
    let mut messages = vec![error.to_string()];
    let mut shown = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // Some libraries print their cause within their own text.
        if !shown.contains(&cause) {
            messages.push(cause.clone());
        }
        shown = cause;
    }
    messages
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

    #[test]
    fn machines_get_headline_causes_and_hint_apart() {
        let error = anyhow!("no such file\n  mend: make it").context("cannot read \u{1b}it");
        let told = Told::of(&error, 2);
        assert_eq!(
            told,
            Told {
                headline: "cannot read \u{1b}it".to_owned(),
                causes: vec!["no such file".to_owned()],
                hint: Some("make it".to_owned()),
                exit_code: 2,
            }
        );
        let line = told.line();
        assert!(!line.contains(['\n', '\u{1b}']), "{line}");
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["error"]["exit_code"], 2);
        assert_eq!(Told::of(&anyhow!("x"), 1).hint, None);
    }
}
