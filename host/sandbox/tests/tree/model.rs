//! A simple model of the tree: nodes in a list, everything else found by searching.

use std::collections::{BTreeMap, BTreeSet};

use fulgurite_sandbox::{Quota, Usage};
use fulgurite_trace::{
    Digest,
    file::{FileError, FileKind, OpenMode},
};

use super::model_walk::{End, Last};

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) node: usize,
    charged: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Node {
    File(Vec<u8>),
    Folder(BTreeMap<String, Entry>),
    Link(String),
}

#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) node: Node,
    charged: bool,
}

/// Handle numbers are positions in `handles`.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) nodes: Vec<Kept>,
    handles: Vec<Option<(usize, OpenMode)>>,
    pub(crate) quota: Quota,
}

type Done<T> = Result<T, FileError>;

impl Model {
    pub(crate) fn new(files: &BTreeMap<String, Vec<u8>>, quota: Quota) -> Self {
        let root = Kept { node: Node::Folder(BTreeMap::new()), charged: false };
        let mut model = Self { nodes: vec![root], handles: Vec::new(), quota };
        for (path, bytes) in files {
            let mut folder = 0;
            let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
            for part in above.split('/').filter(|part| !part.is_empty()) {
                folder = match model.entries(folder).get(part) {
                    Some(entry) => entry.node,
                    None => model.put(folder, part, Node::Folder(BTreeMap::new()), false),
                };
            }
            model.put(folder, name, Node::File(bytes.clone()), false);
        }
        model
    }

    fn put(&mut self, folder: usize, name: &str, node: Node, charged: bool) -> usize {
        let number = self.nodes.len();
        self.nodes.push(Kept { node, charged });
        self.entries_mut(folder).insert(name.to_owned(), Entry { node: number, charged });
        number
    }

    pub(crate) fn entries(&self, folder: usize) -> &BTreeMap<String, Entry> {
        match &self.nodes[folder].node {
            Node::Folder(entries) => entries,
            _ => panic!("not a folder"),
        }
    }

    fn entries_mut(&mut self, folder: usize) -> &mut BTreeMap<String, Entry> {
        match &mut self.nodes[folder].node {
            Node::Folder(entries) => entries,
            _ => panic!("not a folder"),
        }
    }

    /// The folders from the root to a folder, found by searching.
    pub(crate) fn path_to(&self, wanted: usize) -> Option<Vec<usize>> {
        fn search(model: &Model, at: &mut Vec<usize>, wanted: usize) -> bool {
            let folder = *at.last().unwrap();
            if folder == wanted {
                return true;
            }
            for entry in model.entries(folder).values() {
                if model.kind(entry.node) == FileKind::Directory {
                    at.push(entry.node);
                    if search(model, at, wanted) {
                        return true;
                    }
                    at.pop();
                }
            }
            false
        }
        let mut path = vec![0];
        search(self, &mut path, wanted).then_some(path)
    }

    pub(crate) fn kind(&self, node: usize) -> FileKind {
        match self.nodes[node].node {
            Node::File(_) => FileKind::File,
            Node::Folder(_) => FileKind::Directory,
            Node::Link(_) => FileKind::Symlink,
        }
    }

    fn size(&self, node: usize) -> u64 {
        match &self.nodes[node].node {
            Node::File(bytes) => bytes.len() as u64,
            Node::Folder(_) => 0,
            Node::Link(target) => target.len() as u64,
        }
    }

    /// Counted anew from everything that can be reached.
    pub(crate) fn usage(&self) -> Usage {
        let mut alive: BTreeSet<usize> = self.handles.iter().flatten().map(|open| open.0).collect();
        let mut names = 0;
        let mut pending = vec![0];
        while let Some(folder) = pending.pop() {
            for entry in self.entries(folder).values() {
                names += u64::from(entry.charged);
                alive.insert(entry.node);
                if self.kind(entry.node) == FileKind::Directory {
                    pending.push(entry.node);
                }
            }
        }
        let charged = alive.iter().filter(|node| self.nodes[**node].charged);
        Usage {
            bytes: charged.map(|node| self.size(*node)).sum(),
            files: names,
            handles: self.handles.iter().flatten().count() as u32,
            memory_bytes: 0,
        }
    }

    fn links(&self, node: usize) -> u64 {
        if node == 0 {
            return 1;
        }
        let mut links = 0;
        let mut pending = vec![0];
        while let Some(folder) = pending.pop() {
            for entry in self.entries(folder).values() {
                links += u64::from(entry.node == node);
                if self.kind(entry.node) == FileKind::Directory {
                    pending.push(entry.node);
                }
            }
        }
        links
    }

    fn height(&self, node: usize) -> usize {
        match &self.nodes[node].node {
            Node::Folder(entries) => {
                entries.values().map(|entry| self.height(entry.node) + 1).max().unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// The documented digest, from nothing remembered.
    pub(crate) fn digest(&self, node: usize) -> Digest {
        match &self.nodes[node].node {
            Node::File(bytes) => Digest::of(bytes),
            Node::Link(target) => Digest::of(target),
            Node::Folder(entries) => {
                let mut text = b"fulgurite folder 1\n".to_vec();
                for (name, entry) in entries {
                    text.push(match self.kind(entry.node) {
                        FileKind::File => b'f',
                        FileKind::Directory => b'd',
                        FileKind::Symlink => b'l',
                    });
                    text.extend((name.len() as u64).to_le_bytes());
                    text.extend(name.as_bytes());
                    text.extend(self.digest(entry.node).as_bytes());
                }
                Digest::of(text)
            }
        }
    }

    fn check_place(&self, folder: usize, height: usize) -> Done<()> {
        let depth = self.path_to(folder).ok_or(FileError::NotFound)?.len() - 1;
        if depth + 1 + height > self.quota.depth as usize {
            return Err(FileError::NameTooLong);
        }
        Ok(())
    }

    fn check_usage(&self, names: i64, bytes: i64) -> Done<()> {
        let usage = self.usage();
        let fits = |used: u64, more: i64, limit: u64| used as i64 + more <= limit as i64;
        if (names > 0 && !fits(usage.files, names, self.quota.files))
            || (bytes > 0 && !fits(usage.bytes, bytes, self.quota.bytes))
        {
            return Err(FileError::NoSpace);
        }
        Ok(())
    }

    fn create(&mut self, folder: usize, name: &str, node: Node) -> Done<usize> {
        self.check_place(folder, 0)?;
        let size = match &node {
            Node::Link(target) => target.len() as i64,
            _ => 0,
        };
        self.check_usage(1, 0)?;
        self.check_usage(0, size)?;
        Ok(self.put(folder, name, node, true))
    }

    pub(crate) fn base(&self, handle: Option<usize>) -> Done<usize> {
        let Some(handle) = handle else { return Ok(0) };
        let node = self.handles[handle].ok_or(FileError::BadHandle)?.0;
        match self.kind(node) {
            FileKind::Directory => Ok(node),
            _ => Err(FileError::NotDirectory),
        }
    }

    pub(crate) fn open(&mut self, base: usize, path: &str, mode: OpenMode) -> Done<usize> {
        if (mode.create && mode.directory) || (mode.truncate && !mode.write) {
            return Err(FileError::Invalid);
        }
        if self.usage().handles >= self.quota.handles {
            return Err(FileError::TooManyHandles);
        }
        let exclusive = mode.create && mode.exclusive;
        let last = match (mode.create, mode.follow && !exclusive) {
            (true, true) => Last::WithoutSlash,
            (true, false) => Last::Never,
            (false, true) => Last::Always,
            (false, false) => Last::BeforeSlash,
        };
        let end = self.walk(base, path, last)?;
        if mode.create && matches!(end, End::Name { slash: true, .. }) {
            return Err(FileError::IsDirectory);
        }
        let node = match (self.there(&end), &end) {
            (Ok(_), _) if exclusive => return Err(FileError::Exists),
            (Ok(node), _) => {
                match self.kind(node) {
                    FileKind::Symlink if mode.directory => return Err(FileError::NotDirectory),
                    FileKind::Symlink => return Err(FileError::Loop),
                    FileKind::Directory if mode.create || mode.write => {
                        return Err(FileError::IsDirectory);
                    }
                    FileKind::File if mode.directory => return Err(FileError::NotDirectory),
                    FileKind::File if mode.truncate => self.set_content(node, Vec::new())?,
                    _ => {}
                }
                node
            }
            (Err(_), End::Name { folder, name, node: None, .. }) if mode.create => {
                self.create(*folder, name, Node::File(Vec::new()))?
            }
            (Err(error), _) => return Err(error),
        };
        self.handles.push(Some((node, mode)));
        Ok(self.handles.len() - 1)
    }

    pub(crate) fn close(&mut self, handle: usize) {
        self.handles[handle] = None;
    }

    pub(crate) fn close_all(&mut self) {
        self.handles.clear();
    }

    fn file(&self, handle: usize, write: bool) -> Done<usize> {
        let (node, mode) = self.handles[handle].ok_or(FileError::BadHandle)?;
        match (write && mode.write) || (!write && mode.read) {
            true => Ok(node),
            false => Err(FileError::BadHandle),
        }
    }

    fn bytes(&self, node: usize) -> Done<&Vec<u8>> {
        match &self.nodes[node].node {
            Node::File(bytes) => Ok(bytes),
            Node::Folder(_) => Err(FileError::IsDirectory),
            Node::Link(_) => Err(FileError::Loop),
        }
    }

    fn set_content(&mut self, node: usize, bytes: Vec<u8>) -> Done<()> {
        let counted = if self.nodes[node].charged { self.size(node) } else { 0 };
        self.check_usage(0, bytes.len() as i64 - counted as i64)?;
        self.nodes[node] = Kept { node: Node::File(bytes), charged: true };
        Ok(())
    }

    pub(crate) fn read(&self, handle: usize, offset: u64, length: u64) -> Done<Vec<u8>> {
        let bytes = self.bytes(self.file(handle, false)?)?;
        let start = offset.min(bytes.len() as u64) as usize;
        Ok(bytes.iter().skip(start).take(length as usize).copied().collect())
    }

    pub(crate) fn write(&mut self, handle: usize, offset: u64, new: &[u8]) -> Done<()> {
        let node = self.file(handle, true)?;
        let end = offset.checked_add(new.len() as u64).ok_or(FileError::NoSpace)?;
        let mut bytes = self.bytes(node)?.clone();
        if new.is_empty() {
            return Ok(());
        }
        if end > 1 << 36 {
            return Err(FileError::NoSpace);
        }
        let (start, end) = (offset as usize, end as usize);
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(new);
        self.set_content(node, bytes)
    }

    pub(crate) fn append(&mut self, handle: usize, new: &[u8]) -> Done<u64> {
        let node = self.file(handle, true)?;
        let offset = self.bytes(node)?.len() as u64;
        self.write(handle, offset, new)?;
        Ok(offset)
    }

    pub(crate) fn set_size(&mut self, handle: usize, size: u64) -> Done<()> {
        let node = self.file(handle, true)?;
        let mut bytes = self.bytes(node)?.clone();
        if size > 1 << 36 {
            return Err(FileError::NoSpace);
        }
        bytes.resize(size as usize, 0);
        self.set_content(node, bytes)
    }

    /// Kind, size, number of names.
    pub(crate) fn stat(&self, node: usize) -> (FileKind, u64, u64) {
        (self.kind(node), self.size(node), self.links(node))
    }

    pub(crate) fn handle_node(&self, handle: usize) -> Done<usize> {
        Ok(self.handles[handle].ok_or(FileError::BadHandle)?.0)
    }

    pub(crate) fn list(&self, node: usize) -> Done<Vec<(String, FileKind)>> {
        match &self.nodes[node].node {
            Node::Folder(entries) => Ok(entries
                .iter()
                .map(|(name, entry)| (name.clone(), self.kind(entry.node)))
                .collect()),
            _ => Err(FileError::NotDirectory),
        }
    }

    pub(crate) fn make_directory(&mut self, base: usize, path: &str) -> Done<()> {
        match self.walk(base, path, Last::Never)? {
            End::Name { folder, name, node: None, .. } => {
                self.create(folder, &name, Node::Folder(BTreeMap::new())).map(drop)
            }
            _ => Err(FileError::Exists),
        }
    }

    pub(crate) fn remove_directory(&mut self, path: &str) -> Done<()> {
        match self.walk(0, path, Last::Never)? {
            End::Dot { double: true, .. } => Err(FileError::NotEmpty),
            End::Dot { double: false, .. } => Err(FileError::Invalid),
            End::Name { node: None, .. } => Err(FileError::NotFound),
            End::Name { folder, name, node: Some(node), .. } => {
                if !self.list(node)?.is_empty() {
                    return Err(FileError::NotEmpty);
                }
                self.entries_mut(folder).remove(&name);
                Ok(())
            }
        }
    }

    pub(crate) fn unlink(&mut self, base: usize, path: &str) -> Done<()> {
        match self.walk(base, path, Last::Never)? {
            End::Dot { .. } => Err(FileError::IsDirectory),
            End::Name { node: None, .. } => Err(FileError::NotFound),
            End::Name { folder, name, node: Some(node), slash } => {
                if self.kind(node) == FileKind::Directory {
                    return Err(FileError::IsDirectory);
                }
                if slash {
                    return Err(FileError::NotDirectory);
                }
                self.entries_mut(folder).remove(&name);
                Ok(())
            }
        }
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str) -> Done<()> {
        let (old, new) = (self.walk(0, from, Last::Never)?, self.walk(0, to, Last::Never)?);
        let (
            End::Name { folder: old_folder, name: old_name, node: moved, slash: old_slash },
            End::Name { folder: new_folder, name: new_name, node: replaced, slash: new_slash },
        ) = (old, new)
        else {
            return Err(FileError::Busy);
        };
        let moved = moved.ok_or(FileError::NotFound)?;
        let moves_folder = self.kind(moved) == FileKind::Directory;
        if !moves_folder && (old_slash || new_slash) {
            return Err(FileError::NotDirectory);
        }
        let above = |folder: usize, node: usize| self.path_to(folder).unwrap().contains(&node);
        if moves_folder && above(new_folder, moved) {
            return Err(FileError::Invalid);
        }
        if let Some(replaced) = replaced {
            if above(old_folder, replaced) {
                return Err(FileError::NotEmpty);
            }
            if moved == replaced {
                return Ok(());
            }
            match (moves_folder, self.kind(replaced) == FileKind::Directory) {
                (true, false) => return Err(FileError::NotDirectory),
                (false, true) => return Err(FileError::IsDirectory),
                (true, true) if !self.entries(replaced).is_empty() => {
                    return Err(FileError::NotEmpty);
                }
                _ => {}
            }
        }
        self.check_place(new_folder, self.height(moved))?;
        let before = self.clone();
        self.entries_mut(old_folder).remove(&old_name);
        self.entries_mut(new_folder).insert(new_name, Entry { node: moved, charged: true });
        if self.usage().files > self.quota.files {
            *self = before;
            return Err(FileError::NoSpace);
        }
        Ok(())
    }

    fn new_name(&self, path: &str) -> Done<(usize, String)> {
        match self.walk(0, path, Last::Never)? {
            End::Name { node: None, slash: true, .. } => Err(FileError::NotFound),
            End::Name { node: None, folder, name, .. } => Ok((folder, name)),
            _ => Err(FileError::Exists),
        }
    }

    pub(crate) fn symlink(&mut self, target: &str, path: &str) -> Done<()> {
        if target.is_empty() {
            return Err(FileError::NotFound);
        }
        if target.starts_with('/') {
            return Err(FileError::NotPermitted);
        }
        let (folder, name) = self.new_name(path)?;
        let mut depth = self.path_to(folder).unwrap().len() as i64 - 1;
        for part in target.split('/').filter(|part| !matches!(*part, "" | ".")) {
            depth += if part == ".." { -1 } else { 1 };
            if depth < 0 {
                return Err(FileError::NotPermitted);
            }
        }
        self.create(folder, &name, Node::Link(target.to_owned())).map(drop)
    }

    pub(crate) fn link(&mut self, from: &str, to: &str) -> Done<()> {
        let node = self.there(&self.walk(0, from, Last::BeforeSlash)?)?;
        let (folder, name) = self.new_name(to)?;
        if self.kind(node) == FileKind::Directory {
            return Err(FileError::NotPermitted);
        }
        self.check_place(folder, 0)?;
        self.check_usage(1, 0)?;
        self.entries_mut(folder).insert(name, Entry { node, charged: true });
        Ok(())
    }

    pub(crate) fn read_link(&self, path: &str) -> Done<String> {
        match &self.nodes[self.there(&self.walk(0, path, Last::BeforeSlash)?)?].node {
            Node::Link(target) => Ok(target.clone()),
            _ => Err(FileError::Invalid),
        }
    }

    pub(crate) fn content_at(&self, path: &str) -> Done<Vec<u8>> {
        self.bytes(self.there(&self.walk(0, path, Last::Always)?)?).cloned()
    }

    pub(crate) fn write_file(&mut self, path: &str, bytes: &[u8]) -> Done<()> {
        let before = self.clone();
        let node = match self.walk(0, path, Last::Always)? {
            End::Dot { .. } => return Err(FileError::IsDirectory),
            End::Name { node: None, slash: true, .. } => return Err(FileError::NotFound),
            End::Name { node: None, folder, name, .. } => {
                self.create(folder, &name, Node::File(Vec::new()))?
            }
            End::Name { node: Some(node), slash, .. } => {
                self.bytes(node)?;
                if slash {
                    return Err(FileError::NotDirectory);
                }
                node
            }
        };
        self.set_content(node, bytes.to_vec()).inspect_err(|_| *self = before)
    }

    pub(crate) fn remove_recursive(&mut self, path: &str) -> Done<()> {
        match self.walk(0, path, Last::Never)? {
            End::Dot { .. } => Err(FileError::Busy),
            End::Name { node: None, .. } => Err(FileError::NotFound),
            End::Name { folder, name, node: Some(node), .. } => {
                self.forget(folder, &name, node);
                Ok(())
            }
        }
    }

    /// Also empties the folders, which handles may still hold.
    fn forget(&mut self, folder: usize, name: &str, node: usize) {
        if let Node::Folder(entries) = self.nodes[node].node.clone() {
            for (name, entry) in entries {
                self.forget(node, &name, entry.node);
            }
        }
        self.entries_mut(folder).remove(name);
    }

    /// Answers like the tree; what was removed before an error stays removed in both.
    pub(crate) fn lay_down(&mut self, path: &str, bytes: &[u8]) -> Done<()> {
        let names: Vec<&str> = path.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
        if names.contains(&"..") {
            return Err(FileError::NotPermitted);
        }
        let (last, above) = names.split_last().ok_or(FileError::Invalid)?;
        if names.len() > self.quota.depth as usize
            || names.iter().any(|name| name.len() > self.quota.name_bytes as usize)
        {
            return Err(FileError::NameTooLong);
        }
        let mut folder = 0;
        for name in above {
            let there = self.entries(folder).get(*name).map(|entry| entry.node);
            folder = match there {
                Some(node) if self.kind(node) == FileKind::Directory => node,
                _ => {
                    self.entries_mut(folder).remove(*name);
                    self.create(folder, name, Node::Folder(BTreeMap::new()))?
                }
            };
        }
        if let Some(there) = self.entries(folder).get(*last).map(|entry| entry.node) {
            self.forget(folder, last, there);
        }
        let node = self.create(folder, last, Node::File(Vec::new()))?;
        self.set_content(node, bytes.to_vec())
    }

    /// Every path with its kind, content or target, and which paths are one file.
    pub(crate) fn all(&self) -> BTreeMap<String, (FileKind, Vec<u8>)> {
        let mut all = BTreeMap::new();
        let mut pending = vec![(0, String::new())];
        while let Some((folder, above)) = pending.pop() {
            for (name, entry) in self.entries(folder) {
                let path = if above.is_empty() { name.clone() } else { format!("{above}/{name}") };
                let bytes = match &self.nodes[entry.node].node {
                    Node::File(bytes) => bytes.clone(),
                    Node::Link(target) => target.clone().into_bytes(),
                    Node::Folder(_) => {
                        pending.push((entry.node, path.clone()));
                        Vec::new()
                    }
                };
                all.insert(path, (self.kind(entry.node), bytes));
            }
        }
        all
    }
}
