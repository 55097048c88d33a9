//! Looking at files and changing them, in the workspace that the host mounted.

use std::fs;
use std::path::PathBuf;

use crate::action::{Edit, View};

/// Where the workspace is.
const ROOT: &str = "/workspace";
/// The largest file that is shown or changed.
const FILE_BYTES: u64 = 4 << 20;

/// A path as models write it: relative, or absolute below the workspace. Where it leads is for
/// the host to bound; this only makes both spellings work.
fn place(path: &str) -> PathBuf {
    let path = path.trim();
    let relative = path.strip_prefix(ROOT).unwrap_or(path).trim_start_matches('/');
    PathBuf::from(ROOT).join(relative)
}

/// A file as text; bytes that are not UTF-8 are replaced.
pub(crate) fn read(path: &str) -> Result<String, String> {
    let place = place(path);
    let problem = |error: std::io::Error| format!("{path}: {}", reason(&error));
    if fs::metadata(&place).map_err(problem)?.len() > FILE_BYTES {
        return Err(format!("{path}: the file is too large"));
    }
    let bytes = fs::read(&place).map_err(problem)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What `view` shows.
pub(crate) fn view(view: &View) -> Result<String, String> {
    let place = place(&view.path);
    if fs::metadata(&place).is_ok_and(|metadata| metadata.is_dir()) {
        return list(&place).map_err(|error| format!("{}: {}", view.path, reason(&error)));
    }
    let text = read(&view.path)?;
    numbered(&text, view.first.unwrap_or(1), view.last.unwrap_or(usize::MAX))
}

fn list(folder: &PathBuf) -> std::io::Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let mark = if entry.file_type()?.is_dir() { "/" } else { "" };
        names.push(format!("{}{mark}\n", entry.file_name().to_string_lossy()));
    }
    names.sort();
    Ok(if names.is_empty() { "[empty folder]".to_string() } else { names.concat() })
}

/// Lines `first` to `last` with their numbers.
fn numbered(text: &str, first: usize, last: usize) -> Result<String, String> {
    if text.is_empty() {
        return Ok("[empty file]".to_string());
    }
    let shown: String = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
        .filter(|(number, _)| (first..=last).contains(number))
        .map(|(number, line)| format!("{number:>5}  {line}\n"))
        .collect();
    if shown.is_empty() {
        return Err(format!("the file has {} lines", text.lines().count()));
    }
    Ok(shown)
}

/// Makes a change and says so.
pub(crate) fn edit(edit: &Edit) -> Result<String, String> {
    let place = place(&edit.path);
    let problem = |error: std::io::Error| format!("{}: {}", edit.path, reason(&error));
    if edit.old.is_empty() {
        if fs::metadata(&place).is_ok_and(|metadata| metadata.len() > 0) {
            return Err(format!("{}: the file exists; say which text to replace", edit.path));
        }
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent).map_err(problem)?;
        }
        fs::write(&place, &edit.new).map_err(problem)?;
        return Ok(format!("{} is made", edit.path));
    }
    let bytes = fs::read(&place).map_err(problem)?;
    let text = String::from_utf8(bytes)
        .map_err(|_| format!("{}: the file is not text in UTF-8", edit.path))?;
    let changed =
        replaced(&text, &edit.old, &edit.new).map_err(|why| format!("{}: {why}", edit.path))?;
    fs::write(&place, changed).map_err(problem)?;
    Ok(format!("{} is changed", edit.path))
}

/// Replaces the one occurrence of `old`.
fn replaced(text: &str, old: &str, new: &str) -> Result<String, String> {
    // Blocks end each line; a file may lack the last line's end.
    let short = old.strip_suffix('\n').filter(|short| text.ends_with(short) && !short.is_empty());
    let (old, new) = match (text.contains(old), short) {
        (false, Some(short)) => (short, new.strip_suffix('\n').unwrap_or(new)),
        _ => (old, new),
    };
    match text.match_indices(old).count() {
        0 => Err("the text to replace does not occur; it must match exactly, white space \
                  included"
            .to_string()),
        1 => Ok(text.replacen(old, new, 1)),
        count => {
            Err(format!("the text to replace occurs {count} times; add lines until it is unique"))
        }
    }
}

/// An error without the machine's own words for paths.
fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or folder".to_string(),
        std::io::ErrorKind::IsADirectory => "it is a folder".to_string(),
        std::io::ErrorKind::PermissionDenied => "not permitted".to_string(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_replaced_only_where_it_occurs_once() {
        assert_eq!(replaced("a b c", "b", "x").unwrap(), "a x c");
        assert!(replaced("a b b", "b", "x").unwrap_err().contains("2 times"));
        assert!(replaced("a b c", "d", "x").unwrap_err().contains("does not occur"));
    }

    #[test]
    fn a_file_without_a_last_line_end_can_be_changed_by_lines() {
        assert_eq!(replaced("one\ntwo", "two\n", "three\n").unwrap(), "one\nthree");
        assert_eq!(replaced("one\ntwo\n", "two\n", "three\n").unwrap(), "one\nthree\n");
    }

    #[test]
    fn lines_are_numbered_and_bounded() {
        assert_eq!(numbered("a\nb\nc\n", 2, 3).unwrap(), "    2  b\n    3  c\n");
        assert!(numbered("a\n", 5, 9).unwrap_err().contains("1 lines"));
        assert_eq!(numbered("", 1, 9).unwrap(), "[empty file]");
    }

    #[test]
    fn both_spellings_of_a_path_are_one_place() {
        for path in ["a/b.py", "/workspace/a/b.py", " /a/b.py "] {
            assert_eq!(place(path), PathBuf::from("/workspace/a/b.py"));
        }
    }
}
