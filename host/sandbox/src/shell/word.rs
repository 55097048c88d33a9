//! Cuts the raw text of a word into pieces.

use std::sync::Arc;

use super::parameter;
use super::plan::{Piece, Refusal, Word};
use super::scan::{
    self, byte, deeper, skip_ansi, skip_back_quote, skip_braces, skip_dollar, skip_double,
    skip_parentheses, skip_single, slice,
};
use super::syntax::Syntax;

/// Where the text stands, which decides what quotes and backslashes mean in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// An ordinary word.
    Word,
    /// Between double quotes.
    Double,
    /// In a here-document: like double quotes, but `"` is text.
    Document,
}

/// Cuts `text`, which stands at `place`.
pub(crate) fn cut(text: &[u8], place: Place, syntax: &Syntax) -> Result<Word, Refusal> {
    let mut cutter = Cutter { text, at: 0, syntax, pieces: Vec::new(), plain: Vec::new() };
    if place == Place::Word {
        cutter.tilde();
    }
    cutter.run(place)?;
    Ok(Word(cutter.pieces))
}

struct Cutter<'a> {
    text: &'a [u8],
    at: usize,
    syntax: &'a Syntax,
    pieces: Vec<Piece>,
    /// Text that is not yet a piece; quoted or not as `run` goes.
    plain: Vec<u8>,
}

impl Cutter<'_> {
    /// `~` alone before a slash or the end; `~name` stays text.
    fn tilde(&mut self) {
        if self.text.first() == Some(&b'~') && matches!(byte(self.text, 1), None | Some(b'/')) {
            self.pieces.push(Piece::Home);
            self.at = 1;
        }
    }

    fn flush(&mut self, quoted: bool) {
        if !self.plain.is_empty() {
            let text = std::mem::take(&mut self.plain);
            self.pieces.push(Piece::Text { text, quoted });
        }
    }

    fn push_quoted(&mut self, text: Vec<u8>) {
        self.flush(false);
        self.pieces.push(Piece::Text { text, quoted: true });
    }

    fn run(&mut self, place: Place) -> Result<(), Refusal> {
        let quoted = place != Place::Word;
        while let Some(current) = byte(self.text, self.at) {
            match (current, place) {
                (b'\\', Place::Word) => self.escape(),
                (b'\\', _) => self.escape_in_quotes(place),
                (b'\'', Place::Word) => {
                    let end = skip_single(self.text, self.at + 1)?;
                    let text = slice(self.text, self.at + 1, end - 1).to_vec();
                    self.push_quoted(text);
                    self.at = end;
                }
                (b'"', Place::Word) => self.double_quotes(self.at)?,
                (b'$', _) => self.dollar(quoted)?,
                (b'`', _) => {
                    let end = skip_back_quote(self.text, self.at + 1)?;
                    let inner = unescape_back_quote(slice(self.text, self.at + 1, end - 1), place);
                    self.substitute(&inner, quoted)?;
                    self.at = end;
                }
                _ => {
                    self.plain.push(current);
                    self.at += 1;
                }
            }
        }
        self.flush(quoted);
        Ok(())
    }

    fn escape(&mut self) {
        match byte(self.text, self.at + 1) {
            Some(b'\n') => {}
            Some(escaped) => self.push_quoted(vec![escaped]),
            None => self.plain.push(b'\\'),
        }
        self.at += 2;
    }

    fn escape_in_quotes(&mut self, place: Place) {
        match byte(self.text, self.at + 1) {
            Some(b'\n') => {}
            Some(escaped @ (b'$' | b'`' | b'\\')) => self.plain.push(escaped),
            Some(b'"') if place == Place::Double => self.plain.push(b'"'),
            Some(other) => self.plain.extend([b'\\', other]),
            None => self.plain.push(b'\\'),
        }
        self.at += 2;
    }

    /// At the opening `"`, which stands at `start`.
    fn double_quotes(&mut self, start: usize) -> Result<(), Refusal> {
        let end = skip_double(self.text, start + 1, 0)?;
        let inner = cut(slice(self.text, start + 1, end - 1), Place::Double, self.syntax)?;
        self.flush(false);
        if inner.0.is_empty() {
            self.pieces.push(Piece::Text { text: Vec::new(), quoted: true });
        }
        self.pieces.extend(inner.0);
        self.at = end;
        Ok(())
    }

    fn dollar(&mut self, quoted: bool) -> Result<(), Refusal> {
        let start = self.at;
        match byte(self.text, start + 1) {
            Some(b'\'') if !quoted => {
                let end = skip_ansi(self.text, start + 2)?;
                let text = ansi(slice(self.text, start + 2, end - 1));
                self.push_quoted(text);
                self.at = end;
            }
            Some(b'"') if !quoted => self.double_quotes(start + 1)?,
            Some(b'(') => {
                let end = skip_dollar(self.text, start, 0, quoted)?;
                let inner = slice(self.text, start + 2, end - 1);
                match arithmetic_inside(inner) {
                    Some(expression) => {
                        let expression = cut(expression, Place::Double, &self.syntax.deeper()?)?;
                        self.flush(quoted);
                        self.pieces.push(Piece::Arithmetic { expression, quoted });
                    }
                    None => self.substitute(inner, quoted)?,
                }
                self.at = end;
            }
            Some(b'{') => {
                let end = skip_braces(self.text, start + 2, deeper(0)?)?;
                let inner = slice(self.text, start + 2, end - 1);
                let parameter = parameter::parse(inner, quoted, &self.syntax.deeper()?)?;
                self.flush(quoted);
                self.pieces.push(Piece::Parameter { parameter: Box::new(parameter), quoted });
                self.at = end;
            }
            Some(b'[') => return Err(Refusal::unsupported("$[ ] (use $(( )))")),
            _ => {
                let rest = slice(self.text, start + 1, self.text.len());
                match parameter::plain(rest) {
                    Some((parameter, length)) => {
                        self.flush(quoted);
                        let parameter = Box::new(parameter);
                        self.pieces.push(Piece::Parameter { parameter, quoted });
                        self.at = start + 1 + length;
                    }
                    None => {
                        self.plain.push(b'$');
                        self.at = start + 1;
                    }
                }
            }
        }
        Ok(())
    }

    fn substitute(&mut self, inner: &[u8], quoted: bool) -> Result<(), Refusal> {
        let list = Arc::new(self.syntax.deeper()?.parse(inner)?);
        self.flush(quoted);
        self.pieces.push(Piece::Command { list, quoted });
        Ok(())
    }
}

/// What stands between the inner parentheses when `inner`, the text of `$( … )`, is wholly one
/// pair of them: `$(( … ))`.
fn arithmetic_inside(inner: &[u8]) -> Option<&[u8]> {
    if inner.first() != Some(&b'(') || inner.last() != Some(&b')') {
        return None;
    }
    match skip_parentheses(inner, 1, 0) {
        Ok(end) if end == inner.len() => Some(slice(inner, 1, inner.len() - 1)),
        _ => None,
    }
}

/// Within back quotes a backslash only hides `$`, a back quote and itself.
fn unescape_back_quote(text: &[u8], place: Place) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(current) = byte(text, at) {
        match (current, byte(text, at + 1)) {
            (b'\\', Some(escaped @ (b'$' | b'`' | b'\\'))) => {
                plain.push(escaped);
                at += 2;
            }
            (b'\\', Some(b'"')) if place == Place::Double => {
                plain.push(b'"');
                at += 2;
            }
            _ => {
                plain.push(current);
                at += 1;
            }
        }
    }
    plain
}

/// The text of `$'…'`.
fn ansi(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(current) = byte(text, at) {
        at += 1;
        if current != b'\\' {
            plain.push(current);
            continue;
        }
        let Some(letter) = byte(text, at) else {
            plain.push(b'\\');
            break;
        };
        at += 1;
        let number = |radix: u32, most: usize, from: usize| {
            digits_value(slice(text, from, (from + most).min(text.len())), radix)
        };
        match letter {
            b'a' => plain.push(7),
            b'b' => plain.push(8),
            b'e' | b'E' => plain.push(27),
            b'f' => plain.push(12),
            b'n' => plain.push(b'\n'),
            b'r' => plain.push(b'\r'),
            b't' => plain.push(b'\t'),
            b'v' => plain.push(11),
            b'\\' | b'\'' | b'"' | b'?' => plain.push(letter),
            b'0'..=b'7' => {
                let (value, used) = number(8, 3, at - 1);
                plain.push((value & 0xff) as u8);
                at += used - 1;
            }
            b'x' => match number(16, 2, at) {
                (_, 0) => plain.extend(b"\\x"),
                (value, used) => {
                    plain.push((value & 0xff) as u8);
                    at += used;
                }
            },
            b'u' | b'U' => match number(16, if letter == b'u' { 4 } else { 8 }, at) {
                (_, 0) => plain.extend([b'\\', letter]),
                (value, used) => {
                    at += used;
                    let letter = char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER);
                    plain.extend(letter.encode_utf8(&mut [0; 4]).as_bytes());
                }
            },
            other => plain.extend([b'\\', other]),
        }
    }
    // A C string ends at its first NUL.
    let end = plain.iter().position(|byte| *byte == 0).unwrap_or(plain.len());
    plain.truncate(end);
    plain
}

/// The value of the digits at the start of `text`, and how many there are.
pub(crate) fn digits_value(text: &[u8], radix: u32) -> (u32, usize) {
    let mut value = 0_u32;
    let mut used = 0;
    for byte in text {
        match char::from(*byte).to_digit(radix) {
            Some(digit) => value = value.wrapping_mul(radix).wrapping_add(digit),
            None => break,
        }
        used += 1;
    }
    (value, used)
}

/// A word of literal, quoted text.
pub(crate) fn literal(text: &[u8]) -> Word {
    Word(vec![Piece::Text { text: text.to_vec(), quoted: true }])
}

/// The text of a word that holds nothing to expand, with quotes removed.
pub(crate) fn constant(word: &Word) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    for piece in &word.0 {
        match piece {
            Piece::Text { text, .. } => all.extend_from_slice(text),
            _ => return None,
        }
    }
    Some(all)
}

/// Whether `text` is a variable name.
pub(crate) fn is_name(text: &[u8]) -> bool {
    !text.is_empty() && scan::name_length(text) == text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constant_of(text: &str) -> String {
        let word = cut(text.as_bytes(), Place::Word, &Syntax::default()).unwrap();
        String::from_utf8(constant(&word).unwrap()).unwrap()
    }

    #[test]
    fn quotes_and_escapes_are_removed() {
        assert_eq!(constant_of(r#"a'b c'"d e"\ f"#), "ab cd e f");
        assert_eq!(constant_of(r#""a\"b\$c\d""#), r#"a"b$c\d"#);
        assert_eq!(constant_of(r"$'a\n\t\x41\101\'\u00e9'"), "a\n\tAA'é");
        assert_eq!(constant_of("$"), "$");
        assert_eq!(constant_of("a$ b"), "a$ b");
    }

    #[test]
    fn arithmetic_is_told_from_a_subshell() {
        assert_eq!(arithmetic_inside(b"(1+2)"), Some(&b"1+2"[..]));
        assert_eq!(arithmetic_inside(b"(a); (b)"), None);
        assert_eq!(arithmetic_inside(b"echo"), None);
    }
}
