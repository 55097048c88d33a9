//! `sed`: runs scripts.

use std::collections::BTreeMap;

use super::regular::Regular;
use super::sed_parse::{Action, Command};
use super::sed_replace::listed;
use super::{Invocation, chomp, split_lines};
use crate::shell::meter::{self, Stop};
use crate::shell::stream::{Sink, WriteError};

/// How editing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    End,
    Quit(i32),
}

/// What follows a cycle.
enum Cycle {
    /// The pattern space is printed unless `-n`.
    Print,
    Discard,
    /// `D`: again with what is left.
    Again,
    /// There is no next line for `n` or `N`.
    Last,
    Quit(i32, bool),
}

/// Whether a range is open, and the line that ends it if that is known.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Range {
    pub(super) open: bool,
    pub(super) end: Option<usize>,
}

/// Edits text line by line.
pub(super) struct Editor<'a> {
    pub(super) commands: &'a [Command],
    pub(super) quiet: bool,
    pub(super) ranges: Vec<Range>,
    pub(super) pattern: Vec<u8>,
    pub(super) hold: Vec<u8>,
    pub(super) line: usize,
    pub(super) last: Option<Regular>,
    pub(super) replaced: bool,
    after: Vec<Vec<u8>>,
    written: BTreeMap<Vec<u8>, Sink>,
    /// The line in the pattern space had no newline at its end.
    missing_newline: bool,
    /// The last line that was printed had none; it is made up for before anything else.
    owed_newline: bool,
}

/// The lines of all inputs.
pub(super) struct Lines<'a> {
    pub(super) lines: std::iter::Peekable<Box<dyn Iterator<Item = &'a [u8]> + 'a>>,
}

type Output<'a> = Option<&'a mut Vec<u8>>;

impl<'a> Editor<'a> {
    pub(super) fn new(commands: &'a [Command], quiet: bool) -> Self {
        Self {
            commands,
            quiet,
            ranges: vec![Range::default(); commands.len()],
            pattern: Vec::new(),
            hold: Vec::new(),
            line: 0,
            last: None,
            replaced: false,
            after: Vec::new(),
            written: BTreeMap::new(),
            missing_newline: false,
            owed_newline: false,
        }
    }

    /// Starts counting lines anew, for a file that is edited on its own.
    pub(super) fn restart(&mut self) {
        self.line = 0;
        self.ranges.fill(Range::default());
        self.owed_newline = false;
    }

    /// Edits `inputs` as one text into `output`, or to standard output.
    pub(super) fn edit(
        &mut self,
        invocation: &mut Invocation<'_>,
        inputs: &[Vec<u8>],
        mut output: Output<'_>,
    ) -> Result<Outcome, Stop> {
        let all: Box<dyn Iterator<Item = &[u8]>> =
            Box::new(inputs.iter().flat_map(|text| split_lines(text)));
        let mut lines = Lines { lines: all.peekable() };
        let mut again = false;
        loop {
            if !again && !self.read(&mut lines, false) {
                return Ok(Outcome::End);
            }
            again = false;
            self.replaced = false;
            let cycle = self.cycle(invocation, &mut lines, &mut output)?;
            match cycle {
                Cycle::Print | Cycle::Last if !self.quiet => {
                    self.print_pattern(invocation, &mut output)?
                }
                Cycle::Quit(_, true) if !self.quiet => {
                    self.print_pattern(invocation, &mut output)?
                }
                Cycle::Again => again = true,
                _ => {}
            }
            self.print_after(invocation, &mut output)?;
            if let Cycle::Quit(status, _) = cycle {
                if output.is_some() {
                    // The rest of a file that is edited in place stays.
                    for line in lines.lines {
                        write(invocation, &mut output, line)?;
                    }
                }
                return Ok(Outcome::Quit(status));
            }
        }
    }

    /// Reads the next line into the pattern space.
    fn read(&mut self, lines: &mut Lines<'_>, append: bool) -> bool {
        let Some(line) = lines.lines.next() else { return false };
        self.line += 1;
        self.missing_newline = !line.ends_with(b"\n");
        if append {
            self.pattern.push(b'\n');
        } else {
            self.pattern.clear();
        }
        self.pattern.extend_from_slice(chomp(line));
        true
    }

    fn print_pattern(
        &mut self,
        invocation: &mut Invocation<'_>,
        output: &mut Output<'_>,
    ) -> Result<(), Stop> {
        let text = self.pattern.clone();
        self.print(invocation, output, &text, !self.missing_newline)
    }

    /// Prints text, and a newline when it is to have one.
    fn print(
        &mut self,
        invocation: &mut Invocation<'_>,
        output: &mut Output<'_>,
        text: &[u8],
        newline: bool,
    ) -> Result<(), Stop> {
        if std::mem::replace(&mut self.owed_newline, !newline) {
            write(invocation, output, b"\n")?;
        }
        write(invocation, output, text)?;
        if newline { write(invocation, output, b"\n") } else { Ok(()) }
    }

    /// Prints text that ends as it ends.
    fn print_text(
        &mut self,
        invocation: &mut Invocation<'_>,
        output: &mut Output<'_>,
        text: &[u8],
    ) -> Result<(), Stop> {
        let (text, newline) = match text.strip_suffix(b"\n") {
            Some(text) => (text, true),
            None => (text, false),
        };
        if text.is_empty() && !newline {
            return Ok(());
        }
        self.print(invocation, output, text, newline)
    }

    fn print_after(
        &mut self,
        invocation: &mut Invocation<'_>,
        output: &mut Output<'_>,
    ) -> Result<(), Stop> {
        for text in std::mem::take(&mut self.after) {
            self.print_text(invocation, output, &text)?;
        }
        Ok(())
    }

    fn cycle(
        &mut self,
        invocation: &mut Invocation<'_>,
        lines: &mut Lines<'_>,
        output: &mut Output<'_>,
    ) -> Result<Cycle, Stop> {
        let commands = self.commands;
        let mut index = 0;
        while let Some(command) = commands.get(index) {
            invocation.meter.charge(meter::LINE)?;
            let after: usize = self.after.iter().map(|text| text.len() + 32).sum();
            invocation.check_room(self.pattern.len() + self.hold.len() + after)?;
            let applies = self.applies(invocation, lines, index, command)?;
            index += 1;
            if !applies {
                if let Action::Block(end) = command.action {
                    index = end;
                }
                continue;
            }
            match &command.action {
                Action::Block(_) | Action::End => {}
                Action::Clear => self.pattern.clear(),
                Action::Append(text) => self.after.push(text.clone()),
                Action::Insert(text) => self.print_text(invocation, output, text)?,
                Action::Change(text) => {
                    let open = self.ranges.get(index - 1).is_some_and(|range| range.open);
                    if command.to.is_none() || command.negated || !open {
                        self.print_text(invocation, output, text)?;
                    }
                    return Ok(Cycle::Discard);
                }
                Action::Delete => return Ok(Cycle::Discard),
                Action::DeleteFirst => match self.pattern.iter().position(|byte| *byte == b'\n') {
                    Some(at) => {
                        self.pattern.drain(..=at);
                        return Ok(Cycle::Again);
                    }
                    None => return Ok(Cycle::Discard),
                },
                Action::Print => self.print_pattern(invocation, output)?,
                Action::PrintFirst => {
                    let first = self.pattern.split(|byte| *byte == b'\n').next();
                    let text = first.unwrap_or_default().to_vec();
                    self.print(invocation, output, &text, true)?;
                }
                Action::Number => {
                    let text = self.line.to_string();
                    self.print(invocation, output, text.as_bytes(), true)?;
                }
                Action::List => {
                    let text = listed(&self.pattern);
                    self.print(invocation, output, &text, true)?;
                }
                Action::Next => {
                    if lines.lines.peek().is_none() {
                        return Ok(Cycle::Last);
                    }
                    if !self.quiet {
                        self.print_pattern(invocation, output)?;
                    }
                    self.print_after(invocation, output)?;
                    self.read(lines, false);
                }
                Action::NextAppend => {
                    if lines.lines.peek().is_none() {
                        return Ok(Cycle::Last);
                    }
                    self.print_after(invocation, output)?;
                    self.read(lines, true);
                }
                Action::Hold => self.hold = self.pattern.clone(),
                Action::HoldAppend => {
                    self.hold.push(b'\n');
                    self.hold.extend_from_slice(&self.pattern);
                }
                Action::Get => self.pattern = self.hold.clone(),
                Action::GetAppend => {
                    self.pattern.push(b'\n');
                    self.pattern.extend_from_slice(&self.hold);
                }
                Action::Exchange => std::mem::swap(&mut self.pattern, &mut self.hold),
                Action::Quit(status) => return Ok(Cycle::Quit(*status, true)),
                Action::QuitSilently(status) => return Ok(Cycle::Quit(*status, false)),
                Action::Translate(map) => {
                    for byte in &mut self.pattern {
                        *byte = map.get(usize::from(*byte)).copied().unwrap_or(*byte);
                    }
                }
                Action::Substitute(substitute) => {
                    if self.substitute(invocation, substitute)? {
                        self.replaced = true;
                        if substitute.print {
                            self.print_pattern(invocation, output)?;
                        }
                        if let Some(path) = &substitute.write {
                            self.write_file(invocation, path)?;
                        }
                    }
                }
                Action::Branch(target) => index = target.unwrap_or(commands.len()),
                Action::BranchIf(target) => {
                    if std::mem::take(&mut self.replaced) {
                        index = target.unwrap_or(commands.len());
                    }
                }
                Action::BranchUnless(target) => {
                    if !std::mem::take(&mut self.replaced) {
                        index = target.unwrap_or(commands.len());
                    }
                }
                Action::Write(path) => self.write_file(invocation, path)?,
                Action::Read(path) => {
                    // A file that cannot be read is an empty one.
                    if let Ok(text) = invocation.read(path)? {
                        self.after.push(text);
                    }
                }
            }
        }
        Ok(Cycle::Print)
    }

    fn write_file(&mut self, invocation: &mut Invocation<'_>, path: &[u8]) -> Result<(), Stop> {
        invocation.meter.charge_each(self.pattern.len() + 1, meter::BYTE)?;
        let mut line = self.pattern.clone();
        line.push(b'\n');
        if path == b"/dev/stdout" {
            return invocation.out(&line);
        }
        if !self.written.contains_key(path) {
            match invocation.files.output(path, false) {
                Ok(sink) => {
                    self.written.insert(path.to_vec(), sink);
                }
                Err(error) => return invocation.complain_path(path, error),
            }
        }
        match self.written.get(path).map(|sink| sink.write(&line)) {
            Some(Err(WriteError::Full(stop))) => Err(stop),
            Some(Err(WriteError::File(error))) => invocation.complain_path(path, error),
            _ => Ok(()),
        }
    }
}

fn write(
    invocation: &mut Invocation<'_>,
    output: &mut Output<'_>,
    text: &[u8],
) -> Result<(), Stop> {
    match output {
        None => invocation.out(text),
        Some(output) => {
            invocation.meter.charge_each(text.len(), meter::BYTE)?;
            output.extend_from_slice(text);
            invocation.check_room(output.len())
        }
    }
}
