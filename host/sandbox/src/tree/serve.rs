//! The tree as `wasi:filesystem` consumes it.

use std::sync::Arc;

use fulgurite_trace::file::{DirectoryEntry, FileError, FileStat, FileTree, Handle, OpenMode};

use super::{
    Tree,
    handles::Open,
    node::{Inode, ROOT},
    resolve::LastLink,
    state::State,
};

impl State {
    fn base(&self, directory: Handle) -> Result<Inode, FileError> {
        let inode = self.handles.get(directory)?.inode;
        self.layer.folder(inode)?;
        Ok(inode)
    }

    fn writable(&self, file: Handle) -> Result<Inode, FileError> {
        match self.handles.get(file)? {
            Open { inode, write: true, .. } => Ok(inode),
            Open { .. } => Err(FileError::BadHandle),
        }
    }

    pub(crate) fn list(&self, folder: Inode) -> Result<Arc<[DirectoryEntry]>, FileError> {
        let entries = self.layer.folder(folder)?.entries.iter();
        let entries = entries.map(|(name, entry)| DirectoryEntry {
            name: name.as_ref().to_owned(),
            kind: entry.kind,
        });
        Ok(entries.collect())
    }

    pub(crate) fn set_times(
        &mut self,
        inode: Inode,
        accessed: Option<u64>,
        modified: Option<u64>,
    ) -> Result<(), FileError> {
        let times = &mut self.layer.node_mut(inode)?.times;
        times.accessed = accessed.unwrap_or(times.accessed);
        times.modified = modified.unwrap_or(times.modified);
        Ok(())
    }
}

impl FileTree for Tree {
    fn root(&self) -> Result<Handle, FileError> {
        self.state().open_root(ROOT)
    }

    fn open(&self, directory: Handle, path: &str, mode: OpenMode) -> Result<Handle, FileError> {
        let mut state = self.state();
        let base = state.base(directory)?;
        state.open(base, path, mode)
    }

    fn close(&self, handle: Handle) {
        self.state().close(handle);
    }

    fn stat(&self, handle: Handle) -> Result<FileStat, FileError> {
        let state = self.state();
        state.stat(state.handles.get(handle)?.inode)
    }

    fn stat_at(&self, directory: Handle, path: &str, follow: bool) -> Result<FileStat, FileError> {
        let state = self.state();
        let last_link = if follow { LastLink::Follow } else { LastLink::Stay };
        let inode = state.resolve(state.base(directory)?, path, last_link)?.inode()?;
        state.stat(inode)
    }

    fn read(&self, file: Handle, offset: u64, length: u64) -> Result<Vec<u8>, FileError> {
        let state = self.state();
        match state.handles.get(file)? {
            Open { inode, read: true, .. } => state.read(inode, offset, length),
            Open { .. } => Err(FileError::BadHandle),
        }
    }

    fn write(&self, file: Handle, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let mut state = self.state();
        let inode = state.writable(file)?;
        state.write(inode, offset, bytes)
    }

    fn append(&self, file: Handle, bytes: &[u8]) -> Result<u64, FileError> {
        let mut state = self.state();
        let inode = state.writable(file)?;
        state.append(inode, bytes)
    }

    fn set_size(&self, file: Handle, size: u64) -> Result<(), FileError> {
        let mut state = self.state();
        let inode = state.writable(file)?;
        state.set_size(inode, size)
    }

    fn set_times(
        &self,
        handle: Handle,
        accessed: Option<u64>,
        modified: Option<u64>,
    ) -> Result<(), FileError> {
        let mut state = self.state();
        let inode = state.handles.get(handle)?.inode;
        state.set_times(inode, accessed, modified)
    }

    fn read_directory(&self, directory: Handle) -> Result<Arc<[DirectoryEntry]>, FileError> {
        let state = self.state();
        state.list(state.handles.get(directory)?.inode)
    }

    fn create_directory(&self, directory: Handle, path: &str) -> Result<(), FileError> {
        let mut state = self.state();
        let base = state.base(directory)?;
        state.make_directory(base, path)
    }

    fn remove_directory(&self, directory: Handle, path: &str) -> Result<(), FileError> {
        let mut state = self.state();
        let base = state.base(directory)?;
        state.remove_directory(base, path)
    }

    fn unlink(&self, directory: Handle, path: &str) -> Result<(), FileError> {
        let mut state = self.state();
        let base = state.base(directory)?;
        state.unlink(base, path)
    }

    fn rename(
        &self,
        from: Handle,
        from_path: &str,
        to: Handle,
        to_path: &str,
    ) -> Result<(), FileError> {
        let mut state = self.state();
        let (from, to) = (state.base(from)?, state.base(to)?);
        state.rename(from, from_path, to, to_path)
    }

    fn symlink(&self, target: &str, directory: Handle, path: &str) -> Result<(), FileError> {
        let mut state = self.state();
        let base = state.base(directory)?;
        state.symlink(target, base, path)
    }

    fn link(
        &self,
        from: Handle,
        from_path: &str,
        to: Handle,
        to_path: &str,
    ) -> Result<(), FileError> {
        let mut state = self.state();
        let (from, to) = (state.base(from)?, state.base(to)?);
        state.link(from, from_path, to, to_path)
    }

    fn read_link(&self, directory: Handle, path: &str) -> Result<String, FileError> {
        let state = self.state();
        state.read_link(state.base(directory)?, path)
    }
}
