//! Files, folders and links as they stand in the table.

use std::sync::{Arc, OnceLock};

use fulgurite_trace::{
    Digest,
    file::{FileKind, FileStat, FileTimes},
};
use rpds::RedBlackTreeMapSync;

use super::content::Content;

/// Place of a node in its table.
pub(crate) type Inode = u32;
/// A name in a folder.
pub(crate) type Name = Arc<str>;

/// The root folder's place in every table.
pub(crate) const ROOT: Inode = 0;

/// One name in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) inode: Inode,
    pub(crate) kind: FileKind,
    /// The name counts for the quota: it does not come from the lower layer.
    pub(crate) charged: bool,
}

/// A folder's names, and how deep it goes below.
#[derive(Debug, Clone, Default)]
pub(crate) struct Folder {
    pub(crate) entries: RedBlackTreeMapSync<Name, Entry>,
    /// At `h`, how many of the entries have height `h` (files and links have 0); the last number
    /// is not 0, so that the length is this folder's own height. Kept so that moving a folder can
    /// be checked against the depth quota without a walk.
    pub(crate) heights: Vec<u32>,
}

/// What a node is.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    File(Content),
    Folder(Folder),
    Link(Arc<str>),
}

/// A file, folder or link.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) body: Body,
    /// The folders that name it, each with how often; empty for the root and what was removed.
    pub(crate) parents: Vec<(Inode, u32)>,
    /// Number of names. The root has one, though nothing names it.
    pub(crate) links: u32,
    /// Its bytes count for the quota: it is new, or its content is not the lower layer's.
    pub(crate) charged: bool,
    pub(crate) times: FileTimes,
    /// Of the content; for folders, of everything below. Unset when not known yet.
    pub(crate) digest: OnceLock<Digest>,
    /// The layer's epoch in which the digest was last unset.
    pub(crate) epoch: u64,
}

impl Node {
    /// A node without a name yet.
    pub(crate) fn new(body: Body, charged: bool, time: u64) -> Self {
        Self {
            body,
            parents: Vec::new(),
            links: 0,
            charged,
            times: FileTimes { accessed: time, modified: time },
            digest: OnceLock::new(),
            epoch: 0,
        }
    }

    pub(crate) fn kind(&self) -> FileKind {
        match self.body {
            Body::File(_) => FileKind::File,
            Body::Folder(_) => FileKind::Directory,
            Body::Link(_) => FileKind::Symlink,
        }
    }

    pub(crate) fn size(&self) -> u64 {
        match &self.body {
            Body::File(content) => content.size(),
            Body::Folder(_) => 0,
            Body::Link(target) => target.len() as u64,
        }
    }

    /// Bytes in memory that count for the tree.
    pub(crate) fn resident(&self) -> u64 {
        match &self.body {
            Body::File(content) => content.resident(),
            Body::Folder(_) | Body::Link(_) => 0,
        }
    }

    pub(crate) fn stat(&self, inode: Inode) -> FileStat {
        FileStat {
            kind: self.kind(),
            size: self.size(),
            links: u64::from(self.links),
            times: self.times,
            identity: u64::from(inode) + 1,
        }
    }

    /// The folder above; for files with several names, one of them.
    pub(crate) fn parent(&self) -> Option<Inode> {
        self.parents.first().map(|(parent, _)| *parent)
    }

    pub(crate) fn named_in(&mut self, parent: Inode) {
        self.links += 1;
        match self.parents.iter_mut().find(|(known, _)| *known == parent) {
            Some((_, count)) => *count += 1,
            None => self.parents.push((parent, 1)),
        }
    }

    pub(crate) fn unnamed_in(&mut self, parent: Inode) {
        self.links = self.links.saturating_sub(1);
        if let Some(at) = self.parents.iter().position(|(known, _)| *known == parent) {
            match self.parents.get_mut(at) {
                Some((_, count)) if *count > 1 => *count -= 1,
                _ => {
                    self.parents.swap_remove(at);
                }
            }
        }
    }
}

impl Folder {
    pub(crate) fn height(&self) -> usize {
        self.heights.len()
    }

    /// An entry changes its height, comes (`from` is `None`) or goes (`to` is `None`).
    pub(crate) fn change_height(&mut self, from: Option<usize>, to: Option<usize>) {
        if let Some(to) = to {
            if self.heights.len() <= to {
                self.heights.resize(to + 1, 0);
            }
            if let Some(count) = self.heights.get_mut(to) {
                *count += 1;
            }
        }
        if let Some(count) = from.and_then(|from| self.heights.get_mut(from)) {
            *count = count.saturating_sub(1);
        }
        while self.heights.last() == Some(&0) {
            self.heights.pop();
        }
    }
}
