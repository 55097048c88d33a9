//! The table of nodes behind a lower layer, a tree or a snapshot: cheap to clone, copied node by
//! node when written to.
//!
//! The operations here keep the books (names, parents, heights, usage, cached digests); what
//! may be done at all is decided by their callers.

use std::sync::OnceLock;

use fulgurite_trace::{
    Digest,
    file::{FileError, FileKind},
};
use rpds::VectorSync;
use sha2::{Digest as _, Sha256};

use super::node::{Body, Entry, Folder, Inode, Name, Node, ROOT};

/// Logical time of the lower layer, in nanoseconds: 2001-09-09T01:46:40Z.
const EPOCH: u64 = 1_000_000_000 * SECOND;
/// Each change moves the clock on by this much. A whole second, because programs compare times
/// by the second: CPython trusts a cached `.pyc` when size and seconds match.
const SECOND: u64 = 1_000_000_000;

/// Stands before what is hashed for a folder, so that no file's content hashes to the same.
const FOLDER_DOMAIN: &[u8] = b"fulgurite folder 1\n";

#[derive(Debug, Clone)]
enum Slot {
    Used(Node),
    /// The next free slot.
    Free(Option<Inode>),
}

/// All nodes, and what they sum up to.
#[derive(Debug, Clone)]
pub(crate) struct Layer {
    table: VectorSync<Slot>,
    free: Option<Inode>,
    /// Number of names, whoever made them.
    pub(crate) names: u64,
    /// Names that count for the quota.
    pub(crate) charged_names: u64,
    /// Bytes that count for the quota.
    pub(crate) charged_bytes: u64,
    /// File bytes in memory that count for the tree.
    pub(crate) resident: u64,
    clock: u64,
    /// Counts the times that a copy of the table was given away. Nodes made or changed since
    /// then are nobody else's, see [`Layer::invalidate`].
    epoch: u64,
}

impl Layer {
    /// A root folder without entries.
    pub(crate) fn empty() -> Self {
        let mut root = Node::new(Body::Folder(Folder::default()), false, EPOCH);
        root.links = 1;
        let mut table = VectorSync::new_sync();
        table.push_back_mut(Slot::Used(root));
        Self {
            table,
            free: None,
            names: 0,
            charged_names: 0,
            charged_bytes: 0,
            resident: 0,
            clock: EPOCH,
            epoch: 0,
        }
    }

    /// A copy that others may keep, read and build on.
    pub(crate) fn share(&mut self) -> Self {
        let copy = self.clone();
        self.epoch += 1;
        copy
    }

    /// Begins to change a copy that was shared.
    pub(crate) fn begin(mut self) -> Self {
        self.epoch += 1;
        self
    }

    /// The next moment.
    pub(crate) fn tick(&mut self) -> u64 {
        self.clock = self.clock.saturating_add(SECOND);
        self.clock
    }

    /// The moment of the last change.
    pub(crate) fn now(&self) -> u64 {
        self.clock
    }

    /// Every inode in a folder or handle has its node; `Io` would be a mistake of ours.
    pub(crate) fn node(&self, inode: Inode) -> Result<&Node, FileError> {
        match self.table.get(inode as usize) {
            Some(Slot::Used(node)) => Ok(node),
            Some(Slot::Free(_)) | None => Err(FileError::Io),
        }
    }

    pub(crate) fn node_mut(&mut self, inode: Inode) -> Result<&mut Node, FileError> {
        match self.table.get_mut(inode as usize) {
            Some(Slot::Used(node)) => Ok(node),
            Some(Slot::Free(_)) | None => Err(FileError::Io),
        }
    }

    pub(crate) fn folder(&self, inode: Inode) -> Result<&Folder, FileError> {
        match &self.node(inode)?.body {
            Body::Folder(folder) => Ok(folder),
            Body::File(_) | Body::Link(_) => Err(FileError::NotDirectory),
        }
    }

    fn folder_mut(&mut self, inode: Inode) -> Result<&mut Folder, FileError> {
        match &mut self.node_mut(inode)?.body {
            Body::Folder(folder) => Ok(folder),
            Body::File(_) | Body::Link(_) => Err(FileError::NotDirectory),
        }
    }

    pub(crate) fn lookup(&self, folder: Inode, name: &str) -> Result<Option<Entry>, FileError> {
        Ok(self.folder(folder)?.entries.get(name).copied())
    }

    /// Puts a node that has no name yet into the table.
    pub(crate) fn insert(&mut self, mut node: Node) -> Result<Inode, FileError> {
        node.epoch = self.epoch;
        if node.charged {
            self.charged_bytes = self.charged_bytes.saturating_add(node.size());
        }
        self.resident = self.resident.saturating_add(node.resident());
        if let Some(inode) = self.free {
            let Some(Slot::Free(next)) = self.table.get(inode as usize) else {
                return Err(FileError::Io);
            };
            self.free = *next;
            self.table.set_mut(inode as usize, Slot::Used(node));
            return Ok(inode);
        }
        let inode = Inode::try_from(self.table.len()).map_err(|_| FileError::NoSpace)?;
        self.table.push_back_mut(Slot::Used(node));
        Ok(inode)
    }

    /// Forgets a node that nothing names and nobody holds open.
    pub(crate) fn release(&mut self, inode: Inode) -> Result<(), FileError> {
        let node = self.node(inode)?;
        let (size, resident) = (node.size(), node.resident());
        if node.charged {
            self.charged_bytes = self.charged_bytes.saturating_sub(size);
        }
        self.resident = self.resident.saturating_sub(resident);
        self.table.set_mut(inode as usize, Slot::Free(self.free));
        self.free = Some(inode);
        Ok(())
    }

    /// Gives a node a name that the folder does not hold yet.
    pub(crate) fn add_name(
        &mut self,
        folder: Inode,
        name: Name,
        entry: Entry,
        time: u64,
    ) -> Result<(), FileError> {
        self.invalidate(folder)?;
        self.folder_mut(folder)?.entries.insert_mut(name, entry);
        self.node_mut(folder)?.times.modified = time;
        self.node_mut(entry.inode)?.named_in(folder);
        self.names += 1;
        self.charged_names += u64::from(entry.charged);
        self.height_changed(folder, None, Some(self.height(entry.inode)?))
    }

    /// Takes a name away. The node stays in the table.
    pub(crate) fn remove_name(
        &mut self,
        folder: Inode,
        name: &str,
        time: u64,
    ) -> Result<Entry, FileError> {
        let entry = self.lookup(folder, name)?.ok_or(FileError::NotFound)?;
        self.invalidate(folder)?;
        self.folder_mut(folder)?.entries.remove_mut(name);
        self.node_mut(folder)?.times.modified = time;
        self.node_mut(entry.inode)?.unnamed_in(folder);
        self.names = self.names.saturating_sub(1);
        self.charged_names = self.charged_names.saturating_sub(u64::from(entry.charged));
        self.height_changed(folder, Some(self.height(entry.inode)?), None)?;
        Ok(entry)
    }

    /// How many entries deep it goes below a node; 0 for all but folders that hold something.
    pub(crate) fn height(&self, inode: Inode) -> Result<usize, FileError> {
        Ok(match &self.node(inode)?.body {
            Body::Folder(folder) => folder.height(),
            Body::File(_) | Body::Link(_) => 0,
        })
    }

    fn height_changed(
        &mut self,
        mut folder: Inode,
        mut from: Option<usize>,
        mut to: Option<usize>,
    ) -> Result<(), FileError> {
        loop {
            let record = self.folder_mut(folder)?;
            let before = record.height();
            record.change_height(from, to);
            let after = record.height();
            let Some(parent) = self.node(folder)?.parent() else { return Ok(()) };
            if before == after {
                return Ok(());
            }
            (folder, from, to) = (parent, Some(before), Some(after));
        }
    }

    /// Folders from the root to this node, itself counted; the root has depth 0.
    pub(crate) fn depth(&self, mut inode: Inode) -> Result<u32, FileError> {
        let mut depth = 0;
        while let Some(parent) = self.node(inode)?.parent() {
            depth += 1;
            inode = parent;
        }
        Ok(depth)
    }

    /// Whether `inode` is `ancestor` or below it.
    pub(crate) fn is_within(&self, mut inode: Inode, ancestor: Inode) -> Result<bool, FileError> {
        loop {
            if inode == ancestor {
                return Ok(true);
            }
            match self.node(inode)?.parent() {
                Some(parent) => inode = parent,
                None => return Ok(false),
            }
        }
    }

    /// Forgets the digests that a change of this node makes wrong. To be called before it.
    ///
    /// Digests are filled in through shared pointers, by whoever needs them first and at any
    /// time: one that is unset here may be set by a snapshot's reader at this moment. Only nodes
    /// of this epoch are out of reach of others. So a walk upwards may stop only at a node of
    /// this epoch whose digest is unset, and then all folders above it are of this kind as well.
    pub(crate) fn invalidate(&mut self, inode: Inode) -> Result<(), FileError> {
        if self.is_invalid(inode)? {
            return Ok(());
        }
        let mut pending = vec![inode];
        while let Some(inode) = pending.pop() {
            if !self.is_invalid(inode)? {
                let epoch = self.epoch;
                let node = self.node_mut(inode)?;
                node.digest = OnceLock::new();
                node.epoch = epoch;
                pending.extend(node.parents.iter().map(|(parent, _)| *parent));
            }
        }
        Ok(())
    }

    fn is_invalid(&self, inode: Inode) -> Result<bool, FileError> {
        let node = self.node(inode)?;
        Ok(node.epoch == self.epoch && node.digest.get().is_none())
    }

    /// The digest of a node: SHA-256 of a file's content or a link's target; for a folder, of
    /// its names, kinds and digests. Remembered until something below changes.
    pub(crate) fn digest(&self, inode: Inode) -> Result<Digest, FileError> {
        let node = self.node(inode)?;
        if let Some(digest) = node.digest.get() {
            return Ok(*digest);
        }
        let digest = match &node.body {
            Body::File(content) => content.digest()?,
            Body::Link(target) => Digest::of(target.as_bytes()),
            Body::Folder(folder) => {
                let mut hasher = Sha256::new_with_prefix(FOLDER_DOMAIN);
                for (name, entry) in folder.entries.iter() {
                    hasher.update([match entry.kind {
                        FileKind::File => b'f',
                        FileKind::Directory => b'd',
                        FileKind::Symlink => b'l',
                    }]);
                    hasher.update((name.len() as u64).to_le_bytes());
                    hasher.update(name.as_bytes());
                    hasher.update(self.digest(entry.inode)?.as_bytes());
                }
                Digest::from_bytes(hasher.finalize().into())
            }
        };
        Ok(*node.digest.get_or_init(|| digest))
    }

    /// The digest of everything.
    pub(crate) fn root_digest(&self) -> Result<Digest, FileError> {
        self.digest(ROOT)
    }
}
