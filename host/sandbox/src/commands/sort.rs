//! `sort`.

use std::cmp::Ordering;

use super::lines::or_stdin;
use super::options::Options;
use super::sort_order::{Order, Value, is_blank, value};
use super::{Invocation, chomp, split_lines};
use crate::shell::meter::{self, Stop};

/// One `-k`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Key {
    field: usize,
    character: usize,
    /// Last field (0: to the end of the line) and character in it (0: all of it).
    last: Option<(usize, usize)>,
    order: Order,
    own_order: bool,
}

/// `2,3n` or `1.2,1.4`.
fn key(text: &[u8]) -> Option<Key> {
    let text = std::str::from_utf8(text).ok()?;
    let (first, last) = match text.split_once(',') {
        Some((first, last)) => (first, Some(last)),
        None => (text, None),
    };
    let mut key = Key { character: 1, ..Key::default() };
    let mut position = |text: &str| -> Option<(usize, Option<usize>)> {
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        for letter in text.get(digits.len()..)?.bytes() {
            if !key.order.letter(letter) {
                return None;
            }
            key.own_order = true;
        }
        match digits.split_once('.') {
            Some((field, character)) => Some((field.parse().ok()?, Some(character.parse().ok()?))),
            None => Some((digits.parse().ok()?, None)),
        }
    };
    let (field, character) = position(first)?;
    let last = match last {
        Some(last) => Some(position(last)?),
        None => None,
    };
    if field == 0 || character == Some(0) {
        return None;
    }
    key.field = field;
    key.character = character.unwrap_or(1);
    key.last = last.map(|(field, character)| (field, character.unwrap_or(0)));
    Some(key)
}

/// A line with what it is compared by.
struct Row<'a> {
    line: &'a [u8],
    values: Vec<Value<'a>>,
}

struct Sorter {
    keys: Vec<Key>,
    separator: Option<u8>,
    reverse: bool,
    stable: bool,
}

pub(super) fn run(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = [
        "n|numeric-sort",
        "r|reverse",
        "u|unique",
        "k|key=",
        "t|field-separator=",
        "o|output=",
        "f|ignore-case",
        "b|ignore-leading-blanks",
        "s|stable",
        "g",
        "h",
        "V",
        "M",
        "d|dictionary-order",
        "c|check=?",
        "C",
        "m|merge",
        "z|zero-terminated",
    ];
    let Some(options) = invocation.options(&known)? else { return Ok(2) };
    let sorter = match sorter(&options) {
        Ok(sorter) => sorter,
        Err(message) => return invocation.fail(2, &message),
    };
    let mut texts = Vec::new();
    for path in or_stdin(options.operands.clone()) {
        match invocation.read(&path)? {
            Ok(text) => texts.push(text),
            Err(error) => {
                let shown = String::from_utf8_lossy(&path).into_owned();
                let reason = crate::shell::files::describe(error);
                return invocation.fail(2, &format!("cannot read: {shown}: {reason}"));
            }
        }
        invocation.check_room(texts.iter().map(Vec::len).sum())?;
    }
    let end = if options.has("z") { 0 } else { b'\n' };
    let lines: Vec<&[u8]> = match end {
        b'\n' => {
            invocation.check_lines(texts.iter().map(|text| split_lines(text).count()).sum())?;
            texts.iter().flat_map(|text| split_lines(text)).map(chomp).collect()
        }
        _ => {
            let ends = |text: &Vec<u8>| text.iter().filter(|byte| **byte == 0).count() + 1;
            invocation.check_lines(texts.iter().map(ends).sum())?;
            texts
                .iter()
                .flat_map(|text| text.strip_suffix(b"\0").unwrap_or(text).split(|byte| *byte == 0))
                .collect()
        }
    };
    // Comparing costs about n log n times what a line holds.
    let rounds = u64::from(lines.len().max(2).ilog2()) + 1;
    let bytes: usize = lines.iter().map(|line| line.len() + 1).sum();
    let each = 2 * (sorter.keys.len() as u64 + 1);
    // What a line is compared by takes more room than the line.
    invocation.check_lines(lines.len().saturating_mul(2 * sorter.keys.len()))?;
    invocation.meter.charge_each(bytes, rounds.saturating_mul(each))?;
    invocation.meter.charge_each(lines.len(), rounds.saturating_mul(meter::LINE))?;
    let mut rows: Vec<Row<'_>> = lines
        .into_iter()
        .map(|line| Row {
            line,
            values: sorter.keys.iter().map(|key| sorter.value(line, key)).collect(),
        })
        .collect();
    if options.has("c") || options.has("C") {
        return check(invocation, &sorter, &rows, &options);
    }
    rows.sort_by(|left, right| sorter.compare(left, right));
    if options.has("u") {
        rows.dedup_by(|next, before| sorter.by_keys(before, next) == Ordering::Equal);
    }
    let lines = rows.into_iter().map(|row| row.line);
    match options.value("o") {
        None => {
            for line in lines {
                invocation.out(line)?;
                invocation.out(&[end])?;
            }
            Ok(0)
        }
        Some(path) => {
            let mut all = Vec::with_capacity(bytes);
            for line in lines {
                all.extend_from_slice(line);
                all.push(end);
            }
            match invocation.files.write(path, &all) {
                Ok(()) => Ok(0),
                Err(error) => {
                    invocation.complain_path(path, error)?;
                    Ok(2)
                }
            }
        }
    }
}

fn check(
    invocation: &mut Invocation<'_>,
    sorter: &Sorter,
    rows: &[Row<'_>],
    options: &Options,
) -> Result<i32, Stop> {
    for (index, pair) in rows.windows(2).enumerate() {
        if let [before, next] = pair {
            let order = sorter.compare(before, next);
            let repeated = options.has("u") && sorter.by_keys(before, next) == Ordering::Equal;
            if order == Ordering::Greater || repeated {
                if options.has("c") {
                    let shown = String::from_utf8_lossy(next.line).into_owned();
                    invocation.complain(&format!("-:{}: disorder: {shown}", index + 2))?;
                }
                return Ok(1);
            }
        }
    }
    Ok(0)
}

fn sorter(options: &Options) -> Result<Sorter, String> {
    let mut global = Order::default();
    for (option, _) in options.given() {
        if let [letter] = option.as_bytes() {
            global.letter(*letter);
        }
    }
    let separator = match options.value("t") {
        None => None,
        Some([one]) => Some(*one),
        Some(b"\\0") => Some(0),
        Some(text) => {
            return Err(format!("multi-character tab '{}'", String::from_utf8_lossy(text)));
        }
    };
    let mut keys = Vec::new();
    for text in options.values("k") {
        let mut key =
            key(text).ok_or_else(|| format!("invalid key '{}'", String::from_utf8_lossy(text)))?;
        if !key.own_order {
            key.order = global;
        }
        keys.push(key);
    }
    let stable = options.has("s") || options.has("u");
    if keys.is_empty() {
        keys.push(Key { field: 1, character: 1, last: None, order: global, own_order: false });
    }
    Ok(Sorter { keys, separator, reverse: global.reverse, stable })
}

impl Sorter {
    fn compare(&self, left: &Row<'_>, right: &Row<'_>) -> Ordering {
        let order = self.by_keys(left, right);
        if order != Ordering::Equal || self.stable {
            return order;
        }
        let order = left.line.cmp(right.line);
        if self.reverse { order.reverse() } else { order }
    }

    fn by_keys(&self, left: &Row<'_>, right: &Row<'_>) -> Ordering {
        for (key, (left, right)) in self.keys.iter().zip(left.values.iter().zip(&right.values)) {
            let order = left.cmp(right);
            if order != Ordering::Equal {
                return if key.order.reverse { order.reverse() } else { order };
            }
        }
        Ordering::Equal
    }

    /// What a line is compared by.
    fn value<'l>(&self, line: &'l [u8], key: &Key) -> Value<'l> {
        let whole = key.field == 1 && key.character == 1 && key.last.is_none();
        value(if whole { line } else { self.extract(line, key) }, key.order)
    }

    /// Where a field starts and ends in a line.
    fn field(&self, line: &[u8], field: usize) -> (usize, usize) {
        let mut start = 0;
        for number in 1.. {
            let rest = line.get(start..).unwrap_or_default();
            let length = match self.separator {
                Some(separator) => {
                    rest.iter().position(|byte| *byte == separator).unwrap_or(rest.len())
                }
                None => {
                    // A field begins with the blanks before it.
                    let blanks = rest.iter().take_while(|byte| is_blank(**byte)).count();
                    let after = rest.get(blanks..).unwrap_or_default();
                    let word = after.iter().take_while(|byte| !is_blank(**byte)).count();
                    blanks + word
                }
            };
            let end = start + length;
            if number == field || end >= line.len() {
                return if number == field { (start, end) } else { (line.len(), line.len()) };
            }
            start = if self.separator.is_some() { end + 1 } else { end };
        }
        (line.len(), line.len())
    }

    fn extract<'a>(&self, line: &'a [u8], key: &Key) -> &'a [u8] {
        let (start, _) = self.field(line, key.field);
        let skip = |at: usize| {
            let rest = line.get(at..).unwrap_or_default();
            at + rest.iter().take_while(|byte| is_blank(**byte)).count()
        };
        let start = if key.order.blanks { skip(start) } else { start };
        let start = (start + key.character - 1).min(line.len());
        let end = match key.last {
            None => line.len(),
            Some((field, 0)) => self.field(line, field).1,
            Some((field, character)) => {
                let (field, _) = self.field(line, field);
                let field = if key.order.blanks { skip(field) } else { field };
                (field + character).min(line.len())
            }
        };
        line.get(start..end.max(start)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read() {
        let parsed = key(b"2.3,4nr").unwrap();
        assert_eq!((parsed.field, parsed.character, parsed.last), (2, 3, Some((4, 0))));
        assert!(parsed.order.numeric && parsed.order.reverse);
        for text in ["0", "x", "1,", "1q", "", "1.0"] {
            assert_eq!(key(text.as_bytes()), None, "{text}");
        }
    }
}
