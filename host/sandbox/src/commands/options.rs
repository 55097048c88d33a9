//! Options as GNU commands take them.
//!
//! A command lists its options as text: `"n|number"` is a flag, `"e|regexp="` takes a value,
//! `"i|in-place=?"` takes one only when it is attached, `"|include="` has no short form. An option
//! is asked for by its short letter, or by its long name when it has none.

use super::Invocation;
use crate::shell::meter::Stop;

/// Parsed arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    given: Vec<(&'static str, Option<Vec<u8>>)>,
    /// What is not an option, in order.
    pub(crate) operands: Vec<Vec<u8>>,
}

impl Options {
    /// Whether the option was given.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.given.iter().any(|(given, _)| *given == key)
    }

    /// Its last value.
    pub(crate) fn value(&self, key: &str) -> Option<&[u8]> {
        self.given.iter().rev().find(|(given, _)| *given == key)?.1.as_deref()
    }

    /// Its values in order.
    pub(crate) fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.given
            .iter()
            .filter(move |(given, _)| *given == key)
            .filter_map(|(_, value)| value.as_deref())
    }

    /// Which of `keys` was given last.
    pub(crate) fn last<'a>(&self, keys: &[&'a str]) -> Option<&'a str> {
        let (given, _) = self.given.iter().rev().find(|(given, _)| keys.contains(given))?;
        keys.iter().find(|key| *key == given).copied()
    }

    /// All options in order.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, Option<&[u8]>)> {
        self.given.iter().map(|(key, value)| (*key, value.as_deref()))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    Nothing,
    Value,
    Attached,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    short: &'static str,
    long: &'static str,
    takes: Takes,
}

impl Known {
    fn parse(text: &'static str) -> Self {
        let (names, takes) = match text.strip_suffix("=?") {
            Some(names) => (names, Takes::Attached),
            None => match text.strip_suffix('=') {
                Some(names) => (names, Takes::Value),
                None => (text, Takes::Nothing),
            },
        };
        let (short, long) = names.split_once('|').unwrap_or((names, ""));
        Self { short, long, takes }
    }

    fn key(&self) -> &'static str {
        if self.short.is_empty() { self.long } else { self.short }
    }
}

/// What is wrong with arguments.
pub(crate) type Mistake = String;

/// Parses arguments. `stop` ends options at the first operand, as `xargs` and `env` do.
pub(crate) fn parse(
    arguments: &[Vec<u8>],
    known: &[&'static str],
    stop: bool,
) -> Result<Options, Mistake> {
    let known: Vec<Known> = known.iter().copied().map(Known::parse).collect();
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_slice() {
            b"--" => {
                options.operands.extend(rest.cloned());
                break;
            }
            [b'-', b'-', name @ ..] => {
                let (name, value) = match name.iter().position(|byte| *byte == b'=') {
                    Some(at) => (name.get(..at).unwrap_or_default(), name.get(at + 1..)),
                    None => (name, None),
                };
                let shown = String::from_utf8_lossy(name).into_owned();
                let found = find_long(&known, &shown)?;
                let value = match (found.takes, value) {
                    (Takes::Nothing, Some(_)) => {
                        return Err(format!("option '--{shown}' doesn't allow an argument"));
                    }
                    (Takes::Value, None) => match rest.next() {
                        Some(value) => Some(value.clone()),
                        None => return Err(format!("option '--{shown}' requires an argument")),
                    },
                    (_, value) => value.map(<[u8]>::to_vec),
                };
                options.given.push((found.key(), value));
            }
            [b'-', letters @ ..] if !letters.is_empty() => {
                let mut letters = letters;
                while let [letter, after @ ..] = letters {
                    letters = after;
                    let shown = char::from(*letter);
                    let found = known
                        .iter()
                        .find(|known| known.short.as_bytes() == [*letter])
                        .ok_or_else(|| format!("invalid option -- '{shown}'"))?;
                    let value = match found.takes {
                        Takes::Nothing => None,
                        Takes::Attached => Some(std::mem::take(&mut letters).to_vec()),
                        Takes::Value if !letters.is_empty() => {
                            Some(std::mem::take(&mut letters).to_vec())
                        }
                        Takes::Value => match rest.next() {
                            Some(value) => Some(value.clone()),
                            None => {
                                return Err(format!("option requires an argument -- '{shown}'"));
                            }
                        },
                    };
                    options.given.push((found.key(), value));
                }
            }
            _ => {
                options.operands.push(argument.clone());
                if stop {
                    options.operands.extend(rest.cloned());
                    break;
                }
            }
        }
    }
    Ok(options)
}

/// A long name, or the beginning of exactly one.
fn find_long(known: &[Known], name: &str) -> Result<Known, Mistake> {
    if let Some(exact) = known.iter().find(|known| known.long == name && !name.is_empty()) {
        return Ok(*exact);
    }
    let mut starting =
        known.iter().filter(|known| !name.is_empty() && known.long.starts_with(name));
    match (starting.next(), starting.next()) {
        (Some(one), None) => Ok(*one),
        (Some(_), Some(_)) => Err(format!("option '--{name}' is ambiguous")),
        _ => Err(format!("unrecognized option '--{name}'")),
    }
}

impl Invocation<'_> {
    /// Parses the arguments; complains and answers `None` when they are wrong, for status 2.
    pub(crate) fn options(&mut self, known: &[&'static str]) -> Result<Option<Options>, Stop> {
        match parse(self.arguments, known, false) {
            Ok(options) => Ok(Some(options)),
            Err(mistake) => {
                self.complain(&mistake)?;
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str], stop: bool) -> Result<Options, Mistake> {
        let arguments: Vec<Vec<u8>> =
            arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect();
        parse(&arguments, &["n|number", "e|regexp=", "i|in-place=?", "|include="], stop)
    }

    #[test]
    fn options_come_in_every_gnu_way() {
        let options =
            parsed(&["-ne", "x", "a", "--regexp=y", "-i.bak", "--incl", "z", "--", "-n"], false)
                .unwrap();
        assert!(options.has("n"));
        assert_eq!(options.values("e").collect::<Vec<_>>(), [b"x", b"y"]);
        assert_eq!(options.value("i"), Some(&b".bak"[..]));
        assert_eq!(options.value("include"), Some(&b"z"[..]));
        assert_eq!(options.operands, [b"a".to_vec(), b"-n".to_vec()]);
    }

    #[test]
    fn a_command_of_its_own_keeps_its_options() {
        let options = parsed(&["-n", "grep", "-n"], true).unwrap();
        assert_eq!(options.operands, [b"grep".to_vec(), b"-n".to_vec()]);
    }

    #[test]
    fn wrong_options_are_named() {
        assert!(parsed(&["-y"], false).unwrap_err().contains("'y'"));
        assert!(parsed(&["--yes"], false).unwrap_err().contains("'--yes'"));
        assert!(parsed(&["-e"], false).unwrap_err().contains("requires"));
    }
}
