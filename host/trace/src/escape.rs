//! Hostile text made safe to show.
//!
//! What a guest, a model or an upstream server wrote may hold escape sequences that move the
//! cursor, rename the window or answer on the reader's behalf, characters that reorder a line, or
//! ones that cannot be seen. Here each becomes visible text such as `\x1b` or `\u{202e}`. A
//! backslash stands for itself, so the result is for reading, not for decoding.

use std::{borrow::Cow, fmt::Write};

/// What becomes of line feeds and tabs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lines {
    /// They stay.
    Keep,
    /// They become `\n` and `\t`: for text that must stay on one line.
    Escape,
}

/// `text` without anything that a terminal would act on or that a reader could not see.
pub fn escape(text: &str, lines: Lines) -> Cow<'_, str> {
    let Some(first) = text.find(|character| is_hostile(character, lines)) else {
        return Cow::Borrowed(text);
    };
    let (clean, rest) = text.split_at(first);
    let mut safe = String::with_capacity(text.len() + 16);
    safe.push_str(clean);
    for character in rest.chars() {
        if is_hostile(character, lines) {
            spell(character, &mut safe);
        } else {
            safe.push(character);
        }
    }
    Cow::Owned(safe)
}

/// [`escape`] for bytes; what is not UTF-8 becomes `\xff` and the like.
pub fn escape_bytes(bytes: &[u8], lines: Lines) -> String {
    let mut safe = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        safe.push_str(&escape(chunk.valid(), lines));
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(safe, "\\x{byte:02x}");
        }
    }
    safe
}

fn spell(character: char, safe: &mut String) {
    let code = u32::from(character);
    let _ = match character {
        '\n' => safe.write_str("\\n"),
        '\r' => safe.write_str("\\r"),
        '\t' => safe.write_str("\\t"),
        _ if code <= 0xff => write!(safe, "\\x{code:02x}"),
        _ => write!(safe, "\\u{{{code:x}}}"),
    };
}

const fn is_hostile(character: char, lines: Lines) -> bool {
    match character {
        '\n' | '\t' => matches!(lines, Lines::Escape),
        // C0, delete and C1.
        '\0'..='\x1f' | '\x7f'..='\u{9f}' => true,
        // Soft hyphen, joiners and other characters without a width.
        '\u{ad}' | '\u{34f}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' => true,
        '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2064}' | '\u{feff}' => true,
        // Fillers that look like nothing.
        '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' => true,
        // Marks, embeddings, overrides and isolates of direction.
        '\u{61c}' | '\u{200e}' | '\u{200f}' => true,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}' => true,
        // Separators that some terminals break lines at.
        '\u{2028}' | '\u{2029}' => true,
        // Variation selectors can carry hidden text; the two of emoji and plain text stay.
        '\u{fe00}'..='\u{fe0d}' | '\u{e0100}'..='\u{e01ef}' => true,
        // Annotations and tags.
        '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' => true,
        '\u{e0000}'..='\u{e007f}' => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ordinary_text_is_not_copied() {
        for text in ["", "plain", "zwei\nZeilen\tmit Umlauten äöü", "日本語 🦀 ❤️"] {
            assert!(matches!(escape(text, Lines::Keep), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn what_terminals_act_on_is_spelled_out() {
        for (text, shown) in [
            ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
            ("\x1b[2J\x1b[H", r"\x1b[2J\x1b[H"),
            ("\u{9b}31m", r"\x9b31m"),
            ("progress\rdone", r"progress\rdone"),
            ("a\u{202e}cod.exe", r"a\u{202e}cod.exe"),
            ("\u{2066}x\u{2069}", r"\u{2066}x\u{2069}"),
            ("pay\u{200b}pal", r"pay\u{200b}pal"),
            ("\u{e0041}", r"\u{e0041}"),
            ("a\u{2028}b", r"a\u{2028}b"),
            ("\x7f\x08", r"\x7f\x08"),
        ] {
            assert_eq!(escape(text, Lines::Keep), shown);
        }
        assert_eq!(escape("a\nb\tc", Lines::Escape), r"a\nb\tc");
        assert_eq!(escape_bytes(b"ok \xff\x1b", Lines::Keep), r"ok \xff\x1b");
    }

    proptest! {
        #[test]
        fn nothing_hostile_is_left(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in ".{0,80}") {
            for lines in [Lines::Keep, Lines::Escape] {
                let all = [escape(&text, lines).into_owned(), escape_bytes(&bytes, lines)];
                for safe in all {
                    prop_assert!(!safe.chars().any(|character| is_hostile(character, lines)));
                    let kept = |character| lines == Lines::Keep && matches!(character, '\n' | '\t');
                    let control = safe.chars().find(|it| it.is_control() && !kept(*it));
                    prop_assert_eq!(control, None);
                }
            }
        }
    }
}
