//! `cat`, `tac`, `rev`, `wc`, `tee`.

use std::io::Write as _;

use super::{Invocation, chomp, split_lines};
use crate::shell::files::describe;
use crate::shell::meter::{self, Stop};
use crate::shell::stream::WriteError;

/// Operands, or standard input when there are none.
pub(super) fn or_stdin(operands: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    if operands.is_empty() { vec![b"-".to_vec()] } else { operands }
}

pub(super) fn cat(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = [
        "n|number",
        "b|number-nonblank",
        "s|squeeze-blank",
        "E|show-ends",
        "T|show-tabs",
        "A|show-all",
        "e",
        "t",
        "u",
        "v|show-nonprinting",
    ];
    let Some(options) = invocation.options(&known)? else { return Ok(2) };
    let look = Look {
        number: options.has("n"),
        number_filled: options.has("b"),
        squeeze: options.has("s"),
        ends: options.has("E") || options.has("A") || options.has("e"),
        tabs: options.has("T") || options.has("A") || options.has("t"),
        invisible: ["v", "A", "e", "t"].iter().any(|key| options.has(key)),
    };
    let plain = look == Look::default();
    let mut status = 0;
    let mut state = State::default();
    for path in or_stdin(options.operands) {
        invocation.meter.charge(meter::ENTRY)?;
        let input = match invocation.open(&path) {
            Ok(input) => input,
            Err(error) => {
                invocation.complain_path(&path, error)?;
                status = 1;
                continue;
            }
        };
        let mut carried = Vec::new();
        loop {
            let chunk = match input.read_chunk() {
                Ok(chunk) => chunk,
                Err(error) => {
                    invocation.complain_path(&path, error)?;
                    status = 1;
                    break;
                }
            };
            if chunk.is_empty() {
                break;
            }
            if plain {
                invocation.out(&chunk)?;
                continue;
            }
            carried.extend_from_slice(&chunk);
            invocation.check_room(carried.len())?;
            let end = carried.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let rest = carried.split_off(end);
            show(invocation, &carried, look, &mut state)?;
            carried = rest;
        }
        show(invocation, &carried, look, &mut state)?;
    }
    Ok(status)
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Look {
    number: bool,
    number_filled: bool,
    squeeze: bool,
    ends: bool,
    tabs: bool,
    invisible: bool,
}

#[derive(Debug, Default)]
struct State {
    number: u64,
    blank: bool,
}

fn show(
    invocation: &mut Invocation<'_>,
    text: &[u8],
    look: Look,
    state: &mut State,
) -> Result<(), Stop> {
    for line in split_lines(text) {
        invocation.meter.charge(meter::LINE)?;
        let blank = line == b"\n";
        if look.squeeze && blank && state.blank {
            continue;
        }
        state.blank = blank;
        if (look.number && !look.number_filled) || (look.number_filled && !blank) {
            state.number += 1;
            invocation.out(format!("{:6}\t", state.number).as_bytes())?;
        }
        let mut shown = Vec::with_capacity(line.len());
        for byte in chomp(line) {
            match byte {
                b'\t' if look.tabs => shown.extend(b"^I"),
                b'\t' => shown.push(b'\t'),
                _ if look.invisible => show_byte(*byte, &mut shown),
                _ => shown.push(*byte),
            }
        }
        if line.ends_with(b"\n") {
            if look.ends {
                shown.push(b'$');
            }
            shown.push(b'\n');
        }
        invocation.out(&shown)?;
    }
    Ok(())
}

fn show_byte(byte: u8, shown: &mut Vec<u8>) {
    let low = byte & 0x7f;
    if byte >= 0x80 {
        shown.extend(b"M-");
    }
    match low {
        0x7f => shown.extend(b"^?"),
        0..=0x1f => shown.extend([b'^', low + 64]),
        _ => shown.push(low),
    }
}

pub(super) fn tac(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let Some(options) = invocation.options(&[])? else { return Ok(2) };
    let mut status = 0;
    for path in or_stdin(options.operands) {
        let Some(text) = invocation.read_or_complain(&path)? else {
            status = 1;
            continue;
        };
        for line in invocation.all_lines(&text)?.into_iter().rev() {
            invocation.meter.charge(meter::LINE)?;
            invocation.out(line)?;
        }
    }
    Ok(status)
}

pub(super) fn rev(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let Some(options) = invocation.options(&[])? else { return Ok(2) };
    let mut status = 0;
    for path in or_stdin(options.operands) {
        let Some(text) = invocation.read_or_complain(&path)? else {
            status = 1;
            continue;
        };
        for line in split_lines(&text) {
            invocation.meter.charge(meter::LINE)?;
            let mut reversed = chomp(line).to_vec();
            reversed.reverse();
            if line.ends_with(b"\n") {
                reversed.push(b'\n');
            }
            invocation.out(&reversed)?;
        }
    }
    Ok(status)
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    lines: u64,
    words: u64,
    bytes: u64,
    longest: u64,
}

pub(super) fn wc(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = ["l|lines", "w|words", "c|bytes", "m|chars", "L|max-line-length"];
    let Some(mut options) = invocation.options(&known)? else { return Ok(2) };
    if options.operands.is_empty() {
        let counts = match count(invocation, b"-")? {
            Some(counts) => counts,
            None => return Ok(1),
        };
        let selected = select(&counts, &options);
        let width = match (selected.len(), invocation.io.stdin.file_size()) {
            (1, _) => 1,
            (_, Some(size)) => size.to_string().len(),
            (_, None) => 7,
        };
        return print(invocation, &selected, width, b"").map(|()| 0);
    }
    let mut status = 0;
    let mut total = Counts::default();
    let mut rows = Vec::new();
    let mut regular_bytes = 0;
    let mut width = 1;
    let operands = std::mem::take(&mut options.operands);
    for path in &operands {
        match invocation.files.stat(path, true) {
            Ok(stat) if stat.kind == fulgurite_trace::file::FileKind::File => {
                regular_bytes += stat.size;
            }
            Ok(_) => width = 7,
            Err(_) if path == b"-" => width = 7,
            Err(_) => {}
        }
    }
    width = width.max(regular_bytes.to_string().len());
    let single = operands.len() == 1;
    for path in &operands {
        match count(invocation, path)? {
            Some(counts) => {
                total.lines += counts.lines;
                total.words += counts.words;
                total.bytes += counts.bytes;
                total.longest = total.longest.max(counts.longest);
                rows.push((counts, path.clone()));
            }
            None => {
                status = 1;
                if invocation.files.is_directory(path) {
                    rows.push((Counts::default(), path.clone()));
                }
            }
        }
    }
    for (counts, path) in &rows {
        let selected = select(counts, &options);
        let width = if single && selected.len() == 1 { 1 } else { width };
        print(invocation, &selected, width, path)?;
    }
    if operands.len() > 1 {
        print(invocation, &select(&total, &options), width, b"total")?;
    }
    Ok(status)
}

fn select(counts: &Counts, options: &super::options::Options) -> Vec<u64> {
    let all = [
        ("l", counts.lines),
        ("w", counts.words),
        ("m", counts.bytes),
        ("c", counts.bytes),
        ("L", counts.longest),
    ];
    let selected: Vec<u64> =
        all.iter().filter(|(key, _)| options.has(key)).map(|(_, count)| *count).collect();
    match selected.is_empty() {
        true => vec![counts.lines, counts.words, counts.bytes],
        false => selected,
    }
}

fn print(
    invocation: &mut Invocation<'_>,
    counts: &[u64],
    width: usize,
    name: &[u8],
) -> Result<(), Stop> {
    let mut line = Vec::new();
    for (index, count) in counts.iter().enumerate() {
        if index > 0 {
            line.push(b' ');
        }
        // Writing to memory cannot fail.
        let _ = write!(line, "{count:width$}");
    }
    if !name.is_empty() {
        line.push(b' ');
        line.extend_from_slice(name);
    }
    invocation.line(&line)
}

fn count(invocation: &mut Invocation<'_>, path: &[u8]) -> Result<Option<Counts>, Stop> {
    invocation.meter.charge(meter::ENTRY)?;
    let input = match invocation.open(path) {
        Ok(input) => input,
        Err(error) => {
            invocation.complain_path(path, error)?;
            return Ok(None);
        }
    };
    let mut counts = Counts::default();
    let mut in_word = false;
    let mut length = 0;
    loop {
        let chunk = match input.read_chunk() {
            Ok(chunk) => chunk,
            Err(error) => {
                invocation.complain_path(path, error)?;
                return Ok(None);
            }
        };
        if chunk.is_empty() {
            counts.longest = counts.longest.max(length);
            return Ok(Some(counts));
        }
        invocation.meter.charge_each(chunk.len(), 2 * meter::BYTE)?;
        counts.bytes += chunk.len() as u64;
        for byte in chunk {
            let space = byte.is_ascii_whitespace() || byte == 11;
            if !space && !in_word {
                counts.words += 1;
            }
            in_word = !space;
            match byte {
                b'\n' => {
                    counts.lines += 1;
                    counts.longest = counts.longest.max(length);
                    length = 0;
                }
                b'\t' => length = (length / 8 + 1) * 8,
                _ => length += 1,
            }
        }
    }
}

pub(super) fn tee(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let Some(options) = invocation.options(&["a|append", "i"])? else { return Ok(2) };
    let mut status = 0;
    let mut sinks = Vec::new();
    for path in &options.operands {
        invocation.meter.charge(meter::ENTRY)?;
        match invocation.files.output(path, options.has("a")) {
            Ok(sink) => sinks.push((path.clone(), sink)),
            Err(error) => {
                invocation.complain_path(path, error)?;
                status = 1;
            }
        }
    }
    loop {
        let chunk = match invocation.io.stdin.read_chunk() {
            Ok(chunk) => chunk,
            Err(error) => return invocation.fail(1, describe(error)),
        };
        if chunk.is_empty() {
            return Ok(status);
        }
        invocation.out(&chunk)?;
        for (path, sink) in &sinks {
            invocation.meter.charge_each(chunk.len(), meter::BYTE)?;
            match sink.write(&chunk) {
                Ok(()) => {}
                Err(WriteError::Full(stop)) => return Err(stop),
                Err(WriteError::File(error)) => {
                    invocation.complain_path(path, error)?;
                    status = 1;
                }
            }
        }
    }
}
