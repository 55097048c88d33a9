//! The lower layer: the pristine files of a task family, in memory once for all episodes.

use std::{
    collections::{BTreeMap, HashMap},
    fmt, io,
    sync::{Arc, OnceLock},
};

use fulgurite_trace::{
    Digest,
    file::{FileError, FileKind},
};

use super::{
    content::Content,
    layer::Layer,
    node::{Body, Entry, Folder, Inode, Name, Node, ROOT},
    quota::{MAX_DEPTH, MAX_PATH_BYTES},
    resolve::LastLink,
    state::{check_target, leads_out},
};

/// A lower layer could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LowerError {
    /// A path cannot be in a workspace.
    #[error("`{path}` cannot be in a workspace: {reason}; rename or remove it")]
    Path {
        /// The path below the workspace's root.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A link leads out of the workspace.
    #[error(
        "the link `{path}` to `{target}` leads out of the workspace; replace it by a copy of what \
         it leads to"
    )]
    LeadsOut {
        /// The path below the workspace's root.
        path: String,
        /// Where it leads.
        target: String,
    },
    /// It is more than the limits allow.
    #[error(
        "at `{path}` the workspace exceeds its limit of {limit} {what}; remove files or raise the limit"
    )]
    TooMuch {
        /// The path below the workspace's root.
        path: String,
        /// Of what there is too much.
        what: &'static str,
        /// How much is allowed.
        limit: u64,
    },
    /// The host's folder could not be read.
    #[error("`{path}` of the workspace cannot be read")]
    Read {
        /// The path below the workspace's root.
        path: String,
        /// Why.
        source: io::Error,
    },
}

/// The pristine files of a task family: immutable, content-addressed, shared by all its trees.
pub struct Lower {
    layer: Layer,
    digest: Digest,
    /// One file of each content, looked for when a sealed tree is written or read.
    files: OnceLock<HashMap<Digest, Inode>>,
}

impl Lower {
    /// No files.
    pub fn empty() -> Arc<Self> {
        static EMPTY: OnceLock<Arc<Lower>> = OnceLock::new();
        Arc::clone(EMPTY.get_or_init(|| Builder::new().finish()))
    }

    /// From relative paths (`src/main.py`) to contents. Folders are made as needed. The caller
    /// bounds sizes and number, which are in memory already.
    pub fn from_files(files: &BTreeMap<String, Vec<u8>>) -> Result<Arc<Self>, LowerError> {
        let mut builder = Builder::new();
        for (path, bytes) in files {
            let refuse = |reason| LowerError::Path { path: path.clone(), reason };
            check_relative(path).map_err(refuse)?;
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            let mut folder = ROOT;
            for part in above.split('/').filter(|part| !part.is_empty()) {
                folder = builder
                    .folder(folder, part)
                    .ok_or_else(|| refuse("another path makes a file of one of its folders"))?;
            }
            builder
                .add(folder, name, Body::File(Content::base(bytes)))
                .ok_or_else(|| refuse("another path makes a folder of it"))?;
        }
        Ok(builder.finish())
    }

    /// The digest of all names and contents; equals that of a tree nothing was changed in.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Number of entries, the root not counted.
    pub fn len(&self) -> u64 {
        self.layer.names
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.layer.names == 0
    }

    pub(crate) fn layer(&self) -> &Layer {
        &self.layer
    }

    /// The content with this digest, if a file has it.
    pub(crate) fn content(&self, digest: &Digest) -> Option<&Content> {
        let files = self.files.get_or_init(|| {
            let mut files = HashMap::new();
            collect_files(&self.layer, ROOT, &mut files);
            files
        });
        match &self.layer.node(*files.get(digest)?).ok()?.body {
            Body::File(content) => Some(content),
            Body::Folder(_) | Body::Link(_) => None,
        }
    }
}

impl fmt::Debug for Lower {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Lower")
            .field("digest", &self.digest)
            .field("entries", &self.layer.names)
            .finish_non_exhaustive()
    }
}

fn collect_files(layer: &Layer, folder: Inode, files: &mut HashMap<Digest, Inode>) {
    let Ok(entries) = layer.folder(folder).map(|folder| &folder.entries) else { return };
    for (_, entry) in entries.iter() {
        match entry.kind {
            FileKind::Directory => collect_files(layer, entry.inode, files),
            FileKind::File => {
                if let Ok(digest) = layer.digest(entry.inode) {
                    files.entry(digest).or_insert(entry.inode);
                }
            }
            FileKind::Symlink => {}
        }
    }
}

/// Whether a path is relative, plain, and within what every tree can hold.
fn check_relative(path: &str) -> Result<(), &'static str> {
    if path.is_empty() {
        return Err("it is empty");
    }
    if path.starts_with('/') {
        return Err("it is absolute");
    }
    if path.len() > MAX_PATH_BYTES {
        return Err("it is longer than 4096 bytes");
    }
    if path.split('/').count() > MAX_DEPTH as usize {
        return Err("it is deeper than 256 folders");
    }
    path.split('/').try_for_each(check_name)
}

/// Whether a name can be in a folder at all.
pub(crate) fn check_name(name: &str) -> Result<(), &'static str> {
    match name {
        "" => Err("it has an empty name in it"),
        "." | ".." => Err("it has `.` or `..` in it"),
        name if name.len() > 255 => Err("it has a name of more than 255 bytes"),
        name if name.contains(['/', '\0']) => Err("a name in it has a forbidden character"),
        _ => Ok(()),
    }
}

/// Makes a lower layer entry by entry. Nothing in it counts for a quota.
pub(crate) struct Builder {
    layer: Layer,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self { layer: Layer::empty() }
    }

    /// Adds an entry; `None` when the name is taken.
    pub(crate) fn add(&mut self, folder: Inode, name: &str, body: Body) -> Option<Inode> {
        if self.layer.lookup(folder, name).ok()?.is_some() {
            return None;
        }
        let time = self.layer.now();
        let node = Node::new(body, false, time);
        let kind = node.kind();
        let inode = self.layer.insert(node).ok()?;
        let entry = Entry { inode, kind, charged: false };
        self.layer.add_name(folder, Name::from(name), entry, time).ok()?;
        Some(inode)
    }

    /// The folder of that name, made if there is none; `None` when something else has the name.
    pub(crate) fn folder(&mut self, folder: Inode, name: &str) -> Option<Inode> {
        match self.layer.lookup(folder, name).ok()? {
            None => self.add(folder, name, Body::Folder(Folder::default())),
            Some(Entry { inode, kind: FileKind::Directory, .. }) => Some(inode),
            Some(_) => None,
        }
    }

    /// Whether a link that was added leads out of the tree, in whatever way.
    pub(crate) fn leads_out(&self, folder: Inode, target: &str) -> bool {
        check_target(target).is_err()
            || self.layer.depth(folder).is_ok_and(|depth| leads_out(target, depth))
            || self.layer.resolve(folder, target, LastLink::Follow, u32::MAX).err()
                == Some(FileError::NotPermitted)
    }

    pub(crate) fn finish(self) -> Arc<Lower> {
        // Everything is in memory, so there is nothing that could fail.
        let digest = self.layer.root_digest().unwrap_or_else(|_| Digest::of([]));
        Arc::new(Lower { layer: self.layer, digest, files: OnceLock::new() })
    }
}
