//! Task files: JSON Lines, one [`Task`] a row.
//!
//! A row is an object with `id`, `input`, and optionally `metadata` (an object of strings),
//! `workspace` (`{"files": {path: text}}` or `{"folder": path}`, relative to the file),
//! `grading` (an object only rewards see) and `references` (replies for the oracle policy).
//! Blank lines are skipped. Unknown keys are errors, so that a misspelt `grading` cannot pass
//! unnoticed.

use std::{
    collections::{HashMap, hash_map::Entry},
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Component, Path, PathBuf},
};

use fulgurite_trace::{Digest, Task, Workspace};

/// Longest row; a larger workspace belongs into a folder.
const MAX_ROW_BYTES: u64 = 16 << 20;

/// A file could not be read, or a row of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// The file itself.
    #[error("cannot read the task file {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// One row.
    #[error("{}:{line}: {reason}", path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// No row at all.
    #[error("the task file {} holds no task", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// What a task file held.
#[derive(Debug)]
pub struct Dataset {
    /// The tasks in file order.
    pub tasks: Vec<Task>,
    /// Rows that were skipped.
    pub skipped: Vec<DatasetError>,
    /// Digest over the tasks read, in order.
    pub digest: Digest,
}

/// Reads a task file. With `skip_bad`, broken rows are collected instead of ending the reading.
pub fn read(path: &Path, skip_bad: bool) -> Result<Dataset, DatasetError> {
    let file =
        File::open(path).map_err(|source| DatasetError::File { path: path.to_owned(), source })?;
    let mut reader = Rows { path, reader: BufReader::new(file), line: 0 };
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut tasks = Vec::new();
    let mut skipped = Vec::new();
    let mut lines: HashMap<String, u64> = HashMap::new();
    while let Some(text) = reader.next_row() {
        let line = reader.line;
        let task = text.and_then(|text| parse(&text, folder).map_err(|reason| reader.bad(reason)));
        let task = task.and_then(|task| match lines.entry(task.id.clone()) {
            Entry::Occupied(first) => Err(reader.bad(format!(
                "the id `{}` stands already in line {}; ids must be unique",
                task.id.escape_debug(),
                first.get()
            ))),
            Entry::Vacant(place) => {
                place.insert(line);
                Ok(task)
            }
        });
        match task {
            Ok(task) => tasks.push(task),
            Err(error @ DatasetError::Row { .. }) if skip_bad => skipped.push(error),
            Err(error) => return Err(error),
        }
    }
    if tasks.is_empty() && skipped.is_empty() {
        return Err(DatasetError::Empty { path: path.to_owned() });
    }
    let digest = digest(&tasks);
    Ok(Dataset { tasks, skipped, digest })
}

/// Digest of a list of tasks, in order.
pub fn digest(tasks: &[Task]) -> Digest {
    let mut digests = Vec::with_capacity(tasks.len() * 32);
    for task in tasks {
        // A task is plain data with string keys: it always serialises.
        let row = serde_json::to_vec(task).unwrap_or_default();
        digests.extend_from_slice(Digest::of(row).as_bytes());
    }
    Digest::of(digests)
}

struct Rows<'a> {
    path: &'a Path,
    reader: BufReader<File>,
    line: u64,
}

impl Rows<'_> {
    fn bad(&self, reason: String) -> DatasetError {
        DatasetError::Row { path: self.path.to_owned(), line: self.line, reason }
    }

    /// The next line that is not blank.
    fn next_row(&mut self) -> Option<Result<String, DatasetError>> {
        loop {
            self.line += 1;
            let mut bytes = Vec::new();
            let mut limited = (&mut self.reader).take(MAX_ROW_BYTES + 1);
            match limited.read_until(b'\n', &mut bytes) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(source) => {
                    return Some(Err(DatasetError::File { path: self.path.to_owned(), source }));
                }
            }
            if bytes.len() as u64 > MAX_ROW_BYTES {
                // The rest of the overlong line is skipped, so that line numbers stay right.
                let rest = self.reader.skip_until(b'\n');
                if let Err(source) = rest {
                    return Some(Err(DatasetError::File { path: self.path.to_owned(), source }));
                }
                return Some(Err(self.bad(format!(
                    "the row is longer than {} MiB; put large workspaces into a folder \
                     (`\"workspace\": {{\"folder\": …}}`)",
                    MAX_ROW_BYTES >> 20
                ))));
            }
            match String::from_utf8(bytes) {
                Ok(text) if text.trim().is_empty() => {}
                Ok(text) => return Some(Ok(text)),
                Err(_) => return Some(Err(self.bad("the row is not UTF-8".to_owned()))),
            }
        }
    }
}

fn parse(text: &str, folder: &Path) -> Result<Task, String> {
    // Some editors begin a file with this mark.
    let text = text.trim_start_matches('\u{feff}');
    let mut task: Task = serde_json::from_str(text).map_err(|error| {
        // serde_json counts lines within the row, which is always 1.
        error.to_string().replace(" at line 1 column", ", column")
    })?;
    if task.id.is_empty() {
        return Err("the id is empty".to_owned());
    }
    if let Workspace::Files(files) = &task.workspace
        && let Some(path) = files.keys().find(|path| !is_inside(path))
    {
        return Err(format!(
            "the workspace file `{}` is not a relative path within the workspace",
            path.escape_debug()
        ));
    }
    if let Workspace::Folder(path) = &mut task.workspace {
        *path = folder.join(&path);
        if !path.is_dir() {
            return Err(format!("the workspace folder {} does not exist", path.display()));
        }
    }
    Ok(task)
}

/// Whether a path names something within the folder it is relative to.
fn is_inside(path: &str) -> bool {
    !path.is_empty()
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn file(text: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text).unwrap();
        file
    }

    #[test]
    fn rows_are_read_in_order_and_blank_lines_skipped() {
        let file = file(b"{\"id\":\"b\",\"input\":\"1\"}\n\n{\"id\":\"a\",\"input\":\"2\"}");
        let dataset = read(file.path(), false).unwrap();
        let ids: Vec<_> = dataset.tasks.iter().map(|task| task.id.as_str()).collect();
        assert_eq!(ids, ["b", "a"]);
        assert_eq!(dataset.digest, digest(&dataset.tasks));
    }

    #[test]
    fn a_broken_row_is_reported_with_file_line_and_reason() {
        for (row, reason) in [
            (&b"{\"id\":\"a\"}"[..], "missing field `input`"),
            (b"{\"id\":\"x\",\"input\":\"\"}", "stands already in line 1"),
            (b"{\"id\":\"a\",\"input\":\"\",\"gradin\":{}}", "unknown field `gradin`"),
            (b"{\"id\":\"\",\"input\":\"\"}", "the id is empty"),
            (b"{", "EOF"),
            (b"\xff", "not UTF-8"),
            (
                b"{\"id\":\"a\",\"input\":\"\",\"workspace\":{\"files\":{\"../x\":\"\"}}}",
                "not a relative path",
            ),
            (
                b"{\"id\":\"a\",\"input\":\"\",\"workspace\":{\"folder\":\"nowhere\"}}",
                "does not exist",
            ),
        ] {
            let mut text = b"{\"id\":\"x\",\"input\":\"\"}\n".to_vec();
            text.extend_from_slice(row);
            let file = file(&text);
            let error = read(file.path(), false).unwrap_err().to_string();
            assert!(error.contains(&format!("{}:2: ", file.path().display())), "{error}");
            assert!(error.contains(reason), "{error}");
            let dataset = read(file.path(), true).unwrap();
            assert_eq!((dataset.tasks.len(), dataset.skipped.len()), (1, 1));
        }
    }

    #[test]
    fn an_overlong_row_is_refused_and_the_next_one_read() {
        let mut text = vec![b'x'; MAX_ROW_BYTES as usize + 10];
        text.extend_from_slice(b"\n{\"id\":\"a\",\"input\":\"\"}\n");
        let dataset = read(file(&text).path(), true).unwrap();
        assert_eq!((dataset.tasks.len(), dataset.skipped.len()), (1, 1));
        assert!(dataset.skipped[0].to_string().contains(":1: "));
    }
}
