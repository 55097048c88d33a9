//! From a path to the place it names, as POSIX resolves paths, without ever leaving the tree.

use std::sync::Arc;

use fulgurite_trace::file::{FileError, FileKind};

use super::{
    layer::Layer,
    node::{Body, Entry, Inode, Name, ROOT},
    quota::{MAX_HOST_PATH_BYTES, MAX_LINKS, MAX_PATH_BYTES},
};

/// What to do with a link at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastLink {
    /// Go where it leads.
    Follow,
    /// Go where it leads unless the path ends in `/`; for making files, which have no such path.
    Create,
    /// Stay at the link, but go where it leads when the path ends in `/`.
    Stay,
    /// Stay at the link whatever the path ends in; for operations on names.
    StayAlways,
}

/// Where a path ends.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// At a name in a folder.
    Name {
        folder: Inode,
        name: Name,
        /// What has that name.
        entry: Option<Entry>,
        /// The path ended in `/`.
        slash: bool,
    },
    /// At a folder by `.`, by `..`, or at the root.
    Folder { inode: Inode, by: Dots },
}

/// How a path ended that did not end in a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dots {
    One,
    Two,
}

impl Place {
    /// The node there. A file's path that ends in `/` leads nowhere.
    pub(crate) fn inode(&self) -> Result<Inode, FileError> {
        match self {
            Self::Name { entry: None, .. } => Err(FileError::NotFound),
            Self::Name { entry: Some(entry), slash: true, .. } if entry.kind == FileKind::File => {
                Err(FileError::NotDirectory)
            }
            Self::Name { entry: Some(entry), .. } => Ok(entry.inode),
            Self::Folder { inode, .. } => Ok(*inode),
        }
    }
}

/// Part of a path still to go: the caller's path, or the target of a link on the way.
struct Rest<'a> {
    text: Text<'a>,
    position: usize,
}

enum Text<'a> {
    Path(&'a str),
    Target(Arc<str>),
}

impl Rest<'_> {
    fn whole(&self) -> &str {
        match &self.text {
            Text::Path(path) => path,
            Text::Target(target) => target,
        }
    }

    fn between(&self, start: usize, end: usize) -> &str {
        self.whole().get(start..end).unwrap_or_default()
    }

    fn text(&self) -> &str {
        self.whole().get(self.position..).unwrap_or_default()
    }

    /// Steps over the next name; answers where it stands.
    fn next_component(&mut self) -> (usize, usize) {
        let text = self.text();
        let name = text.trim_start_matches('/');
        let start = self.position + (text.len() - name.len());
        let end = start + name.find('/').unwrap_or(name.len());
        self.position = end;
        (start, end)
    }

    /// Nothing but `/` is left.
    fn is_done(&self) -> bool {
        self.text().bytes().all(|byte| byte == b'/')
    }
}

/// Checks what every path must satisfy before it is looked at.
pub(crate) fn check_path(path: &str, most_bytes: usize) -> Result<(), FileError> {
    if path.len() > most_bytes {
        return Err(FileError::NameTooLong);
    }
    if path.contains('\0') {
        return Err(FileError::Invalid);
    }
    Ok(())
}

impl Layer {
    /// Resolves a path from a folder. Absolute paths are refused; all but the last name must
    /// exist. The targets of all links on the way may be as long together as one path: whoever
    /// asks pays for the path alone.
    pub(crate) fn resolve(
        &self,
        base: Inode,
        path: &str,
        last_link: LastLink,
        name_bytes: u32,
    ) -> Result<Place, FileError> {
        check_path(path, MAX_PATH_BYTES)?;
        if path.is_empty() {
            return Err(FileError::NotFound);
        }
        if path.starts_with('/') {
            return Err(FileError::NotPermitted);
        }
        self.folder(base)?;
        let mut folder = base;
        let (mut links, mut followed) = (0, 0);
        let mut rests = vec![Rest { text: Text::Path(path), position: 0 }];
        loop {
            let Some(rest) = rests.last_mut() else {
                // Only after a link whose target is nothing but slashes, which cannot be made.
                return Err(FileError::NotFound);
            };
            let (start, end) = rest.next_component();
            if start == end {
                rests.pop();
                continue;
            }
            let is_last = rests.iter().all(Rest::is_done);
            let slash = is_last && rests.iter().any(|rest| !rest.text().is_empty());
            let component = rests.last().map(|rest| rest.between(start, end)).unwrap_or_default();
            match component {
                "." if is_last => return Ok(Place::Folder { inode: folder, by: Dots::One }),
                "." => continue,
                ".." => {
                    if folder == ROOT {
                        return Err(FileError::NotPermitted);
                    }
                    folder = self.node(folder)?.parent().ok_or(FileError::NotFound)?;
                    if is_last {
                        return Ok(Place::Folder { inode: folder, by: Dots::Two });
                    }
                    continue;
                }
                name if name.len() > name_bytes as usize => return Err(FileError::NameTooLong),
                _ => {}
            }
            let entry = self.lookup(folder, component)?;
            let follow = !is_last
                || match last_link {
                    LastLink::Follow => true,
                    LastLink::Create => !slash,
                    LastLink::Stay => slash,
                    LastLink::StayAlways => false,
                };
            match entry {
                Some(Entry { inode, kind: FileKind::Symlink, .. }) if follow => {
                    let Body::Link(target) = &self.node(inode)?.body else {
                        return Err(FileError::Io);
                    };
                    links += 1;
                    followed += target.len();
                    if links > MAX_LINKS || followed > MAX_PATH_BYTES {
                        return Err(FileError::Loop);
                    }
                    if target.starts_with('/') {
                        return Err(FileError::NotPermitted);
                    }
                    rests.push(Rest { text: Text::Target(Arc::clone(target)), position: 0 });
                }
                Some(Entry { inode, kind: FileKind::Directory, .. }) if !is_last => folder = inode,
                Some(_) if !is_last => return Err(FileError::NotDirectory),
                None if !is_last => return Err(FileError::NotFound),
                entry => {
                    return Ok(Place::Name { folder, name: Name::from(component), entry, slash });
                }
            }
        }
    }

    /// Finds an entry by names alone: a link on the way or at the end is `Loop`, `..` is
    /// `NotPermitted`. A leading `/` is the root.
    pub(crate) fn find_unfollowed(&self, path: &str) -> Result<Inode, FileError> {
        check_path(path, MAX_HOST_PATH_BYTES)?;
        let mut inode = ROOT;
        for name in path.split('/').filter(|name| !matches!(*name, "" | ".")) {
            if name == ".." {
                return Err(FileError::NotPermitted);
            }
            if matches!(self.node(inode)?.body, Body::Link(_)) {
                return Err(FileError::Loop);
            }
            inode = self.lookup(inode, name)?.ok_or(FileError::NotFound)?.inode;
        }
        Ok(inode)
    }

    /// The path of a folder from the root, starting with `/`.
    pub(crate) fn folder_path(&self, folder: Inode) -> Result<String, FileError> {
        let mut names: Vec<&str> = Vec::new();
        let mut inode = folder;
        while inode != ROOT {
            let parent = self.node(inode)?.parent().ok_or(FileError::NotFound)?;
            let mut entries = self.folder(parent)?.entries.iter();
            let (name, _) = entries.find(|(_, entry)| entry.inode == inode).ok_or(FileError::Io)?;
            names.push(name);
            inode = parent;
        }
        let mut path = String::new();
        for name in names.iter().rev() {
            path.push('/');
            path.push_str(name);
        }
        Ok(if path.is_empty() { "/".to_owned() } else { path })
    }
}
