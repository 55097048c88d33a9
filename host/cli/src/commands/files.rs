//! What episodes left behind in their workspaces, shown and written out.
//!
//! Paths, link targets and contents are a guest's: they are escaped when shown. Written out are
//! regular files and folders only, below a new folder; links are told in a list and not made, so
//! that nothing that is written or read there leads elsewhere.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use data_encoding::BASE64;
use fulgurite_episode::kept::{self, KeptChange, KeptError, KeptFile};
use fulgurite_trace::{EpisodeRef, Store, file::FileKind};
use serde_json::{Value, json};

use crate::{
    exit,
    output::{Output, counted, escaped},
};

/// Shows the changed files of an episode, with what they hold.
pub(crate) fn show(store: &Store, run: &str, episode: EpisodeRef, output: Output) -> Result<()> {
    let files = kept::files(store, run, episode)?;
    let mut values = Vec::new();
    let mut blocks = Vec::new();
    for file in &files {
        let content = content(store, file)?;
        if output.is_json() {
            values.push(value(file, content.as_deref()));
        } else {
            blocks.push(block(file, content.as_deref()));
        }
    }
    output.result(&values, |_| {
        if blocks.is_empty() {
            return "the workspace was left as it was".to_owned();
        }
        blocks.join("\n")
    })
}

/// What a file holds, or a link points to; none for folders, what is gone and what is not kept.
fn content(store: &Store, file: &KeptFile) -> Result<Option<Vec<u8>>> {
    match file.digest {
        Some(digest) if file.change != KeptChange::Removed => Ok(store.content(&digest)?),
        _ => Ok(None),
    }
}

fn value(file: &KeptFile, content: Option<&[u8]>) -> Value {
    let content = content.map(|bytes| match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "text": text }),
        Err(_) => json!({ "base64": BASE64.encode(bytes) }),
    });
    json!({
        "path": file.path,
        "kind": match file.change {
            KeptChange::Added => "added",
            KeptChange::Modified => "modified",
            KeptChange::Removed => "removed",
        },
        "entry": file.entry,
        "size": file.size,
        "digest": file.digest,
        "content": content,
    })
}

fn block(file: &KeptFile, content: Option<&[u8]>) -> String {
    let KeptFile { path, entry, change, size, .. } = file;
    let sign = match change {
        KeptChange::Added => '+',
        KeptChange::Modified => '~',
        KeptChange::Removed => '-',
    };
    // A line break in a name must not look like the end of the line.
    let path = escaped(path).replace('\n', "\\n");
    let what = match entry {
        FileKind::Directory => "/".to_owned(),
        FileKind::Symlink => "  link".to_owned(),
        FileKind::File => format!("  {size} bytes"),
    };
    let head = format!("{sign} {path}{what}");
    if *change == KeptChange::Removed || *entry == FileKind::Directory {
        return head;
    }
    match content.map(std::str::from_utf8) {
        None => format!("{head}  (not kept)"),
        Some(Err(_)) => format!("{head}  (no text)"),
        Some(Ok("")) => head,
        Some(Ok(text)) => {
            let lines: Vec<_> = text.lines().map(|line| format!("    {}", escaped(line))).collect();
            format!("{head}\n{}", lines.join("\n"))
        }
    }
}

/// Writes the changed files of the last attempt of every episode below a new folder:
/// `TASK.SAMPLE/files/…`, and `TASK.SAMPLE/changes.json` with all changes, links and removals
/// included.
pub(crate) fn export(store: &Store, run: &str, folder: &Path, output: Output) -> Result<()> {
    if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) || folder.is_file() {
        bail!(exit::Usage(format!(
            "{} is there already\n  mend: name a new folder",
            folder.display()
        )));
    }
    make(folder)?;
    let (mut written, mut episodes, mut lost) = (0, 0, 0);
    for attempt in crate::commands::trace::last_attempts(store, run)? {
        let EpisodeRef { task, sample, .. } = attempt.episode;
        let files = match kept::files(store, run, attempt.episode) {
            Err(KeptError::NotEnded) => continue,
            files => files?,
        };
        let place = folder.join(format!("{task}.{sample}"));
        make(&place.join("files"))?;
        let mut list = Vec::new();
        for file in &files {
            let content = content(store, file)?;
            let is_there = file.change != KeptChange::Removed;
            match (file.entry, &content) {
                (FileKind::Directory, _) if is_there => make(&inside(&place, &file.path)?)?,
                (FileKind::File, Some(bytes)) => {
                    let path = inside(&place, &file.path)?;
                    make(path.parent().unwrap_or(&place))?;
                    fs::write(&path, bytes)
                        .with_context(|| format!("cannot write {}", path.display()))?;
                    written += 1;
                }
                (FileKind::File | FileKind::Symlink, None) if is_there => lost += 1,
                _ => {}
            }
            // The list tells what the files beside it do not: links, removals, digests.
            let target = (file.entry == FileKind::Symlink).then_some(content.as_deref()).flatten();
            let mut entry = value(file, target);
            if let Some(fields) = entry.as_object_mut() {
                fields.shift_remove("content");
                fields.insert(
                    "target".to_owned(),
                    target.map(|target| String::from_utf8_lossy(target).into_owned()).into(),
                );
                fields.insert("kept".to_owned(), content.is_some().into());
            }
            list.push(entry);
        }
        let path = place.join("changes.json");
        fs::write(&path, serde_json::to_string_pretty(&list)? + "\n")
            .with_context(|| format!("cannot write {}", path.display()))?;
        episodes += 1;
    }
    if lost > 0 {
        let lost = counted(lost, "content was", "contents were");
        output.remark(format_args!("{lost} not kept; `keep_files` of the run says how much is"));
    }
    let done = json!({ "folder": folder, "episodes": episodes, "files": written });
    output.result(&done, |_| {
        let files = counted(written, "file", "files");
        let episodes = counted(episodes, "episode", "episodes");
        format!("wrote {files} of {episodes} to {}", folder.display())
    })
}

fn make(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// A path of a workspace below the folder of its episode.
fn inside(place: &Path, path: &str) -> Result<PathBuf> {
    let parts = Path::new(path).components();
    if path.is_empty() || !parts.clone().all(|part| matches!(part, Component::Normal(_))) {
        bail!("the record names the path `{}`, which leads elsewhere", path.escape_debug());
    }
    Ok(place.join("files").join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, entry: FileKind, change: KeptChange) -> KeptFile {
        KeptFile { path: path.to_owned(), entry, change, size: 3, digest: None }
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        let place = Path::new("/out/0.0");
        assert_eq!(inside(place, "a/b").unwrap(), Path::new("/out/0.0/files/a/b"));
        for path in ["", "/etc/passwd", "../x", "a/../../x", "./a/.."] {
            assert!(inside(place, path).is_err(), "{path}");
        }
    }

    #[test]
    fn names_and_contents_are_shown_escaped() {
        let hostile = file("a\n+ b\u{1b}[2J", FileKind::File, KeptChange::Added);
        let shown = block(&hostile, Some(b"one\n\x1b]0;x\x07two"));
        assert!(!shown.contains(['\u{1b}', '\u{7}']), "{shown:?}");
        assert_eq!(shown.lines().count(), 3, "{shown:?}");
        let gone = file("a", FileKind::File, KeptChange::Removed);
        assert_eq!(block(&gone, None), "- a  3 bytes");
        let lost = file("a", FileKind::File, KeptChange::Modified);
        assert!(block(&lost, None).ends_with("(not kept)"));
        assert!(block(&lost, Some(&[0xff])).ends_with("(no text)"));
    }
}
