//! Reads unified differences.

use super::{chomp, split_lines};

/// Most lines in one hunk.
const HUNK_LINES: usize = 1 << 20;

/// What is done to one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FilePatch {
    pub(super) old: Vec<u8>,
    pub(super) new: Vec<u8>,
    pub(super) hunks: Vec<Hunk>,
}

/// One place that changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Hunk {
    /// Line numbers, counted from one.
    pub(super) old_start: usize,
    pub(super) new_start: usize,
    /// Lines with their newlines, each with its mark.
    pub(super) lines: Vec<(u8, Vec<u8>)>,
}

impl Hunk {
    /// The lines before, with those that stay.
    pub(super) fn old_lines(&self) -> Vec<&[u8]> {
        self.side(b'+')
    }

    /// The lines after, with those that stay.
    pub(super) fn new_lines(&self) -> Vec<&[u8]> {
        self.side(b'-')
    }

    fn side(&self, without: u8) -> Vec<&[u8]> {
        self.lines
            .iter()
            .filter(|(mark, _)| *mark != without)
            .map(|(_, line)| line.as_slice())
            .collect()
    }

    /// How many unchanged lines stand before and after the change.
    pub(super) fn context(&self) -> (usize, usize) {
        let stays = |line: &&(u8, Vec<u8>)| line.0 == b' ';
        let before = self.lines.iter().take_while(stays).count();
        let after = self.lines.iter().rev().take_while(stays).count();
        (before, after.min(self.lines.len() - before))
    }

    /// The change undone.
    pub(super) fn reversed(&self) -> Self {
        let swap = |mark: u8| match mark {
            b'-' => b'+',
            b'+' => b'-',
            other => other,
        };
        let mut lines: Vec<(u8, Vec<u8>)> =
            self.lines.iter().map(|(mark, line)| (swap(*mark), line.clone())).collect();
        // Within one run of changes, what goes stands before what comes.
        let mut start = 0;
        while start < lines.len() {
            let run = lines.iter().skip(start).take_while(|(mark, _)| *mark != b' ').count();
            if let Some(run) = lines.get_mut(start..start + run) {
                run.sort_by_key(|(mark, _)| *mark == b'+');
            }
            start += run.max(1);
        }
        Self { old_start: self.new_start, new_start: self.old_start, lines }
    }
}

/// The file patches in `text`; text between them is skipped.
pub(super) fn parse(text: &[u8]) -> Result<Vec<FilePatch>, String> {
    let mut patches: Vec<FilePatch> = Vec::new();
    let mut lines = split_lines(text).enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if let Some(old) = line.strip_prefix(b"--- ")
            && let Some((_, next)) = lines.peek()
            && let Some(new) = next.strip_prefix(b"+++ ")
        {
            patches.push(FilePatch { old: name(old), new: name(new), hunks: Vec::new() });
            lines.next();
        } else if line.starts_with(b"@@ ")
            && let Some(patch) = patches.last_mut()
        {
            let malformed = |number: usize| format!("malformed patch at line {}", number + 1);
            let (old, new) = header(line).ok_or_else(|| malformed(number))?;
            if old.1.saturating_add(new.1) > HUNK_LINES {
                return Err(malformed(number));
            }
            let mut hunk = Hunk { old_start: old.0, new_start: new.0, lines: Vec::new() };
            let (mut olds, mut news) = (old.1, new.1);
            while olds > 0 || news > 0 {
                let Some((number, line)) = lines.next() else {
                    return Err("unexpected end of file in patch".to_owned());
                };
                let (mark, rest) = match line {
                    // Mailers and editors strip the blank of an empty line.
                    b"\n" => (b' ', line),
                    [mark, rest @ ..] => (*mark, rest),
                    [] => return Err(malformed(number)),
                };
                let (from_old, from_new) = match mark {
                    b' ' => (1, 1),
                    b'-' => (1, 0),
                    b'+' => (0, 1),
                    b'\\' => {
                        no_newline(&mut hunk);
                        continue;
                    }
                    _ => return Err(malformed(number)),
                };
                olds = olds.checked_sub(from_old).ok_or_else(|| malformed(number))?;
                news = news.checked_sub(from_new).ok_or_else(|| malformed(number))?;
                let mut rest = rest.to_vec();
                if !rest.ends_with(b"\n") {
                    rest.push(b'\n');
                }
                hunk.lines.push((mark, rest));
            }
            if lines.peek().is_some_and(|(_, line)| line.starts_with(b"\\")) {
                no_newline(&mut hunk);
                lines.next();
            }
            patch.hunks.push(hunk);
        }
    }
    patches.retain(|patch| !patch.hunks.is_empty());
    Ok(patches)
}

fn no_newline(hunk: &mut Hunk) {
    if let Some((_, line)) = hunk.lines.last_mut()
        && line.ends_with(b"\n")
    {
        line.pop();
    }
}

/// A name without its time.
fn name(text: &[u8]) -> Vec<u8> {
    let text = chomp(text);
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let end = text.iter().position(|byte| *byte == b'\t').unwrap_or(text.len());
    text.get(..end).unwrap_or_default().to_vec()
}

type Span = (usize, usize);

/// `@@ -1,2 +3,4 @@`.
fn header(line: &[u8]) -> Option<(Span, Span)> {
    let line = std::str::from_utf8(line.get(..line.len().min(200))?).ok()?;
    let mut parts = line.split(' ').skip(1);
    let old = parts.next()?.strip_prefix('-')?;
    let new = parts.next()?.strip_prefix('+')?;
    if !parts.next()?.starts_with("@@") {
        return None;
    }
    let span = |text: &str| match text.split_once(',') {
        Some((start, length)) => Some((start.parse().ok()?, length.parse().ok()?)),
        None => Some((text.parse().ok()?, 1)),
    };
    Some((span(old)?, span(new)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PATCH: &[u8] =
        b"diff --git a/x b/x\n--- a/x\t2026\n+++ b/x\n@@ -1,3 +1,2 @@ fn\n a\n-b\n-c\n+d\n\\ No newline at end of file\n";

    #[test]
    fn a_patch_is_read_and_reversed() {
        let patches = parse(PATCH).unwrap();
        assert_eq!(patches.len(), 1);
        assert_eq!(
            (patches[0].old.as_slice(), patches[0].new.as_slice()),
            (&b"a/x"[..], &b"b/x"[..])
        );
        let hunk = &patches[0].hunks[0];
        assert_eq!(hunk.old_lines(), [&b"a\n"[..], b"b\n", b"c\n"]);
        assert_eq!(hunk.new_lines(), [&b"a\n"[..], b"d"]);
        assert_eq!(hunk.context(), (1, 0));
        let reversed = hunk.reversed();
        assert_eq!(
            (reversed.old_lines(), reversed.new_lines()),
            (hunk.new_lines(), hunk.old_lines())
        );
    }

    #[test]
    fn broken_patches_are_errors() {
        for text in [
            "--- a\n+++ b\n@@ x @@\n",
            "--- a\n+++ b\n@@ -1,2 +1 @@\n a\n",
            "--- a\n+++ b\n@@ -1 +1 @@\n?\n",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(parse(b"no patch here\n"), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "((---|\\+\\+\\+) [ab]\n|@@ -[0-9]{1,25},?[0-9]{0,3} \\+[0-9]{1,3} @@\n|[ +\\\\-]x\n){0,12}") {
            let _ = parse(text.as_bytes());
        }
    }
}
