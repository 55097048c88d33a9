//! JSON as Python writes it, which is what models were trained on.

use std::io;

use serde_json::ser::Formatter;

/// Python's `json.dumps(…, ensure_ascii=False)`: a blank behind commas and colons.
struct PythonStyle;

impl Formatter for PythonStyle {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { to.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> io::Result<()> {
        if first { Ok(()) } else { to.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b": ")
    }
}

/// A value as JSON; with `indent`, over several lines.
pub(super) fn to_json(value: &serde_json::Value, indent: Option<usize>) -> Option<String> {
    let mut bytes = Vec::new();
    let written = match indent {
        None => {
            let mut to = serde_json::Serializer::with_formatter(&mut bytes, PythonStyle);
            serde::Serialize::serialize(value, &mut to)
        }
        Some(indent) => {
            let blanks = " ".repeat(indent.min(16));
            let style = serde_json::ser::PrettyFormatter::with_indent(blanks.as_bytes());
            let mut to = serde_json::Serializer::with_formatter(&mut bytes, style);
            serde::Serialize::serialize(value, &mut to)
        }
    };
    written.ok()?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_written_as_python_does() {
        let value = json!({"name": "é<", "list": [1, 2.5, null, true], "empty": {}});
        assert_eq!(
            to_json(&value, None).unwrap(),
            r#"{"name": "é<", "list": [1, 2.5, null, true], "empty": {}}"#
        );
        assert_eq!(to_json(&json!({"a": [1]}), Some(2)).unwrap(), "{\n  \"a\": [\n    1\n  ]\n}");
    }
}
