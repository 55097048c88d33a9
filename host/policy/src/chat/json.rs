//! JSON as Python's `json.dumps` writes it, which is what models were trained on.

use std::fmt::Write;

use serde_json::Value;

/// How `json.dumps` is asked to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Style {
    /// Blanks by which each level is set in; absent: all on one line.
    pub(super) indent: Option<usize>,
    /// Between entries, and between a name and its value.
    pub(super) separators: (String, String),
    pub(super) sort_keys: bool,
    pub(super) ensure_ascii: bool,
}

impl Style {
    /// As Python does unless told otherwise.
    pub(super) fn of(indent: Option<usize>) -> Self {
        let comma = if indent.is_some() { "," } else { ", " };
        let separators = (comma.to_owned(), ": ".to_owned());
        Self {
            indent: indent.map(|most| most.min(16)),
            separators,
            sort_keys: false,
            ensure_ascii: false,
        }
    }

    /// A value as JSON.
    pub(super) fn write(&self, value: &Value) -> String {
        let mut text = String::new();
        self.value(value, 0, &mut text);
        text
    }

    fn value(&self, value: &Value, depth: usize, to: &mut String) {
        match value {
            Value::Null => to.push_str("null"),
            Value::Bool(value) => to.push_str(if *value { "true" } else { "false" }),
            Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
                Some(number) => to.push_str(&float(number)),
                None => to.push_str(&number.to_string()),
            },
            Value::String(text) => self.string(text, to),
            Value::Array(values) => self.entries(['[', ']'], values, depth, to, |value, to| {
                self.value(value, depth + 1, to);
            }),
            Value::Object(fields) => {
                let mut fields: Vec<_> = fields.iter().collect();
                if self.sort_keys {
                    fields.sort_by_key(|(name, _)| *name);
                }
                self.entries(['{', '}'], &fields, depth, to, |(name, value), to| {
                    self.string(name, to);
                    to.push_str(&self.separators.1);
                    self.value(value, depth + 1, to);
                });
            }
        }
    }

    fn entries<T>(
        &self,
        brackets: [char; 2],
        entries: &[T],
        depth: usize,
        to: &mut String,
        mut write: impl FnMut(&T, &mut String),
    ) {
        to.push(brackets[0]);
        for (number, entry) in entries.iter().enumerate() {
            if number > 0 {
                to.push_str(&self.separators.0);
            }
            self.line(depth + 1, to);
            write(entry, to);
        }
        if !entries.is_empty() {
            self.line(depth, to);
        }
        to.push(brackets[1]);
    }

    /// A new line, where there are several.
    fn line(&self, depth: usize, to: &mut String) {
        if let Some(indent) = self.indent {
            to.push('\n');
            to.extend(std::iter::repeat_n(' ', indent.saturating_mul(depth)));
        }
    }

    fn string(&self, text: &str, to: &mut String) {
        to.push('"');
        for character in text.chars() {
            match character {
                '"' => to.push_str("\\\""),
                '\\' => to.push_str("\\\\"),
                '\n' => to.push_str("\\n"),
                '\r' => to.push_str("\\r"),
                '\t' => to.push_str("\\t"),
                '\u{8}' => to.push_str("\\b"),
                '\u{c}' => to.push_str("\\f"),
                other if other < ' ' || (self.ensure_ascii && !other.is_ascii()) => {
                    for unit in other.encode_utf16(&mut [0; 2]) {
                        // Writing to a string cannot fail.
                        let _ = write!(to, "\\u{unit:04x}");
                    }
                }
                other => to.push(other),
            }
        }
        to.push('"');
    }
}

/// A float as Python's `repr` writes it: the shortest digits that give it back, with an exponent
/// below 1e-4 and from 1e16 on.
fn float(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 || (1e-4..1e16).contains(&size) {
        return format!("{number:?}");
    }
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    match exponent.strip_prefix('-') {
        Some(exponent) => format!("{digits}e-{exponent:0>2}"),
        None => format!("{digits}e+{exponent:0>2}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_written_as_python_does() {
        let value = json!({"name": "é<\u{7f}\u{1f}", "list": [1, 2.5, null, true], "empty": {}});
        assert_eq!(
            Style::of(None).write(&value),
            "{\"name\": \"é<\u{7f}\\u001f\", \"list\": [1, 2.5, null, true], \"empty\": {}}"
        );
        assert_eq!(Style::of(Some(2)).write(&json!({"a": [1]})), "{\n  \"a\": [\n    1\n  ]\n}");
        let ascii = Style { ensure_ascii: true, sort_keys: true, ..Style::of(None) };
        assert_eq!(
            ascii.write(&json!({"b": "é🦀", "a": 1})),
            "{\"a\": 1, \"b\": \"\\u00e9\\ud83e\\udd80\"}"
        );
    }

    #[test]
    fn floats_have_pythons_digits() {
        for (number, text) in [
            (1e16, "1e+16"),
            (1e15, "1000000000000000.0"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (-0.0, "-0.0"),
            (1.5e300, "1.5e+300"),
            (5e-324, "5e-324"),
        ] {
            assert_eq!(float(number), text);
        }
    }
}
