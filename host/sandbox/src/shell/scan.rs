//! Finds where quotes, expansions and substitutions end.
//!
//! brush-parser also has a grammar for words, but it backtracks over nested substitutions, which
//! takes time exponential in their depth, and it panics on numbers that are too long. Words come
//! from a model, so they are cut here instead: one pass, bounded depth, no panic.

use super::plan::Refusal;

/// Deepest nesting of substitutions, expansions and quotes.
pub(crate) const DEPTH: usize = 24;

/// The byte at `at`.
pub(crate) fn byte(text: &[u8], at: usize) -> Option<u8> {
    text.get(at).copied()
}

/// The bytes from `start` to `end`; empty where there are none.
pub(crate) fn slice(text: &[u8], start: usize, end: usize) -> &[u8] {
    text.get(start..end).unwrap_or_default()
}

/// The length of the variable name at the start of `text`.
pub(crate) fn name_length(text: &[u8]) -> usize {
    match text.first() {
        Some(first) if first.is_ascii_alphabetic() || *first == b'_' => text
            .iter()
            .position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')
            .unwrap_or(text.len()),
        _ => 0,
    }
}

fn unterminated(what: &str) -> Refusal {
    Refusal::syntax(format!("unterminated {what}"))
}

/// After the opening `'`: the index after the closing one.
pub(crate) fn skip_single(text: &[u8], at: usize) -> Result<usize, Refusal> {
    let rest = text.get(at..).unwrap_or_default();
    match rest.iter().position(|byte| *byte == b'\'') {
        Some(length) => Ok(at + length + 1),
        None => Err(unterminated("single quote")),
    }
}

/// After the opening `$'`: the index after the closing quote.
pub(crate) fn skip_ansi(text: &[u8], mut at: usize) -> Result<usize, Refusal> {
    loop {
        match byte(text, at) {
            None => return Err(unterminated("$' quote")),
            Some(b'\\') => at += 2,
            Some(b'\'') => return Ok(at + 1),
            Some(_) => at += 1,
        }
    }
}

/// After the opening `"`: the index after the closing one.
pub(crate) fn skip_double(text: &[u8], mut at: usize, depth: usize) -> Result<usize, Refusal> {
    loop {
        match byte(text, at) {
            None => return Err(unterminated("double quote")),
            Some(b'\\') => at += 2,
            Some(b'"') => return Ok(at + 1),
            Some(b'`') => at = skip_back_quote(text, at + 1)?,
            Some(b'$') => at = skip_dollar(text, at, depth, true)?,
            Some(_) => at += 1,
        }
    }
}

/// After the opening back quote: the index after the closing one.
pub(crate) fn skip_back_quote(text: &[u8], mut at: usize) -> Result<usize, Refusal> {
    loop {
        match byte(text, at) {
            None => return Err(unterminated("back quote")),
            Some(b'\\') => at += 2,
            Some(b'`') => return Ok(at + 1),
            Some(_) => at += 1,
        }
    }
}

/// At a `$`: the index after what it begins.
pub(crate) fn skip_dollar(
    text: &[u8],
    at: usize,
    depth: usize,
    in_double: bool,
) -> Result<usize, Refusal> {
    match byte(text, at + 1) {
        Some(b'(') => skip_parentheses(text, at + 2, deeper(depth)?),
        Some(b'{') => skip_braces(text, at + 2, deeper(depth)?),
        Some(b'\'') if !in_double => skip_ansi(text, at + 2),
        _ => Ok(at + 1),
    }
}

pub(crate) fn deeper(depth: usize) -> Result<usize, Refusal> {
    if depth >= DEPTH {
        return Err(Refusal::unsupported(format!("nesting deeper than {DEPTH}")));
    }
    Ok(depth + 1)
}

/// After `${`: the index after the closing brace.
pub(crate) fn skip_braces(text: &[u8], mut at: usize, depth: usize) -> Result<usize, Refusal> {
    loop {
        match byte(text, at) {
            None => return Err(unterminated("${ expansion")),
            Some(b'}') => return Ok(at + 1),
            Some(_) => at = skip_one(text, at, depth)?,
        }
    }
}

/// One byte, escape, quote or expansion.
pub(crate) fn skip_one(text: &[u8], at: usize, depth: usize) -> Result<usize, Refusal> {
    match byte(text, at) {
        Some(b'\\') => Ok(at + 2),
        Some(b'\'') => skip_single(text, at + 1),
        Some(b'"') => skip_double(text, at + 1, depth),
        Some(b'`') => skip_back_quote(text, at + 1),
        Some(b'$') => skip_dollar(text, at, depth, false),
        _ => Ok(at + 1),
    }
}

/// After `(`: the index after the closing parenthesis. Knows quotes, comments and here-documents.
pub(crate) fn skip_parentheses(text: &[u8], mut at: usize, depth: usize) -> Result<usize, Refusal> {
    let mut open = 1_usize;
    let mut word_start = true;
    let mut documents: Vec<(Vec<u8>, bool)> = Vec::new();
    loop {
        let Some(current) = byte(text, at) else {
            return Err(unterminated("( )"));
        };
        let starts_word = word_start;
        word_start = matches!(current, b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')');
        match current {
            b'(' => {
                open += 1;
                at += 1;
            }
            b')' => {
                open -= 1;
                at += 1;
                if open == 0 {
                    return Ok(at);
                }
            }
            b'#' if starts_word => {
                let rest = text.get(at..).unwrap_or_default();
                at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            }
            b'<' if slice(text, at, at + 3) == b"<<<" => at += 3,
            // Within $(( … )) this is a shift, and never a here-document.
            b'<' if byte(text, at + 1) == Some(b'<') && open == 1 => {
                let (next, tag, tabs) = here_tag(text, at + 2, depth)?;
                if !tag.is_empty() {
                    documents.push((tag, tabs));
                }
                at = next;
            }
            b'\n' if !documents.is_empty() => {
                at += 1;
                for (tag, tabs) in documents.drain(..) {
                    at = skip_document(text, at, &tag, tabs);
                }
            }
            _ => at = skip_one(text, at, depth)?,
        }
    }
}

/// After `<<`: the index after the tag, the tag without quotes, and whether tabs are stripped.
fn here_tag(text: &[u8], mut at: usize, depth: usize) -> Result<(usize, Vec<u8>, bool), Refusal> {
    let tabs = byte(text, at) == Some(b'-');
    if tabs {
        at += 1;
    }
    while matches!(byte(text, at), Some(b' ' | b'\t')) {
        at += 1;
    }
    let start = at;
    while let Some(current) = byte(text, at) {
        if matches!(current, b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'<' | b'>' | b'(' | b')')
        {
            break;
        }
        at = skip_one(text, at, depth)?;
    }
    let tag = slice(text, start, at)
        .iter()
        .copied()
        .filter(|byte| !matches!(byte, b'\'' | b'"' | b'\\'))
        .collect();
    Ok((at, tag, tabs))
}

/// The index after a here-document's closing tag (or the end).
fn skip_document(text: &[u8], mut at: usize, tag: &[u8], tabs: bool) -> usize {
    while at < text.len() {
        let rest = text.get(at..).unwrap_or_default();
        let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let mut line = slice(rest, 0, length);
        if tabs {
            let start = line.iter().position(|byte| *byte != b'\t').unwrap_or(line.len());
            line = slice(line, start, line.len());
        }
        at += length;
        if line == tag {
            // The newline stays: it ends the command that the document belongs to.
            return at;
        }
        at += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest_after_parentheses(text: &str) -> &str {
        &text[skip_parentheses(text.as_bytes(), 0, 0).unwrap()..]
    }

    #[test]
    fn a_parenthesis_in_quotes_comments_and_documents_does_not_close() {
        assert_eq!(rest_after_parentheses("echo ')' \")\" \\) )rest"), "rest");
        assert_eq!(rest_after_parentheses("a # not ) here\n)rest"), "rest");
        assert_eq!(rest_after_parentheses("cat <<'E'\ndon't :)\nE\n)rest"), "rest");
        assert_eq!(rest_after_parentheses("cat <<-E | x\n\t)\n\tE\n)rest"), "rest");
        assert_eq!(rest_after_parentheses("(a) $(b)) rest"), " rest");
    }

    #[test]
    fn nothing_unterminated_is_accepted() {
        for text in ["", "'", "\"", "`", "$(", "${", "$'", "\\", "((", "$(\"$(", "<<E\n"] {
            assert!(skip_parentheses(text.as_bytes(), 0, 0).is_err(), "{text:?}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let text = "$(".repeat(1000);
        assert!(matches!(
            skip_parentheses(text.as_bytes(), 0, 0),
            Err(Refusal::Unsupported(construct)) if construct.contains("nesting")
        ));
    }
}
