//! Brace expansion: `{a,b}` and `{1..3}`, on the raw text of a word, bounded.

use super::plan::Refusal;
use super::scan::{byte, skip_one, slice};

/// Most words that one word may become.
const WORDS: usize = 4096;
/// Most bytes that one word may become.
const BYTES: usize = 256 << 10;
/// Deepest nesting of braces.
const DEPTH: usize = 8;
/// Most steps to look for closing braces: text such as `{{{{…` is looked through again and again.
const STEPS: usize = 4 << 20;

fn too_many() -> Refusal {
    Refusal::unsupported(format!("a brace expansion of more than {WORDS} words or {BYTES} bytes"))
}

/// The words that `word` stands for; `word` itself when it holds no brace expansion.
pub(crate) fn expand(word: &str) -> Result<Vec<String>, Refusal> {
    if !word.contains('{') {
        return Ok(vec![word.to_owned()]);
    }
    let mut steps = STEPS;
    let words = expand_bytes(word.as_bytes(), 0, &mut steps)?;
    Ok(words.into_iter().map(|word| String::from_utf8_lossy(&word).into_owned()).collect())
}

fn expand_bytes(text: &[u8], depth: usize, steps: &mut usize) -> Result<Vec<Vec<u8>>, Refusal> {
    if depth > DEPTH {
        return Err(Refusal::unsupported(format!("braces nested deeper than {DEPTH}")));
    }
    let mut words: Vec<Vec<u8>> = vec![Vec::new()];
    let mut at = 0;
    let mut bytes = 0;
    while at < text.len() {
        let (next, choices) = match byte(text, at) {
            Some(b'{') => match choices(text, at, depth, steps)? {
                Some(found) => found,
                None => (at + 1, vec![b"{".to_vec()]),
            },
            _ => {
                let mut next = at;
                while next < text.len() && byte(text, next) != Some(b'{') {
                    next = skip_one(text, next, 0)?;
                }
                let next = next.min(text.len());
                (next, vec![slice(text, at, next).to_vec()])
            }
        };
        at = next;
        if words.len().saturating_mul(choices.len()) > WORDS {
            return Err(too_many());
        }
        let mut longer = Vec::with_capacity(words.len() * choices.len());
        for word in &words {
            for choice in &choices {
                bytes += word.len() + choice.len();
                if bytes > BYTES {
                    return Err(too_many());
                }
                longer.push([word.as_slice(), choice.as_slice()].concat());
            }
        }
        bytes = longer.iter().map(Vec::len).sum();
        words = longer;
    }
    Ok(words)
}

type Choices = Option<(usize, Vec<Vec<u8>>)>;

/// At a `{`: the index after its expression and what it stands for, or `None` when it is text.
fn choices(text: &[u8], at: usize, depth: usize, steps: &mut usize) -> Result<Choices, Refusal> {
    let mut open = 1_usize;
    let mut next = at + 1;
    let mut start = next;
    let mut parts: Vec<&[u8]> = Vec::new();
    while open > 0 {
        *steps = steps.checked_sub(1).ok_or_else(too_many)?;
        match byte(text, next) {
            None => return Ok(None),
            Some(b'{') => open += 1,
            Some(b'}') => open -= 1,
            Some(b',') if open == 1 => {
                parts.push(slice(text, start, next));
                start = next + 1;
            }
            Some(_) => {
                next = skip_one(text, next, 0)?;
                continue;
            }
        }
        next += 1;
    }
    let last = slice(text, start, next - 1);
    if parts.is_empty() {
        return Ok(sequence(last)?.map(|words| (next, words)));
    }
    parts.push(last);
    let mut words = Vec::new();
    for part in parts {
        words.extend(expand_bytes(part, depth + 1, steps)?);
        if words.len() > WORDS {
            return Err(too_many());
        }
    }
    Ok(Some((next, words)))
}

/// `1..9`, `01..10..2` and `a..e`.
fn sequence(text: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Refusal> {
    let Ok(text) = std::str::from_utf8(text) else { return Ok(None) };
    let parts: Vec<&str> = text.split("..").collect();
    let (first, last, step) = match parts.as_slice() {
        [first, last] => (*first, *last, 1),
        [first, last, step] => match step.parse::<i64>() {
            Ok(step) => (*first, *last, step.unsigned_abs().max(1)),
            Err(_) => return Ok(None),
        },
        _ => return Ok(None),
    };
    if let (Ok(from), Ok(to)) = (first.parse::<i64>(), last.parse::<i64>()) {
        if from.abs_diff(to) / step >= WORDS as u64 {
            return Err(too_many());
        }
        let padded = |text: &str| text.trim_start_matches('-').starts_with('0') && text.len() > 1;
        let width = if padded(first) || padded(last) { first.len().max(last.len()) } else { 0 };
        let show = |number: i64| match width {
            0 => number.to_string(),
            width => format!("{number:0width$}"),
        };
        return Ok(Some(walk(from, to, step).map(|number| show(number).into_bytes()).collect()));
    }
    match (first.as_bytes(), last.as_bytes()) {
        ([from], [to]) if from.is_ascii_alphabetic() && to.is_ascii_alphabetic() => Ok(Some(
            walk(i64::from(*from), i64::from(*to), step)
                .filter_map(|code| u8::try_from(code).ok())
                .map(|code| vec![code])
                .collect(),
        )),
        _ => Ok(None),
    }
}

fn walk(from: i64, to: i64, step: u64) -> impl Iterator<Item = i64> {
    let step = i64::try_from(step).unwrap_or(i64::MAX);
    let mut next = Some(from);
    std::iter::from_fn(move || {
        let current = next?;
        if (from <= to && current > to) || (from > to && current < to) {
            return None;
        }
        next = if from <= to { current.checked_add(step) } else { current.checked_sub(step) };
        Some(current)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        expand(text).unwrap().join(" ")
    }

    #[test]
    fn lists_and_sequences_expand_as_in_bash() {
        assert_eq!(words("src/{a,b}/x"), "src/a/x src/b/x");
        assert_eq!(words("{a,b}{1,2}"), "a1 a2 b1 b2");
        assert_eq!(words("x{,y}"), "x xy");
        assert_eq!(words("{a,{b,c}d}"), "a bd cd");
        assert_eq!(words("{1..5..2}"), "1 3 5");
        assert_eq!(words("{08..10}"), "08 09 10");
        assert_eq!(words("{c..a}"), "c b a");
        assert_eq!(words("{3..1}"), "3 2 1");
    }

    #[test]
    fn what_is_no_brace_expansion_stays() {
        for text in ["{}", "{a}", "{a", "a}", "${x,y}", "'{a,b}'", "\\{a,b}", "{1..x}", "\"{a,b}\""]
        {
            assert_eq!(words(text), text);
        }
        assert_eq!(words("{x{a,b}"), "{xa {xb");
    }

    #[test]
    fn gigantic_expansions_are_refused() {
        for text in [
            "{1..1000000000}",
            &"{a,b}".repeat(40),
            &"{".repeat(100_000),
            "{-9223372036854775808..9223372036854775807}",
        ] {
            assert!(matches!(expand(text), Err(Refusal::Unsupported(_))), "{text}");
        }
    }
}
