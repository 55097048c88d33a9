//! `patch`: options, files, results.

use super::Invocation;
use super::options::Options;
use super::patch_apply::{Applied, apply};
use super::patch_parse::{FilePatch, Hunk, parse};
use crate::shell::files::describe;
use crate::shell::meter::{self, Stop};

pub(super) fn run(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = [
        "p|strip=",
        "i|input=",
        "R|reverse",
        "u|unified",
        "s|quiet",
        "N|forward",
        "f|force",
        "|dry-run",
        "o|output=",
        "E|remove-empty-files",
        "F|fuzz=",
        "b|backup",
        "t|batch",
        "l|ignore-whitespace",
        "d|directory=",
        "r|reject-file=",
        "|no-backup-if-mismatch",
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
        status = status.max(patcher.file(invocation, patch)?);
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

    fn file(&self, invocation: &mut Invocation<'_>, patch: &FilePatch) -> Result<i32, Stop> {
        let reverse = self.options.has("R");
        let (old, new) = if reverse { (&patch.new, &patch.old) } else { (&patch.old, &patch.new) };
        let removes = new == b"/dev/null";
        let hunks: Vec<Hunk> = match reverse {
            true => patch.hunks.iter().map(Hunk::reversed).collect(),
            false => patch.hunks.clone(),
        };
        let creates = old == b"/dev/null" || hunks.first().is_some_and(|hunk| hunk.old_start == 0);
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
        if !exists && !creates {
            return invocation.fail(1, &format!("can't find file to patch: {shown}"));
        }
        let text = match exists {
            true => match invocation.read_or_complain(&path)? {
                Some(text) => text,
                None => return Ok(2),
            },
            false => Vec::new(),
        };
        let quiet = self.options.has("s");
        if !quiet {
            let word = if self.options.has("dry-run") { "checking" } else { "patching" };
            invocation.line(format!("{word} file {shown}").as_bytes())?;
        }
        let lines = invocation.all_lines(&text)?;
        let applied = apply(&lines, &hunks, invocation.meter)?;
        for message in applied.messages.iter().filter(|_| !quiet) {
            invocation.line(message.as_bytes())?;
        }
        let failed = applied.rejected.len();
        if failed > 0 {
            let plural = if hunks.len() == 1 { "" } else { "s" };
            let saving = match self.options.has("dry-run") {
                true => String::new(),
                false => format!(" -- saving rejects to file {shown}.rej"),
            };
            let text = format!("{failed} out of {} hunk{plural} FAILED{saving}", hunks.len());
            invocation.line(text.as_bytes())?;
        }
        if self.options.has("dry-run") {
            return Ok(i32::from(failed > 0));
        }
        self.save(invocation, (&path, &text, exists), patch, removes, &applied)
    }

    fn save(
        &self,
        invocation: &mut Invocation<'_>,
        (path, before, exists): (&[u8], &[u8], bool),
        patch: &FilePatch,
        removes: bool,
        applied: &Applied,
    ) -> Result<i32, Stop> {
        let mut todo: Vec<(Vec<u8>, &[u8])> = Vec::new();
        if applied.mismatched && exists && !self.options.has("no-backup-if-mismatch") {
            todo.push(([path, b".orig"].concat(), before));
        }
        let failed = !applied.rejected.is_empty();
        let empties = applied.text.is_empty() && !failed && (removes || self.options.has("E"));
        if empties {
            if let Err(error) = invocation.files.unlink(path) {
                invocation.complain_path(path, error)?;
                return Ok(2);
            }
        } else if exists || applied.changed {
            make_folders(invocation, path);
            todo.push((path.to_vec(), &applied.text));
        }
        let rejected = show_rejects(patch, &applied.rejected);
        if failed {
            todo.push(([path, b".rej"].concat(), &rejected));
        }
        for (path, text) in todo {
            if let Err(error) = invocation.files.write(&path, text) {
                let shown = String::from_utf8_lossy(&path).into_owned();
                return invocation.fail(2, &format!("{shown}: {}", describe(error)));
            }
        }
        Ok(i32::from(failed))
    }
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
        let old = span(hunk.old_start, hunk.old_lines().len());
        let new = span(hunk.new_start, hunk.new_lines().len());
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
