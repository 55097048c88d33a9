//! Patterns of file names and `case`: `*`, `?`, `[…]` and `\`, on bytes.

use regex::bytes::{Regex, RegexBuilder};

/// Longest pattern that is made an expression.
const REGEX_BYTES: usize = 64 << 10;

/// Characters that mean something in a pattern and are escaped when quoted.
pub(crate) fn is_special(byte: u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\' | b'-' | b'!' | b'^')
}

/// Adds text to a pattern so that it only matches itself.
pub(crate) fn push_literal(pattern: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        if is_special(*byte) {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
}

/// One element of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Element {
    Byte(u8),
    Any,
    Star,
    Set(Set),
}

/// Which bytes match, a bit each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Set([u64; 4]);

impl Set {
    fn has(self, byte: u8) -> bool {
        self.0.get(usize::from(byte >> 6)).is_some_and(|bits| bits >> (byte & 63) & 1 == 1)
    }

    fn include(&mut self, first: u8, last: u8) {
        for byte in first..=last {
            if let Some(bits) = self.0.get_mut(usize::from(byte >> 6)) {
                *bits |= 1 << (byte & 63);
            }
        }
    }

    fn negated(self) -> Self {
        Self(self.0.map(|bits| !bits))
    }
}

/// A pattern that is matched against whole texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<Element>);

impl Pattern {
    pub(crate) fn new(pattern: &[u8], ignore_case: bool) -> Self {
        let mut elements = Vec::new();
        let mut rest = pattern;
        while let [first, after @ ..] = rest {
            rest = after;
            match first {
                b'*' => {
                    if elements.last() != Some(&Element::Star) {
                        elements.push(Element::Star);
                    }
                }
                b'?' => elements.push(Element::Any),
                b'[' => match parse_set(after) {
                    Some((set, after)) => {
                        elements.push(Element::Set(set));
                        rest = after;
                    }
                    None => elements.push(Element::Byte(b'[')),
                },
                b'\\' => match after {
                    [escaped, after @ ..] => {
                        elements.push(Element::Byte(*escaped));
                        rest = after;
                    }
                    [] => elements.push(Element::Byte(b'\\')),
                },
                other => elements.push(Element::Byte(*other)),
            }
        }
        if ignore_case {
            for element in &mut elements {
                ignore(element);
            }
        }
        Self(elements)
    }

    /// What one match may cost, in comparisons.
    pub(crate) fn cost(&self, text: &[u8]) -> usize {
        let stars = self.0.iter().filter(|element| **element == Element::Star).count();
        if stars > 1 { self.0.len().saturating_mul(text.len()) } else { self.0.len() + text.len() }
    }

    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        let (mut at, mut place) = (0, 0);
        // Where the last star stands, and how far it has reached.
        let mut star: Option<(usize, usize)> = None;
        loop {
            match (self.0.get(at), text.get(place)) {
                (Some(Element::Star), _) => {
                    star = Some((at, place));
                    at += 1;
                    continue;
                }
                (None, None) => return true,
                (Some(element), Some(byte)) if accepts(element, *byte) => {
                    at += 1;
                    place += 1;
                    continue;
                }
                _ => {}
            }
            match star {
                Some((star_at, reached)) if reached < text.len() => {
                    star = Some((star_at, reached + 1));
                    at = star_at + 1;
                    place = reached + 1;
                }
                _ => return false,
            }
        }
    }

    /// The pattern as a regular expression, its stars greedy or not. Ends early when it is longer
    /// than one may be.
    fn regex(&self, greedy: bool) -> String {
        let mut text = String::new();
        for element in &self.0 {
            if text.len() > REGEX_BYTES {
                break;
            }
            match element {
                Element::Byte(byte) => text.push_str(&format!("\\x{byte:02x}")),
                Element::Any => text.push('.'),
                Element::Star => text.push_str(if greedy { ".*" } else { ".*?" }),
                Element::Set(set) => {
                    text.push('[');
                    let mut empty = true;
                    for byte in (0..=255_u8).filter(|byte| set.has(*byte)) {
                        text.push_str(&format!("\\x{byte:02x}"));
                        empty = false;
                    }
                    if empty {
                        text.push_str("a&&b");
                    }
                    text.push(']');
                }
            }
        }
        text
    }

    fn build(regex: &str) -> Option<Regex> {
        if regex.len() > REGEX_BYTES {
            return None;
        }
        RegexBuilder::new(regex)
            .unicode(false)
            .dot_matches_new_line(true)
            .size_limit(1 << 20)
            .dfa_size_limit(1 << 20)
            .build()
            .ok()
    }

    /// Finds the pattern at the front: group 1 is the match.
    pub(crate) fn front(&self, longest: bool) -> Option<Regex> {
        Self::build(&format!("\\A({})", self.regex(longest)))
    }

    /// Finds the pattern at the back: group 1 is the match.
    pub(crate) fn back(&self, longest: bool) -> Option<Regex> {
        let before = if longest { ".*?" } else { ".*" };
        Self::build(&format!("\\A{before}({})\\z", self.regex(true)))
    }

    /// Finds the pattern anywhere: group 1 is the match.
    pub(crate) fn anywhere(&self) -> Option<Regex> {
        Self::build(&format!("({})", self.regex(true)))
    }
}

fn accepts(element: &Element, byte: u8) -> bool {
    match element {
        Element::Byte(wanted) => *wanted == byte,
        Element::Any => true,
        Element::Set(set) => set.has(byte),
        Element::Star => false,
    }
}

fn ignore(element: &mut Element) {
    match element {
        Element::Byte(byte) if byte.is_ascii_alphabetic() => {
            let mut set = Set::default();
            for member in [byte.to_ascii_lowercase(), byte.to_ascii_uppercase()] {
                set.include(member, member);
            }
            *element = Element::Set(set);
        }
        Element::Set(set) => {
            for (lower, upper) in (b'a'..=b'z').zip(b'A'..=b'Z') {
                if set.has(lower) || set.has(upper) {
                    set.include(lower, lower);
                    set.include(upper, upper);
                }
            }
        }
        _ => {}
    }
}

/// Whether a byte is in a POSIX class such as `alpha`.
pub(crate) fn in_class(class: &[u8], byte: u8) -> Option<bool> {
    Some(match class {
        b"alpha" => byte.is_ascii_alphabetic(),
        b"digit" => byte.is_ascii_digit(),
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"upper" => byte.is_ascii_uppercase(),
        b"lower" => byte.is_ascii_lowercase(),
        b"space" => byte.is_ascii_whitespace() || byte == 11,
        b"blank" => byte == b' ' || byte == b'\t',
        b"punct" => byte.is_ascii_punctuation(),
        b"print" => byte.is_ascii_graphic() || byte == b' ',
        b"graph" => byte.is_ascii_graphic(),
        b"cntrl" => byte.is_ascii_control(),
        b"xdigit" => byte.is_ascii_hexdigit(),
        _ => return None,
    })
}

type Parsed<'a> = Option<(Set, &'a [u8])>;

/// After `[`: the set and what follows its `]`; `None` when it is never closed.
fn parse_set(text: &[u8]) -> Parsed<'_> {
    let (negated, mut rest) = match text {
        [b'!' | b'^', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let mut set = Set::default();
    let mut first = true;
    loop {
        match rest {
            [] => return None,
            [b']', after @ ..] if !first => {
                return Some((if negated { set.negated() } else { set }, after));
            }
            [b'[', b':', after @ ..] => {
                let end = after.windows(2).position(|pair| pair == b":]")?;
                let class = after.get(..end)?;
                for byte in 0..=255_u8 {
                    if in_class(class, byte)? {
                        set.include(byte, byte);
                    }
                }
                rest = after.get(end + 2..)?;
            }
            _ => {
                let (low, after) = set_byte(rest)?;
                match after {
                    [b'-', next @ ..] if !next.starts_with(b"]") && !next.is_empty() => {
                        let (high, after) = set_byte(next)?;
                        set.include(low, high);
                        rest = after;
                    }
                    _ => {
                        set.include(low, low);
                        rest = after;
                    }
                }
            }
        }
        first = false;
    }
}

fn set_byte(text: &[u8]) -> Option<(u8, &[u8])> {
    match text {
        [b'\\', escaped, after @ ..] => Some((*escaped, after)),
        [byte, after @ ..] => Some((*byte, after)),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::new(pattern.as_bytes(), false).matches(text.as_bytes())
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, text) in [
            ("*", ""),
            ("*.rs", "a.rs"),
            ("a*b*c", "aXbYbc"),
            ("?x", "ax"),
            ("[a-c]1", "b1"),
            ("[!a]", "b"),
            ("[]]", "]"),
            ("[[:digit:]]*", "1a"),
            ("\\*", "*"),
            ("[", "["),
            ("[a-]", "-"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("*.rs", "a.r"), ("[!a]", "a"), ("?", ""), ("\\*", "a"), ("a*b", "aba"), ("[a", "a")]
        {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn front_and_back_find_the_shortest_and_the_longest() {
        let find = |regex: Option<Regex>, text: &str| {
            let regex = regex.unwrap();
            let found = regex.captures(text.as_bytes()).unwrap().get(1).unwrap();
            String::from_utf8(found.as_bytes().to_vec()).unwrap()
        };
        let slash = Pattern::new(b"*/", false);
        assert_eq!(find(slash.front(false), "a/b/c"), "a/");
        assert_eq!(find(slash.front(true), "a/b/c"), "a/b/");
        let dot = Pattern::new(b".*", false);
        assert_eq!(find(dot.back(false), "a.b.c"), ".c");
        assert_eq!(find(dot.back(true), "a.b.c"), ".b.c");
    }

    proptest! {
        #[test]
        fn any_pattern_is_bounded_and_agrees_with_its_regex(
            pattern in "[a-c*?\\[\\]!^\\\\-]{0,12}",
            text in "[a-c*\\]-]{0,12}",
        ) {
            let pattern = Pattern::new(pattern.as_bytes(), false);
            let whole = Pattern::build(&format!("\\A{}\\z", pattern.regex(true))).unwrap();
            prop_assert_eq!(pattern.matches(text.as_bytes()), whole.is_match(text.as_bytes()));
        }
    }
}
