//! `echo`, with the escapes it shares with `printf`.

use super::Invocation;
use crate::shell::meter::Stop;
use crate::shell::scan_byte as byte;

/// What an escape stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Escape {
    Bytes(Vec<u8>),
    /// `\c`: nothing more is written.
    End,
}

/// The escape after a backslash at `at`, and the index after it. `echo` and `%b` write octal as
/// `\0nnn`, a format as `\nnn`.
pub(super) fn escape(text: &[u8], at: usize, leading_zero: bool) -> (Escape, usize) {
    let Some(letter) = byte(text, at) else { return (Escape::Bytes(b"\\".to_vec()), at) };
    let one = |byte: u8| (Escape::Bytes(vec![byte]), at + 1);
    match letter {
        b'a' => one(7),
        b'b' => one(8),
        b'c' => (Escape::End, at + 1),
        b'e' | b'E' => one(27),
        b'f' => one(12),
        b'n' => one(b'\n'),
        b'r' => one(b'\r'),
        b't' => one(b'\t'),
        b'v' => one(11),
        b'\\' => one(b'\\'),
        b'"' | b'\'' | b'?' if !leading_zero => one(letter),
        b'0'..=b'7' => {
            let start = if leading_zero && letter == b'0' { at + 1 } else { at };
            if leading_zero && letter != b'0' {
                return (Escape::Bytes(vec![b'\\', letter]), at + 1);
            }
            let (value, used) = digits(text, start, 8, 3);
            (Escape::Bytes(vec![(value & 0xff) as u8]), start + used)
        }
        b'x' => match digits(text, at + 1, 16, 2) {
            (_, 0) => (Escape::Bytes(b"\\x".to_vec()), at + 1),
            (value, used) => (Escape::Bytes(vec![(value & 0xff) as u8]), at + 1 + used),
        },
        b'u' | b'U' => match digits(text, at + 1, 16, if letter == b'u' { 4 } else { 8 }) {
            (_, 0) => (Escape::Bytes(vec![b'\\', letter]), at + 1),
            (value, used) => {
                let shown = char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER);
                (Escape::Bytes(shown.to_string().into_bytes()), at + 1 + used)
            }
        },
        other => (Escape::Bytes(vec![b'\\', other]), at + 1),
    }
}

fn digits(text: &[u8], at: usize, radix: u32, most: usize) -> (u32, usize) {
    let mut value = 0_u32;
    let mut used = 0;
    while used < most
        && let Some(digit) = byte(text, at + used).and_then(|byte| char::from(byte).to_digit(radix))
    {
        value = value.wrapping_mul(radix).wrapping_add(digit);
        used += 1;
    }
    (value, used)
}

/// Text with its escapes; `false` when `\c` cut it.
pub(super) fn unescape(text: &[u8]) -> (Vec<u8>, bool) {
    let mut plain = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(current) = byte(text, at) {
        at += 1;
        if current != b'\\' {
            plain.push(current);
            continue;
        }
        match escape(text, at, true) {
            (Escape::Bytes(bytes), next) => {
                plain.extend(bytes);
                at = next;
            }
            (Escape::End, _) => return (plain, false),
        }
    }
    (plain, true)
}

pub(super) fn run(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let (mut newline, mut escapes) = (true, false);
    let mut words = invocation.arguments;
    // Only words made of known letters are options; everything else is text.
    while let [option, after @ ..] = words
        && let [b'-', letters @ ..] = option.as_slice()
        && !letters.is_empty()
        && letters.iter().all(|letter| matches!(letter, b'n' | b'e' | b'E'))
    {
        for letter in letters {
            match letter {
                b'n' => newline = false,
                letter => escapes = *letter == b'e',
            }
        }
        words = after;
    }
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            invocation.out(b" ")?;
        }
        if !escapes {
            invocation.out(word)?;
            continue;
        }
        let (text, whole) = unescape(word);
        invocation.out(&text)?;
        if !whole {
            return Ok(0);
        }
    }
    if newline {
        invocation.out(b"\n")?;
    }
    Ok(0)
}
