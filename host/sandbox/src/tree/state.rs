//! What a tree guards with its lock, and the changes of names: the one place that decides
//! whether an operation may be done.
//!
//! Every operation checks first and changes afterwards, so that one that fails has changed
//! nothing; only a failing disk can stop a write half-way.

use std::sync::Arc;

use fulgurite_trace::file::{FileError, FileKind};

use super::{
    handles::Handles,
    layer::Layer,
    node::{Body, Entry, Folder, Inode, Name, Node},
    quota::{MAX_PATH_BYTES, Quota},
    resolve::{Dots, LastLink, Place, check_path},
    spill::Spill,
};

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) layer: Layer,
    pub(crate) handles: Handles,
    pub(crate) quota: Quota,
    pub(crate) spill: Arc<Spill>,
}

/// A name that an operation takes away or gives.
struct Named {
    folder: Inode,
    name: Name,
    entry: Option<Entry>,
    slash: bool,
}

impl Named {
    fn at(place: Place, dots: impl FnOnce(Dots) -> FileError) -> Result<Self, FileError> {
        match place {
            Place::Name { folder, name, entry, slash } => Ok(Self { folder, name, entry, slash }),
            Place::Folder { by, .. } => Err(dots(by)),
        }
    }
}

impl State {
    pub(crate) fn resolve(
        &self,
        base: Inode,
        path: &str,
        last_link: LastLink,
    ) -> Result<Place, FileError> {
        self.layer.resolve(base, path, last_link, self.quota.name_bytes)
    }

    /// Resolves to a name, not following a link there; `dots` tells how the operation answers a
    /// path that ends in `.` or `..` or is the root.
    fn resolve_name(
        &self,
        base: Inode,
        path: &str,
        dots: impl FnOnce(Dots) -> FileError,
    ) -> Result<Named, FileError> {
        Named::at(self.resolve(base, path, LastLink::StayAlways)?, dots)
    }

    /// A name for something new that is no folder.
    fn resolve_new(&self, base: Inode, path: &str) -> Result<(Inode, Name), FileError> {
        let named = self.resolve_name(base, path, |_| FileError::Exists)?;
        match named {
            Named { entry: Some(_), .. } => Err(FileError::Exists),
            Named { slash: true, .. } => Err(FileError::NotFound),
            Named { folder, name, .. } => Ok((folder, name)),
        }
    }

    /// Whether a folder is still there and something of this height fits into it.
    fn check_new_name(&self, folder: Inode, height: usize) -> Result<(), FileError> {
        if self.layer.node(folder)?.links == 0 {
            return Err(FileError::NotFound);
        }
        let depth = (self.layer.depth(folder)? as usize).saturating_add(1).saturating_add(height);
        if depth > self.quota.depth as usize {
            return Err(FileError::NameTooLong);
        }
        Ok(())
    }

    fn check_name_quota(&self) -> Result<(), FileError> {
        if self.layer.charged_names >= self.quota.files {
            return Err(FileError::NoSpace);
        }
        Ok(())
    }

    fn check_byte_quota(&self, more: u64) -> Result<(), FileError> {
        match self.layer.charged_bytes.checked_add(more) {
            Some(bytes) if bytes <= self.quota.bytes => Ok(()),
            _ => Err(FileError::NoSpace),
        }
    }

    /// Makes a node at a free name.
    pub(crate) fn create(
        &mut self,
        folder: Inode,
        name: Name,
        body: Body,
    ) -> Result<Inode, FileError> {
        self.check_new_name(folder, 0)?;
        self.check_name_quota()?;
        let node = Node::new(body, true, self.layer.now());
        self.check_byte_quota(node.size())?;
        self.create_unchecked(folder, name, node)
    }

    /// The same beyond the quota of names and bytes.
    pub(crate) fn create_unchecked(
        &mut self,
        folder: Inode,
        name: Name,
        mut node: Node,
    ) -> Result<Inode, FileError> {
        let time = self.layer.tick();
        node.times.accessed = time;
        node.times.modified = time;
        let kind = node.kind();
        let inode = self.layer.insert(node)?;
        self.layer.add_name(folder, name, Entry { inode, kind, charged: true }, time)?;
        Ok(inode)
    }

    /// Takes a name away, and its node when nothing else holds it.
    pub(crate) fn remove(&mut self, folder: Inode, name: &str) -> Result<(), FileError> {
        let time = self.layer.tick();
        let entry = self.layer.remove_name(folder, name, time)?;
        self.release_unheld(entry.inode)
    }

    /// Forgets a node that has neither names nor handles.
    pub(crate) fn release_unheld(&mut self, inode: Inode) -> Result<(), FileError> {
        if self.layer.node(inode)?.links == 0 && !self.handles.holds(inode) {
            self.layer.release(inode)?;
        }
        Ok(())
    }

    /// Takes a name away with everything below it.
    pub(crate) fn remove_all(&mut self, folder: Inode, name: &str) -> Result<(), FileError> {
        if let Some(Entry { inode, kind: FileKind::Directory, .. }) =
            self.layer.lookup(folder, name)?
        {
            while let Some(below) = self.first_name(inode)? {
                self.remove_all(inode, &below)?;
            }
        }
        self.remove(folder, name)
    }

    fn first_name(&self, folder: Inode) -> Result<Option<Name>, FileError> {
        Ok(self.layer.folder(folder)?.entries.first().map(|(name, _)| Arc::clone(name)))
    }

    pub(crate) fn make_directory(&mut self, base: Inode, path: &str) -> Result<(), FileError> {
        let Named { folder, name, entry, .. } =
            self.resolve_name(base, path, |_| FileError::Exists)?;
        if entry.is_some() {
            return Err(FileError::Exists);
        }
        self.create(folder, name, Body::Folder(Folder::default())).map(drop)
    }

    pub(crate) fn remove_directory(&mut self, base: Inode, path: &str) -> Result<(), FileError> {
        let Named { folder, name, entry, .. } =
            self.resolve_name(base, path, |dots| match dots {
                Dots::One => FileError::Invalid,
                Dots::Two => FileError::NotEmpty,
            })?;
        let entry = entry.ok_or(FileError::NotFound)?;
        if !self.layer.folder(entry.inode)?.entries.is_empty() {
            return Err(FileError::NotEmpty);
        }
        self.remove(folder, &name)
    }

    pub(crate) fn unlink(&mut self, base: Inode, path: &str) -> Result<(), FileError> {
        let Named { folder, name, entry, slash } =
            self.resolve_name(base, path, |_| FileError::IsDirectory)?;
        match entry.ok_or(FileError::NotFound)?.kind {
            FileKind::Directory => Err(FileError::IsDirectory),
            FileKind::File | FileKind::Symlink if slash => Err(FileError::NotDirectory),
            FileKind::File | FileKind::Symlink => self.remove(folder, &name),
        }
    }

    pub(crate) fn symlink(
        &mut self,
        target: &str,
        base: Inode,
        path: &str,
    ) -> Result<(), FileError> {
        check_target(target)?;
        let (folder, name) = self.resolve_new(base, path)?;
        if self.layer.node(folder)?.links > 0 && leads_out(target, self.layer.depth(folder)?) {
            return Err(FileError::NotPermitted);
        }
        self.create(folder, name, Body::Link(Arc::from(target))).map(drop)
    }

    pub(crate) fn link(
        &mut self,
        from: Inode,
        from_path: &str,
        to: Inode,
        to_path: &str,
    ) -> Result<(), FileError> {
        let inode = self.resolve(from, from_path, LastLink::Stay)?.inode()?;
        let kind = self.layer.node(inode)?.kind();
        let (folder, name) = self.resolve_new(to, to_path)?;
        if kind == FileKind::Directory {
            return Err(FileError::NotPermitted);
        }
        self.check_new_name(folder, 0)?;
        self.check_name_quota()?;
        let time = self.layer.tick();
        self.layer.add_name(folder, name, Entry { inode, kind, charged: true }, time)
    }

    pub(crate) fn rename(
        &mut self,
        from: Inode,
        from_path: &str,
        to: Inode,
        to_path: &str,
    ) -> Result<(), FileError> {
        let old = self.resolve(from, from_path, LastLink::StayAlways)?;
        let new = self.resolve(to, to_path, LastLink::StayAlways)?;
        let old = Named::at(old, |_| FileError::Busy)?;
        let new = Named::at(new, |_| FileError::Busy)?;
        let moved = old.entry.ok_or(FileError::NotFound)?;
        let is_folder = moved.kind == FileKind::Directory;
        if !is_folder && (old.slash || new.slash) {
            return Err(FileError::NotDirectory);
        }
        if is_folder && self.layer.is_within(new.folder, moved.inode)? {
            return Err(FileError::Invalid);
        }
        if let Some(replaced) = new.entry {
            let replaces_folder = replaced.kind == FileKind::Directory;
            if replaces_folder && self.layer.is_within(old.folder, replaced.inode)? {
                return Err(FileError::NotEmpty);
            }
            if replaced.inode == moved.inode {
                return Ok(());
            }
            match (is_folder, replaces_folder) {
                (true, false) => return Err(FileError::NotDirectory),
                (false, true) => return Err(FileError::IsDirectory),
                (true, true) if !self.layer.folder(replaced.inode)?.entries.is_empty() => {
                    return Err(FileError::NotEmpty);
                }
                _ => {}
            }
        }
        self.check_new_name(new.folder, self.layer.height(moved.inode)?)?;
        // The new name counts, what it replaces and the old one no longer do.
        let freed = u64::from(moved.charged)
            + u64::from(new.entry.is_some_and(|replaced| replaced.charged));
        if self.layer.charged_names + 1 > self.quota.files.saturating_add(freed) {
            return Err(FileError::NoSpace);
        }
        let time = self.layer.tick();
        if let Some(replaced) = new.entry {
            self.layer.remove_name(new.folder, &new.name, time)?;
            self.release_unheld(replaced.inode)?;
        }
        self.layer.remove_name(old.folder, &old.name, time)?;
        self.layer.add_name(new.folder, new.name, Entry { charged: true, ..moved }, time)
    }

    pub(crate) fn read_link(&self, base: Inode, path: &str) -> Result<String, FileError> {
        let inode = self.resolve(base, path, LastLink::Stay)?.inode()?;
        match &self.layer.node(inode)?.body {
            Body::Link(target) => Ok(target.as_ref().to_owned()),
            Body::File(_) | Body::Folder(_) => Err(FileError::Invalid),
        }
    }

    /// The layer without what is only held open, as a snapshot keeps it.
    pub(crate) fn detached_layer(&mut self) -> Layer {
        let mut layer = self.layer.share();
        for inode in self.handles.nodes() {
            if layer.node(inode).is_ok_and(|node| node.links == 0) {
                // The node is there, so there is nothing that could fail.
                let _ = layer.release(inode);
            }
        }
        layer
    }
}

/// Whether a target can be a link's at all.
pub(crate) fn check_target(target: &str) -> Result<(), FileError> {
    if target.is_empty() {
        return Err(FileError::NotFound);
    }
    if target.starts_with('/') {
        return Err(FileError::NotPermitted);
    }
    if target.len() >= MAX_PATH_BYTES {
        return Err(FileError::NameTooLong);
    }
    check_path(target, MAX_PATH_BYTES)
}

/// Whether a target, taken by its names alone, leads out of the tree from a folder at `depth`.
/// Resolution would refuse to follow it in any case; this tells at once.
pub(crate) fn leads_out(target: &str, mut depth: u32) -> bool {
    for name in target.split('/') {
        match name {
            "" | "." => {}
            ".." if depth == 0 => return true,
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    false
}
