//! `sed`: which lines a command applies to.

use super::Invocation;
use super::regular::Regular;
use super::sed_parse::{Address, Command};
use super::sed_run::{Editor, Lines, Range};
use crate::shell::meter::Stop;

impl Editor<'_> {
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

    pub(super) fn applies(
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
                        return Ok(
                            self.open(invocation, lines, index, from, to)? != command.negated
                        );
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
}
