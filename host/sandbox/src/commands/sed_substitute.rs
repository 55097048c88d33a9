//! `sed`: reads `s` and `y`.

use super::sed_parse::{Action, Case, Parsed, Parser, Part, Substitute};

impl Parser<'_> {
    /// Text up to `delimiter`, which a backslash hides. In an expression, brackets hide it too.
    pub(super) fn delimited(&mut self, delimiter: u8, expression: bool) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        let mut bracket = false;
        loop {
            let current = self.peek()?;
            self.at += 1;
            match current {
                b'\\' => {
                    let escaped = self.peek()?;
                    self.at += 1;
                    if escaped == delimiter && !bracket {
                        // A delimiter that is special stays literal.
                        if expression && b"|.*+?()[]{}^$".contains(&delimiter) && self.extended {
                            text.push(b'\\');
                        }
                        text.push(delimiter);
                    } else {
                        text.extend([b'\\', escaped]);
                    }
                }
                b'[' if expression && !bracket => {
                    bracket = true;
                    text.push(b'[');
                    if self.peek() == Some(b'^') {
                        text.push(b'^');
                        self.at += 1;
                    }
                    if self.peek() == Some(b']') {
                        text.push(b']');
                        self.at += 1;
                    }
                }
                b'[' if bracket && matches!(self.peek(), Some(b':' | b'.' | b'=')) => {
                    // A class has brackets of its own.
                    let kind = self.peek()?;
                    let rest = self.text.get(self.at + 1..)?;
                    text.push(b'[');
                    if let Some(length) = rest.windows(2).position(|pair| pair == [kind, b']']) {
                        text.extend(self.text.get(self.at..self.at + length + 3)?);
                        self.at += length + 3;
                    }
                }
                b']' if bracket => {
                    bracket = false;
                    text.push(b']');
                }
                _ if current == delimiter && !bracket => return Some(text),
                b'\n' if expression && !bracket => return None,
                _ => text.push(current),
            }
        }
    }

    pub(super) fn substitute(&mut self) -> Parsed<Action> {
        let Some(delimiter) = self.peek() else { return self.wrong("unterminated `s' command") };
        if delimiter == b'\n' || delimiter == b'\\' {
            return self.wrong("delimiter character is not a single-byte character");
        }
        self.at += 1;
        let Some(pattern) = self.delimited(delimiter, true) else {
            return self.wrong("unterminated `s' command");
        };
        let Some(replacement) = self.delimited(delimiter, false) else {
            return self.wrong("unterminated `s' command");
        };
        let mut substitute = Substitute {
            regular: None,
            replacement: replacement_parts(&replacement),
            global: false,
            print: false,
            number: 1,
            write: None,
        };
        let (mut ignore_case, mut lines) = (false, false);
        loop {
            match self.peek() {
                Some(b'g') => substitute.global = true,
                Some(b'p') => substitute.print = true,
                Some(b'i' | b'I') => ignore_case = true,
                Some(b'm' | b'M') => lines = true,
                Some(b'0'..=b'9') => {
                    substitute.number = self.number();
                    if substitute.number == 0 {
                        return self.wrong("number option to `s' command may not be zero");
                    }
                    continue;
                }
                Some(b'w') => {
                    self.at += 1;
                    self.skip(b"");
                    substitute.write = Some(self.rest_of_line());
                    break;
                }
                Some(b'e') => return self.wrong("unsupported: the flag `e' of s"),
                None | Some(b';' | b'\n' | b'}' | b' ' | b'\t' | b'#') => break,
                Some(_) => return self.wrong("unknown option to `s'"),
            }
            self.at += 1;
        }
        substitute.regular = self.regular(&pattern, ignore_case, lines)?;
        if let Some(regular) = &substitute.regular {
            let groups = regular.groups();
            let highest = substitute.replacement.iter().filter_map(|part| match part {
                Part::Group(group) => Some(*group),
                _ => None,
            });
            if let Some(group) = highest.max().filter(|group| *group > groups) {
                return self.wrong(&format!("invalid reference \\{group} on `s' command's RHS"));
            }
        }
        Ok(Action::Substitute(Box::new(substitute)))
    }

    pub(super) fn translate(&mut self) -> Parsed<Action> {
        let Some(delimiter) = self.peek() else { return self.wrong("unterminated `y' command") };
        self.at += 1;
        let (Some(from), Some(to)) =
            (self.delimited(delimiter, false), self.delimited(delimiter, false))
        else {
            return self.wrong("unterminated `y' command");
        };
        let plain = |text: &[u8]| {
            let mut bytes = Vec::new();
            let mut rest = text;
            while let [first, after @ ..] = rest {
                rest = after;
                match (first, rest) {
                    (b'\\', [b'n', after @ ..]) => {
                        bytes.push(b'\n');
                        rest = after;
                    }
                    (b'\\', [b't', after @ ..]) => {
                        bytes.push(b'\t');
                        rest = after;
                    }
                    (b'\\', [escaped, after @ ..]) => {
                        bytes.push(*escaped);
                        rest = after;
                    }
                    _ => bytes.push(*first),
                }
            }
            bytes
        };
        let (from, to) = (plain(&from), plain(&to));
        if from.len() != to.len() {
            return self.wrong("strings for `y' command are different lengths");
        }
        let mut map = Box::new([0_u8; 256]);
        for (slot, byte) in map.iter_mut().zip(0..=255) {
            *slot = byte;
        }
        for (from, to) in from.iter().zip(&to) {
            if let Some(slot) = map.get_mut(usize::from(*from)) {
                *slot = *to;
            }
        }
        Ok(Action::Translate(map))
    }
}

/// Cuts a replacement at `&`, `\1` and the like.
fn replacement_parts(text: &[u8]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut plain = Vec::new();
    let mut rest = text;
    while let [first, after @ ..] = rest {
        rest = after;
        let part = match (first, rest) {
            (b'&', _) => Part::Group(0),
            (b'\\', [escaped, after @ ..]) => {
                rest = after;
                match escaped {
                    b'0'..=b'9' => Part::Group(usize::from(escaped - b'0')),
                    b'U' => Part::Case(Case::Upper),
                    b'L' => Part::Case(Case::Lower),
                    b'u' => Part::Case(Case::UpperOne),
                    b'l' => Part::Case(Case::LowerOne),
                    b'E' => Part::Case(Case::End),
                    b'n' => {
                        plain.push(b'\n');
                        continue;
                    }
                    b't' => {
                        plain.push(b'\t');
                        continue;
                    }
                    b'r' => {
                        plain.push(b'\r');
                        continue;
                    }
                    other => {
                        plain.push(*other);
                        continue;
                    }
                }
            }
            _ => {
                plain.push(*first);
                continue;
            }
        };
        if !plain.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut plain)));
        }
        parts.push(part);
    }
    if !plain.is_empty() {
        parts.push(Part::Text(plain));
    }
    parts
}
