//! The layered workspace tree (public signatures; the parts follow).

use std::{collections::BTreeMap, sync::Arc};

use cap_std::fs::Dir;
use fulgurite_trace::{
    Digest,
    file::{DirectoryEntry, FileError, FileStat},
};

/// What a tree may grow to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Bytes of files and link targets of the upper layer.
    pub bytes: u64,
    /// Names (of files, folders, links) in the upper layer.
    pub files: u64,
    /// Handles open at one time.
    pub handles: u32,
    /// Folders on the way to an entry, itself counted.
    pub depth: u32,
    /// Bytes of one name.
    pub name_bytes: u32,
    /// File bytes of the upper layer kept in memory; what is more goes to disk.
    pub memory_bytes: u64,
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            bytes: 256 << 20,
            files: 20_000,
            handles: 512,
            depth: 64,
            name_bytes: 255,
            memory_bytes: 16 << 20,
        }
    }
}

/// What a tree uses of its quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// See [`Quota::bytes`].
    pub bytes: u64,
    /// See [`Quota::files`].
    pub files: u64,
    /// See [`Quota::handles`].
    pub handles: u32,
    /// See [`Quota::memory_bytes`].
    pub memory_bytes: u64,
}

/// A lower layer could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LowerError {}

/// A tree could not be written to the host's folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {}

/// The pristine files of a task family: immutable, content-addressed, shared.
#[derive(Debug)]
pub struct Lower(());

impl Lower {
    /// No files.
    pub fn empty() -> Arc<Self> {
        Arc::new(Self(()))
    }
    /// From relative paths to contents.
    pub fn from_files(_files: &BTreeMap<String, Vec<u8>>) -> Result<Arc<Self>, LowerError> {
        Ok(Self::empty())
    }
    /// Reads a folder of the host.
    pub fn import(_folder: &Dir, _limits: &Quota) -> Result<Arc<Self>, LowerError> {
        Ok(Self::empty())
    }
    /// The digest of all names and contents.
    pub fn digest(&self) -> Digest {
        Digest::of(b"")
    }
}

/// Where file contents beyond [`Quota::memory_bytes`] go: one unlinked temporary file.
#[derive(Debug)]
pub struct Spill(());

/// A tree at one moment; immutable and cheap to clone.
#[derive(Debug, Clone)]
pub struct Snapshot(());

/// What [`Tree::export`] did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exported {
    /// Entries written.
    pub entries: u64,
    /// File bytes written.
    pub bytes: u64,
    /// Links that were left out since they lead out of the tree.
    pub refused: Vec<String>,
}

/// One episode's workspace. Paths of the inherent methods start at the root, with or without
/// `/`; links are followed within the tree unless a method says otherwise.
#[derive(Debug)]
pub struct Tree(());

#[allow(unused_variables)]
impl Tree {
    /// A tree that holds what `lower` holds.
    pub fn new(lower: Arc<Lower>, quota: Quota) -> Self {
        Self(())
    }
    /// A tree that holds what a snapshot holds.
    pub fn from_snapshot(snapshot: Snapshot, quota: Quota) -> Self {
        Self(())
    }
    /// This moment's content.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(())
    }
    /// An independent tree with the same content and quota.
    pub fn fork(&self) -> Self {
        Self(())
    }
    /// What it may grow to.
    pub fn quota(&self) -> Quota {
        Quota::default()
    }
    /// What it uses.
    pub fn usage(&self) -> Usage {
        Usage::default()
    }
    /// The digest of all names, kinds, contents and link targets; not of times.
    pub fn digest(&self) -> Digest {
        Digest::of(b"")
    }
    /// The changes against the lower layer, and this moment's content.
    pub fn seal(&self) -> crate::Sealed {
        crate::Sealed::stub()
    }
    /// Writes everything into an empty folder of the host.
    pub fn export(&self, folder: &Dir) -> Result<Exported, ExportError> {
        Ok(Exported::default())
    }
    /// At most `limit` bytes from the start.
    pub fn read_file(&self, path: &str, limit: u64) -> Result<Vec<u8>, FileError> {
        Err(FileError::Unsupported)
    }
    /// At most `length` bytes from `offset`.
    pub fn read_range(&self, path: &str, offset: u64, length: u64) -> Result<Vec<u8>, FileError> {
        Err(FileError::Unsupported)
    }
    /// Makes or replaces the content of a file.
    pub fn write_file(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }
    /// Adds to the end of a file, which is made if missing.
    pub fn append_file(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }
    /// Makes an empty file if missing; otherwise moves its time of change on.
    pub fn touch(&self, path: &str) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }
    /// Copies a file's content (by pointer), making or replacing the target's content.
    pub fn copy_file(&self, from: &str, to: &str) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }
    /// About an entry.
    pub fn stat_path(&self, path: &str, follow: bool) -> Result<FileStat, FileError> {
        Err(FileError::Unsupported)
    }
    /// A folder's entries, sorted by name.
    pub fn list(&self, path: &str) -> Result<Arc<[DirectoryEntry]>, FileError> {
        Err(FileError::Unsupported)
    }
    /// Makes one folder.
    pub fn make_directory(&self, path: &str) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }
    /// Makes a folder and those above it; fine if it is there.
    pub fn create_directories(&self, path: &str) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }
    /// Removes a file or link, not what a link leads to.
    pub fn remove_file(&self, path: &str) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }
    /// Removes an empty folder.
    pub fn remove_empty_directory(&self, path: &str) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }
    /// Removes whatever is there with all below it; a link at the end is not followed.
    pub fn remove_recursive(&self, path: &str) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }
    /// Moves, as POSIX `rename`.
    pub fn rename_path(&self, from: &str, to: &str) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }
    /// Makes a symbolic link with a relative target.
    pub fn symlink_path(&self, target: &str, path: &str) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }
    /// Another name for a file.
    pub fn link_path(&self, from: &str, to: &str) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }
    /// The target of a link.
    pub fn read_link_path(&self, path: &str) -> Result<String, FileError> {
        Err(FileError::Unsupported)
    }
    /// The path from the root without links and dots, starting with `/`; the entry must exist.
    pub fn canonical(&self, path: &str) -> Result<String, FileError> {
        Err(FileError::Unsupported)
    }
    /// The grader's way to place a file: whatever stands at the path, or in the way of its
    /// folders, is removed first; nothing is ever followed.
    pub fn lay_down(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        Err(FileError::Unsupported)
    }
}
