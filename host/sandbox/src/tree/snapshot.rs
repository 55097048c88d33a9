//! A tree at one moment, read by names alone.

use std::sync::Arc;

use fulgurite_trace::{
    Digest,
    file::{DirectoryEntry, FileError, FileStat},
};

use super::{
    Layer, Lower, Usage,
    node::{Body, Inode, ROOT},
    quota::MAX_READ_BYTES,
};

/// A tree at one moment: immutable, cheap to clone, readable from any thread.
///
/// Paths start at the root, with or without a leading `/`. No link is ever followed: one on the
/// way is [`Loop`](FileError::Loop), `..` is [`NotPermitted`](FileError::NotPermitted).
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub(crate) lower: Arc<Lower>,
    pub(crate) layer: Layer,
}

impl Snapshot {
    /// The content of a lower layer.
    pub fn pristine(lower: &Arc<Lower>) -> Self {
        Self { lower: Arc::clone(lower), layer: lower.layer().clone() }
    }

    /// The layer below.
    pub fn lower(&self) -> &Arc<Lower> {
        &self.lower
    }

    /// The digest of everything, as of [`Tree::digest`](super::Tree::digest).
    pub fn digest(&self) -> Result<Digest, FileError> {
        self.layer.root_digest()
    }

    /// What a tree made from it uses of its quota at first.
    pub fn usage(&self) -> Usage {
        Usage {
            bytes: self.layer.charged_bytes,
            files: self.layer.charged_names,
            handles: 0,
            memory_bytes: self.layer.resident,
        }
    }

    /// About an entry.
    pub fn stat(&self, path: &str) -> Result<FileStat, FileError> {
        let inode = self.layer.find_unfollowed(path)?;
        Ok(self.layer.node(inode)?.stat(inode))
    }

    /// At most `length` bytes of a file from `offset`, and at most 16 MiB at once. A link is
    /// [`Loop`](FileError::Loop).
    pub fn read(&self, path: &str, offset: u64, length: u64) -> Result<Vec<u8>, FileError> {
        match &self.layer.node(self.layer.find_unfollowed(path)?)?.body {
            Body::File(content) => content.read(offset, length.min(MAX_READ_BYTES)),
            Body::Folder(_) => Err(FileError::IsDirectory),
            Body::Link(_) => Err(FileError::Loop),
        }
    }

    /// The target of a link.
    pub fn read_link(&self, path: &str) -> Result<String, FileError> {
        match &self.layer.node(self.layer.find_unfollowed(path)?)?.body {
            Body::Link(target) => Ok(target.as_ref().to_owned()),
            Body::File(_) | Body::Folder(_) => Err(FileError::Invalid),
        }
    }

    /// A folder's entries, sorted by name.
    pub fn list(&self, path: &str) -> Result<Vec<DirectoryEntry>, FileError> {
        let folder = self.layer.folder(self.layer.find_unfollowed(path)?)?;
        let entries = folder.entries.iter().map(|(name, entry)| DirectoryEntry {
            name: name.as_ref().to_owned(),
            kind: entry.kind,
        });
        Ok(entries.collect())
    }

    /// Every entry but the root with its path without a leading `/`. Folders stand before what
    /// they hold.
    pub fn entries(&self) -> Result<Vec<(String, FileStat)>, FileError> {
        let mut entries = Vec::new();
        self.collect(ROOT, "", &mut entries)?;
        Ok(entries)
    }

    fn collect(
        &self,
        folder: Inode,
        above: &str,
        entries: &mut Vec<(String, FileStat)>,
    ) -> Result<(), FileError> {
        for (name, entry) in self.layer.folder(folder)?.entries.iter() {
            let path = join(above, name);
            let node = self.layer.node(entry.inode)?;
            entries.push((path.clone(), node.stat(entry.inode)));
            if let Body::Folder(_) = node.body {
                self.collect(entry.inode, &path, entries)?;
            }
        }
        Ok(())
    }
}

/// `name` below `above`, which is empty for the root.
pub(crate) fn join(above: &str, name: &str) -> String {
    match above {
        "" => name.to_owned(),
        above => format!("{above}/{name}"),
    }
}
