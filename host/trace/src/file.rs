//! The file tree that a workspace offers and a component's `wasi:filesystem` consumes.
//!
//! `sandbox` implements [`FileTree`], `runtime` serves it to guests; neither knows the other.
//! Paths are relative to an open directory, separated by `/`, and must be UTF-8. No path leaves
//! the tree: `..` at the root and absolute paths or link targets are [`FileError::NotPermitted`].

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// An open file or folder of one tree. Must be given back with [`FileTree::close`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

/// How to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenMode {
    /// Create a regular file when there is none.
    pub create: bool,
    /// Fail when there is one (with `create`).
    pub exclusive: bool,
    /// Empty the file.
    pub truncate: bool,
    /// Fail unless it is a folder.
    pub directory: bool,
    /// Follow a link at the last component.
    pub follow: bool,
    /// Reading is allowed through the handle.
    pub read: bool,
    /// Writing is allowed through the handle.
    pub write: bool,
}

/// Logical times in nanoseconds since the epoch; never the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileTimes {
    /// Last read.
    pub accessed: u64,
    /// Last write.
    pub modified: u64,
}

/// What `stat` tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStat {
    /// What it is.
    pub kind: FileKind,
    /// Bytes; for links, of the target's name.
    pub size: u64,
    /// Number of names of the file.
    pub links: u64,
    /// Times.
    pub times: FileTimes,
    /// Identity within the tree: equal for two names of one file.
    pub identity: u64,
}

/// One name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name.
    pub name: String,
    /// What it is.
    pub kind: FileKind,
}

/// Why a file operation failed; maps one to one to WASI error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FileError {
    /// No such entry.
    #[error("no such file or directory")]
    NotFound,
    /// It is there already.
    #[error("file exists")]
    Exists,
    /// A folder was needed.
    #[error("not a directory")]
    NotDirectory,
    /// A folder was not expected.
    #[error("is a directory")]
    IsDirectory,
    /// The folder holds entries.
    #[error("directory not empty")]
    NotEmpty,
    /// Too many links on the way.
    #[error("too many levels of symbolic links")]
    Loop,
    /// It would leave the tree.
    #[error("operation not permitted")]
    NotPermitted,
    /// The handle does not allow it.
    #[error("bad file descriptor")]
    BadHandle,
    /// A name is too long or a path too deep.
    #[error("file name too long")]
    NameTooLong,
    /// An argument makes no sense, or a folder was to be moved into itself.
    #[error("invalid argument")]
    Invalid,
    /// The quota of bytes or files is used up.
    #[error("no space left on device")]
    NoSpace,
    /// The quota of open handles is used up.
    #[error("too many open files")]
    TooManyHandles,
    /// The host's own storage failed (spill).
    #[error("input/output error")]
    Io,
    /// Not offered here.
    #[error("operation not supported")]
    Unsupported,
    /// The root, or a path that ends in `.` or `..`, was to be moved or removed.
    #[error("resource busy")]
    Busy,
}

/// One episode's file tree. Calls do not block beyond copying bytes; all are safe to call from
/// several threads. Folder listings are sorted by name.
pub trait FileTree: Send + Sync {
    /// A new handle for the root folder.
    fn root(&self) -> Result<Handle, FileError>;
    /// Opens the entry at `path` below `directory`.
    fn open(&self, directory: Handle, path: &str, mode: OpenMode) -> Result<Handle, FileError>;
    /// Gives a handle back. Unknown handles are ignored.
    fn close(&self, handle: Handle);
    /// About an open entry.
    fn stat(&self, handle: Handle) -> Result<FileStat, FileError>;
    /// About the entry at `path`.
    fn stat_at(&self, directory: Handle, path: &str, follow: bool) -> Result<FileStat, FileError>;
    /// At most `length` bytes from `offset`; empty at the end.
    fn read(&self, file: Handle, offset: u64, length: u64) -> Result<Vec<u8>, FileError>;
    /// Writes all bytes at `offset`, filling a gap with zeros.
    fn write(&self, file: Handle, offset: u64, bytes: &[u8]) -> Result<(), FileError>;
    /// Writes all bytes at the end; answers the offset they stand at.
    fn append(&self, file: Handle, bytes: &[u8]) -> Result<u64, FileError>;
    /// Cuts or extends with zeros.
    fn set_size(&self, file: Handle, size: u64) -> Result<(), FileError>;
    /// Sets times; `None` leaves one.
    fn set_times(
        &self,
        handle: Handle,
        accessed: Option<u64>,
        modified: Option<u64>,
    ) -> Result<(), FileError>;
    /// All entries of an open folder, sorted by name, without `.` and `..`.
    fn read_directory(&self, directory: Handle) -> Result<Arc<[DirectoryEntry]>, FileError>;
    /// Makes one folder.
    fn create_directory(&self, directory: Handle, path: &str) -> Result<(), FileError>;
    /// Removes an empty folder.
    fn remove_directory(&self, directory: Handle, path: &str) -> Result<(), FileError>;
    /// Removes a file or link.
    fn unlink(&self, directory: Handle, path: &str) -> Result<(), FileError>;
    /// Moves, replacing what POSIX `rename` replaces.
    fn rename(
        &self,
        from: Handle,
        from_path: &str,
        to: Handle,
        to_path: &str,
    ) -> Result<(), FileError>;
    /// Makes a symbolic link. Absolute targets are refused.
    fn symlink(&self, target: &str, directory: Handle, path: &str) -> Result<(), FileError>;
    /// Another name for a file.
    fn link(
        &self,
        from: Handle,
        from_path: &str,
        to: Handle,
        to_path: &str,
    ) -> Result<(), FileError>;
    /// The target of a link.
    fn read_link(&self, directory: Handle, path: &str) -> Result<String, FileError>;
}
