//! The tree as the host itself uses it: by paths from the root.

use std::sync::Arc;

use fulgurite_trace::file::{DirectoryEntry, FileError, FileStat};

use super::{
    Tree,
    content::Content,
    node::{Body, Folder, Inode, ROOT},
    resolve::{LastLink, Place},
    state::State,
};

/// The path below the root: without leading `/`, and `.` for the root itself.
fn from_root(path: &str) -> &str {
    match path.trim_start_matches('/') {
        "" => ".",
        path => path,
    }
}

impl State {
    fn at(&self, path: &str, last_link: LastLink) -> Result<Inode, FileError> {
        self.resolve(ROOT, from_root(path), last_link)?.inode()
    }

    /// The file at a path, following links; an empty one is made if there is nothing.
    fn file_at(&mut self, path: &str) -> Result<Inode, FileError> {
        match self.resolve(ROOT, from_root(path), LastLink::Follow)? {
            Place::Name { slash: true, entry: None, .. } => Err(FileError::NotFound),
            Place::Name { entry: None, folder, name, .. } => {
                self.create(folder, name, Body::File(Content::default()))
            }
            Place::Name { entry: Some(entry), slash, .. } => {
                self.content(entry.inode)?;
                if slash { Err(FileError::NotDirectory) } else { Ok(entry.inode) }
            }
            Place::Folder { .. } => Err(FileError::IsDirectory),
        }
    }

    /// Gives a file new content, making it if it is not there; nothing is made when the content
    /// does not fit.
    fn replace_content(
        &mut self,
        path: &str,
        change: impl FnOnce(&mut Self, Inode) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        let place = self.resolve(ROOT, from_root(path), LastLink::Follow)?;
        let inode = self.file_at(path)?;
        let changed = change(self, inode);
        if let (Err(_), Place::Name { folder, name, entry: None, .. }) = (&changed, place) {
            self.remove(folder, &name)?;
        }
        changed
    }

    fn create_directories(&mut self, path: &str) -> Result<(), FileError> {
        let path = from_root(path);
        let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
        for end in ends {
            let above = path.get(..end).unwrap_or_default();
            match self.resolve(ROOT, above, LastLink::Follow)? {
                Place::Name { entry: Some(entry), .. } => {
                    self.layer.folder(entry.inode)?;
                }
                Place::Name { entry: None, folder, name, .. } => {
                    self.create(folder, name, Body::Folder(Folder::default()))?;
                }
                Place::Folder { .. } => {}
            }
        }
        Ok(())
    }

    fn remove_recursive(&mut self, path: &str) -> Result<(), FileError> {
        match self.resolve(ROOT, from_root(path), LastLink::StayAlways)? {
            Place::Name { folder, name, entry: Some(_), .. } => self.remove_all(folder, &name),
            Place::Name { entry: None, .. } => Err(FileError::NotFound),
            Place::Folder { .. } => Err(FileError::Busy),
        }
    }

    fn canonical(&self, path: &str) -> Result<String, FileError> {
        match self.resolve(ROOT, from_root(path), LastLink::Follow)? {
            Place::Name { entry: None, .. } => Err(FileError::NotFound),
            Place::Name { folder, name, .. } => {
                let mut path = self.layer.folder_path(folder)?;
                if !path.ends_with('/') {
                    path.push('/');
                }
                path.push_str(&name);
                Ok(path)
            }
            Place::Folder { inode, .. } => self.layer.folder_path(inode),
        }
    }
}

impl Tree {
    /// At most `limit` bytes from the start of a file, and at most 16 MiB;
    /// [`stat_path`](Self::stat_path) tells how many there are.
    pub fn read_file(&self, path: &str, limit: u64) -> Result<Vec<u8>, FileError> {
        self.read_range(path, 0, limit)
    }

    /// At most `length` bytes of a file from `offset`, and at most 16 MiB at once.
    pub fn read_range(&self, path: &str, offset: u64, length: u64) -> Result<Vec<u8>, FileError> {
        let state = self.state();
        state.read(state.at(path, LastLink::Follow)?, offset, length)
    }

    /// Makes a file, or replaces its content.
    pub fn write_file(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.state().replace_content(path, |state, inode| state.overwrite(inode, bytes))
    }

    /// Adds to the end of a file, which is made if there is none.
    pub fn append_file(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.state().replace_content(path, |state, inode| state.append(inode, bytes).map(drop))
    }

    /// Copies a file's content by pointer into another file, which is made if there is none.
    pub fn copy_file(&self, from: &str, to: &str) -> Result<(), FileError> {
        let mut state = self.state();
        let content = state.content(state.at(from, LastLink::Follow)?)?.clone();
        state.replace_content(to, |state, inode| state.set_content(inode, content))
    }

    /// Makes an empty file if there is nothing; otherwise moves the entry's times on.
    pub fn touch(&self, path: &str) -> Result<(), FileError> {
        let mut state = self.state();
        match state.at(path, LastLink::Follow) {
            Ok(inode) => {
                let time = state.layer.tick();
                state.set_times(inode, Some(time), Some(time))
            }
            Err(FileError::NotFound) => state.file_at(path).map(drop),
            Err(error) => Err(error),
        }
    }

    /// About an entry. `follow` concerns a link at the end.
    pub fn stat_path(&self, path: &str, follow: bool) -> Result<FileStat, FileError> {
        let state = self.state();
        let last_link = if follow { LastLink::Follow } else { LastLink::Stay };
        state.stat(state.at(path, last_link)?)
    }

    /// A folder's entries, sorted by name.
    pub fn list(&self, path: &str) -> Result<Arc<[DirectoryEntry]>, FileError> {
        let state = self.state();
        state.list(state.at(path, LastLink::Follow)?)
    }

    /// Makes one folder.
    pub fn make_directory(&self, path: &str) -> Result<(), FileError> {
        self.state().make_directory(ROOT, from_root(path))
    }

    /// Makes a folder and those above it; fine if it is there.
    pub fn create_directories(&self, path: &str) -> Result<(), FileError> {
        self.state().create_directories(path)
    }

    /// Removes a file, or a link itself.
    pub fn remove_file(&self, path: &str) -> Result<(), FileError> {
        self.state().unlink(ROOT, from_root(path))
    }

    /// Removes an empty folder.
    pub fn remove_empty_directory(&self, path: &str) -> Result<(), FileError> {
        self.state().remove_directory(ROOT, from_root(path))
    }

    /// Removes whatever is there with all below it; a link at the end is removed itself. The
    /// root is [`Busy`](FileError::Busy).
    pub fn remove_recursive(&self, path: &str) -> Result<(), FileError> {
        self.state().remove_recursive(path)
    }

    /// Moves, replacing what POSIX `rename` replaces.
    pub fn rename_path(&self, from: &str, to: &str) -> Result<(), FileError> {
        self.state().rename(ROOT, from_root(from), ROOT, from_root(to))
    }

    /// Makes a symbolic link with a relative target that does not lead out of the tree.
    pub fn symlink_path(&self, target: &str, path: &str) -> Result<(), FileError> {
        self.state().symlink(target, ROOT, from_root(path))
    }

    /// Another name for a file or link.
    pub fn link_path(&self, from: &str, to: &str) -> Result<(), FileError> {
        self.state().link(ROOT, from_root(from), ROOT, from_root(to))
    }

    /// The target of a link.
    pub fn read_link_path(&self, path: &str) -> Result<String, FileError> {
        self.state().read_link(ROOT, from_root(path))
    }

    /// The path of an existing entry from the root, starting with `/`, without links and dots.
    pub fn canonical(&self, path: &str) -> Result<String, FileError> {
        self.state().canonical(path)
    }
}
