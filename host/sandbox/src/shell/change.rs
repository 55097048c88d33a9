//! What `${x#…}`, `${x/…}`, `${x:…}` and `${x^}` make of a value.

use super::evaluate::Evaluator;
use super::meter::{self, Stop};
use super::pattern::Pattern;
use super::plan::{End, Place};

impl Evaluator {
    pub(crate) fn trim(
        &mut self,
        text: &[u8],
        pattern: &Pattern,
        end: End,
        longest: bool,
    ) -> Result<Vec<u8>, Stop> {
        self.meter.charge(10 * meter::REGEX_COMPILE + 20 * text.len() as u64)?;
        let regex = match end {
            End::Front => pattern.front(longest),
            End::Back => pattern.back(longest),
        };
        let found = regex.and_then(|regex| Some(regex.captures(text)?.get(1)?.range()));
        let kept = match (found, end) {
            (None, _) => text,
            (Some(range), End::Front) => text.get(range.end..).unwrap_or_default(),
            (Some(range), End::Back) => text.get(..range.start).unwrap_or_default(),
        };
        Ok(kept.to_vec())
    }

    pub(crate) fn replace(
        &mut self,
        text: &[u8],
        pattern: &Pattern,
        place: Place,
        replacement: &[u8],
    ) -> Result<Vec<u8>, Stop> {
        self.meter.charge(10 * meter::REGEX_COMPILE + 20 * text.len() as u64)?;
        let regex = match place {
            Place::Front => pattern.front(true),
            Place::Back => pattern.back(true),
            Place::First | Place::All => pattern.anywhere(),
        };
        let Some(regex) = regex else { return Ok(text.to_vec()) };
        let mut changed = Vec::new();
        let mut from = 0;
        for found in regex.captures_iter(text) {
            let Some(found) = found.get(1).filter(|found| !found.is_empty()) else { continue };
            changed.extend_from_slice(text.get(from..found.start()).unwrap_or_default());
            changed.extend_from_slice(replacement);
            from = found.end();
            self.meter.charge_each(replacement.len() + 1, meter::LINE)?;
            self.check_room(changed.len())?;
            if place != Place::All {
                break;
            }
        }
        changed.extend_from_slice(text.get(from..).unwrap_or_default());
        Ok(changed)
    }
}

/// Changes the case of the first letter, or of all.
pub(crate) fn change_case(mut text: Vec<u8>, upper: bool, all: bool) -> Vec<u8> {
    let length = if all { text.len() } else { 1 };
    for byte in text.iter_mut().take(length) {
        *byte = if upper { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() };
    }
    text
}

/// `${x:offset:length}`; `None` when the end is before the start.
pub(crate) fn slice(text: &[u8], offset: i64, length: Option<i64>) -> Option<Vec<u8>> {
    let size = i64::try_from(text.len()).ok()?;
    let start = if offset < 0 { size.saturating_add(offset) } else { offset };
    if start < 0 || start > size {
        return Some(Vec::new());
    }
    let end = match length {
        None => size,
        Some(length) if length < 0 => size.saturating_add(length),
        Some(length) => start.saturating_add(length).min(size),
    };
    if end < start {
        return None;
    }
    let range = usize::try_from(start).ok()?..usize::try_from(end).ok()?;
    text.get(range).map(<[u8]>::to_vec)
}
