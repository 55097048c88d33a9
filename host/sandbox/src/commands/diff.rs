//! `diff`: normal and unified output, folders.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use fulgurite_trace::file::FileKind;
use similar::{Algorithm, DiffOp, capture_diff_slices, group_diff_ops};

use super::options::Options;
use super::remove::DEPTH;
use super::{Invocation, chomp};
use crate::shell::files::{base_name, join};
use crate::shell::meter::{self, Stop};

pub(super) fn run(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = [
        "u",
        "U|unified=",
        "q|brief",
        "r|recursive",
        "N|new-file",
        "a|text",
        "s",
        "i|ignore-case",
        "w|ignore-all-space",
        "b|ignore-space-change",
        "B|ignore-blank-lines",
        "|label=",
        "|color=?",
        "x|exclude=",
        "|strip-trailing-cr",
    ];
    let Some(options) = invocation.options(&known)? else { return Ok(2) };
    let [left, right] = options.operands.as_slice() else {
        return invocation.fail(2, "two files are needed");
    };
    let context = match options.value("U").map(super::parse_number::<usize>) {
        None => 3,
        Some(Some(lines)) => lines,
        Some(None) => return invocation.fail(2, "invalid context length"),
    };
    let differ = Differ {
        unified: options.has("u") || options.has("U"),
        context,
        options: &options,
        called: called(invocation.arguments, &options),
    };
    differ.compare(invocation, left, right, 0, true)
}

/// The options as they stand before the names in `diff -r a/x b/x`.
fn called(arguments: &[Vec<u8>], options: &Options) -> String {
    arguments
        .iter()
        .filter(|argument| !options.operands.contains(argument))
        .map(|argument| format!(" {}", String::from_utf8_lossy(argument)))
        .collect()
}

struct Differ<'a> {
    unified: bool,
    context: usize,
    options: &'a Options,
    called: String,
}

/// One side: its name and its bytes; `None` for a file that is not there.
struct Side<'a> {
    path: &'a [u8],
    text: Option<Vec<u8>>,
}

impl Differ<'_> {
    fn compare(
        &self,
        invocation: &mut Invocation<'_>,
        left: &[u8],
        right: &[u8],
        depth: usize,
        top: bool,
    ) -> Result<i32, Stop> {
        let folder = |path: &[u8]| path != b"-" && invocation.files.is_directory(path);
        match (folder(left), folder(right)) {
            (true, true) => self.folders(invocation, left, right, depth),
            (true, false) if top => {
                let inner = join(left, base_name(right));
                self.files(invocation, &inner, right, top)
            }
            (false, true) if top => {
                let inner = join(right, base_name(left));
                self.files(invocation, left, &inner, top)
            }
            _ => self.files(invocation, left, right, top),
        }
    }

    fn folders(
        &self,
        invocation: &mut Invocation<'_>,
        left: &[u8],
        right: &[u8],
        depth: usize,
    ) -> Result<i32, Stop> {
        if depth > DEPTH {
            return invocation.fail(2, "folders nest too deep");
        }
        let mut names = BTreeSet::new();
        let mut kinds = Vec::new();
        for folder in [left, right] {
            let entries = match invocation.files.list(folder) {
                Ok(entries) => entries,
                Err(error) => {
                    invocation.complain_path(folder, error)?;
                    return Ok(2);
                }
            };
            invocation.meter.charge_each(entries.len(), meter::ENTRY)?;
            names.extend(entries.iter().map(|entry| entry.name.clone()));
            kinds.push(entries);
        }
        let mut status = 0;
        for name in names {
            if self.options.values("x").any(|pattern| {
                crate::shell::pattern::Pattern::new(pattern, false).matches(name.as_bytes())
            }) {
                continue;
            }
            let (one, two) = (join(left, name.as_bytes()), join(right, name.as_bytes()));
            let there: Vec<bool> = kinds
                .iter()
                .map(|entries| entries.iter().any(|entry| entry.name == name))
                .collect();
            let both = there.iter().all(|there| *there);
            if !both && !self.options.has("N") {
                let folder = if there.first() == Some(&true) { left } else { right };
                let shown = String::from_utf8_lossy(folder).into_owned();
                invocation.line(format!("Only in {shown}: {name}").as_bytes())?;
                status = status.max(1);
                continue;
            }
            let kind = |path: &[u8]| invocation.files.stat(path, true).ok().map(|stat| stat.kind);
            let folders = (kind(&one), kind(&two));
            match folders {
                (Some(FileKind::Directory), Some(FileKind::Directory)) => {
                    if self.options.has("r") {
                        status = status.max(self.folders(invocation, &one, &two, depth + 1)?);
                    } else {
                        let one = String::from_utf8_lossy(&one).into_owned();
                        let two = String::from_utf8_lossy(&two).into_owned();
                        let text = format!("Common subdirectories: {one} and {two}");
                        invocation.line(text.as_bytes())?;
                    }
                }
                (Some(FileKind::Directory), _) | (_, Some(FileKind::Directory)) => {
                    let words = |kind: Option<FileKind>| match kind {
                        Some(FileKind::Directory) => "directory",
                        _ => "regular file",
                    };
                    let text = format!(
                        "File {} is a {} while file {} is a {}",
                        String::from_utf8_lossy(&one),
                        words(folders.0),
                        String::from_utf8_lossy(&two),
                        words(folders.1)
                    );
                    invocation.line(text.as_bytes())?;
                    status = status.max(1);
                }
                _ => status = status.max(self.files(invocation, &one, &two, false)?),
            }
        }
        Ok(status)
    }

    fn side<'s>(
        &self,
        invocation: &mut Invocation<'_>,
        path: &'s [u8],
    ) -> Result<Option<Side<'s>>, Stop> {
        let absent_is_empty = self.options.has("N");
        if absent_is_empty && path != b"-" && path != b"/dev/null" && !invocation.files.exists(path)
        {
            return Ok(Some(Side { path, text: None }));
        }
        let text = invocation.read_or_complain(path)?;
        Ok(text.map(|text| Side { path, text: Some(text) }))
    }

    fn files(
        &self,
        invocation: &mut Invocation<'_>,
        left: &[u8],
        right: &[u8],
        top: bool,
    ) -> Result<i32, Stop> {
        let one = self.side(invocation, left)?;
        let two = self.side(invocation, right)?;
        let (Some(one), Some(two)) = (one, two) else { return Ok(2) };
        let shown = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let (old, new) =
            (one.text.as_deref().unwrap_or_default(), two.text.as_deref().unwrap_or_default());
        if old == new {
            if self.options.has("s") {
                let text = format!("Files {} and {} are identical", shown(left), shown(right));
                invocation.line(text.as_bytes())?;
            }
            return Ok(0);
        }
        let binary = |text: &[u8]| text.iter().take(32 << 10).any(|byte| *byte == 0);
        if !self.options.has("a") && (binary(old) || binary(new)) && !self.options.has("q") {
            let text = format!("Binary files {} and {} differ", shown(left), shown(right));
            return invocation.line(text.as_bytes()).map(|()| 2);
        }
        let old_lines = invocation.all_lines(old)?;
        let new_lines = invocation.all_lines(new)?;
        let ops = self.ops(invocation, &old_lines, &new_lines)?;
        if ops.iter().all(|op| matches!(op, DiffOp::Equal { .. })) {
            return Ok(0);
        }
        if self.options.has("q") {
            let text = format!("Files {} and {} differ", shown(left), shown(right));
            return invocation.line(text.as_bytes()).map(|()| 1);
        }
        if !top {
            let text = format!("diff{} {} {}", self.called, shown(left), shown(right));
            invocation.line(text.as_bytes())?;
        }
        if self.unified {
            self.show_unified(invocation, (&one, &two), &old_lines, &new_lines, ops)?;
        } else {
            show_normal(invocation, &old_lines, &new_lines, &ops)?;
        }
        Ok(1)
    }

    /// What turns one into the other. Charged for the middle that differs, squared: that is what
    /// it takes at worst.
    fn ops(
        &self,
        invocation: &mut Invocation<'_>,
        old: &[&[u8]],
        new: &[&[u8]],
    ) -> Result<Vec<DiffOp>, Stop> {
        let old_keys: Vec<Cow<'_, [u8]>> = old.iter().map(|line| self.key(line)).collect();
        let new_keys: Vec<Cow<'_, [u8]>> = new.iter().map(|line| self.key(line)).collect();
        let front = old_keys.iter().zip(&new_keys).take_while(|(old, new)| old == new).count();
        let back = old_keys
            .iter()
            .skip(front)
            .rev()
            .zip(new_keys.iter().skip(front).rev())
            .take_while(|(old, new)| old == new)
            .count();
        let bytes: usize = old.iter().chain(new).map(|line| line.len() + 1).sum();
        invocation.meter.charge_each(bytes, 8 * meter::BYTE)?;
        let middle = (old.len() - front - back) as u64 * (new.len() - front - back) as u64;
        invocation.meter.charge(middle.saturating_mul(4))?;
        Ok(capture_diff_slices(Algorithm::Myers, &old_keys, &new_keys))
    }

    /// What two lines must share to be equal.
    fn key<'l>(&self, line: &'l [u8]) -> Cow<'l, [u8]> {
        let has = |key: &str| self.options.has(key);
        if !["strip-trailing-cr", "w", "b", "i"].iter().any(|key| has(key)) {
            return Cow::Borrowed(line);
        }
        let mut key = line.to_vec();
        if has("strip-trailing-cr") && key.ends_with(b"\r\n") {
            key.truncate(key.len() - 2);
            key.push(b'\n');
        }
        if has("w") {
            key.retain(|byte| !byte.is_ascii_whitespace());
        } else if has("b") {
            let end = key.iter().rposition(|byte| !byte.is_ascii_whitespace());
            key.truncate(end.map_or(0, |end| end + 1));
            let mut before = false;
            key.retain_mut(|byte| {
                let space = byte.is_ascii_whitespace();
                if space {
                    *byte = b' ';
                }
                let keep = !(space && before);
                before = space;
                keep
            });
        }
        if has("i") {
            key.make_ascii_lowercase();
        }
        Cow::Owned(key)
    }

    fn show_unified(
        &self,
        invocation: &mut Invocation<'_>,
        (one, two): (&Side<'_>, &Side<'_>),
        old: &[&[u8]],
        new: &[&[u8]],
        ops: Vec<DiffOp>,
    ) -> Result<(), Stop> {
        let labels: Vec<&[u8]> = self.options.values("label").collect();
        for (index, (mark, side)) in [("---", one), ("+++", two)].into_iter().enumerate() {
            let mut header = format!("{mark} ").into_bytes();
            match labels.get(index) {
                Some(label) => header.extend_from_slice(label),
                None => {
                    header.extend_from_slice(side.path);
                    let modified = invocation.files.stat(side.path, true).map(|stat| stat.times);
                    let seconds = match (&side.text, modified) {
                        (Some(_), Ok(times)) => times.modified / 1_000_000_000,
                        _ => 0,
                    };
                    header.extend_from_slice(super::clock::stamped(seconds).as_bytes());
                }
            }
            invocation.line(&header)?;
        }
        for group in group_diff_ops(ops, self.context) {
            let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
            let range = |first: Range<usize>, last: Range<usize>| {
                let (start, length) = (first.start, last.end - first.start);
                match length {
                    0 => format!("{start},0"),
                    1 => format!("{}", start + 1),
                    length => format!("{},{length}", start + 1),
                }
            };
            let header = format!(
                "@@ -{} +{} @@",
                range(first.old_range(), last.old_range()),
                range(first.new_range(), last.new_range())
            );
            invocation.line(header.as_bytes())?;
            for op in &group {
                if let DiffOp::Equal { old_index, len, .. } = op {
                    marked(invocation, b" ", old.get(*old_index..old_index + len))?;
                } else {
                    marked(invocation, b"-", old.get(op.old_range()))?;
                    marked(invocation, b"+", new.get(op.new_range()))?;
                }
            }
        }
        Ok(())
    }
}

/// Lines with a mark before each, and a word where the last newline is missing.
fn marked(
    invocation: &mut Invocation<'_>,
    mark: &[u8],
    lines: Option<&[&[u8]]>,
) -> Result<(), Stop> {
    for line in lines.unwrap_or_default() {
        invocation.meter.charge(meter::LINE)?;
        invocation.out(mark)?;
        invocation.line(chomp(line))?;
        if !line.ends_with(b"\n") {
            invocation.line(b"\\ No newline at end of file")?;
        }
    }
    Ok(())
}

fn show_normal(
    invocation: &mut Invocation<'_>,
    old: &[&[u8]],
    new: &[&[u8]],
    ops: &[DiffOp],
) -> Result<(), Stop> {
    let range = |range: Range<usize>| match range.len() {
        0 => range.start.to_string(),
        1 => (range.start + 1).to_string(),
        _ => format!("{},{}", range.start + 1, range.end),
    };
    for op in ops {
        let letter = match op {
            DiffOp::Equal { .. } => continue,
            DiffOp::Delete { .. } => 'd',
            DiffOp::Insert { .. } => 'a',
            DiffOp::Replace { .. } => 'c',
        };
        let header = format!("{}{letter}{}", range(op.old_range()), range(op.new_range()));
        invocation.line(header.as_bytes())?;
        marked(invocation, b"< ", old.get(op.old_range()))?;
        if letter == 'c' {
            invocation.line(b"---")?;
        }
        marked(invocation, b"> ", new.get(op.new_range()))?;
    }
    Ok(())
}
