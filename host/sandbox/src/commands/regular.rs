//! POSIX regular expressions on a linear-time engine.
//!
//! Basic and extended expressions (with GNU's additions) are translated to the syntax of the
//! `regex` crate, which never backtracks. Not offered, and named when used: back references,
//! collating elements. One difference remains: among alternatives the first that matches wins, not
//! the longest; alternatives of plain text are tried longest first, which hides it mostly.

use std::ops::Range;
use std::sync::Arc;

use regex::bytes::{Captures, Regex, RegexBuilder};

use super::regular_translate::{WEIGHT, alternate, translate};
use crate::shell::meter::{self, Meter, Stop};

/// Most bytes of compiled code.
const COMPILED_BYTES: usize = 4 << 20;

/// How an expression is read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    /// Extended instead of basic syntax.
    pub(crate) extended: bool,
    /// Of the basic syntax, the variant of Emacs and `find`: `+` and `?` repeat without a
    /// backslash, and there are no intervals.
    pub(crate) emacs: bool,
    /// Plain text.
    pub(crate) fixed: bool,
    /// The `regex` crate's own syntax, close to Perl's.
    pub(crate) perl: bool,
    pub(crate) ignore_case: bool,
    /// Only whole words.
    pub(crate) word: bool,
    /// Only whole texts.
    pub(crate) whole: bool,
    /// `^` and `$` also match around newlines.
    pub(crate) lines: bool,
    /// `\n` and `\t` are a newline and a tab, as in sed.
    pub(crate) sed: bool,
}

/// A compiled expression that knows what it costs.
#[derive(Debug, Clone)]
pub(crate) struct Regular {
    /// Shared: a clone of its own would come with caches of its own.
    regex: Arc<Regex>,
    weight: usize,
}

impl Regular {
    /// Compiles one expression, or says what is wrong with it.
    pub(crate) fn new(
        pattern: &[u8],
        options: Options,
        meter: &mut Meter,
    ) -> Result<Result<Self, String>, Stop> {
        Self::any(&[pattern], options, meter)
    }

    /// Compiles several expressions into one that matches where any of them does.
    pub(crate) fn any(
        patterns: &[&[u8]],
        options: Options,
        meter: &mut Meter,
    ) -> Result<Result<Self, String>, Stop> {
        let mut weight = 0;
        let mut alternatives = Vec::with_capacity(patterns.len());
        for pattern in patterns {
            meter.charge_each(pattern.len() + 1, meter::STEP)?;
            let translated = match translate(pattern, options) {
                Ok(translated) => translated,
                Err(message) => return Ok(Err(message)),
            };
            weight += translated.weight;
            alternatives.push(translated);
        }
        if weight > WEIGHT && patterns.len() < 2 {
            return Ok(Err(format!("Regular expression too big (more than {WEIGHT} states)")));
        }
        meter.charge_each(weight + 1, meter::REGEX_COMPILE)?;
        let text = alternate(alternatives);
        let text = match (options.whole, options.word) {
            (true, _) => format!("\\A(?:{text})\\z"),
            (_, true) => format!("\\b{{start-half}}(?:{text})\\b{{end-half}}"),
            _ => text,
        };
        let built = RegexBuilder::new(&text)
            .unicode(false)
            .case_insensitive(options.ignore_case)
            .multi_line(options.lines)
            .dot_matches_new_line(!options.perl)
            .size_limit(COMPILED_BYTES)
            .dfa_size_limit(COMPILED_BYTES)
            .nest_limit(250)
            .build();
        Ok(match built {
            Ok(regex) => Ok(Self { regex: Arc::new(regex), weight }),
            Err(regex::Error::CompiledTooBig(_)) => Err("Regular expression too big".to_owned()),
            Err(error) if options.perl => Err(last_line(&error.to_string())),
            Err(_) => Err("Invalid regular expression".to_owned()),
        })
    }

    /// Charges for looking through `length` bytes: the automaton's time grows with its states.
    fn charge(&self, length: usize, meter: &mut Meter) -> Result<(), Stop> {
        let each = if self.weight > 200 { self.weight * 4 } else { 2 + self.weight / 4 };
        meter.charge_each(length, each as u64)?;
        meter.charge(meter::LINE)
    }

    pub(crate) fn is_match(&self, text: &[u8], meter: &mut Meter) -> Result<bool, Stop> {
        self.charge(text.len(), meter)?;
        Ok(self.regex.is_match(text))
    }

    /// The first match from `start` on.
    pub(crate) fn find(
        &self,
        text: &[u8],
        start: usize,
        meter: &mut Meter,
    ) -> Result<Option<Range<usize>>, Stop> {
        if start > text.len() {
            return Ok(None);
        }
        let found = self.regex.find_at(text, start).map(|found| found.range());
        let end = found.as_ref().map_or(text.len(), |found| found.end);
        self.charge(end - start.min(end), meter)?;
        Ok(found)
    }

    /// The first match from `start` on, with its groups.
    pub(crate) fn captures<'t>(
        &self,
        text: &'t [u8],
        start: usize,
        meter: &mut Meter,
    ) -> Result<Option<Captures<'t>>, Stop> {
        if start > text.len() {
            return Ok(None);
        }
        let found = self.regex.captures_at(text, start);
        let end = found.as_ref().and_then(|found| found.get(0)).map_or(text.len(), |all| all.end());
        self.charge(4 * (end - start.min(end)), meter)?;
        Ok(found)
    }

    /// How many groups it has.
    pub(crate) fn groups(&self) -> usize {
        self.regex.captures_len().saturating_sub(1)
    }
}

fn last_line(text: &str) -> String {
    text.lines().last().unwrap_or("invalid expression").trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
#[path = "regular_tests.rs"]
mod tests;
