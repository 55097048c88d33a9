//! Builds the fields that a word becomes: joining, splitting at IFS, and which bytes are quoted.

use super::pattern::push_literal;

/// One field. Remembers which bytes were quoted, since those do not act in patterns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Field {
    text: Vec<u8>,
    quoted: Vec<bool>,
}

impl Field {
    fn push(&mut self, text: &[u8], quoted: bool) {
        self.text.extend_from_slice(text);
        self.quoted.resize(self.text.len(), quoted);
    }

    fn bytes(&self) -> impl Iterator<Item = (u8, bool)> {
        self.text.iter().copied().zip(self.quoted.iter().copied())
    }

    pub(crate) fn into_text(self) -> Vec<u8> {
        self.text
    }

    /// Whether an unquoted byte makes it a pattern of file names.
    pub(crate) fn is_pattern(&self) -> bool {
        self.bytes().any(|(byte, quoted)| !quoted && matches!(byte, b'*' | b'?' | b'['))
    }

    /// The field as a pattern: quoted bytes match themselves.
    pub(crate) fn pattern(&self) -> Vec<u8> {
        let mut pattern = Vec::with_capacity(self.text.len());
        for (byte, quoted) in self.bytes() {
            if quoted || byte == b'\\' {
                push_literal(&mut pattern, &[byte]);
            } else {
                pattern.push(byte);
            }
        }
        pattern
    }

    /// The field as a regular expression: quoted bytes match themselves.
    pub(crate) fn regex(&self) -> Vec<u8> {
        let mut regex = Vec::with_capacity(self.text.len());
        for (byte, quoted) in self.bytes() {
            if quoted && byte.is_ascii_punctuation() {
                regex.push(b'\\');
            }
            regex.push(byte);
        }
        regex
    }
}

/// Collects fields.
#[derive(Debug)]
pub(crate) struct Fields {
    done: Vec<Field>,
    current: Option<Field>,
    separators: Vec<u8>,
    /// White space ended the last field, so that a separator right after it adds none.
    ended_by_space: bool,
    bytes: usize,
}

impl Fields {
    /// Unquoted expansions are split at `separators`, the value of IFS.
    pub(crate) fn new(separators: &[u8]) -> Self {
        Self {
            done: Vec::new(),
            current: None,
            separators: separators.to_vec(),
            ended_by_space: false,
            bytes: 0,
        }
    }

    /// The bytes of all fields so far.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds text that is never split; even empty text makes a field.
    pub(crate) fn push(&mut self, text: &[u8], quoted: bool) {
        self.bytes += text.len() + 1;
        self.ended_by_space = false;
        self.current.get_or_insert_default().push(text, quoted);
    }

    /// Ends the field that is being built.
    pub(crate) fn end(&mut self) {
        self.done.extend(self.current.take());
    }

    /// Adds the result of an unquoted expansion.
    pub(crate) fn push_split(&mut self, text: &[u8]) {
        for byte in text {
            if !self.separators.contains(byte) {
                self.push(&[*byte], false);
            } else if byte.is_ascii_whitespace() {
                if self.current.is_some() {
                    self.end();
                    self.ended_by_space = true;
                }
            } else if self.current.is_some() {
                self.end();
                self.ended_by_space = false;
            } else if self.ended_by_space {
                self.ended_by_space = false;
            } else {
                self.done.push(Field::default());
                self.bytes += 1;
            }
        }
    }

    pub(crate) fn finish(mut self) -> Vec<Field> {
        self.end();
        self.done
    }

    /// All fields joined by single spaces, for places that take one string.
    pub(crate) fn join(self) -> Field {
        let mut joined = Field::default();
        for (index, field) in self.finish().into_iter().enumerate() {
            if index > 0 {
                joined.push(b" ", true);
            }
            for (byte, quoted) in field.bytes() {
                joined.push(&[byte], quoted);
            }
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(separators: &str, text: &str) -> Vec<String> {
        let mut fields = Fields::new(separators.as_bytes());
        fields.push_split(text.as_bytes());
        let fields = fields.finish().into_iter();
        fields.map(|field| String::from_utf8(field.into_text()).unwrap()).collect()
    }

    #[test]
    fn splitting_follows_ifs() {
        assert_eq!(split(" \t\n", "  a  b\n"), ["a", "b"]);
        assert_eq!(split(":", "a::b:"), ["a", "", "b"]);
        assert_eq!(split(": ", "a : b"), ["a", "b"]);
        assert_eq!(split("", "a b"), ["a b"]);
        assert_eq!(split(" ", ""), Vec::<String>::new());
    }

    #[test]
    fn quoted_bytes_do_not_act_in_patterns() {
        let mut fields = Fields::new(b" ");
        fields.push(b"*", true);
        fields.push(b"*.x", false);
        let field = fields.join();
        assert!(field.is_pattern());
        assert_eq!(field.pattern(), b"\\**.x");
        assert_eq!(field.regex(), b"\\**.x");
    }
}
