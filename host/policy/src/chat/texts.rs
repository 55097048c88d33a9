//! Placeholders for texts that must not become special tokens.

use std::sync::{Mutex, PoisonError};

use crate::FormatError;

/// Open and close a placeholder. Characters of the supplementary private-use plane, which no
/// template writes; texts may hold them, since texts are never searched for placeholders.
const OPEN: char = '\u{F1A70}';
const CLOSE: char = '\u{F1A71}';

/// The most texts of one rendering, and the most bytes of them and of what is rendered; filters
/// make new ones.
const MAXIMUM_TEXTS: usize = 1 << 20;
const MAXIMUM_BYTES: usize = 256 << 20;

/// A piece of a rendering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// Written by the template.
    Template(String),
    /// A text and its number.
    Text(usize, String),
}

/// The texts of one rendering.
#[derive(Debug, Default)]
pub(super) struct Texts(Mutex<Hidden>);

#[derive(Debug, Default)]
struct Hidden {
    texts: Vec<String>,
    bytes: usize,
}

impl Texts {
    /// A placeholder for a text. Empty texts stand for themselves, so that templates can ask
    /// whether there is one.
    pub(super) fn hide(&self, text: impl Into<String>) -> String {
        let text = text.into();
        if text.is_empty() {
            return text;
        }
        let mut hidden = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if hidden.texts.len() >= MAXIMUM_TEXTS || hidden.bytes + text.len() > MAXIMUM_BYTES {
            // Not a placeholder that can be cut: the rendering fails.
            return OPEN.to_string();
        }
        hidden.bytes += text.len();
        hidden.texts.push(text);
        // Long, so that a template that takes the first few characters breaks it.
        format!("{OPEN}{:020}{CLOSE}", hidden.texts.len() - 1)
    }

    /// Whether a string holds placeholders.
    pub(super) fn hides(text: &str) -> bool {
        text.contains([OPEN, CLOSE])
    }

    /// The string with the texts in place of their placeholders.
    pub(super) fn reveal(&self, text: &str) -> Result<String, FormatError> {
        let pieces = self.cut(text)?;
        Ok(pieces
            .into_iter()
            .map(|piece| match piece {
                Piece::Template(text) | Piece::Text(_, text) => text,
            })
            .collect())
    }

    /// A rendering cut into what the template wrote and the texts.
    pub(super) fn cut(&self, rendered: &str) -> Result<Vec<Piece>, FormatError> {
        let broken = || {
            FormatError("it takes the texts of messages apart by position, or uses too many".into())
        };
        let hidden = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = rendered.len();
        let mut pieces = Vec::new();
        let mut rest = rendered;
        while let Some(at) = rest.find([OPEN, CLOSE]) {
            let (template, marked) = rest.split_at(at);
            if !template.is_empty() {
                pieces.push(Piece::Template(template.to_owned()));
            }
            let inner = marked.strip_prefix(OPEN).ok_or_else(broken)?;
            let (number, behind) = inner.split_once(CLOSE).ok_or_else(broken)?;
            let number: usize = number.parse().map_err(|_| broken())?;
            let text = hidden.texts.get(number).ok_or_else(broken)?;
            bytes = bytes.saturating_add(text.len());
            if bytes > MAXIMUM_BYTES {
                return Err(FormatError(format!("it writes more than {MAXIMUM_BYTES} bytes")));
            }
            pieces.push(Piece::Text(number, text.clone()));
            rest = behind;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Template(rest.to_owned()));
        }
        Ok(pieces)
    }
}
