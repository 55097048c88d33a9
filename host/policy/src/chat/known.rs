//! Renderings that hold what was sampled.
//!
//! A model samples a text in whichever pieces it likes; a rendering cuts the same text into the
//! tokenizer's. So a rendering of a history may differ from the ids that the policy saw and
//! sampled although it spells the same. Those ids then stay: what was sampled is what the next
//! turn's prefix holds, and only what follows it is taken from the rendering.

use std::borrow::Cow;

use crate::ChatFormat;

/// The rendering with `known` in place of its beginning, if that spells the same; else the
/// rendering as it is.
///
/// Two histories spell the same when their markers (tokens that are never seen) are the same and
/// stand between the same texts. A token that ends a reply is as good as another, so the one that
/// the policy chose stays. Texts are compared as people see them: bytes that are no UTF-8 (a
/// reply cut off within a character) as `U+FFFD`, and where the tokenizer normalises texts,
/// normalised.
pub fn keep_known(format: &dyn ChatFormat, known: &[u32], rendered: Vec<u32>) -> Vec<u32> {
    if rendered.starts_with(known) {
        return rendered;
    }
    match rest_behind(format, known, &rendered) {
        Some(rest) => [known, &rest].concat(),
        None => rendered,
    }
}

/// What the rendering goes on with behind the known ids, if it begins with what they spell.
fn rest_behind(format: &dyn ChatFormat, known: &[u32], rendered: &[u32]) -> Option<Vec<u32>> {
    let (mut known, mut rendered) = (known, rendered);
    loop {
        let ours = Stretch::first(format, known);
        let theirs = Stretch::first(format, rendered);
        let Some((marker, behind)) = ours.behind.split_first() else {
            return ours.rest_of(format, &theirs);
        };
        let (other, other_behind) = theirs.behind.split_first()?;
        let same = marker == other || (format.is_end(*marker) && format.is_end(*other));
        if !same || !ours.is(format, &theirs.text()) {
            return None;
        }
        (known, rendered) = (behind, other_behind);
    }
}

/// Ids up to a marker.
struct Stretch<'a> {
    ids: &'a [u32],
    /// Where each id's bytes end.
    ends: Vec<usize>,
    bytes: Vec<u8>,
    /// The marker and what follows.
    behind: &'a [u32],
}

impl<'a> Stretch<'a> {
    fn first(format: &dyn ChatFormat, from: &'a [u32]) -> Self {
        let (mut ends, mut bytes) = (Vec::new(), Vec::new());
        for id in from {
            let before = bytes.len();
            format.spell(*id, &mut bytes);
            if bytes.len() == before {
                break;
            }
            ends.push(bytes.len());
        }
        let (ids, behind) = from.split_at_checked(ends.len()).unwrap_or((from, &[]));
        Self { ids, ends, bytes, behind }
    }

    fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    /// Whether this is that rendered text.
    fn is(&self, format: &dyn ChatFormat, rendered: &str) -> bool {
        let text = self.text();
        text == rendered || encoded(format, &text) == rendered
    }

    /// What a rendered stretch goes on with, and what follows it.
    fn rest_of(&self, format: &dyn ChatFormat, rendered: &Stretch<'_>) -> Option<Vec<u32>> {
        let text = self.text();
        let length = if rendered.bytes.starts_with(text.as_bytes()) {
            text.len()
        } else {
            let text = encoded(format, &text);
            rendered.bytes.starts_with(text.as_bytes()).then_some(text.len())?
        };
        let mut behind = rendered.ends.partition_point(|end| *end <= length);
        let mut rest = Vec::new();
        let boundary = behind.checked_sub(1).and_then(|last| rendered.ends.get(last));
        if boundary.copied().unwrap_or(0) < length {
            // One id reaches from the text beyond it: only what lies beyond is wanted, as far as
            // it takes to be whole characters.
            while let Some(&end) = rendered.ends.get(behind) {
                behind += 1;
                if let Ok(part) = std::str::from_utf8(rendered.bytes.get(length..end)?) {
                    rest.extend(format.encode(part));
                    break;
                }
            }
        }
        rest.extend_from_slice(rendered.ids.get(behind..)?);
        rest.extend_from_slice(rendered.behind);
        Some(rest)
    }
}

/// The text as it is once it was encoded.
fn encoded(format: &dyn ChatFormat, text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    for id in format.encode(text) {
        format.spell(id, &mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
