//! `find`: sizes, comparisons and formats.

use super::find::{Compare, Mistake, Node, Parsed, Part, wrong};

/// What `+`, `-` or nothing before a number means, and the number.
pub(super) fn compare(text: &[u8]) -> (Compare, &[u8]) {
    match text {
        [b'+', digits @ ..] => (Compare::More, digits),
        [b'-', digits @ ..] => (Compare::Less, digits),
        digits => (Compare::Equal, digits),
    }
}

/// `-size`.
pub(super) fn size(text: &[u8]) -> Parsed {
    let (compare, digits) = compare(text);
    let (digits, unit) = match digits {
        [digits @ .., b'c'] => (digits, 1),
        [digits @ .., b'w'] => (digits, 2),
        [digits @ .., b'b'] => (digits, 512),
        [digits @ .., b'k'] => (digits, 1 << 10),
        [digits @ .., b'M'] => (digits, 1 << 20),
        [digits @ .., b'G'] => (digits, 1 << 30),
        digits => (digits, 512),
    };
    match super::parse_number(digits) {
        Some(size) => Ok(Node::Size { compare, size, unit }),
        None => wrong(format!("Invalid argument `{}' to -size", String::from_utf8_lossy(text))),
    }
}

/// The parts of a `-printf` format.
pub(super) fn format(text: &[u8]) -> Result<Vec<Part>, Mistake> {
    let mut parts = Vec::new();
    let mut plain = Vec::new();
    let mut at = 0;
    while let Some(current) = text.get(at) {
        at += 1;
        match current {
            b'\\' => match super::echo::escape(text, at, false) {
                (super::echo::Escape::Bytes(bytes), next) => {
                    plain.extend(bytes);
                    at = next;
                }
                (super::echo::Escape::End, _) => break,
            },
            b'%' => {
                let letter = text.get(at).copied().unwrap_or(b'%');
                at += 1;
                match letter {
                    b'%' => plain.push(b'%'),
                    b'p' | b'f' | b'h' | b'P' | b's' | b'd' | b'y' | b'l' => {
                        parts.push(Part::Text(std::mem::take(&mut plain)));
                        parts.push(Part::Letter(letter));
                    }
                    other => {
                        let letter = char::from(other).escape_default();
                        return Err(Mistake::Unsupported(format!("-printf %{letter}")));
                    }
                }
            }
            other => plain.push(*other),
        }
    }
    parts.push(Part::Text(plain));
    Ok(parts)
}
