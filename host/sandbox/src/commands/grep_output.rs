//! `grep`: finds and prints the lines of one file.

use super::regular::Regular;
use super::{Invocation, chomp};
use crate::shell::meter::{self, Stop};

/// What is printed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub(super) names: bool,
    pub(super) numbers: bool,
    pub(super) only: bool,
    pub(super) invert: bool,
    pub(super) count: bool,
    pub(super) list: bool,
    pub(super) list_without: bool,
    pub(super) quiet: bool,
    pub(super) most: Option<usize>,
    pub(super) before: usize,
    pub(super) after: usize,
    pub(super) text: bool,
    pub(super) skip_binary: bool,
}

/// Prints what matches; remembers whether anything did.
pub(super) struct Printer {
    regular: Regular,
    look: Look,
    found: bool,
    /// A group of lines was printed before, so that the next one is set apart.
    grouped: bool,
}

impl Printer {
    pub(super) fn new(regular: Regular, look: Look) -> Self {
        Self { regular, look, found: false, grouped: false }
    }

    pub(super) fn found(&self) -> bool {
        self.found
    }

    /// Whether nothing more has to be searched.
    pub(super) fn done(&self) -> bool {
        self.look.quiet && self.found
    }

    pub(super) fn file(
        &mut self,
        invocation: &mut Invocation<'_>,
        name: &[u8],
        text: &[u8],
    ) -> Result<(), Stop> {
        let look = self.look;
        let binary = !look.text && text.contains(&0);
        if binary && look.skip_binary {
            return Ok(());
        }
        let summary = look.count || look.list || look.list_without || look.quiet;
        let lines: Vec<&[u8]> = invocation.all_lines(text)?.into_iter().map(chomp).collect();
        let mut matches = 0;
        // The first line that was not printed yet, and how many follow the last match.
        let mut printed = 0;
        let mut trailing = 0;
        for (index, line) in lines.iter().enumerate() {
            if look.most.is_some_and(|most| matches >= most) && trailing == 0 {
                break;
            }
            invocation.meter.charge(meter::BYTE)?;
            let selected = look.most.is_none_or(|most| matches < most)
                && self.regular.is_match(line, invocation.meter)? != look.invert;
            if !selected {
                if trailing > 0 && !summary && !binary {
                    trailing -= 1;
                    self.line(invocation, name, index, line, b'-')?;
                    printed = index + 1;
                }
                continue;
            }
            matches += 1;
            if look.quiet || look.list || look.list_without {
                break;
            }
            if look.count {
                continue;
            }
            if binary {
                let shown = String::from_utf8_lossy(name).into_owned();
                invocation.err(format!("grep: {shown}: binary file matches\n").as_bytes())?;
                break;
            }
            let start = index.saturating_sub(look.before).max(printed);
            let context = look.before > 0 || look.after > 0;
            if context && self.grouped && (start > printed || printed == 0) {
                invocation.line(b"--")?;
            }
            self.grouped |= context;
            for (before, line) in lines.iter().enumerate().take(index).skip(start) {
                self.line(invocation, name, before, line, b'-')?;
            }
            self.matched(invocation, name, index, line)?;
            printed = index + 1;
            trailing = look.after;
        }
        // `-L` succeeds for the files that are listed.
        self.found |= if look.list_without { matches == 0 } else { matches > 0 };
        if look.quiet {
            return Ok(());
        }
        if (look.list && matches > 0) || (look.list_without && matches == 0) {
            return invocation.line(name);
        }
        if look.count && !look.list && !look.list_without {
            if look.names {
                invocation.out(name)?;
                invocation.out(b":")?;
            }
            invocation.line(matches.to_string().as_bytes())?;
        }
        Ok(())
    }

    fn prefix(
        &self,
        invocation: &mut Invocation<'_>,
        name: &[u8],
        index: usize,
        separator: u8,
    ) -> Result<(), Stop> {
        if self.look.names {
            invocation.out(name)?;
            invocation.out(&[separator])?;
        }
        if self.look.numbers {
            invocation.out((index + 1).to_string().as_bytes())?;
            invocation.out(&[separator])?;
        }
        Ok(())
    }

    fn line(
        &self,
        invocation: &mut Invocation<'_>,
        name: &[u8],
        index: usize,
        line: &[u8],
        separator: u8,
    ) -> Result<(), Stop> {
        if self.look.only {
            return Ok(());
        }
        self.prefix(invocation, name, index, separator)?;
        invocation.line(line)
    }

    fn matched(
        &self,
        invocation: &mut Invocation<'_>,
        name: &[u8],
        index: usize,
        line: &[u8],
    ) -> Result<(), Stop> {
        if !self.look.only {
            return self.line(invocation, name, index, line, b':');
        }
        if self.look.invert {
            return Ok(());
        }
        let mut start = 0;
        while let Some(found) = self.regular.find(line, start, invocation.meter)? {
            start = if found.is_empty() { found.end + 1 } else { found.end };
            if !found.is_empty() {
                self.prefix(invocation, name, index, b':')?;
                invocation.line(line.get(found).unwrap_or_default())?;
            }
        }
        Ok(())
    }
}
