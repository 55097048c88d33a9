//! The grader's way to place entries: whatever an episode left in the way goes, and nothing is
//! followed.

use std::sync::Arc;

use fulgurite_trace::file::{FileError, FileKind};

use super::{
    Tree,
    content::Content,
    node::{Body, Entry, Folder, Inode, Name, Node, ROOT},
    quota::MAX_HOST_PATH_BYTES,
    resolve::check_path,
    state::State,
};

/// The names of a path, which may not go up.
fn names(path: &str) -> Result<Vec<&str>, FileError> {
    check_path(path, MAX_HOST_PATH_BYTES)?;
    let names: Vec<&str> = path.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    if names.contains(&"..") {
        return Err(FileError::NotPermitted);
    }
    Ok(names)
}

/// Whether the quota of names and bytes is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checked {
    Yes,
    No,
}

impl State {
    /// Lays down a file, folder or link. A folder that is there already stays as it is.
    pub(crate) fn lay_down(
        &mut self,
        path: &str,
        body: Body,
        checked: Checked,
    ) -> Result<Inode, FileError> {
        let names = names(path)?;
        let (last, above) = names.split_last().ok_or(FileError::Invalid)?;
        // Before anything is removed: the path as a whole must fit.
        if names.len() > self.quota.depth as usize
            || names.iter().any(|name| name.len() > self.quota.name_bytes as usize)
        {
            return Err(FileError::NameTooLong);
        }
        let mut folder = ROOT;
        for name in above {
            folder = match self.layer.lookup(folder, name)? {
                Some(Entry { inode, kind: FileKind::Directory, .. }) => inode,
                there => {
                    if there.is_some() {
                        self.remove(folder, name)?;
                    }
                    self.place(folder, Name::from(*name), Body::Folder(Folder::default()), checked)?
                }
            };
        }
        match (self.layer.lookup(folder, last)?, &body) {
            (Some(Entry { inode, kind: FileKind::Directory, .. }), Body::Folder(_)) => {
                return Ok(inode);
            }
            (Some(_), _) => self.remove_all(folder, last)?,
            (None, _) => {}
        }
        self.place(folder, Name::from(*last), body, checked)
    }

    fn place(
        &mut self,
        folder: Inode,
        name: Name,
        body: Body,
        checked: Checked,
    ) -> Result<Inode, FileError> {
        match checked {
            Checked::Yes => self.create(folder, name, body),
            Checked::No => {
                self.create_unchecked(folder, name, Node::new(body, true, self.layer.now()))
            }
        }
    }

    /// Removes what is at a path by names alone. Nothing there, or a link on the way, is fine.
    pub(crate) fn take_up(&mut self, path: &str) -> Result<(), FileError> {
        let names = names(path)?;
        let (last, above) = names.split_last().ok_or(FileError::Invalid)?;
        let mut folder = ROOT;
        for name in above {
            match self.layer.lookup(folder, name)? {
                Some(Entry { inode, kind: FileKind::Directory, .. }) => folder = inode,
                Some(_) | None => return Ok(()),
            }
        }
        match self.layer.lookup(folder, last)? {
            Some(_) => self.remove_all(folder, last),
            None => Ok(()),
        }
    }
}

impl Tree {
    /// Places a file for a grader: a link, file or folder at the path is removed first, with all
    /// below it; links and files where the path needs folders are replaced by folders; then the
    /// file is made anew. Nothing is followed, no other name of a file changes its content, and
    /// the whole happens at once for every other user of the tree.
    ///
    /// `..` is [`NotPermitted`](FileError::NotPermitted). When the quota is used up, what stood
    /// in the way may be gone already.
    pub fn lay_down(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        let mut state = self.state();
        let inode = state.lay_down(path, Body::File(Content::default()), Checked::Yes)?;
        state.overwrite(inode, bytes)
    }

    /// Places a folder for a grader, in the way of [`lay_down`](Self::lay_down); a folder that is
    /// there stays with all that is in it.
    pub fn lay_down_directory(&self, path: &str) -> Result<(), FileError> {
        let folder = Body::Folder(Folder::default());
        self.state().lay_down(path, folder, Checked::Yes).map(drop)
    }

    /// Removes whatever is at a path with all below it, following nothing; fine if there is
    /// nothing.
    pub fn take_up(&self, path: &str) -> Result<(), FileError> {
        self.state().take_up(path)
    }
}

/// A change to make by names alone.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) path: String,
    pub(crate) what: Placement,
}

/// What is to be at a path.
#[derive(Debug)]
pub(crate) enum Placement {
    Nothing,
    Folder,
    File(Content),
    Link(Arc<str>),
}

impl Tree {
    /// Makes sealed changes one after the other, while nobody else uses the tree. The quota of
    /// names and bytes is not asked: the sealed tree kept its own, and counted differently (a
    /// moved folder of the lower layer is one name there).
    pub(crate) fn place_all(&self, changes: Vec<Placed>) -> Result<(), (String, FileError)> {
        let mut state = self.state();
        for Placed { path, what } in changes {
            let body = match what {
                Placement::Nothing => None,
                Placement::Folder => Some(Body::Folder(Folder::default())),
                Placement::File(content) => Some(Body::File(content)),
                Placement::Link(target) => Some(Body::Link(target)),
            };
            let done = match body {
                Some(body) => state.lay_down(&path, body, Checked::No).map(drop),
                None => state.take_up(&path),
            };
            done.map_err(|error| (path, error))?;
        }
        Ok(())
    }
}
