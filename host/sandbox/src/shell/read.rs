//! `read`.

use super::evaluate::{Evaluator, Flow, Step};
use super::files::describe;
use super::meter;
use super::stream::Io;
use super::word::is_name;

impl Evaluator {
    /// `read [-r] [-p prompt] [-d delimiter] [name …]`.
    pub(crate) fn read(&mut self, arguments: &[Vec<u8>], io: &Io) -> Step {
        let mut raw = false;
        let mut rest = arguments.get(1..).unwrap_or_default();
        while let [option, after @ ..] = rest {
            match option.as_slice() {
                b"-r" => raw = true,
                b"-s" | b"-e" => {}
                b"-p" | b"-t" => {
                    rest = after.get(1..).unwrap_or_default();
                    continue;
                }
                b"--" => {
                    rest = after;
                    break;
                }
                option if option.starts_with(b"-") => {
                    let shown = String::from_utf8_lossy(option).into_owned();
                    return self.fail(io, 2, &format!("unsupported: read {shown}"));
                }
                _ => break,
            }
            rest = after;
        }
        let mut line: Vec<(u8, bool)> = Vec::new();
        let mut whole = false;
        loop {
            let next = match io.stdin.read_line(self.limits.variable_bytes) {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(error) => return self.fail(io, 1, &format!("read: {}", describe(error))),
            };
            self.meter.charge_each(next.len(), 10 * meter::BYTE)?;
            whole = next.ends_with(b"\n");
            let text = next.strip_suffix(b"\n").unwrap_or(&next);
            let mut bytes = text.iter();
            let mut goes_on = false;
            while let Some(byte) = bytes.next() {
                if *byte == b'\\' && !raw {
                    match bytes.next() {
                        Some(escaped) => line.push((*escaped, true)),
                        None => goes_on = whole,
                    }
                } else {
                    line.push((*byte, false));
                }
            }
            if !goes_on || line.len() > self.limits.variable_bytes {
                break;
            }
        }
        let names: Vec<String> = match rest {
            [] => vec!["REPLY".to_owned()],
            names => names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect(),
        };
        if let Some(name) = names.iter().find(|name| !is_name(name.as_bytes())) {
            let name = name.clone();
            return self.not_a_name(io, "read", name.as_bytes());
        }
        let separators = self.variables.get("IFS").unwrap_or(b" \t\n").to_vec();
        let values = match rest.is_empty() {
            true => vec![line.iter().map(|(byte, _)| *byte).collect()],
            false => split_line(&line, &separators, names.len()),
        };
        for (index, name) in names.iter().enumerate() {
            let value = values.get(index).cloned().unwrap_or_default();
            if !self.assign(name, value, io)? {
                return Ok(Flow::Next);
            }
        }
        self.status = i32::from(!whole);
        Ok(Flow::Next)
    }
}

/// Splits what `read` read into at most `count` fields; the last one takes the rest.
fn split_line(line: &[(u8, bool)], separators: &[u8], count: usize) -> Vec<Vec<u8>> {
    let separates = |(byte, escaped): (u8, bool)| !escaped && separators.contains(&byte);
    let space = |item: (u8, bool)| separates(item) && item.0.is_ascii_whitespace();
    let mut rest = line;
    let skip_space = |mut rest: &[(u8, bool)]| -> usize {
        let before = rest.len();
        while let [first, after @ ..] = rest
            && space(*first)
        {
            rest = after;
        }
        before - rest.len()
    };
    rest = rest.get(skip_space(rest)..).unwrap_or_default();
    let mut values = Vec::new();
    while !rest.is_empty() && values.len() + 1 < count {
        let length = rest.iter().position(|item| separates(*item)).unwrap_or(rest.len());
        values.push(rest.iter().take(length).map(|(byte, _)| *byte).collect());
        rest = rest.get(length..).unwrap_or_default();
        rest = rest.get(skip_space(rest)..).unwrap_or_default();
        if let [first, after @ ..] = rest
            && separates(*first)
        {
            rest = after;
            rest = rest.get(skip_space(rest)..).unwrap_or_default();
        }
    }
    let mut last = rest;
    while let [before @ .., end] = last
        && space(*end)
    {
        last = before;
    }
    // A single trailing separator ends the last field and is not part of it.
    if let [before @ .., end] = last
        && separates(*end)
        && !before.iter().any(|item| separates(*item))
    {
        last = before;
    }
    values.push(last.iter().map(|(byte, _)| *byte).collect());
    values
}
