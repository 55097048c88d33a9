//! `test` and `[`.

use fulgurite_trace::file::FileKind;

use super::Invocation;
use crate::shell::files::Files;
use crate::shell::meter::{self, Stop};

/// Deepest parentheses and negations.
const DEPTH: usize = 64;

/// A test of one word, by its letter; `None` when there is no such test.
pub(crate) fn unary(letter: char, text: &[u8], files: &Files) -> Option<bool> {
    let kind = |follow: bool| files.stat(text, follow).ok().map(|stat| stat.kind);
    Some(match letter {
        'n' => !text.is_empty(),
        'z' => text.is_empty(),
        // There are no modes: what exists can be read, written and run.
        'e' | 'a' | 'r' | 'w' | 'x' => kind(true).is_some() || text == b"/dev/null",
        'f' => kind(true) == Some(FileKind::File),
        'd' => kind(true) == Some(FileKind::Directory),
        'h' | 'L' => kind(false) == Some(FileKind::Symlink),
        's' => files
            .stat(text, true)
            .is_ok_and(|stat| stat.size > 0 || stat.kind == FileKind::Directory),
        'b' | 'c' | 'p' | 'S' | 'g' | 'k' | 'u' | 't' => false,
        'O' | 'G' => kind(true).is_some(),
        _ => return None,
    })
}

/// Whether a test compares numbers.
pub(crate) fn is_numeric(name: &str) -> bool {
    matches!(name, "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge")
}

/// Compares two numbers.
pub(crate) fn compare_numbers(name: &str, left: i64, right: i64) -> Option<bool> {
    Some(match name {
        "-eq" => left == right,
        "-ne" => left != right,
        "-lt" => left < right,
        "-le" => left <= right,
        "-gt" => left > right,
        "-ge" => left >= right,
        _ => return None,
    })
}

/// A test of two words that are not numbers; `None` when there is no such test.
pub(crate) fn compare(name: &str, left: &[u8], right: &[u8], files: &Files) -> Option<bool> {
    let stat = |path: &[u8]| files.stat(path, true).ok();
    let modified = |path: &[u8]| stat(path).map(|stat| stat.times.modified);
    Some(match name {
        "=" | "==" => left == right,
        "!=" => left != right,
        "<" => left < right,
        ">" => left > right,
        "-nt" => match (modified(left), modified(right)) {
            (Some(left), Some(right)) => left > right,
            (left, right) => left.is_some() && right.is_none(),
        },
        "-ot" => match (modified(left), modified(right)) {
            (Some(left), Some(right)) => left < right,
            (left, right) => left.is_none() && right.is_some(),
        },
        "-ef" => match (stat(left), stat(right)) {
            (Some(left), Some(right)) => left.identity == right.identity,
            _ => false,
        },
        _ => return None,
    })
}

pub(super) fn run(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let mut arguments = invocation.arguments;
    if invocation.name == b"[" {
        match arguments {
            [inner @ .., last] if last == b"]" => arguments = inner,
            _ => return invocation.fail(2, "missing `]'"),
        }
    }
    invocation.meter.charge_each(arguments.len() + 1, meter::ENTRY)?;
    let mut parser = Parser { files: invocation.files, words: arguments, depth: 0 };
    let outcome = parser.short().unwrap_or_else(|| {
        let value = parser.or()?;
        match parser.words {
            [] => Ok(value),
            [extra, ..] => Err(format!("{}: unexpected argument", String::from_utf8_lossy(extra))),
        }
    });
    match outcome {
        Ok(value) => Ok(i32::from(!value)),
        Err(message) => invocation.fail(2, &message),
    }
}

struct Parser<'a> {
    files: &'a Files,
    words: &'a [Vec<u8>],
    depth: usize,
}

type Outcome = Result<bool, String>;

impl<'a> Parser<'a> {
    /// POSIX decides by the number of words when there are few of them.
    fn short(&mut self) -> Option<Outcome> {
        match self.words {
            [] => Some(Ok(false)),
            [word] => Some(Ok(!word.is_empty())),
            [not, word] if not == b"!" => Some(Ok(word.is_empty())),
            [operator, word] => Some(match letter(operator) {
                Some(letter) => unary(letter, word, self.files)
                    .ok_or_else(|| format!("-{letter}: unary operator expected")),
                None => {
                    Err(format!("{}: unary operator expected", String::from_utf8_lossy(operator)))
                }
            }),
            [left, operator, right] if is_binary(operator) => {
                Some(self.binary(left, operator, right))
            }
            [not, rest @ ..] if not == b"!" && rest.len() <= 3 => {
                self.words = rest;
                let inner = self.short()?;
                Some(inner.map(|value| !value))
            }
            [open, word, close] if open == b"(" && close == b")" => Some(Ok(!word.is_empty())),
            _ => None,
        }
    }

    fn take(&mut self, word: &[u8]) -> bool {
        match self.words {
            [first, rest @ ..] if first == word => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }

    fn or(&mut self) -> Outcome {
        let mut value = self.and()?;
        while self.take(b"-o") {
            value |= self.and()?;
        }
        Ok(value)
    }

    fn and(&mut self) -> Outcome {
        let mut value = self.not()?;
        while self.take(b"-a") {
            value &= self.not()?;
        }
        Ok(value)
    }

    fn not(&mut self) -> Outcome {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err("too deep".to_owned());
        }
        let value = match self.words {
            [not, _, ..] if not == b"!" => {
                self.words = self.words.get(1..).unwrap_or_default();
                self.not().map(|value| !value)
            }
            _ => self.primary(),
        };
        self.depth -= 1;
        value
    }

    fn primary(&mut self) -> Outcome {
        match self.words {
            [] => Err("argument expected".to_owned()),
            [left, operator, right, rest @ ..] if is_binary(operator) => {
                self.words = rest;
                self.binary(left, operator, right)
            }
            [open, rest @ ..] if open == b"(" => {
                self.words = rest;
                let value = self.or()?;
                if self.take(b")") { Ok(value) } else { Err("`)' expected".to_owned()) }
            }
            [operator, word, rest @ ..]
                if letter(operator).is_some_and(|l| unary(l, word, self.files).is_some()) =>
            {
                self.words = rest;
                Ok(letter(operator).and_then(|l| unary(l, word, self.files)).unwrap_or(false))
            }
            [word, rest @ ..] => {
                self.words = rest;
                Ok(!word.is_empty())
            }
        }
    }

    fn binary(&self, left: &[u8], operator: &[u8], right: &[u8]) -> Outcome {
        let name = String::from_utf8_lossy(operator);
        if is_numeric(&name) {
            let number = |text: &[u8]| {
                super::parse_number::<i64>(text).ok_or_else(|| {
                    format!("{}: integer expression expected", String::from_utf8_lossy(text))
                })
            };
            return compare_numbers(&name, number(left)?, number(right)?)
                .ok_or_else(|| format!("{name}: binary operator expected"));
        }
        compare(&name, left, right, self.files)
            .ok_or_else(|| format!("{name}: binary operator expected"))
    }
}

fn letter(operator: &[u8]) -> Option<char> {
    match operator {
        [b'-', letter] if letter.is_ascii_alphabetic() => Some(char::from(*letter)),
        _ => None,
    }
}

fn is_binary(operator: &[u8]) -> bool {
    matches!(
        operator,
        b"=" | b"=="
            | b"!="
            | b"<"
            | b">"
            | b"-eq"
            | b"-ne"
            | b"-lt"
            | b"-le"
            | b"-gt"
            | b"-ge"
            | b"-nt"
            | b"-ot"
            | b"-ef"
    )
}
