//! Opening, reading and writing files.

use fulgurite_trace::file::{FileError, FileKind, FileStat, Handle, OpenMode};

use super::{
    content::{Content, Room},
    handles::Open,
    node::{Body, Inode, Name},
    quota::{MAX_FILE_BYTES, MAX_READ_BYTES},
    resolve::{LastLink, Place},
    state::State,
};

/// What a path that was opened for creating led to.
enum Opened {
    There(Inode),
    Missing { folder: Inode, name: Name },
}

impl State {
    pub(crate) fn open(
        &mut self,
        base: Inode,
        path: &str,
        mode: OpenMode,
    ) -> Result<Handle, FileError> {
        if (mode.create && mode.directory) || (mode.truncate && !mode.write) {
            return Err(FileError::Invalid);
        }
        self.check_handle_quota()?;
        let exclusive = mode.create && mode.exclusive;
        let last_link = match (mode.create, mode.follow && !exclusive) {
            (true, true) => LastLink::Create,
            (true, false) => LastLink::StayAlways,
            (false, true) => LastLink::Follow,
            (false, false) => LastLink::Stay,
        };
        let opened = match self.resolve(base, path, last_link)? {
            Place::Name { slash: true, .. } if mode.create => return Err(FileError::IsDirectory),
            Place::Name { entry: Some(_), .. } if exclusive => return Err(FileError::Exists),
            Place::Name { entry: Some(entry), slash, .. } => {
                match entry.kind {
                    FileKind::Symlink if mode.directory => return Err(FileError::NotDirectory),
                    FileKind::Symlink => return Err(FileError::Loop),
                    FileKind::File if mode.directory || slash => {
                        return Err(FileError::NotDirectory);
                    }
                    FileKind::Directory if mode.create || mode.write => {
                        return Err(FileError::IsDirectory);
                    }
                    FileKind::File | FileKind::Directory => {}
                }
                Opened::There(entry.inode)
            }
            Place::Name { entry: None, folder, name, .. } if mode.create => {
                Opened::Missing { folder, name }
            }
            Place::Name { entry: None, .. } => return Err(FileError::NotFound),
            Place::Folder { .. } if exclusive => return Err(FileError::Exists),
            Place::Folder { .. } if mode.create || mode.write => {
                return Err(FileError::IsDirectory);
            }
            Place::Folder { inode, .. } => Opened::There(inode),
        };
        let inode = match opened {
            Opened::There(inode) => {
                if mode.truncate {
                    self.set_size(inode, 0)?;
                }
                inode
            }
            Opened::Missing { folder, name } => {
                self.create(folder, name, Body::File(Content::default()))?
            }
        };
        Ok(self.handles.insert(Open { inode, read: mode.read, write: mode.write }))
    }

    pub(crate) fn open_root(&mut self, root: Inode) -> Result<Handle, FileError> {
        self.check_handle_quota()?;
        Ok(self.handles.insert(Open { inode: root, read: true, write: false }))
    }

    fn check_handle_quota(&self) -> Result<(), FileError> {
        if self.handles.len() >= self.quota.handles {
            return Err(FileError::TooManyHandles);
        }
        Ok(())
    }

    pub(crate) fn close(&mut self, handle: Handle) {
        if let Some(inode) = self.handles.remove(handle) {
            // The handle kept its node in the table, so there is nothing that could fail.
            let _ = self.release_unheld(inode);
        }
    }

    pub(crate) fn stat(&self, inode: Inode) -> Result<FileStat, FileError> {
        Ok(self.layer.node(inode)?.stat(inode))
    }

    pub(crate) fn content(&self, inode: Inode) -> Result<&Content, FileError> {
        match &self.layer.node(inode)?.body {
            Body::File(content) => Ok(content),
            Body::Folder(_) => Err(FileError::IsDirectory),
            Body::Link(_) => Err(FileError::Loop),
        }
    }

    pub(crate) fn read(
        &self,
        inode: Inode,
        offset: u64,
        length: u64,
    ) -> Result<Vec<u8>, FileError> {
        self.content(inode)?.read(offset, length.min(MAX_READ_BYTES))
    }

    pub(crate) fn write(
        &mut self,
        inode: Inode,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), FileError> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(FileError::NoSpace)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let size = self.content(inode)?.size().max(end);
        self.modify(inode, size, |content, room| content.write(offset, bytes, room))
    }

    pub(crate) fn append(&mut self, inode: Inode, bytes: &[u8]) -> Result<u64, FileError> {
        let offset = self.content(inode)?.size();
        self.write(inode, offset, bytes)?;
        Ok(offset)
    }

    pub(crate) fn set_size(&mut self, inode: Inode, size: u64) -> Result<(), FileError> {
        self.modify(inode, size, |content, room| content.set_size(size, room))
    }

    /// Replaces everything.
    pub(crate) fn overwrite(&mut self, inode: Inode, bytes: &[u8]) -> Result<(), FileError> {
        self.modify(inode, bytes.len() as u64, |content, room| {
            content.set_size(0, room)?;
            content.write(0, bytes, room)
        })
    }

    /// Takes over another file's content by pointer.
    pub(crate) fn set_content(&mut self, inode: Inode, new: Content) -> Result<(), FileError> {
        let size = new.size();
        self.modify(inode, size, |content, _| {
            *content = new;
            Ok(())
        })
    }

    /// Changes a file's content to one of `size` bytes and keeps the books.
    fn modify(
        &mut self,
        inode: Inode,
        size: u64,
        change: impl FnOnce(&mut Content, &Room<'_>) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        let before = self.content(inode)?;
        let counted = match self.layer.node(inode)?.charged {
            true => before.size(),
            false => 0,
        };
        let others = self.layer.charged_bytes.saturating_sub(counted);
        let fits = others.checked_add(size).is_some_and(|bytes| bytes <= self.quota.bytes);
        // A file may shrink, or keep its size, in a tree that is over its quota.
        if size > MAX_FILE_BYTES || (!fits && size > counted) {
            return Err(FileError::NoSpace);
        }
        let resident = self.layer.resident.saturating_sub(before.resident());
        let room = Room { others: resident, limit: self.quota.memory_bytes, spill: &self.spill };
        let time = self.layer.tick();
        self.layer.invalidate(inode)?;
        let node = self.layer.node_mut(inode)?;
        let Body::File(content) = &mut node.body else { return Err(FileError::Io) };
        let changed = change(content, &room);
        node.charged = true;
        node.times.modified = time;
        // Also when the disk failed half-way: what the books say is what is there.
        let (size, in_memory) = (content.size(), content.resident());
        self.layer.charged_bytes = others.saturating_add(size);
        self.layer.resident = resident.saturating_add(in_memory);
        changed
    }
}
