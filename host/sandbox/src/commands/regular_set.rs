//! Bracket expressions of POSIX regular expressions.

use crate::shell::pattern::in_class;
use crate::shell::scan_byte as byte;

/// Most different bytes.
const BYTES: u8 = 255;

/// After `[`: the expression in the engine's syntax, and the index after its `]`.
pub(crate) fn bracket(text: &[u8], mut at: usize, sed: bool) -> Result<(String, usize), String> {
    let unmatched = || "Unmatched [, [^, [:, [., or [=".to_owned();
    let mut set = [false; 256];
    let negated = byte(text, at) == Some(b'^');
    if negated {
        at += 1;
    }
    let mut first = true;
    loop {
        let current = byte(text, at).ok_or_else(unmatched)?;
        if current == b']' && !first {
            at += 1;
            break;
        }
        first = false;
        if current == b'[' && matches!(byte(text, at + 1), Some(b'.' | b'=')) {
            return Err("collating elements ([. .], [= =]) are not supported".to_owned());
        }
        if current == b'[' && byte(text, at + 1) == Some(b':') {
            let rest = text.get(at + 2..).unwrap_or_default();
            let length =
                rest.windows(2).position(|window| window == b":]").ok_or_else(unmatched)?;
            let class = rest.get(..length).unwrap_or_default();
            for member in 0..=BYTES {
                let inside = in_class(class, member)
                    .ok_or_else(|| "Invalid character class name".to_owned())?;
                if inside {
                    include(&mut set, member, member);
                }
            }
            at += length + 4;
            continue;
        }
        let (low, next) = member(text, at, sed).ok_or_else(unmatched)?;
        let ends = byte(text, next) == Some(b'-')
            && byte(text, next + 1).is_some_and(|after| after != b']');
        if ends {
            let (high, next) = member(text, next + 1, sed).ok_or_else(unmatched)?;
            if high < low {
                return Err("Invalid range end".to_owned());
            }
            include(&mut set, low, high);
            at = next;
        } else {
            include(&mut set, low, low);
            at = next;
        }
    }
    Ok((show(&set, negated), at))
}

/// One byte, with sed's escapes.
fn member(text: &[u8], at: usize, sed: bool) -> Option<(u8, usize)> {
    let current = byte(text, at)?;
    if sed && current == b'\\' {
        match byte(text, at + 1) {
            Some(b'n') => return Some((b'\n', at + 2)),
            Some(b't') => return Some((b'\t', at + 2)),
            Some(b'r') => return Some((b'\r', at + 2)),
            Some(b']') => return Some((b'\\', at + 1)),
            _ => {}
        }
    }
    Some((current, at + 1))
}

fn include(set: &mut [bool; 256], first: u8, last: u8) {
    for (index, member) in set.iter_mut().enumerate() {
        if index >= usize::from(first) && index <= usize::from(last) {
            *member = true;
        }
    }
}

fn show(set: &[bool; 256], negated: bool) -> String {
    let mut text = String::from(if negated { "[^" } else { "[" });
    let mut run: Option<u8> = None;
    let mut empty = true;
    for number in 0..=256_u16 {
        let member = set.get(usize::from(number)).copied().unwrap_or(false);
        match (run, member) {
            (None, true) => run = u8::try_from(number).ok(),
            (Some(first), false) => {
                text.push_str(&format!("\\x{first:02x}-\\x{:02x}", number - 1));
                run = None;
                empty = false;
            }
            _ => {}
        }
    }
    if empty {
        // Matches no byte at all, or with `^` every one.
        text.push_str("\\x00-\\xff&&[^\\x00-\\xff]");
    }
    text.push(']');
    text
}
