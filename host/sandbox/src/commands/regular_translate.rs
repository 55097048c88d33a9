//! Translates POSIX regular expressions to the engine's syntax.

use super::regular::Options;
use super::regular_set::bracket;
use crate::shell::scan_byte as byte;

/// Largest expression, in states after repetition.
pub(super) const WEIGHT: usize = 2_000;
/// Deepest groups.
const DEPTH: usize = 40;

/// A part of an expression in the engine's syntax.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) text: String,
    pub(super) weight: usize,
    /// Its length when it is plain text.
    plain: Option<usize>,
}

/// Joins alternatives; plain ones longest first.
pub(super) fn alternate(mut alternatives: Vec<Part>) -> String {
    if alternatives.iter().all(|part| part.plain.is_some()) {
        alternatives.sort_by_key(|part| std::cmp::Reverse(part.plain));
    }
    let texts: Vec<String> = alternatives.into_iter().map(|part| part.text).collect();
    texts.join("|")
}

fn literal(byte: u8) -> String {
    if byte.is_ascii_alphanumeric() || byte == b' ' {
        char::from(byte).to_string()
    } else {
        format!("\\x{byte:02x}")
    }
}

pub(super) fn translate(pattern: &[u8], options: Options) -> Result<Part, String> {
    if options.perl {
        let text = std::str::from_utf8(pattern).map_err(|_| "invalid UTF-8".to_owned())?;
        let repeats = text.matches('{').count().min(16);
        let text = format!("(?:{text})");
        return Ok(Part { weight: text.len() << repeats.min(6), text, plain: None });
    }
    if options.fixed {
        let text = pattern.iter().copied().map(literal).collect();
        return Ok(Part { text, weight: pattern.len() / 16, plain: Some(pattern.len()) });
    }
    let mut translator = Translator { text: pattern, at: 0, options, groups: 0 };
    let part = translator.alternatives(0)?;
    if translator.at < pattern.len() {
        return Err("Unmatched ) or \\)".to_owned());
    }
    Ok(part)
}

struct Translator<'a> {
    text: &'a [u8],
    at: usize,
    options: Options,
    groups: usize,
}

/// One thing in an expression.
enum Token {
    Byte(u8),
    Any,
    Open,
    Close,
    Bar,
    Start,
    End,
    Bracket,
    Repeat(usize, Option<usize>),
    /// Text in the engine's syntax that matches nothing but a place, or one byte.
    Engine(&'static str),
}

impl Translator<'_> {
    fn alternatives(&mut self, depth: usize) -> Result<Part, String> {
        if depth > DEPTH {
            return Err(format!("Regular expression too big (groups deeper than {DEPTH})"));
        }
        let mut parts = vec![self.sequence(depth)?];
        loop {
            let before = self.at;
            match self.token(false)? {
                Some(Token::Bar) => parts.push(self.sequence(depth)?),
                _ => {
                    self.at = before;
                    break;
                }
            }
        }
        let weight = parts.iter().map(|part| part.weight).sum();
        if let [one] = parts.as_slice() {
            return Ok(one.clone());
        }
        Ok(Part { text: alternate(parts), weight, plain: None })
    }

    fn sequence(&mut self, depth: usize) -> Result<Part, String> {
        let mut all = Part { plain: Some(0), ..Part::default() };
        let mut first = true;
        loop {
            let before = self.at;
            let Some(token) = self.token(first)? else { break };
            let mut part = match token {
                Token::Bar | Token::Close => {
                    self.at = before;
                    break;
                }
                Token::Open => self.group(depth)?,
                Token::Byte(byte) => Part { text: literal(byte), weight: 1, plain: Some(1) },
                Token::Any => Part { text: ".".to_owned(), weight: 1, plain: None },
                Token::Start => self.place("^"),
                Token::End => self.place("$"),
                Token::Engine(text) => self.place(text),
                Token::Bracket => {
                    let (text, next) = bracket(self.text, self.at, self.options.sed)?;
                    self.at = next;
                    Part { text, weight: 1, plain: None }
                }
                Token::Repeat(..) => return Err("Invalid preceding regular expression".to_owned()),
            };
            // In a basic expression a star right after the anchor is a star.
            first = matches!(part.text.as_str(), "^") && !self.options.extended;
            part = self.repeats(part, first)?;
            all.weight = all.weight.saturating_add(part.weight);
            if all.weight > WEIGHT {
                return Err(format!("Regular expression too big (more than {WEIGHT} states)"));
            }
            all.text.push_str(&part.text);
            all.plain = all.plain.zip(part.plain).map(|(left, right)| left + right);
        }
        Ok(all)
    }

    fn place(&self, text: &str) -> Part {
        Part { text: text.to_owned(), weight: 1, plain: None }
    }

    fn group(&mut self, depth: usize) -> Result<Part, String> {
        self.groups += 1;
        let inner = self.alternatives(depth + 1)?;
        match self.token(false)? {
            Some(Token::Close) => Ok(Part {
                text: format!("({})", inner.text),
                weight: inner.weight + 2,
                plain: None,
            }),
            _ => Err("Unmatched ( or \\(".to_owned()),
        }
    }

    fn repeats(&mut self, mut part: Part, after_anchor: bool) -> Result<Part, String> {
        let mut repeated = false;
        loop {
            let before = self.at;
            match self.token(after_anchor)? {
                Some(Token::Repeat(least, most)) => {
                    let most_shown = most.map_or(String::new(), |most| most.to_string());
                    let suffix = match (least, most) {
                        (0, None) => "*".to_owned(),
                        (1, None) => "+".to_owned(),
                        (0, Some(1)) => "?".to_owned(),
                        _ => format!("{{{least},{most_shown}}}"),
                    };
                    let inner = if repeated || part.plain.is_some_and(|length| length > 1) {
                        format!("(?:{})", part.text)
                    } else {
                        part.text
                    };
                    let times = most.unwrap_or(least).max(1);
                    part = Part {
                        text: format!("{inner}{suffix}"),
                        weight: part.weight.saturating_mul(times).saturating_add(1),
                        plain: None,
                    };
                    repeated = true;
                }
                _ => {
                    self.at = before;
                    return Ok(part);
                }
            }
        }
    }

    /// The next token. `first`: at a place where a star is a star.
    fn token(&mut self, first: bool) -> Result<Option<Token>, String> {
        let Some(current) = byte(self.text, self.at) else { return Ok(None) };
        self.at += 1;
        let extended = self.options.extended;
        let repeats = extended || self.options.emacs;
        Ok(Some(match current {
            b'\\' => return self.escape(first).map(Some),
            b'.' => Token::Any,
            b'[' => Token::Bracket,
            b'*' if first => Token::Byte(b'*'),
            b'*' => Token::Repeat(0, None),
            b'^' if extended || self.starts_here() => Token::Start,
            b'$' if extended || self.ends_here() => Token::End,
            b'(' if extended => Token::Open,
            b')' if extended => Token::Close,
            b'|' if extended => Token::Bar,
            b'+' | b'?' if repeats && first => Token::Byte(current),
            b'+' if repeats => Token::Repeat(1, None),
            b'?' if repeats => Token::Repeat(0, Some(1)),
            b'{' if extended && !first => match self.interval(b"}") {
                Some(repeat) => repeat?,
                None => Token::Byte(b'{'),
            },
            other => Token::Byte(other),
        }))
    }

    fn starts_here(&self) -> bool {
        let before = self.text.get(..self.at - 1).unwrap_or_default();
        before.is_empty() || before.ends_with(b"\\(") || before.ends_with(b"\\|")
    }

    fn ends_here(&self) -> bool {
        let after = self.text.get(self.at..).unwrap_or_default();
        after.is_empty() || after.starts_with(b"\\)") || after.starts_with(b"\\|")
    }

    fn escape(&mut self, first: bool) -> Result<Token, String> {
        let Some(escaped) = byte(self.text, self.at) else {
            return Err("Trailing backslash".to_owned());
        };
        self.at += 1;
        let basic = !self.options.extended;
        let posix = basic && !self.options.emacs;
        Ok(match escaped {
            b'(' if basic => Token::Open,
            b')' if basic => Token::Close,
            b'|' if basic => Token::Bar,
            b'{' if posix && !first => match self.interval(b"\\}") {
                Some(repeat) => repeat?,
                None => return Err("Unmatched \\{".to_owned()),
            },
            b'+' if posix && !first => Token::Repeat(1, None),
            b'?' if posix && !first => Token::Repeat(0, Some(1)),
            b'1'..=b'9' => {
                return Err(format!(
                    "back references (\\{}) are not supported",
                    char::from(escaped)
                ));
            }
            b'w' => Token::Engine("[0-9A-Za-z_]"),
            b'W' => Token::Engine("[^0-9A-Za-z_]"),
            b's' => Token::Engine("[\\t-\\r ]"),
            b'S' => Token::Engine("[^\\t-\\r ]"),
            b'b' => Token::Engine("\\b"),
            b'B' => Token::Engine("\\B"),
            b'<' => Token::Engine("\\b{start}"),
            b'>' => Token::Engine("\\b{end}"),
            b'`' => Token::Engine("\\A"),
            b'\'' => Token::Engine("\\z"),
            b'n' if self.options.sed => Token::Byte(b'\n'),
            b't' if self.options.sed => Token::Byte(b'\t'),
            b'r' if self.options.sed => Token::Byte(b'\r'),
            other => Token::Byte(other),
        })
    }

    /// After `{`: an interval up to `close`, or `None` when it is none.
    fn interval(&mut self, close: &[u8]) -> Option<Result<Token, String>> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let length = rest.windows(close.len()).position(|window| window == close)?;
        let inner = std::str::from_utf8(rest.get(..length)?).ok()?;
        let (least, most) = match inner.split_once(',') {
            None => (inner, Some(inner)),
            Some((least, "")) => (least, None),
            Some((least, most)) => (least, Some(most)),
        };
        let number = |text: &str| {
            text.bytes().all(|digit| digit.is_ascii_digit()).then(|| match text {
                "" => Some(0),
                text => text.parse::<usize>().ok(),
            })
        };
        let least = number(least)?;
        let most = match most {
            None => None,
            Some("") => return None,
            Some(most) => Some(number(most)?),
        };
        self.at += length + close.len();
        let too_big = || Err("Regular expression too big".to_owned());
        let Some(least) = least.filter(|least| *least <= WEIGHT) else { return Some(too_big()) };
        let most = match most {
            None => None,
            Some(Some(most)) if most <= WEIGHT => Some(most),
            Some(_) => return Some(too_big()),
        };
        if most.is_some_and(|most| most < least) {
            return Some(Err("Invalid content of \\{\\}".to_owned()));
        }
        Some(Ok(Token::Repeat(least, most)))
    }
}
