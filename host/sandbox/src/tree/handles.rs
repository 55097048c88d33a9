//! Open files and folders of one tree.

use std::collections::BTreeMap;

use fulgurite_trace::file::{FileError, Handle};

use super::node::Inode;

/// What a handle allows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Open {
    pub(crate) inode: Inode,
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// All handles. Numbers are never used twice.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    open: BTreeMap<u64, Open>,
    next: u64,
    /// How many handles each node has.
    nodes: BTreeMap<Inode, u32>,
}

impl Handles {
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.open.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn insert(&mut self, open: Open) -> Handle {
        self.next += 1;
        *self.nodes.entry(open.inode).or_insert(0) += 1;
        self.open.insert(self.next, open);
        Handle(self.next)
    }

    pub(crate) fn get(&self, handle: Handle) -> Result<Open, FileError> {
        self.open.get(&handle.0).copied().ok_or(FileError::BadHandle)
    }

    /// Takes a handle away. Answers its node when that was the node's last handle.
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<Inode> {
        let inode = self.open.remove(&handle.0)?.inode;
        let count = self.nodes.get_mut(&inode)?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        self.nodes.remove(&inode);
        Some(inode)
    }

    pub(crate) fn holds(&self, inode: Inode) -> bool {
        self.nodes.contains_key(&inode)
    }

    /// Every node that has a handle.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = Inode> + '_ {
        self.nodes.keys().copied()
    }
}
