//! `sed`: reads scripts.

use super::regular::{Options, Regular};
pub(super) use super::sed_script::{Action, Address, Case, Command, Part, Substitute};
use crate::shell::meter::{Meter, Stop};
use crate::shell::scan_byte as byte;

/// Most commands in a script.
const COMMANDS: usize = 4096;

pub(super) type Parsed<T> = Result<T, String>;

/// A script, or what is wrong with it.
pub(super) fn parse(
    text: &[u8],
    extended: bool,
    meter: &mut Meter,
) -> Result<Parsed<Vec<Command>>, Stop> {
    let mut parser = Parser {
        text,
        at: 0,
        extended,
        meter,
        stop: None,
        commands: Vec::new(),
        labels: Vec::new(),
        jumps: Vec::new(),
    };
    let result = parser.script();
    match parser.stop {
        Some(stop) => Err(stop),
        None => Ok(result.map(|()| parser.commands)),
    }
}

pub(super) struct Parser<'a> {
    pub(super) text: &'a [u8],
    pub(super) at: usize,
    pub(super) extended: bool,
    meter: &'a mut Meter,
    stop: Option<Stop>,
    commands: Vec<Command>,
    labels: Vec<(Vec<u8>, usize)>,
    jumps: Vec<(usize, Vec<u8>)>,
}

impl Parser<'_> {
    pub(super) fn peek(&self) -> Option<u8> {
        byte(self.text, self.at)
    }

    pub(super) fn wrong<T>(&self, what: &str) -> Parsed<T> {
        Err(format!("char {}: {what}", self.at))
    }

    pub(super) fn skip(&mut self, also: &[u8]) {
        while self.peek().is_some_and(|byte| byte == b' ' || byte == b'\t' || also.contains(&byte))
        {
            self.at += 1;
        }
    }

    fn script(&mut self) -> Parsed<()> {
        let mut open = Vec::new();
        loop {
            self.skip(b";\n");
            if self.peek().is_none() {
                break;
            }
            if self.commands.len() >= COMMANDS {
                return self.wrong("unsupported: a script this long");
            }
            self.command(&mut open)?;
        }
        if !open.is_empty() {
            return Err("char 0: unmatched `{'".to_owned());
        }
        let end = self.commands.len();
        for (index, label) in std::mem::take(&mut self.jumps) {
            let target = match label.is_empty() {
                true => None,
                false => match self.labels.iter().find(|(known, _)| *known == label) {
                    Some((_, target)) => Some((*target).min(end)),
                    None => {
                        let label = String::from_utf8_lossy(&label);
                        return Err(format!("can't find label for jump to `{label}'"));
                    }
                },
            };
            if let Some(command) = self.commands.get_mut(index) {
                command.action = match command.action {
                    Action::BranchIf(_) => Action::BranchIf(target),
                    Action::BranchUnless(_) => Action::BranchUnless(target),
                    _ => Action::Branch(target),
                };
            }
        }
        Ok(())
    }

    fn command(&mut self, open: &mut Vec<usize>) -> Parsed<()> {
        let from = self.address(false)?;
        let mut to = None;
        self.skip(b"");
        if from.is_some() && self.peek() == Some(b',') {
            self.at += 1;
            self.skip(b"");
            to = self.address(true)?;
            if to.is_none() {
                return self.wrong("unexpected `,'");
            }
            self.skip(b"");
        }
        let mut negated = false;
        while self.peek() == Some(b'!') {
            negated = true;
            self.at += 1;
            self.skip(b"");
        }
        let Some(letter) = self.peek() else { return self.wrong("missing command") };
        self.at += 1;
        let index = self.commands.len();
        let action = match letter {
            b'#' => {
                self.rest_of_line();
                return Ok(());
            }
            b':' => {
                let label = self.label();
                if label.is_empty() {
                    return self.wrong("\":\" lacks a label");
                }
                self.labels.push((label, index));
                return Ok(());
            }
            b'{' => {
                open.push(index);
                Action::Block(usize::MAX)
            }
            b'}' => {
                let Some(start) = open.pop() else { return self.wrong("unexpected `}'") };
                if let Some(command) = self.commands.get_mut(start) {
                    command.action = Action::Block(index + 1);
                }
                Action::End
            }
            b'a' => Action::Append(self.lines()?),
            b'i' => Action::Insert(self.lines()?),
            b'c' => Action::Change(self.lines()?),
            b'd' => Action::Delete,
            b'D' => Action::DeleteFirst,
            b'p' => Action::Print,
            b'P' => Action::PrintFirst,
            b'=' => Action::Number,
            b'n' => Action::Next,
            b'N' => Action::NextAppend,
            b'h' => Action::Hold,
            b'H' => Action::HoldAppend,
            b'g' => Action::Get,
            b'G' => Action::GetAppend,
            b'x' => Action::Exchange,
            b'l' => Action::List,
            b'z' => Action::Clear,
            b'q' => Action::Quit(self.exit_code()),
            b'Q' => Action::QuitSilently(self.exit_code()),
            b's' => self.substitute()?,
            b'y' => self.translate()?,
            b'b' | b't' | b'T' => {
                let label = self.label();
                self.jumps.push((index, label));
                match letter {
                    b'b' => Action::Branch(None),
                    b't' => Action::BranchIf(None),
                    _ => Action::BranchUnless(None),
                }
            }
            b'w' | b'r' => {
                self.skip(b"");
                let path = self.rest_of_line();
                if path.is_empty() {
                    return self.wrong("missing filename in r/R/w/W commands");
                }
                if letter == b'w' { Action::Write(path) } else { Action::Read(path) }
            }
            b'e' | b'F' | b'R' | b'W' | b'v' => {
                let letter = char::from(letter);
                return self.wrong(&format!("unsupported: the command `{letter}'"));
            }
            other => {
                let letter = char::from(other).escape_default();
                return self.wrong(&format!("unknown command: `{letter}'"));
            }
        };
        let takes_line = matches!(
            action,
            Action::Append(_)
                | Action::Insert(_)
                | Action::Change(_)
                | Action::Write(_)
                | Action::Read(_)
                | Action::Block(_)
        );
        self.commands.push(Command { from, to, negated, action });
        if !takes_line {
            self.skip(b"");
            match self.peek() {
                None | Some(b';' | b'\n' | b'}' | b'#') => {}
                Some(_) => return self.wrong("extra characters after command"),
            }
        }
        Ok(())
    }

    pub(super) fn number(&mut self) -> usize {
        let mut value = 0_usize;
        while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
            value = value.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
            self.at += 1;
        }
        value
    }

    fn exit_code(&mut self) -> i32 {
        self.skip(b"");
        i32::try_from(self.number()).unwrap_or(0) & 0xff
    }

    fn address(&mut self, second: bool) -> Parsed<Option<Address>> {
        Ok(Some(match self.peek() {
            Some(b'0'..=b'9') => {
                let line = self.number();
                if self.peek() == Some(b'~') {
                    self.at += 1;
                    Address::Step(line, self.number())
                } else {
                    Address::Line(line)
                }
            }
            Some(b'+') if second => {
                self.at += 1;
                Address::Plus(self.number())
            }
            Some(b'~') if second => {
                self.at += 1;
                Address::Multiple(self.number())
            }
            Some(b'$') => {
                self.at += 1;
                Address::Last
            }
            Some(b'/') => {
                self.at += 1;
                self.expression_address(b'/')?
            }
            Some(b'\\') => {
                let Some(delimiter) = byte(self.text, self.at + 1) else {
                    return self.wrong("unterminated address regex");
                };
                self.at += 2;
                self.expression_address(delimiter)?
            }
            _ => return Ok(None),
        }))
    }

    fn expression_address(&mut self, delimiter: u8) -> Parsed<Address> {
        let Some(text) = self.delimited(delimiter, true) else {
            return self.wrong("unterminated address regex");
        };
        let (mut ignore_case, mut lines) = (false, false);
        while let Some(flag @ (b'I' | b'M')) = self.peek() {
            ignore_case |= flag == b'I';
            lines |= flag == b'M';
            self.at += 1;
        }
        Ok(Address::Match(self.regular(&text, ignore_case, lines)?))
    }

    /// Compiles an expression; an empty one is the last that was used.
    pub(super) fn regular(
        &mut self,
        text: &[u8],
        ignore_case: bool,
        lines: bool,
    ) -> Parsed<Option<Regular>> {
        if text.is_empty() {
            return Ok(None);
        }
        let options = Options {
            extended: self.extended,
            ignore_case,
            lines,
            sed: true,
            ..Options::default()
        };
        match Regular::new(text, options, self.meter) {
            Ok(Ok(regular)) => Ok(Some(regular)),
            Ok(Err(message)) if message.contains("not supported") => {
                self.wrong(&format!("unsupported: {message}"))
            }
            Ok(Err(message)) => self.wrong(&message),
            Err(stop) => {
                self.stop = Some(stop);
                Err(String::new())
            }
        }
    }

    pub(super) fn rest_of_line(&mut self) -> Vec<u8> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default().to_vec()
    }

    fn label(&mut self) -> Vec<u8> {
        self.skip(b"");
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end = |byte: &u8| matches!(byte, b'\n' | b';' | b'}') || byte.is_ascii_whitespace();
        let length = rest.iter().position(end).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default().to_vec()
    }

    /// The text of `a`, `i` and `c`: up to a newline that no backslash hides.
    fn lines(&mut self) -> Parsed<Vec<u8>> {
        self.skip(b"");
        if self.peek() == Some(b'\\') {
            // `a\` and then the text on lines of its own, or one-line `a\text`.
            let mut next = self.at + 1;
            while matches!(byte(self.text, next), Some(b' ' | b'\t')) {
                next += 1;
            }
            match byte(self.text, next) {
                Some(b'\n') => self.at = next + 1,
                _ => self.at += 1,
            }
        }
        let mut text = Vec::new();
        if self.peek().is_none() {
            return self.wrong("expected \\ after `a', `c' or `i'");
        }
        while let Some(current) = self.peek() {
            self.at += 1;
            match current {
                b'\\' => {
                    if let Some(escaped) = self.peek() {
                        text.push(match escaped {
                            b't' => b'\t',
                            other => other,
                        });
                        self.at += 1;
                    }
                }
                b'\n' => break,
                other => text.push(other),
            }
        }
        text.push(b'\n');
        Ok(text)
    }
}
