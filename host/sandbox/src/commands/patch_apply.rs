//! `patch`: finds where hunks fit, as GNU patch does, and applies them.

use super::patch_parse::Hunk;
use crate::shell::meter::{self, Meter, Stop};

/// How many lines of context may be ignored.
const FUZZ: usize = 2;

/// The result for one file.
#[derive(Debug, Default)]
pub(super) struct Applied {
    pub(super) text: Vec<u8>,
    /// What is told about hunks that did not fit exactly.
    pub(super) messages: Vec<String>,
    pub(super) rejected: Vec<Hunk>,
    /// Any hunk failed, or fitted elsewhere or with fuzz.
    pub(super) mismatched: bool,
    /// Any hunk was applied.
    pub(super) changed: bool,
}

/// Where a hunk fits.
struct Place {
    /// Index of the line where the part that is compared begins.
    at: usize,
    /// Lines of context that are ignored before and after.
    front: usize,
    back: usize,
}

/// Applies hunks, from first to last, to lines.
pub(super) fn apply(lines: &[&[u8]], hunks: &[Hunk], meter: &mut Meter) -> Result<Applied, Stop> {
    let mut applied = Applied::default();
    // Lines that are copied already, how far hunks were moved, and how much longer the file got.
    let (mut copied, mut moved, mut grown) = (0_usize, 0_isize, 0_isize);
    for (index, hunk) in hunks.iter().enumerate() {
        let number = index + 1;
        let old = hunk.old_lines();
        // A hunk without old lines names the line it follows.
        let start = if old.is_empty() { hunk.old_start } else { hunk.old_start.saturating_sub(1) };
        let (before, after) = hunk.context();
        let mut found = None;
        for fuzz in 0..=FUZZ.min(before.max(after)) {
            let search = Search { lines, old: &old, hunk, copied, fuzz, before, after };
            if let Some(place) = search.place(start.saturating_add_signed(moved), meter)? {
                found = Some((fuzz, place));
                break;
            }
        }
        let Some((fuzz, place)) = found else {
            let line = hunk.new_start.saturating_add_signed(grown);
            applied.messages.push(format!("Hunk #{number} FAILED at {line}."));
            applied.rejected.push(hunk.clone());
            applied.mismatched = true;
            continue;
        };
        let whole = place.at - place.front;
        moved = whole as isize - start as isize;
        if fuzz > 0 || moved != 0 {
            applied.mismatched = true;
            let line = (whole + usize::from(!old.is_empty())).saturating_add_signed(grown);
            let fuzz = if fuzz > 0 { format!(" with fuzz {fuzz}") } else { String::new() };
            let plural = if moved == 1 { "" } else { "s" };
            let moved =
                if moved != 0 { format!(" (offset {moved} line{plural})") } else { String::new() };
            applied.messages.push(format!("Hunk #{number} succeeded at {line}{fuzz}{moved}."));
        }
        let new = hunk.new_lines();
        let taken = old.len() - place.front - place.back;
        let given = new.get(place.front..new.len() - place.back).unwrap_or_default();
        let between = lines.get(copied..place.at).unwrap_or_default();
        for line in between.iter().chain(given) {
            applied.text.extend_from_slice(line);
        }
        copied = place.at + taken;
        grown += given.len() as isize - taken as isize;
        applied.changed = true;
    }
    for line in lines.get(copied..).unwrap_or_default() {
        applied.text.extend_from_slice(line);
    }
    meter.charge_each(applied.text.len(), meter::BYTE)?;
    Ok(applied)
}

struct Search<'a> {
    lines: &'a [&'a [u8]],
    old: &'a [&'a [u8]],
    hunk: &'a Hunk,
    copied: usize,
    fuzz: usize,
    before: usize,
    after: usize,
}

impl Search<'_> {
    /// The place nearest to `wanted` where the hunk fits. One that has less context at its front
    /// than at its back was made at the beginning of a file, and fits only there unless fuzz
    /// makes up for it; likewise at the end.
    fn place(&self, wanted: usize, meter: &mut Meter) -> Result<Option<Place>, Stop> {
        if self.old.is_empty() {
            let fits = self.hunk.old_start > 0 || self.lines.is_empty();
            let at = wanted.min(self.lines.len());
            return Ok((fits && at >= self.copied).then_some(Place { at, front: 0, back: 0 }));
        }
        let most = self.before.max(self.after);
        let ignored = |context: usize| (self.fuzz + context).checked_sub(most);
        let (front, back) = (ignored(self.before), ignored(self.after));
        let (all, length) = (self.lines.len(), self.old.len());
        let fits = |at: usize, front: usize, back: usize, meter: &mut Meter| {
            self.fits(at, front, back, meter)
        };
        match (front, back) {
            (None, back) if self.hunk.old_start <= 1 => {
                if back.is_none() && length != all {
                    return Ok(None);
                }
                fits(0, 0, back.unwrap_or(0), meter)
            }
            (front, None) => match all.checked_sub(length) {
                Some(at) => fits(at, front.unwrap_or(0), 0, meter),
                None => Ok(None),
            },
            (front, Some(back)) => {
                let front = front.unwrap_or(0);
                for distance in 0..=all.max(wanted) {
                    for at in [wanted.checked_add(distance), wanted.checked_sub(distance)] {
                        let Some(at) = at else { continue };
                        if let Some(place) = fits(at, front, back, meter)? {
                            return Ok(Some(place));
                        }
                    }
                }
                Ok(None)
            }
        }
    }

    fn fits(
        &self,
        start: usize,
        front: usize,
        back: usize,
        meter: &mut Meter,
    ) -> Result<Option<Place>, Stop> {
        meter.charge(meter::LINE)?;
        let at = start + front;
        let wanted = self.old.get(front..self.old.len() - back).unwrap_or_default();
        let here = self.lines.get(at..at + wanted.len());
        let fits = at >= self.copied && here == Some(wanted);
        Ok(fits.then_some(Place { at, front, back }))
    }
}
