//! The file tree as commands see it: byte paths, a working folder, `/dev/null`.

use std::sync::Arc;

use fulgurite_trace::file::{
    DirectoryEntry, FileError, FileKind, FileStat, FileTree, Handle, OpenMode,
};

use super::meter::{self, Meter, Stop};
use super::stream::{CHUNK, Input, OpenEntry, Sink};

/// Longest path a command may name.
const PATH_BYTES: usize = 4096;

/// What the C library says for an error.
pub(crate) fn describe(error: FileError) -> &'static str {
    match error {
        FileError::NotFound => "No such file or directory",
        FileError::Exists => "File exists",
        FileError::NotDirectory => "Not a directory",
        FileError::IsDirectory => "Is a directory",
        FileError::NotEmpty => "Directory not empty",
        FileError::Loop => "Too many levels of symbolic links",
        FileError::NotPermitted => "Operation not permitted",
        FileError::BadHandle => "Bad file descriptor",
        FileError::NameTooLong => "File name too long",
        FileError::Invalid => "Invalid argument",
        FileError::NoSpace => "No space left on device",
        FileError::TooManyHandles => "Too many open files",
        FileError::Io => "Input/output error",
        FileError::Unsupported => "Operation not supported",
        FileError::Busy => "Device or resource busy",
    }
}

/// Where harnesses and programs find the tree; in shell lines it is another name of `/`.
const MOUNT: &str = "/workspace";

/// The path with [`MOUNT`] at its start taken for the root.
fn canonical_root(path: &str) -> &str {
    match path.strip_prefix(MOUNT) {
        Some("") => "/",
        Some(rest) if rest.starts_with('/') => rest,
        _ => path,
    }
}

/// A tree together with a working folder.
#[derive(Clone)]
pub(crate) struct Files {
    root: Arc<OpenEntry>,
    cwd: String,
}

impl Files {
    pub(crate) fn new(tree: Arc<dyn FileTree>) -> Result<Self, FileError> {
        let root = tree.root()?;
        Ok(Self { root: Arc::new(OpenEntry::new(tree, root)), cwd: "/".to_owned() })
    }

    pub(crate) fn tree(&self) -> &Arc<dyn FileTree> {
        self.root.tree()
    }

    fn root(&self) -> Handle {
        self.root.handle()
    }

    /// The working folder, absolute.
    pub(crate) fn cwd(&self) -> &str {
        &self.cwd
    }

    /// `path` from the root on, without `.` and doubled slashes. `..` stays, because only the tree
    /// knows where links lead, except where it would go above the root.
    pub(crate) fn absolute(&self, path: &[u8]) -> Result<String, FileError> {
        if path.is_empty() {
            return Err(FileError::NotFound);
        }
        if path.len() > PATH_BYTES {
            return Err(FileError::NameTooLong);
        }
        let path = std::str::from_utf8(path).map_err(|_| FileError::NotFound)?;
        if path.contains('\0') {
            return Err(FileError::NotFound);
        }
        let path = canonical_root(path);
        let base = if path.starts_with('/') { "" } else { self.cwd.as_str() };
        let mut depth = 0_usize;
        let mut parts = Vec::new();
        for part in base.split('/').chain(path.split('/')) {
            match part {
                "" | "." => {}
                ".." if depth == 0 => {}
                ".." => {
                    depth -= 1;
                    parts.push(part);
                }
                _ => {
                    depth += 1;
                    parts.push(part);
                }
            }
        }
        Ok(format!("/{}", parts.join("/")))
    }

    /// `path` as the tree wants it: from the root, without a leading slash.
    fn inside(&self, path: &[u8]) -> Result<String, FileError> {
        let absolute = self.absolute(path)?;
        match absolute.trim_start_matches('/') {
            "" => Ok(".".to_owned()),
            inside => Ok(inside.to_owned()),
        }
    }

    /// Goes to a folder. `..` is taken by name, as `cd` does it.
    pub(crate) fn change(&mut self, path: &[u8]) -> Result<(), FileError> {
        let absolute = self.absolute(path)?;
        let mut parts: Vec<&str> = Vec::new();
        for part in absolute.split('/').filter(|part| !part.is_empty()) {
            if part == ".." {
                parts.pop();
            } else {
                parts.push(part);
            }
        }
        let target = format!("/{}", parts.join("/"));
        match self.stat(target.as_bytes(), true)?.kind {
            FileKind::Directory => {
                self.cwd = target;
                Ok(())
            }
            _ => Err(FileError::NotDirectory),
        }
    }

    pub(crate) fn stat(&self, path: &[u8], follow: bool) -> Result<FileStat, FileError> {
        let slash = path.last() == Some(&b'/');
        let stat = self.tree().stat_at(self.root(), &self.inside(path)?, follow || slash)?;
        if slash && stat.kind != FileKind::Directory {
            return Err(FileError::NotDirectory);
        }
        Ok(stat)
    }

    pub(crate) fn exists(&self, path: &[u8]) -> bool {
        self.stat(path, true).is_ok()
    }

    pub(crate) fn is_directory(&self, path: &[u8]) -> bool {
        self.stat(path, true).is_ok_and(|stat| stat.kind == FileKind::Directory)
    }

    fn open(&self, path: &[u8], mode: OpenMode) -> Result<OpenEntry, FileError> {
        let handle = self.tree().open(self.root(), &self.inside(path)?, mode)?;
        Ok(OpenEntry::new(Arc::clone(self.tree()), handle))
    }

    /// Opens a file for reading; folders are refused.
    pub(crate) fn input(&self, path: &[u8]) -> Result<Input, FileError> {
        if path == b"/dev/null" {
            return Ok(Input::empty());
        }
        if self.stat(path, true)?.kind == FileKind::Directory {
            return Err(FileError::IsDirectory);
        }
        Ok(Input::file(
            self.open(path, OpenMode { follow: true, read: true, ..OpenMode::default() })?,
        ))
    }

    /// Opens a file for writing, making it where there is none.
    pub(crate) fn output(&self, path: &[u8], append: bool) -> Result<Sink, FileError> {
        if path == b"/dev/null" {
            return Ok(Sink::null());
        }
        if path.last() == Some(&b'/') || self.is_directory(path) {
            return Err(FileError::IsDirectory);
        }
        let mode = OpenMode {
            create: true,
            truncate: !append,
            follow: true,
            write: true,
            ..OpenMode::default()
        };
        Ok(Sink::file(self.open(path, mode)?, append))
    }

    /// A whole file, at most `room` bytes, charged by the byte.
    pub(crate) fn read(
        &self,
        path: &[u8],
        room: usize,
        meter: &mut Meter,
    ) -> Result<Result<Vec<u8>, FileError>, Stop> {
        meter.charge(meter::ENTRY)?;
        let input = match self.input(path) {
            Ok(input) => input,
            Err(error) => return Ok(Err(error)),
        };
        match input.read_all(room) {
            Ok(bytes) => {
                let bytes = bytes?;
                meter.charge_each(bytes.len(), meter::BYTE)?;
                Ok(Ok(bytes))
            }
            Err(error) => Ok(Err(error)),
        }
    }

    /// Replaces a file's bytes, or makes the file.
    pub(crate) fn write(&self, path: &[u8], bytes: &[u8]) -> Result<(), FileError> {
        use super::stream::WriteError;
        let sink = self.output(path, false)?;
        for chunk in bytes.chunks(CHUNK) {
            sink.write(chunk).map_err(|error| match error {
                WriteError::File(error) => error,
                WriteError::Full(_) => FileError::NoSpace,
            })?;
        }
        Ok(())
    }

    pub(crate) fn list(&self, path: &[u8]) -> Result<Arc<[DirectoryEntry]>, FileError> {
        let mode = OpenMode { directory: true, follow: true, read: true, ..OpenMode::default() };
        let directory = self.open(path, mode)?;
        self.tree().read_directory(directory.handle())
    }

    pub(crate) fn make_directory(&self, path: &[u8]) -> Result<(), FileError> {
        self.tree().create_directory(self.root(), &self.inside(path)?)
    }

    pub(crate) fn remove_directory(&self, path: &[u8]) -> Result<(), FileError> {
        self.tree().remove_directory(self.root(), &self.inside(path)?)
    }

    pub(crate) fn unlink(&self, path: &[u8]) -> Result<(), FileError> {
        self.tree().unlink(self.root(), &self.inside(path)?)
    }

    pub(crate) fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), FileError> {
        self.tree().rename(self.root(), &self.inside(from)?, self.root(), &self.inside(to)?)
    }

    pub(crate) fn link(&self, from: &[u8], to: &[u8]) -> Result<(), FileError> {
        self.tree().link(self.root(), &self.inside(from)?, self.root(), &self.inside(to)?)
    }

    pub(crate) fn symlink(&self, target: &[u8], path: &[u8]) -> Result<(), FileError> {
        let target = std::str::from_utf8(target).map_err(|_| FileError::Invalid)?;
        self.tree().symlink(target, self.root(), &self.inside(path)?)
    }

    pub(crate) fn read_link(&self, path: &[u8]) -> Result<String, FileError> {
        self.tree().read_link(self.root(), &self.inside(path)?)
    }

    /// Makes an empty file, or makes an existing one the newest of all. Only the tree knows what
    /// is newest: giving a file the size it has makes it so.
    pub(crate) fn touch(&self, path: &[u8]) -> Result<(), FileError> {
        match self.stat(path, true) {
            Ok(stat) if stat.kind == FileKind::Directory => Ok(()),
            Ok(stat) => {
                let mode = OpenMode { follow: true, write: true, ..OpenMode::default() };
                let file = self.open(path, mode)?;
                self.tree().set_size(file.handle(), stat.size)
            }
            Err(FileError::NotFound) => self.output(path, true).map(drop),
            Err(error) => Err(error),
        }
    }
}

/// `folder/name` without a doubled slash.
pub(crate) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = folder.to_vec();
    if !path.is_empty() && path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// The last component, as `basename` cuts it.
pub(crate) fn base_name(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let trimmed = path.get(..end).unwrap_or_default();
    if trimmed.is_empty() {
        return if path.is_empty() { b"" } else { b"/" };
    }
    let start = trimmed.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    trimmed.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::canonical_root;

    #[test]
    fn the_mount_is_another_name_of_the_root() {
        for (path, root) in [
            ("/workspace", "/"),
            ("/workspace/a/b", "/a/b"),
            ("/workspaces", "/workspaces"),
            ("workspace/a", "workspace/a"),
            ("/a/workspace", "/a/workspace"),
        ] {
            assert_eq!(canonical_root(path), root);
        }
    }
}
