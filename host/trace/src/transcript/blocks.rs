//! The parts of a transcript.

use serde::Deserialize;

use super::{Line, Options, Span, Style};
use crate::{
    CommandLine, CommandOutput, CommandRequest, CommandStop, Digest, FailureKind, FinishReason,
    Message, Metadata, OutcomeStatus, Part, Role, Score, SealedEnding, Turn,
    entry::SegmentOrigin,
    escape::{Lines, escape, escape_bytes},
    file::FileKind,
};

/// Collects lines.
#[derive(Debug)]
pub(super) struct Blocks {
    lines: Vec<Line>,
    options: Options,
}

/// A line while it is put together.
#[derive(Debug)]
pub(super) struct Builder {
    line: Line,
    columns: Option<usize>,
}

impl Builder {
    /// Adds the host's own words.
    pub(super) fn host(&mut self, style: Style, text: impl Into<String>) -> &mut Self {
        self.line.spans.push(Span { style, text: text.into() });
        self
    }

    /// Adds words of anyone else, on one line.
    pub(super) fn guest(&mut self, style: Style, text: &str) -> &mut Self {
        let safe = escape(text, Lines::Escape).into_owned();
        self.safe(style, safe)
    }

    /// Adds words that are escaped already; a line that grows too long is cut.
    fn safe(&mut self, style: Style, mut safe: String) -> &mut Self {
        let mut cut = 0;
        if let Some(columns) = self.columns
            && let Some((at, _)) = safe.char_indices().nth(columns)
        {
            cut = safe.get(at..).map_or(0, |rest| rest.chars().count());
            safe.truncate(at);
        }
        self.line.spans.push(Span { style, text: safe });
        if cut > 0 {
            self.host(Style::Faint, format!(" … {cut} more characters"));
        }
        self
    }
}

impl Blocks {
    pub(super) const fn new(options: Options) -> Self {
        Self { lines: Vec::new(), options }
    }

    pub(super) fn finish(self) -> Vec<Line> {
        self.lines
    }

    /// An empty line between parts.
    pub(super) fn gap(&mut self) {
        self.lines.push(Line::default());
    }

    /// One line, indented by `depth` steps.
    pub(super) fn line(&mut self, depth: usize, build: impl FnOnce(&mut Builder)) {
        let mut builder = Builder { line: Line::default(), columns: self.options.columns };
        if depth > 0 {
            builder.host(Style::Plain, "  ".repeat(depth));
        }
        build(&mut builder);
        self.lines.push(builder.line);
    }

    /// Text of anyone, line by line.
    pub(super) fn text(&mut self, depth: usize, style: Style, text: &str) {
        self.safe_text(depth, style, &escape(text, Lines::Keep));
    }

    fn safe_text(&mut self, depth: usize, style: Style, safe: &str) {
        let count = safe.lines().count();
        // One line more than allowed is shown rather than a note of the same length.
        let shown = match self.options.lines_per_block {
            Some(most) if count > most.saturating_add(1) => most,
            _ => count,
        };
        for line in safe.lines().take(shown) {
            // Tabs stand for themselves up to here; terminals disagree on what they mean.
            let line = line.replace('\t', "    ");
            self.line(depth, |builder| {
                builder.safe(style, line);
            });
        }
        if shown < count {
            self.line(depth, |builder| {
                builder.host(Style::Faint, format!("… {} more lines", count.saturating_sub(shown)));
            });
        }
    }

    /// A named stream of text; nothing when it is empty.
    pub(super) fn stream(&mut self, name: &str, text: &str) {
        if !text.is_empty() {
            self.line(1, |line| {
                line.host(Style::Faint, name);
            });
            self.text(2, Style::Plain, text);
        }
    }

    /// Name/value pairs, one a line.
    pub(super) fn metadata(&mut self, depth: usize, metadata: &Metadata) {
        for (name, value) in metadata {
            self.line(depth, |line| {
                line.guest(Style::Faint, name).host(Style::Faint, ": ");
                line.guest(Style::Plain, value);
            });
        }
    }

    /// A model call.
    pub(super) fn turn(&mut self, turn: &Turn) {
        self.gap();
        self.line(0, |line| {
            line.host(Style::Heading, format!("turn {}", turn.index));
            line.host(Style::Faint, format!("  conversation {}", turn.conversation));
            if turn.segment > 0 {
                line.host(Style::Faint, format!(", segment {}", turn.segment));
            }
            if !turn.agent.is_empty() {
                line.host(Style::Faint, ", agent ").guest(Style::Faint, &turn.agent);
            }
            line.host(
                Style::Faint,
                format!(
                    ", {} tokens read, {} written",
                    turn.usage.prompt_tokens, turn.usage.completion_tokens
                ),
            );
            match turn.finish {
                FinishReason::Stop | FinishReason::ToolCalls => {}
                FinishReason::Length => {
                    line.host(Style::Bad, "  cut off at the length limit");
                }
                FinishReason::Filtered => {
                    line.host(Style::Bad, "  filtered upstream");
                }
            }
        });
        self.origin(&turn.origin);
        for message in turn.messages.iter().chain([&turn.reply]) {
            self.message(message);
        }
    }

    fn origin(&mut self, origin: &SegmentOrigin) {
        match origin {
            SegmentOrigin::Opened => {}
            SegmentOrigin::Branched { turn } => self.line(1, |line| {
                line.host(Style::Faint, format!("branched off after turn {turn}"));
            }),
            SegmentOrigin::Restarted { reason } => self.line(1, |line| {
                line.host(Style::Faint, "history replaced: ").guest(Style::Faint, reason);
            }),
            SegmentOrigin::Rendered => self.line(1, |line| {
                line.host(Style::Faint, "history rendered anew by the chat template");
            }),
        }
    }

    fn message(&mut self, message: &Message) {
        let speaker = match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        self.line(1, |line| {
            line.host(Style::Speaker, speaker);
        });
        for part in &message.parts {
            match part {
                Part::Text(text) => self.text(2, Style::Plain, text),
                Part::Thinking(text) => {
                    self.line(2, |line| {
                        line.host(Style::Faint, "thinking");
                    });
                    self.text(3, Style::Faint, text);
                }
                Part::ToolCall(call) => {
                    self.line(2, |line| {
                        line.host(Style::Action, "calls ").guest(Style::Action, &call.name);
                        line.host(Style::Faint, "  ").guest(Style::Faint, &call.id);
                        if let Some(problem) = &call.problem {
                            line.host(Style::Bad, "  malformed: ").guest(Style::Bad, problem);
                        }
                    });
                    self.text(3, Style::Plain, &call.arguments);
                }
                Part::ToolResult(result) => {
                    self.line(2, |line| {
                        let (style, word) = if result.failed {
                            (Style::Bad, "failed result")
                        } else {
                            (Style::Action, "result")
                        };
                        line.host(style, word);
                        line.host(Style::Faint, "  ").guest(Style::Faint, &result.call);
                    });
                    self.text(3, Style::Plain, &result.content);
                }
            }
        }
    }

    /// A command with its output.
    pub(super) fn command(
        &mut self,
        request: &CommandRequest,
        output: &CommandOutput,
        tree: Digest,
    ) {
        self.gap();
        self.line(0, |line| {
            line.host(Style::Heading, "command ");
            match &request.command {
                CommandLine::Line(text) => line.guest(Style::Action, text),
                CommandLine::Argv(argv) => line.guest(Style::Action, &argv.join(" ")),
            };
            if let Some(folder) = &request.cwd {
                line.host(Style::Faint, "  in ").guest(Style::Faint, folder);
            }
        });
        self.line(1, |line| {
            let style = if output.status == 0 { Style::Good } else { Style::Bad };
            line.host(style, format!("status {}", output.status));
            match output.stopped {
                None => {}
                Some(CommandStop::Timeout) => {
                    line.host(Style::Bad, ", stopped: time or fuel ran out");
                }
                Some(CommandStop::Memory) => {
                    line.host(Style::Bad, ", stopped: memory ran out");
                }
                Some(CommandStop::Trap) => {
                    line.host(Style::Bad, ", stopped: it trapped");
                }
            }
            line.host(Style::Faint, format!("  tree {}", tree.short()));
        });
        for (name, captured) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
            if captured.bytes.is_empty() && captured.total == 0 {
                continue;
            }
            let kept = u64::try_from(captured.bytes.len()).unwrap_or(u64::MAX);
            self.line(1, |line| {
                line.host(Style::Faint, name);
                if captured.total > kept {
                    line.host(Style::Faint, format!(", cut from {} bytes", captured.total));
                }
            });
            self.safe_text(2, Style::Plain, &escape_bytes(&captured.bytes, Lines::Keep));
        }
    }

    /// How the harness ended and what it left in the workspace.
    pub(super) fn ending(&mut self, sealed: &SealedEnding) {
        let ending = &sealed.ending;
        self.gap();
        self.line(0, |line| {
            line.host(Style::Heading, "ended ");
            let good = ending.kind == FailureKind::Completed;
            line.host(if good { Style::Good } else { Style::Bad }, ending.kind.name());
            match ending.outcome.as_ref().map(|outcome| outcome.status) {
                Some(OutcomeStatus::Submitted) => line.host(Style::Plain, ", submitted"),
                Some(OutcomeStatus::GaveUp) => line.host(Style::Bad, ", gave up"),
                None => line,
            };
            line.host(
                Style::Faint,
                format!("  {} fuel, {} virtual ms", ending.fuel_used, ending.virtual_ms),
            );
        });
        if let Some(outcome) = &ending.outcome {
            if !outcome.answer.is_empty() {
                self.line(1, |line| {
                    line.host(Style::Faint, "answer");
                });
                self.text(2, Style::Plain, &outcome.answer);
            }
            self.metadata(1, &outcome.metadata);
        }
        if let Some(message) = &ending.message {
            self.text(1, Style::Bad, message);
        }
        for function in &ending.backtrace {
            self.line(2, |line| {
                line.host(Style::Faint, "at ").guest(Style::Plain, function);
            });
        }
        self.changes(sealed);
    }

    fn changes(&mut self, sealed: &SealedEnding) {
        let Ok(manifest) = serde_json::from_slice::<Manifest>(&sealed.changes) else { return };
        self.gap();
        self.line(0, |line| {
            line.host(
                Style::Heading,
                format!("workspace: {}", counted("change", manifest.changes.len())),
            );
            if let Some(tree) = sealed.tree {
                line.host(Style::Faint, format!("  tree {}", tree.short()));
            }
        });
        let most = self.options.lines_per_block.unwrap_or(usize::MAX);
        for change in manifest.changes.iter().take(most) {
            self.line(1, |line| {
                match change.kind {
                    ChangeKind::Added => line.host(Style::Good, "+ "),
                    ChangeKind::Modified => line.host(Style::Action, "~ "),
                    ChangeKind::Removed => line.host(Style::Bad, "- "),
                };
                line.guest(Style::Plain, &change.path);
                match change.entry {
                    FileKind::File => line.host(Style::Faint, format!("  {} bytes", change.size)),
                    FileKind::Directory => line.host(Style::Faint, "/"),
                    FileKind::Symlink => line.host(Style::Faint, "  link"),
                };
            });
        }
        if let Some(rest) = manifest.changes.len().checked_sub(most).filter(|rest| *rest > 0) {
            self.line(1, |line| {
                line.host(Style::Faint, format!("… {}", counted("more change", rest)));
            });
        }
    }

    /// What the rewards said.
    pub(super) fn scores(&mut self, scores: &[Score], total: Option<f64>) {
        self.gap();
        self.line(0, |line| {
            line.host(Style::Heading, "scores");
            if let Some(total) = total {
                line.host(Style::Plain, format!("  total {total}"));
            }
        });
        for score in scores {
            self.line(1, |line| {
                line.guest(Style::Speaker, &score.reward);
                line.host(Style::Plain, format!(" {}", score.total));
                line.host(Style::Faint, format!("  weight {}", score.weight));
            });
            for part in &score.components {
                self.line(2, |line| {
                    line.guest(Style::Plain, &part.name);
                    line.host(Style::Plain, format!(" {}", part.value));
                });
            }
            for part in &score.turns {
                self.line(2, |line| {
                    line.host(Style::Plain, format!("turn {}: {}", part.turn, part.value));
                });
            }
            self.metadata(2, &score.notes);
        }
    }
}

/// What a transcript needs of a sealed manifest.
#[derive(Deserialize)]
struct Manifest {
    changes: Vec<Change>,
}

#[derive(Deserialize)]
struct Change {
    path: String,
    kind: ChangeKind,
    entry: FileKind,
    size: u64,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ChangeKind {
    Added,
    Modified,
    Removed,
}

fn counted(noun: &str, number: usize) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
