//! `sed`: runs scripts.

use std::collections::BTreeMap;

use regex::bytes::Captures;

use super::regular::Regular;
use super::sed_parse::{Action, Address, Case, Command, Part, Substitute};
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
struct Range {
    open: bool,
    end: Option<usize>,
}

/// Edits text line by line.
pub(super) struct Editor<'a> {
    commands: &'a [Command],
    quiet: bool,
    ranges: Vec<Range>,
    pattern: Vec<u8>,
    hold: Vec<u8>,
    line: usize,
    last: Option<Regular>,
    replaced: bool,
    after: Vec<Vec<u8>>,
    written: BTreeMap<Vec<u8>, Sink>,
    missing_newline: bool,
}

/// The lines of all inputs.
struct Lines<'a> {
    lines: std::iter::Peekable<Box<dyn Iterator<Item = &'a [u8]> + 'a>>,
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
        }
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
        if output.is_some() {
            // Each file that is edited in place is counted on its own.
            self.line = 0;
            self.ranges.fill(Range::default());
        }
        let mut again = false;
        loop {
            if !again && !self.read(&mut lines, false) {
                return Ok(Outcome::End);
            }
            again = false;
            self.replaced = false;
            let cycle = self.cycle(invocation, &mut lines, &mut output)?;
            match cycle {
                Cycle::Print | Cycle::Last if !self.quiet => self.print_pattern(invocation, &mut output)?,
                Cycle::Quit(_, true) if !self.quiet => self.print_pattern(invocation, &mut output)?,
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
        write(invocation, output, &self.pattern)?;
        if !self.missing_newline {
            write(invocation, output, b"\n")?;
        }
        Ok(())
    }

    /// Prints a line that is not the end of the input, so that it always ends.
    fn print_whole(
        &mut self,
        invocation: &mut Invocation<'_>,
        output: &mut Output<'_>,
        text: &[u8],
    ) -> Result<(), Stop> {
        write(invocation, output, text)?;
        write(invocation, output, b"\n")
    }

    fn print_after(
        &mut self,
        invocation: &mut Invocation<'_>,
        output: &mut Output<'_>,
    ) -> Result<(), Stop> {
        for text in std::mem::take(&mut self.after) {
            if std::mem::take(&mut self.missing_newline) {
                write(invocation, output, b"\n")?;
            }
            write(invocation, output, &text)?;
        }
        Ok(())
    }

    fn matches(
        &mut self,
        invocation: &mut Invocation<'_>,
        regular: Option<&Regular>,
    ) -> Result<bool, Stop> {
        if let Some(regular) = regular {
            self.last = Some(regular.clone());
        }
        match &self.last {
            Some(regular) => regular.is_match(&self.pattern, invocation.meter),
            None => Ok(false),
        }
    }

    fn at(
        &mut self,
        invocation: &mut Invocation<'_>,
        lines: &mut Lines<'_>,
        address: &Address,
    ) -> Result<bool, Stop> {
        Ok(match address {
            Address::Line(line) => self.line == *line,
            Address::Last => lines.lines.peek().is_none(),
            Address::Match(regular) => self.matches(invocation, regular.as_ref())?,
            Address::Step(first, 0) => self.line == *first,
            Address::Step(first, step) => {
                self.line >= *first && (self.line - first).is_multiple_of(*step)
            }
            Address::Plus(_) | Address::Multiple(_) => false,
        })
    }

    fn applies(
        &mut self,
        invocation: &mut Invocation<'_>,
        lines: &mut Lines<'_>,
        index: usize,
        command: &Command,
    ) -> Result<bool, Stop> {
        let Some(from) = &command.from else { return Ok(!command.negated) };
        let Some(to) = &command.to else {
            return Ok(self.at(invocation, lines, from)? != command.negated);
        };
        let mut range = self.ranges.get(index).copied().unwrap_or_default();
        let inside = if range.open {
            let ends = match (range.end, to) {
                (Some(end), _) => {
                    // A range whose end has passed (by `n` or `N`) is over.
                    if self.line > end {
                        range = Range::default();
                        self.set_range(index, range);
                        return Ok(self.open(invocation, lines, index, from, to)? != command.negated);
                    }
                    self.line >= end
                }
                (None, to) => self.at(invocation, lines, to)?,
            };
            if ends {
                range = Range::default();
            }
            self.set_range(index, range);
            true
        } else {
            self.open(invocation, lines, index, from, to)?
        };
        Ok(inside != command.negated)
    }

    fn set_range(&mut self, index: usize, range: Range) {
        if let Some(slot) = self.ranges.get_mut(index) {
            *slot = range;
        }
    }

    /// Opens a range when its first address is here.
    fn open(
        &mut self,
        invocation: &mut Invocation<'_>,
        lines: &mut Lines<'_>,
        index: usize,
        from: &Address,
        to: &Address,
    ) -> Result<bool, Stop> {
        let from_zero = matches!((from, to), (Address::Line(0), Address::Match(_)));
        if from_zero && self.line == 1 {
            // `0,/x/` may end on the first line already.
            let ends = self.at(invocation, lines, to)?;
            self.set_range(index, Range { open: !ends, end: None });
            return Ok(true);
        }
        if from_zero || !self.at(invocation, lines, from)? {
            return Ok(false);
        }
        let end = match to {
            Address::Line(line) => Some(*line),
            Address::Plus(count) => Some(self.line.saturating_add(*count)),
            Address::Multiple(0) => Some(self.line),
            Address::Multiple(step) => Some(self.line.next_multiple_of(*step)),
            _ => None,
        };
        let over = end.is_some_and(|end| end <= self.line)
            || (matches!(to, Address::Last) && lines.lines.peek().is_none());
        self.set_range(index, Range { open: !over, end });
        Ok(true)
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
            invocation.check_room(self.pattern.len() + self.hold.len())?;
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
                Action::Insert(text) => write(invocation, output, text)?,
                Action::Change(text) => {
                    let open = self.ranges.get(index - 1).is_some_and(|range| range.open);
                    if command.to.is_none() || command.negated || !open {
                        write(invocation, output, text)?;
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
                Action::Print => {
                    let text = self.pattern.clone();
                    self.print_whole(invocation, output, &text)?;
                }
                Action::PrintFirst => {
                    let first = self.pattern.split(|byte| *byte == b'\n').next();
                    let text = first.unwrap_or_default().to_vec();
                    self.print_whole(invocation, output, &text)?;
                }
                Action::Number => {
                    let text = self.line.to_string();
                    self.print_whole(invocation, output, text.as_bytes())?;
                }
                Action::List => {
                    let text = listed(&self.pattern);
                    self.print_whole(invocation, output, &text)?;
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
                            let text = self.pattern.clone();
                            self.print_whole(invocation, output, &text)?;
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

    fn substitute(
        &mut self,
        invocation: &mut Invocation<'_>,
        substitute: &Substitute,
    ) -> Result<bool, Stop> {
        if let Some(regular) = &substitute.regular {
            self.last = Some(regular.clone());
        }
        let Some(regular) = self.last.clone() else { return Ok(false) };
        let text = std::mem::take(&mut self.pattern);
        let mut result = Vec::with_capacity(text.len());
        let mut from = 0;
        let mut start = 0;
        let mut count = 0;
        let mut changed = false;
        let mut last_end = None;
        while let Some(captures) = regular.captures(&text, start, invocation.meter)? {
            let Some(found) = captures.get(0) else { break };
            let (begin, end) = (found.start(), found.end());
            // An empty match right after another match is none.
            let counts = !(begin == end && last_end == Some(begin));
            if counts {
                count += 1;
                last_end = Some(end);
            }
            if counts && count >= substitute.number {
                result.extend_from_slice(text.get(from..begin).unwrap_or_default());
                replace(&substitute.replacement, &captures, &mut result);
                invocation.check_room(result.len())?;
                from = end;
                changed = true;
                if !substitute.global {
                    break;
                }
            }
            start = if begin == end { end + 1 } else { end };
        }
        result.extend_from_slice(text.get(from..).unwrap_or_default());
        invocation.meter.charge_each(result.len(), meter::BYTE)?;
        self.pattern = result;
        Ok(changed)
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

fn replace(parts: &[Part], captures: &Captures<'_>, result: &mut Vec<u8>) {
    let mut lasting = Case::End;
    let mut once: Option<Case> = None;
    for part in parts {
        let text = match part {
            Part::Text(text) => text.as_slice(),
            Part::Group(group) => captures.get(*group).map_or(&b""[..], |group| group.as_bytes()),
            Part::Case(case @ (Case::UpperOne | Case::LowerOne)) => {
                once = Some(*case);
                continue;
            }
            Part::Case(case) => {
                lasting = *case;
                once = None;
                continue;
            }
        };
        for byte in text {
            let case = once.take().unwrap_or(lasting);
            result.push(match case {
                Case::Upper | Case::UpperOne => byte.to_ascii_uppercase(),
                Case::Lower | Case::LowerOne => byte.to_ascii_lowercase(),
                Case::End => *byte,
            });
        }
    }
}

/// What `l` prints.
fn listed(text: &[u8]) -> Vec<u8> {
    let mut shown: Vec<u8> = Vec::new();
    let mut width = 0;
    for byte in text {
        let part = match byte {
            b'\\' => "\\\\".to_owned(),
            7 => "\\a".to_owned(),
            8 => "\\b".to_owned(),
            12 => "\\f".to_owned(),
            b'\n' => "\\n".to_owned(),
            b'\r' => "\\r".to_owned(),
            b'\t' => "\\t".to_owned(),
            11 => "\\v".to_owned(),
            byte if byte.is_ascii_graphic() || *byte == b' ' => char::from(*byte).to_string(),
            byte => format!("\\{byte:03o}"),
        };
        if width + part.len() > 69 {
            shown.extend(b"\\\n");
            width = 0;
        }
        width += part.len();
        shown.extend(part.bytes());
    }
    shown.push(b'$');
    shown
}
