//! `$name` and `${name…}`.

use super::plan::{Change, End, Name, Otherwise, Parameter, Place as Where, Refusal, Word};
use super::scan::{byte, name_length, skip_one, slice};
use super::syntax::Syntax;
use super::word::{Place, cut};

/// The parameter right after a `$` that has no braces, and its length.
pub(crate) fn plain(text: &[u8]) -> Option<(Parameter, usize)> {
    let (name, length) = match text.first()? {
        digit @ b'0'..=b'9' => (Name::Positional(usize::from(digit - b'0')), 1),
        _ => name(text)?,
    };
    Some((Parameter { name, change: Change::None }, length))
}

fn name(text: &[u8]) -> Option<(Name, usize)> {
    let length = name_length(text);
    if length > 0 {
        let name = String::from_utf8_lossy(slice(text, 0, length)).into_owned();
        return Some((Name::Variable(name), length));
    }
    let name = match text.first()? {
        b'?' => Name::Status,
        b'#' => Name::Count,
        b'@' => Name::Each,
        b'*' => Name::Joined,
        b'$' | b'!' => Name::Process,
        b'-' => Name::Flags,
        b'0'..=b'9' => {
            let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let digits = std::str::from_utf8(slice(text, 0, length)).ok()?;
            return Some((Name::Positional(digits.parse().ok()?), length));
        }
        _ => return None,
    };
    Some((name, 1))
}

/// What stands between `${` and `}`.
pub(crate) fn parse(text: &[u8], quoted: bool, syntax: &Syntax) -> Result<Parameter, Refusal> {
    let bad =
        || Refusal::syntax(format!("bad substitution ${{{}}}", String::from_utf8_lossy(text)));
    if let Some(rest) = text.strip_prefix(b"#")
        && !rest.is_empty()
        && let Some((name, length)) = name(rest)
        && length == rest.len()
    {
        return Ok(Parameter { name, change: Change::Length });
    }
    if text.starts_with(b"!") && text.len() > 1 {
        return Err(Refusal::unsupported("indirect expansion ${!name}"));
    }
    let (name, length) = name(text).ok_or_else(bad)?;
    let rest = slice(text, length, text.len());
    let parser = Parser { quoted, syntax };
    let change = match rest {
        [] => Change::None,
        [b'[', ..] => return Err(Refusal::unsupported("arrays")),
        [b':', sign @ (b'-' | b'=' | b'?' | b'+'), word @ ..] => {
            parser.unless(*sign, true, word)?
        }
        [sign @ (b'-' | b'=' | b'?' | b'+'), word @ ..] => parser.unless(*sign, false, word)?,
        [b'#', b'#', pattern @ ..] => parser.trim(End::Front, true, pattern)?,
        [b'#', pattern @ ..] => parser.trim(End::Front, false, pattern)?,
        [b'%', b'%', pattern @ ..] => parser.trim(End::Back, true, pattern)?,
        [b'%', pattern @ ..] => parser.trim(End::Back, false, pattern)?,
        [b'/', b'/', rest @ ..] => parser.replace(Where::All, rest)?,
        [b'/', b'#', rest @ ..] => parser.replace(Where::Front, rest)?,
        [b'/', b'%', rest @ ..] => parser.replace(Where::Back, rest)?,
        [b'/', rest @ ..] => parser.replace(Where::First, rest)?,
        [b':', range @ ..] => parser.slice(range)?,
        [b'^', b'^'] => Change::Case { upper: true, all: true },
        [b'^'] => Change::Case { upper: true, all: false },
        [b',', b','] => Change::Case { upper: false, all: true },
        [b','] => Change::Case { upper: false, all: false },
        [b'^' | b',', ..] => {
            return Err(Refusal::unsupported("a pattern in ${name^pattern}"));
        }
        [b'@', ..] => return Err(Refusal::unsupported("${name@operator}")),
        _ => return Err(bad()),
    };
    if change != Change::None && matches!(name, Name::Each | Name::Joined) {
        return Err(Refusal::unsupported("changing all of $@ or $* at once"));
    }
    Ok(Parameter { name, change })
}

struct Parser<'a> {
    quoted: bool,
    syntax: &'a Syntax,
}

impl Parser<'_> {
    fn word(&self, text: &[u8]) -> Result<Word, Refusal> {
        // Within double quotes the word of `${x:-word}` follows their rules, but may hold quotes
        // of its own.
        let quoted = self.quoted && !text.contains(&b'"');
        cut(text, if quoted { Place::Double } else { Place::Word }, self.syntax)
    }

    fn unless(&self, sign: u8, colon: bool, text: &[u8]) -> Result<Change, Refusal> {
        let otherwise = match sign {
            b'-' => Otherwise::Use,
            b'=' => Otherwise::Assign,
            b'?' => Otherwise::Fail,
            _ => Otherwise::Replace,
        };
        Ok(Change::Unless { colon, otherwise, word: self.word(text)? })
    }

    fn trim(&self, end: End, longest: bool, pattern: &[u8]) -> Result<Change, Refusal> {
        Ok(Change::Trim { end, longest, pattern: cut(pattern, Place::Word, self.syntax)? })
    }

    fn replace(&self, place: Where, text: &[u8]) -> Result<Change, Refusal> {
        let (pattern, replacement) = split(text, b'/')?;
        Ok(Change::Replace {
            place,
            pattern: cut(pattern, Place::Word, self.syntax)?,
            replacement: cut(replacement.unwrap_or_default(), Place::Word, self.syntax)?,
        })
    }

    fn slice(&self, text: &[u8]) -> Result<Change, Refusal> {
        let (offset, length) = split(text, b':')?;
        let length = match length {
            Some(length) => Some(cut(length, Place::Double, self.syntax)?),
            None => None,
        };
        Ok(Change::Slice { offset: cut(offset, Place::Double, self.syntax)?, length })
    }
}

/// Splits at the first unquoted `separator`.
fn split(text: &[u8], separator: u8) -> Result<(&[u8], Option<&[u8]>), Refusal> {
    let mut at = 0;
    while let Some(current) = byte(text, at) {
        if current == separator {
            return Ok((slice(text, 0, at), Some(slice(text, at + 1, text.len()))));
        }
        at = skip_one(text, at, 0)?;
    }
    Ok((text, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(text: &str) -> Change {
        parse(text.as_bytes(), false, &Syntax::default()).unwrap().change
    }

    #[test]
    fn every_form_is_told_apart() {
        assert_eq!(change("x"), Change::None);
        assert_eq!(change("#x"), Change::Length);
        assert_eq!(change("#"), Change::None);
        assert!(matches!(change("x:-a"), Change::Unless { colon: true, .. }));
        assert!(matches!(change("x##*/"), Change::Trim { end: End::Front, longest: true, .. }));
        assert!(matches!(change("x%.*"), Change::Trim { end: End::Back, longest: false, .. }));
        assert!(matches!(change("x//a/b"), Change::Replace { place: Where::All, .. }));
        assert!(matches!(change("x:1:2"), Change::Slice { length: Some(_), .. }));
        assert!(matches!(change("x: -2"), Change::Slice { length: None, .. }));
        assert_eq!(change("x^^"), Change::Case { upper: true, all: true });
    }

    #[test]
    fn arrays_and_indirection_are_named() {
        for (text, named) in [("x[0]", "arrays"), ("!x", "indirect"), ("x@Q", "operator")] {
            match parse(text.as_bytes(), false, &Syntax::default()) {
                Err(Refusal::Unsupported(construct)) => assert!(construct.contains(named)),
                other => panic!("{text}: {other:?}"),
            }
        }
    }
}
