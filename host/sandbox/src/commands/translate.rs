//! `tr`.

use super::Invocation;
use super::echo::{Escape, escape};
use crate::shell::files::describe;
use crate::shell::meter::{self, Stop};
use crate::shell::pattern::in_class;
use crate::shell::scan_byte as byte;

pub(super) fn run(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = ["d|delete", "s|squeeze-repeats", "c|complement", "C", "t|truncate-set1"];
    let Some(options) = invocation.options(&known)? else { return Ok(2) };
    let (delete, squeeze) = (options.has("d"), options.has("s"));
    let (first, second) = match options.operands.as_slice() {
        [] => return invocation.fail(1, "missing operand"),
        [first] if delete || squeeze => (first, None),
        [_] => return invocation.fail(1, "missing operand: two strings must be given"),
        [first, second] if !delete || squeeze => (first, Some(second)),
        _ => return invocation.fail(1, "extra operand"),
    };
    let complement = options.has("c") || options.has("C");
    let sets = set(first, None).and_then(|mut from| {
        if complement {
            from = (0..=255).filter(|byte| !from.contains(byte)).collect();
        }
        let to = match second {
            Some(second) => Some(set(second, Some(from.len()))?),
            None => None,
        };
        Ok((from, to))
    });
    let (mut from, to) = match sets {
        Ok(sets) => sets,
        Err(message) => return invocation.fail(1, &message),
    };
    let mut map: [Option<u8>; 256] = [None; 256];
    for (slot, byte) in map.iter_mut().zip(0..=255_u8) {
        *slot = Some(byte);
    }
    let mut squeezed = [false; 256];
    let mut mark = |bytes: &[u8]| {
        for byte in bytes {
            if let Some(slot) = squeezed.get_mut(usize::from(*byte)) {
                *slot = true;
            }
        }
    };
    match (&to, delete) {
        (second, true) => {
            for byte in &from {
                if let Some(slot) = map.get_mut(usize::from(*byte)) {
                    *slot = None;
                }
            }
            mark(second.as_deref().unwrap_or_default());
        }
        (None, false) => mark(&from),
        (Some(to), false) => {
            let Some(last) = to.last().copied() else {
                return invocation.fail(1, "when not truncating set1, string2 must be non-empty");
            };
            if options.has("t") {
                from.truncate(to.len());
            }
            for (index, byte) in from.iter().enumerate() {
                if let Some(slot) = map.get_mut(usize::from(*byte)) {
                    *slot = Some(to.get(index).copied().unwrap_or(last));
                }
            }
            if squeeze {
                mark(to);
            }
        }
    }
    let mut before = None;
    loop {
        let chunk = match invocation.io.stdin.read_chunk() {
            Ok(chunk) => chunk,
            Err(error) => return invocation.fail(1, describe(error)),
        };
        if chunk.is_empty() {
            return Ok(0);
        }
        invocation.meter.charge_each(chunk.len(), 2 * meter::BYTE)?;
        let mut output = Vec::with_capacity(chunk.len());
        for byte in chunk {
            let Some(Some(byte)) = map.get(usize::from(byte)) else { continue };
            let squeezes = squeezed.get(usize::from(*byte)).copied().unwrap_or(false);
            if !(squeezes && before == Some(*byte)) {
                output.push(*byte);
            }
            before = Some(*byte);
        }
        invocation.out(&output)?;
    }
}

/// The bytes that a set names, in order. `length`: how many `[x*]` has to fill up to.
fn set(text: &[u8], length: Option<usize>) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = text.get(at..).unwrap_or_default();
        if rest.starts_with(b"[:")
            && let Some(end) = rest.windows(2).position(|pair| pair == b":]")
        {
            let class = rest.get(2..end).unwrap_or_default();
            for member in 0..=255_u8 {
                match in_class(class, member) {
                    Some(true) => bytes.push(member),
                    Some(false) => {}
                    None => {
                        let class = String::from_utf8_lossy(class);
                        return Err(format!("invalid character class '{class}'"));
                    }
                }
            }
            at += end + 2;
            continue;
        }
        if let [b'[', repeated, b'*', after @ ..] = rest
            && let Some(end) = after.iter().position(|byte| *byte == b']')
            && after.get(..end).is_some_and(|digits| digits.iter().all(u8::is_ascii_digit))
        {
            let digits = after.get(..end).unwrap_or_default();
            let count = super::parse_number::<usize>(digits).unwrap_or(0);
            let missing = length.unwrap_or(0).saturating_sub(bytes.len());
            let count = if count == 0 { missing } else { count.min(65_536) };
            bytes.extend(std::iter::repeat_n(*repeated, count));
            at += 3 + end + 1;
            continue;
        }
        let (first, next) = one(text, at);
        at = next;
        if byte(text, at) == Some(b'-') && at + 1 < text.len() {
            let (last, next) = one(text, at + 1);
            if last < first {
                return Err(format!(
                    "range-endpoints of '{}-{}' are in reverse collating sequence order",
                    char::from(first).escape_default(),
                    char::from(last).escape_default()
                ));
            }
            bytes.extend(first..=last);
            at = next;
        } else {
            bytes.push(first);
        }
        if bytes.len() > 1 << 20 {
            return Err("a set is too long".to_owned());
        }
    }
    Ok(bytes)
}

fn one(text: &[u8], at: usize) -> (u8, usize) {
    match byte(text, at) {
        Some(b'\\') => match escape(text, at + 1, false) {
            (Escape::Bytes(bytes), next) => match bytes.as_slice() {
                [one] => (*one, next),
                // An escape that means nothing is its letter.
                [b'\\', letter, ..] => (*letter, at + 2),
                _ => (b'\\', at + 1),
            },
            (Escape::End, next) => (b'c', next),
        },
        other => (other.unwrap_or(0), at + 1),
    }
}
