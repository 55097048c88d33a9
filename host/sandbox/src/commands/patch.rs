//! `patch`: applies unified differences.

use super::options::Options;
use super::patch_parse::{FilePatch, Hunk, parse};
use super::{Invocation, split_lines};
use crate::shell::files::describe;
use crate::shell::meter::{self, Stop};

/// How many lines of context may be ignored.
const FUZZ: usize = 2;

pub(super) fn run(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = [
        "p|strip=", "i|input=", "R|reverse", "u|unified", "s|quiet", "N|forward", "f|force",
        "|dry-run", "o|output=", "E|remove-empty-files", "F|fuzz=", "b|backup", "t|batch",
        "l|ignore-whitespace", "d|directory=", "r|reject-file=", "|no-backup-if-mismatch",
    ];
    let Some(options) = invocation.options(&known)? else { return Ok(2) };
    for key in ["o", "b", "l", "d", "F", "r"] {
        if options.has(key) {
            return invocation.fail(2, &format!("unsupported: -{key}"));
        }
    }
    let strip = match options.value("p").map(super::parse_number::<usize>) {
        None => None,
        Some(Some(count)) => Some(count),
        Some(None) => return invocation.fail(2, "strip count is not a number"),
    };
    let mut operands = options.operands.iter();
    let target = operands.next().cloned();
    let input = operands.next().cloned().or_else(|| options.value("i").map(<[u8]>::to_vec));
    let input = input.unwrap_or_else(|| b"-".to_vec());
    let Some(text) = invocation.read_or_complain(&input)? else { return Ok(2) };
    invocation.meter.charge_each(text.len(), 4 * meter::BYTE)?;
    let patches = match parse(&text) {
        Ok(patches) => patches,
        Err(message) => return invocation.fail(2, &format!("**** {message}")),
    };
    if patches.is_empty() {
        if text.iter().all(u8::is_ascii_whitespace) {
            return Ok(0);
        }
        return invocation.fail(2, "**** Only garbage was found in the patch input.");
    }
    let patcher = Patcher { options: &options, strip, target };
    let mut status = 0;
    for patch in &patches {
        status = status.max(patcher.apply(invocation, patch)?);
    }
    Ok(status)
}

struct Patcher<'a> {
    options: &'a Options,
    strip: Option<usize>,
    target: Option<Vec<u8>>,
}

impl Patcher<'_> {
    /// A name without its first folders; without `-p`, its last part.
    fn stripped(&self, name: &[u8]) -> Option<Vec<u8>> {
        if name == b"/dev/null" {
            return None;
        }
        let parts: Vec<&[u8]> =
            name.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
        let strip = self.strip.unwrap_or(parts.len().saturating_sub(1));
        let strip = if name.starts_with(b"/") { strip.saturating_sub(1) } else { strip };
        let kept = parts.get(strip..)?;
        (!kept.is_empty()).then(|| kept.join(&b'/'))
    }

    fn apply(&self, invocation: &mut Invocation<'_>, patch: &FilePatch) -> Result<i32, Stop> {
        let reverse = self.options.has("R");
        let (old, new) = if reverse { (&patch.new, &patch.old) } else { (&patch.old, &patch.new) };
        let creates = old == b"/dev/null";
        let removes = new == b"/dev/null";
        let (old, new) = (self.stripped(old), self.stripped(new));
        let path = match &self.target {
            Some(target) => Some(target.clone()),
            None => {
                let there =
                    [&old, &new].into_iter().flatten().find(|path| invocation.files.exists(path));
                there.cloned().or_else(|| if creates { new.clone() } else { old.or(new) })
            }
        };
        let Some(path) = path else {
            return invocation.fail(1, "can't find file to patch (wrong -p?)");
        };
        let shown = String::from_utf8_lossy(&path).into_owned();
        let exists = invocation.files.exists(&path);
        let first_is_new = patch.hunks.first().is_some_and(|hunk| {
            let start = if reverse { hunk.new_start } else { hunk.old_start };
            start == 0
        });
        if !exists && !creates && !first_is_new {
            return invocation.fail(1, &format!("can't find file to patch: {shown}"));
        }
        let text = match exists {
            true => match invocation.read_or_complain(&path)? {
                Some(text) => text,
                None => return Ok(2),
            },
            false => Vec::new(),
        };
        if !self.options.has("s") {
            let word = if self.options.has("dry-run") { "checking" } else { "patching" };
            invocation.line(format!("{word} file {shown}").as_bytes())?;
        }
        let mut lines: Vec<Vec<u8>> = split_lines(&text).map(<[u8]>::to_vec).collect();
        let mut failed = 0;
        let mut rejects = Vec::new();
        let mut offset = 0_isize;
        for (index, hunk) in patch.hunks.iter().enumerate() {
            let hunk = if reverse { hunk.reversed() } else { hunk.clone() };
            match self.place(invocation, &lines, &hunk, offset)? {
                Some(found) => {
                    self.tell(invocation, index + 1, &hunk, &found)?;
                    let (old, new) = (hunk.old(), hunk.new());
                    let range = found.front..old.len() - found.back;
                    let at = found.at + found.front;
                    let removed = range.len();
                    let end = new.len() - found.back;
                    let added = new.get(found.front..end).unwrap_or_default();
                    let added: Vec<Vec<u8>> = added.iter().map(|line| line.to_vec()).collect();
                    offset = found.offset + added.len() as isize - removed as isize;
                    if at + removed <= lines.len() {
                        lines.splice(at..at + removed, added);
                    }
                }
                None => {
                    failed += 1;
                    if !self.options.has("s") {
                        let text = format!("Hunk #{} FAILED at {}.", index + 1, hunk.old_start);
                        invocation.line(text.as_bytes())?;
                    }
                    rejects.push(hunk);
                }
            }
        }
        if failed > 0 {
            let text = format!(
                "{failed} out of {} hunk{} FAILED -- saving rejects to file {shown}.rej",
                patch.hunks.len(),
                if patch.hunks.len() == 1 { "" } else { "s" }
            );
            invocation.line(text.as_bytes())?;
        }
        if self.options.has("dry-run") {
            return Ok(i32::from(failed > 0));
        }
        let result = lines.concat();
        let done = if result.is_empty() && failed == 0 && (removes || self.options.has("E")) {
            invocation.files.unlink(&path)
        } else if failed < patch.hunks.len() || exists {
            make_folders(invocation, &path);
            invocation.files.write(&path, &result)
        } else {
            Ok(())
        };
        if let Err(error) = done {
            return invocation.fail(2, &format!("{shown}: {}", describe(error)));
        }
        if failed > 0 {
            let rejected = show_rejects(patch, &rejects);
            let path = [path.as_slice(), b".rej"].concat();
            if let Err(error) = invocation.files.write(&path, &rejected) {
                return invocation.fail(2, &format!("{shown}.rej: {}", describe(error)));
            }
            return Ok(1);
        }
        Ok(0)
    }

    fn tell(
        &self,
        invocation: &mut Invocation<'_>,
        number: usize,
        hunk: &Hunk,
        found: &Found,
    ) -> Result<(), Stop> {
        let shift = found.offset_from_header;
        if (shift == 0 && found.fuzz == 0) || self.options.has("s") {
            return Ok(());
        }
        let line = found.at + 1;
        let fuzz = match found.fuzz {
            0 => String::new(),
            fuzz => format!(" with fuzz {fuzz}"),
        };
        let lines = if shift.abs() == 1 { "line" } else { "lines" };
        let moved = match shift {
            0 => String::new(),
            shift => format!(" (offset {shift} {lines})"),
        };
        // The place is told as it will be in the new file.
        let line = line + hunk.new_start.saturating_sub(hunk.old_start.max(1));
        invocation.line(format!("Hunk #{number} succeeded at {line}{fuzz}{moved}.").as_bytes())
    }

    /// Where a hunk fits, nearest to where it should.
    fn place(
        &self,
        invocation: &mut Invocation<'_>,
        lines: &[Vec<u8>],
        hunk: &Hunk,
        offset: isize,
    ) -> Result<Option<Found>, Stop> {
        let old = hunk.old();
        let (before, after) = hunk.context();
        let header = if old.is_empty() { hunk.old_start } else { hunk.old_start.saturating_sub(1) };
        let wanted = header.saturating_add_signed(offset);
        if old.is_empty() {
            let at = wanted.min(lines.len());
            // A hunk that makes a file fits nowhere in one that is there.
            let fits = hunk.old_start > 0 || lines.is_empty();
            return Ok(fits.then_some(Found {
                at, front: 0, back: 0, fuzz: 0, offset, offset_from_header: 0,
            }));
        }
        for fuzz in 0..=FUZZ.min(before.max(after)) {
            let front = fuzz.min(before);
            let back = fuzz.min(after);
            let wanted_lines = old.get(front..old.len() - back).unwrap_or_default();
            let last = lines.len().saturating_sub(wanted_lines.len());
            for distance in 0..=lines.len() {
                let places = [wanted.checked_add(distance), wanted.checked_sub(distance)];
                for start in places.into_iter().flatten().take(if distance == 0 { 1 } else { 2 }) {
                    let at = start + front;
                    if at > last {
                        continue;
                    }
                    invocation.meter.charge(meter::LINE)?;
                    let here = lines.get(at..at + wanted_lines.len()).unwrap_or_default();
                    if here.iter().zip(wanted_lines).all(|(line, wanted)| line == wanted) {
                        let moved = start as isize - wanted as isize;
                        return Ok(Some(Found {
                            at: start,
                            front,
                            back,
                            fuzz,
                            offset: offset + moved,
                            offset_from_header: moved,
                        }));
                    }
                }
            }
        }
        Ok(None)
    }
}

/// Where and how a hunk fits.
struct Found {
    at: usize,
    /// Lines of context that are ignored before and after.
    front: usize,
    back: usize,
    fuzz: usize,
    offset: isize,
    offset_from_header: isize,
}

/// Makes the folders of a new file; if one cannot be made, writing the file says why.
fn make_folders(invocation: &mut Invocation<'_>, path: &[u8]) {
    let mut prefix: Vec<u8> = Vec::new();
    let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    for part in parts.iter().take(parts.len().saturating_sub(1)) {
        prefix.extend_from_slice(part);
        if !prefix.is_empty() && !invocation.files.exists(&prefix) {
            let _ = invocation.files.make_directory(&prefix);
        }
        prefix.push(b'/');
    }
}

fn show_rejects(patch: &FilePatch, hunks: &[Hunk]) -> Vec<u8> {
    let mut text = Vec::new();
    for (mark, name) in [("--- ", &patch.old), ("+++ ", &patch.new)] {
        text.extend_from_slice(mark.as_bytes());
        text.extend_from_slice(name);
        text.push(b'\n');
    }
    for hunk in hunks {
        let span = |start: usize, length: usize| match length {
            1 => start.to_string(),
            length => format!("{start},{length}"),
        };
        let old = span(hunk.old_start, hunk.old().len());
        let new = span(hunk.new_start, hunk.new().len());
        text.extend_from_slice(format!("@@ -{old} +{new} @@\n").as_bytes());
        for (mark, line) in &hunk.lines {
            text.push(*mark);
            text.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                text.extend_from_slice(b"\n\\ No newline at end of file\n");
            }
        }
    }
    text
}
