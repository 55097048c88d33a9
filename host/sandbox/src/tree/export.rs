//! A tree written to a folder of the host.

use std::{collections::HashMap, io, io::Write as _};

use cap_std::fs::{Dir, OpenOptions};
use fulgurite_trace::file::FileError;

use super::{
    Snapshot, Tree,
    content::{CHUNK, Content},
    node::{Body, Inode, Node, ROOT},
    resolve::LastLink,
    snapshot::join,
};

/// A tree could not be written to the host's folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The folder of the host does not take it.
    #[error("`{path}` cannot be written to the host's folder, which must be empty")]
    Write {
        /// The path below the tree's root.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The tree cannot be read.
    #[error("`{path}` cannot be read from the tree; is the disk of the spill file in order?")]
    Read {
        /// The path below the tree's root.
        path: String,
        /// Why.
        source: FileError,
    },
}

/// What an export did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exported {
    /// Entries written.
    pub entries: u64,
    /// Bytes written to files; hard links count once.
    pub bytes: u64,
    /// Links that were left out because they lead out of the tree.
    pub refused: Vec<String>,
}

impl Tree {
    /// Writes everything into an empty folder of the host. Links that lead out of the tree are
    /// left out; hard links stay hard links; times are not set.
    pub fn export(&self, folder: &Dir) -> Result<Exported, ExportError> {
        self.snapshot().export(folder)
    }
}

impl Snapshot {
    /// As [`Tree::export`].
    pub fn export(&self, folder: &Dir) -> Result<Exported, ExportError> {
        let mut export = Export {
            snapshot: self,
            root: folder,
            named: HashMap::new(),
            done: Exported::default(),
        };
        export.folder(ROOT, folder, "")?;
        Ok(export.done)
    }
}

struct Export<'a> {
    snapshot: &'a Snapshot,
    root: &'a Dir,
    /// Files with several names that were written once.
    named: HashMap<Inode, String>,
    done: Exported,
}

impl Export<'_> {
    fn folder(&mut self, from: Inode, into: &Dir, above: &str) -> Result<(), ExportError> {
        let layer = &self.snapshot.layer;
        let read = |source| ExportError::Read { path: above.to_owned(), source };
        for (name, entry) in layer.folder(from).map_err(read)?.entries.iter() {
            let path = join(above, name);
            let node = layer.node(entry.inode).map_err(read)?;
            if let Body::Link(target) = &node.body {
                let resolved = layer.resolve(from, target, LastLink::Follow, u32::MAX);
                if resolved.is_err_and(|error| error == FileError::NotPermitted) {
                    self.done.refused.push(path);
                    continue;
                }
            }
            self.entry(entry.inode, node, into, name, &path)?;
            self.done.entries += 1;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        inode: Inode,
        node: &Node,
        into: &Dir,
        name: &str,
        path: &str,
    ) -> Result<(), ExportError> {
        let write = |source| ExportError::Write { path: path.to_owned(), source };
        match &node.body {
            Body::Folder(_) => {
                into.create_dir(name).map_err(write)?;
                let below = into.open_dir(name).map_err(write)?;
                self.folder(inode, &below, path)
            }
            Body::Link(target) => into.symlink(&**target, name).map_err(write),
            Body::File(content) => {
                if let Some(first) = self.named.get(&inode) {
                    return self.root.hard_link(first, into, name).map_err(write);
                }
                self.file(content, into, name, path)?;
                if node.links > 1 {
                    self.named.insert(inode, path.to_owned());
                }
                Ok(())
            }
        }
    }

    fn file(
        &mut self,
        content: &Content,
        into: &Dir,
        name: &str,
        path: &str,
    ) -> Result<(), ExportError> {
        let write = |source| ExportError::Write { path: path.to_owned(), source };
        let read = |source| ExportError::Read { path: path.to_owned(), source };
        let mut file =
            into.open_with(name, OpenOptions::new().write(true).create_new(true)).map_err(write)?;
        let mut offset = 0;
        while offset < content.size() {
            let bytes = content.read(offset, CHUNK as u64).map_err(read)?;
            file.write_all(&bytes).map_err(write)?;
            offset += bytes.len() as u64;
        }
        self.done.bytes += content.size();
        Ok(())
    }
}
