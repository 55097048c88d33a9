//! An episode as text for people.
//!
//! Everything that a guest, a model or an upstream server wrote is escaped (see
//! [`crate::escape`]) and indented under a heading of our own, so that it can neither act on the
//! terminal nor pass for something the host said. Colour is the caller's decision.

mod blocks;

use std::fmt;

use self::blocks::Blocks;
use crate::{Entry, EntryBody, EpisodeRef, EpisodeSummary, Score, SealedEnding, Store, StoreError};

/// What a piece of a line is. Which colour that means is decided in [`Line::paint`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Style {
    /// Text of the episode.
    Plain,
    /// The host's headings.
    Heading,
    /// The host's side notes.
    Faint,
    /// Who speaks.
    Speaker,
    /// Tool calls and commands.
    Action,
    /// Something went well.
    Good,
    /// Something went wrong.
    Bad,
}

impl Style {
    /// Parameters of the terminal's "select graphic rendition"; none for plain text.
    const fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Heading => Some("1"),
            Self::Faint => Some("2"),
            Self::Speaker => Some("36"),
            Self::Action => Some("33"),
            Self::Good => Some("32"),
            Self::Bad => Some("31"),
        }
    }
}

/// A piece of a line. Its text is safe to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// What it is.
    pub style: Style,
    /// The text, without line breaks.
    pub text: String,
}

/// One line. Displayed without colours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Line {
    /// Its pieces.
    pub spans: Vec<Span>,
}

impl Line {
    /// The line with the terminal's colours.
    pub fn paint(&self) -> String {
        let mut painted = String::new();
        for span in &self.spans {
            match span.style.code() {
                Some(code) if !span.text.is_empty() => {
                    painted.push_str("\x1b[");
                    painted.push_str(code);
                    painted.push('m');
                    painted.push_str(&span.text);
                    painted.push_str("\x1b[0m");
                }
                _ => painted.push_str(&span.text),
            }
        }
        painted
    }
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spans.iter().try_for_each(|span| formatter.write_str(&span.text))
    }
}

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Lines of one text or output; what is cut is counted. None shows everything.
    pub lines_per_block: Option<usize>,
    /// Columns of one line; what is cut is counted. None shows everything.
    pub columns: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self { lines_per_block: Some(40), columns: Some(400) }
    }
}

/// Everything recorded of one attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct EpisodeRecord {
    /// In short.
    pub summary: EpisodeSummary,
    /// The journal.
    pub entries: Vec<Entry>,
    /// How it ended; none while it has not.
    pub ending: Option<SealedEnding>,
    /// What the rewards said.
    pub scores: Vec<Score>,
}

impl EpisodeRecord {
    /// Reads an attempt.
    pub fn load(store: &Store, run: &str, episode: EpisodeRef) -> Result<Self, StoreError> {
        Ok(Self {
            summary: store.episode(run, episode)?,
            entries: store.entries(run, episode)?,
            ending: store.ending(run, episode)?,
            scores: store.scores(run, episode)?,
        })
    }
}

/// The transcript: a heading, the journal in order, the ending with the changes of the workspace,
/// and the scores.
pub fn render(record: &EpisodeRecord, options: Options) -> Vec<Line> {
    let mut blocks = Blocks::new(options);
    heading(&mut blocks, &record.summary);
    for entry in &record.entries {
        self::entry(&mut blocks, &entry.body);
    }
    if let Some(sealed) = &record.ending {
        blocks.ending(sealed);
    }
    if !record.scores.is_empty() {
        blocks.scores(&record.scores, record.summary.total);
    }
    blocks.finish()
}

fn heading(blocks: &mut Blocks, summary: &EpisodeSummary) {
    let EpisodeRef { task, sample, attempt } = summary.episode;
    blocks.line(0, |line| {
        line.host(Style::Heading, "episode ").guest(Style::Heading, &summary.task_id);
        line.host(Style::Faint, format!("  task {task}, sample {sample}, attempt {attempt}"));
    });
    blocks.line(0, |line| {
        line.host(Style::Plain, summary.state.name());
        if let Some(kind) = summary.kind {
            line.host(Style::Plain, format!(", {kind}"));
        }
        if let Some(total) = summary.total {
            line.host(Style::Plain, format!(", total {total}"));
        }
        line.host(
            Style::Faint,
            format!(
                "  {} turns, {} tokens read, {} written",
                summary.turns, summary.prompt_tokens, summary.completion_tokens
            ),
        );
    });
    if let Some(reason) = &summary.reason {
        blocks.line(0, |line| {
            line.host(Style::Bad, "reason: ").guest(Style::Plain, reason);
        });
    }
}

fn entry(blocks: &mut Blocks, body: &EntryBody) {
    match body {
        EntryBody::Turn(turn) => blocks.turn(turn),
        EntryBody::TurnFailed { index, conversation, error, detail } => {
            blocks.gap();
            blocks.line(0, |line| {
                line.host(Style::Heading, format!("turn {index}"));
                line.host(Style::Faint, format!("  conversation {conversation}"));
                line.host(Style::Bad, "  failed: ").guest(Style::Bad, error);
            });
            if let Some(detail) = detail {
                blocks.text(1, Style::Faint, detail);
            }
        }
        EntryBody::Command { request, output, tree } => blocks.command(request, output, *tree),
        EntryBody::Event { name, fields } => {
            blocks.gap();
            blocks.line(0, |line| {
                line.host(Style::Heading, "event ").guest(Style::Plain, name);
            });
            blocks.metadata(1, fields);
        }
        EntryBody::Metric { name, value } => {
            blocks.gap();
            blocks.line(0, |line| {
                line.host(Style::Heading, "metric ").guest(Style::Plain, name);
                line.host(Style::Plain, format!(" = {value}"));
            });
        }
        EntryBody::Denied { import } => {
            blocks.gap();
            blocks.line(0, |line| {
                line.host(Style::Bad, "denied ").guest(Style::Plain, import);
            });
        }
        EntryBody::Output { stdout, stderr } => {
            blocks.gap();
            blocks.line(0, |line| {
                line.host(Style::Heading, "output of the component");
            });
            blocks.stream("stdout", stdout);
            blocks.stream("stderr", stderr);
        }
        EntryBody::Truncated { dropped } => {
            blocks.gap();
            blocks.line(0, |line| {
                line.host(
                    Style::Bad,
                    format!("{dropped} entries were dropped at the limit of the journal"),
                );
            });
        }
    }
}

#[cfg(test)]
mod tests;
