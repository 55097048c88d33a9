//! `cut`.

use super::lines::or_stdin;
use super::{Invocation, chomp, split_lines};
use crate::shell::meter::{self, Stop};

/// Positions counted from one, both ends included.
type Ranges = Vec<(usize, usize)>;

/// `1,3-5,-2,7-`.
fn ranges(text: &[u8]) -> Option<Ranges> {
    let text = std::str::from_utf8(text).ok()?;
    let mut ranges = Vec::new();
    for part in text.split([',', ' ']) {
        let (first, last) = match part.split_once('-') {
            None => {
                let one = part.parse().ok()?;
                (one, one)
            }
            Some(("", "")) => return None,
            Some((first, last)) => {
                let first = if first.is_empty() { 1 } else { first.parse().ok()? };
                let last = if last.is_empty() { usize::MAX } else { last.parse().ok()? };
                (first, last)
            }
        };
        if first == 0 || last < first {
            return None;
        }
        ranges.push((first, last));
    }
    Some(ranges)
}

pub(super) fn run(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = [
        "d|delimiter=",
        "f|fields=",
        "c|characters=",
        "b|bytes=",
        "s|only-delimited",
        "|complement",
        "|output-delimiter=",
        "n",
    ];
    let Some(options) = invocation.options(&known)? else { return Ok(2) };
    let kinds: Vec<&str> = ["f", "c", "b"].into_iter().filter(|key| options.has(key)).collect();
    let [kind] = kinds.as_slice() else {
        return invocation.fail(1, "you must specify a list of bytes, characters, or fields");
    };
    let Some(ranges) = options.value(kind).and_then(ranges) else {
        return invocation.fail(1, "invalid list of fields, bytes or characters");
    };
    let delimiter = match options.value("d") {
        None => b'\t',
        Some([one]) => *one,
        Some(_) => return invocation.fail(1, "the delimiter must be a single character"),
    };
    let cutter = Cutter {
        ranges,
        complement: options.has("complement"),
        delimiter,
        joiner: match (options.value("output-delimiter"), *kind) {
            (Some(joiner), _) => joiner.to_vec(),
            (None, "f") => vec![delimiter],
            (None, _) => Vec::new(),
        },
        only_delimited: options.has("s"),
        fields: *kind == "f",
    };
    let mut status = 0;
    for path in or_stdin(options.operands) {
        let Some(text) = invocation.read_or_complain(&path)? else {
            status = 1;
            continue;
        };
        for line in split_lines(&text) {
            invocation.meter.charge(meter::LINE)?;
            invocation.meter.charge_each(line.len(), 2 * cutter.ranges.len() as u64)?;
            if let Some(cut) = cutter.cut(chomp(line), invocation)? {
                invocation.line(&cut)?;
            }
        }
    }
    Ok(status)
}

struct Cutter {
    ranges: Ranges,
    complement: bool,
    delimiter: u8,
    joiner: Vec<u8>,
    only_delimited: bool,
    fields: bool,
}

impl Cutter {
    fn selects(&self, position: usize) -> bool {
        let inside = self.ranges.iter().any(|(first, last)| (*first..=*last).contains(&position));
        inside != self.complement
    }

    /// What is left of a line; `None` when it is not shown.
    fn cut(&self, line: &[u8], invocation: &Invocation<'_>) -> Result<Option<Vec<u8>>, Stop> {
        if !self.fields {
            let mut cut = Vec::new();
            let mut before = true;
            for (index, byte) in line.iter().enumerate() {
                let selected = self.selects(index + 1);
                if selected {
                    if !before && !cut.is_empty() {
                        cut.extend_from_slice(&self.joiner);
                        invocation.check_room(cut.len())?;
                    }
                    cut.push(*byte);
                }
                before = selected;
            }
            return Ok(Some(cut));
        }
        if !line.contains(&self.delimiter) {
            return Ok((!self.only_delimited).then(|| line.to_vec()));
        }
        let mut cut = Vec::new();
        let mut first = true;
        for (index, field) in line.split(|byte| *byte == self.delimiter).enumerate() {
            if self.selects(index + 1) {
                if !std::mem::take(&mut first) {
                    cut.extend_from_slice(&self.joiner);
                }
                cut.extend_from_slice(field);
                invocation.check_room(cut.len())?;
            }
        }
        Ok(Some(cut))
    }
}
