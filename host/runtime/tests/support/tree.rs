//! A file tree in memory: small, without quotas, links between folders as POSIX has them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
};

use fulgurite_trace::file::{
    DirectoryEntry, FileError, FileKind, FileStat, FileTimes, FileTree, Handle, OpenMode,
};

type Result<T> = std::result::Result<T, FileError>;

#[derive(Debug)]
enum Content {
    File(Vec<u8>),
    Directory(BTreeMap<String, u64>),
    Symlink(String),
}

#[derive(Debug)]
struct Node {
    content: Content,
    links: u64,
    times: FileTimes,
}

#[derive(Debug)]
struct Open {
    /// The folders from the root down; the last is the open entry itself.
    path: Vec<u64>,
    read: bool,
    write: bool,
}

#[derive(Debug)]
struct State {
    nodes: HashMap<u64, Node>,
    handles: HashMap<u64, Open>,
    next: u64,
    opened: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct MemoryTree(Mutex<State>);

const ROOT: u64 = 1;

impl MemoryTree {
    pub(crate) fn new() -> Arc<Self> {
        let root = Node { content: Content::Directory(BTreeMap::new()), links: 1, times: times(0) };
        Arc::new(Self(Mutex::new(State {
            nodes: HashMap::from([(ROOT, root)]),
            handles: HashMap::new(),
            next: ROOT + 1,
            opened: 0,
        })))
    }

    /// A tree with these files; folders are made as needed.
    pub(crate) fn with(files: &[(&str, &str)]) -> Arc<Self> {
        let tree = Self::new();
        for (path, content) in files {
            tree.put(path, content.as_bytes());
        }
        tree
    }

    pub(crate) fn put(&self, path: &str, content: &[u8]) {
        let root = self.root().unwrap();
        let mut folder = String::new();
        let parts: Vec<&str> = path.split('/').collect();
        for part in &parts[..parts.len() - 1] {
            folder.push_str(part);
            match self.create_directory(root, &folder) {
                Ok(()) | Err(FileError::Exists) => {}
                Err(error) => panic!("{folder}: {error}"),
            }
            folder.push('/');
        }
        let mode = OpenMode { create: true, truncate: true, write: true, ..OpenMode::default() };
        let file = self.open(root, path, mode).unwrap();
        self.write(file, 0, content).unwrap();
        self.close(file);
        self.close(root);
    }

    pub(crate) fn get(&self, path: &str) -> Option<Vec<u8>> {
        let root = self.root().unwrap();
        let mode = OpenMode { read: true, follow: true, ..OpenMode::default() };
        let file = self.open(root, path, mode);
        self.close(root);
        let file = file.ok()?;
        let content = self.read(file, 0, u64::MAX).ok();
        self.close(file);
        content
    }

    /// Handles that nobody gave back.
    pub(crate) fn open_handles(&self) -> usize {
        self.0.lock().unwrap().handles.len()
    }

    /// Handles ever opened.
    pub(crate) fn opened(&self) -> u64 {
        self.0.lock().unwrap().opened
    }
}

fn times(time: u64) -> FileTimes {
    FileTimes { accessed: time, modified: time }
}

impl State {
    fn handle(&self, handle: Handle) -> Result<&Open> {
        self.handles.get(&handle.0).ok_or(FileError::BadHandle)
    }

    fn node(&mut self, number: u64) -> Result<&mut Node> {
        self.nodes.get_mut(&number).ok_or(FileError::NotFound)
    }

    fn directory(&mut self, number: u64) -> Result<&mut BTreeMap<String, u64>> {
        match &mut self.node(number)?.content {
            Content::Directory(entries) => Ok(entries),
            _ => Err(FileError::NotDirectory),
        }
    }

    fn add(&mut self, content: Content) -> u64 {
        let number = self.next;
        self.next += 1;
        let node = Node { content, links: 1, times: times(number * 1_000_000_000) };
        self.nodes.insert(number, node);
        number
    }

    fn keep(&mut self, path: Vec<u64>, read: bool, write: bool) -> Handle {
        let number = self.next;
        self.next += 1;
        self.opened += 1;
        self.handles.insert(number, Open { path, read, write });
        Handle(number)
    }

    /// Walks to the folder that holds the last name; an empty name means the folder itself.
    fn walk(&mut self, from: Vec<u64>, path: &str, depth: u32) -> Result<(Vec<u64>, String)> {
        if path.starts_with('/') {
            return Err(FileError::NotPermitted);
        }
        if depth > 8 {
            return Err(FileError::Loop);
        }
        if path.is_empty() {
            return Err(FileError::NotFound);
        }
        let mut at = from;
        let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        for (index, part) in parts.iter().enumerate() {
            if *part == ".." {
                at.pop();
                if at.is_empty() {
                    return Err(FileError::NotPermitted);
                }
                continue;
            }
            if index + 1 == parts.len() && !path.ends_with('/') {
                self.directory(*at.last().unwrap())?;
                return Ok((at, (*part).to_owned()));
            }
            at = self.step(at, part, depth)?;
            self.directory(*at.last().unwrap())?;
        }
        Ok((at, String::new()))
    }

    /// Enters `name`, following links.
    fn step(&mut self, at: Vec<u64>, name: &str, depth: u32) -> Result<Vec<u64>> {
        let number = *self.directory(*at.last().unwrap())?.get(name).ok_or(FileError::NotFound)?;
        if let Content::Symlink(target) = &self.node(number)?.content {
            let target = target.clone();
            let (at, name) = self.walk(at, &target, depth + 1)?;
            return if name.is_empty() { Ok(at) } else { self.step(at, &name, depth + 1) };
        }
        let mut at = at;
        at.push(number);
        Ok(at)
    }

    fn find(&mut self, from: Handle, path: &str, follow: bool) -> Result<Vec<u64>> {
        let from = self.handle(from)?.path.clone();
        let (mut at, name) = self.walk(from, path, 0)?;
        if name.is_empty() {
            return Ok(at);
        }
        if follow {
            return self.step(at, &name, 0);
        }
        let number = *self.directory(*at.last().unwrap())?.get(&name).ok_or(FileError::NotFound)?;
        at.push(number);
        Ok(at)
    }

    fn place(&mut self, from: Handle, path: &str) -> Result<(u64, String)> {
        let from = self.handle(from)?.path.clone();
        let (at, name) = self.walk(from, path.trim_end_matches('/'), 0)?;
        if name.is_empty() {
            return Err(FileError::Exists);
        }
        Ok((*at.last().unwrap(), name))
    }

    fn create(&mut self, from: Handle, path: &str, content: Content) -> Result<u64> {
        let (folder, name) = self.place(from, path)?;
        if self.directory(folder)?.contains_key(&name) {
            return Err(FileError::Exists);
        }
        let number = self.add(content);
        self.directory(folder)?.insert(name, number);
        Ok(number)
    }

    fn unlink(&mut self, folder: u64, name: &str) -> Result<()> {
        let number = self.directory(folder)?.remove(name).ok_or(FileError::NotFound)?;
        self.node(number)?.links -= 1;
        Ok(())
    }

    fn stat(&mut self, number: u64) -> Result<FileStat> {
        let node = self.node(number)?;
        let (kind, size) = match &node.content {
            Content::File(bytes) => (FileKind::File, bytes.len()),
            Content::Directory(_) => (FileKind::Directory, 0),
            Content::Symlink(target) => (FileKind::Symlink, target.len()),
        };
        let size = size as u64;
        Ok(FileStat { kind, size, links: node.links, times: node.times, identity: number })
    }

    fn file(&mut self, handle: Handle, write: bool) -> Result<&mut Vec<u8>> {
        let open = self.handle(handle)?;
        if if write { !open.write } else { !open.read } {
            return Err(FileError::BadHandle);
        }
        let number = *open.path.last().unwrap();
        match &mut self.node(number)?.content {
            Content::File(bytes) => Ok(bytes),
            _ => Err(FileError::IsDirectory),
        }
    }
}

impl FileTree for MemoryTree {
    fn root(&self) -> Result<Handle> {
        Ok(self.0.lock().unwrap().keep(vec![ROOT], true, true))
    }

    fn open(&self, directory: Handle, path: &str, mode: OpenMode) -> Result<Handle> {
        let mut state = self.0.lock().unwrap();
        let found = match state.find(directory, path, mode.follow) {
            Ok(_) if mode.create && mode.exclusive => return Err(FileError::Exists),
            Err(FileError::NotFound) if mode.create => {
                let (folder, _) = state.place(directory, path)?;
                let number = state.create(directory, path, Content::File(Vec::new()))?;
                vec![folder, number]
            }
            found => found?,
        };
        match &mut state.node(*found.last().unwrap())?.content {
            Content::Symlink(_) => return Err(FileError::Loop),
            Content::Directory(_) if mode.write || mode.truncate => {
                return Err(FileError::IsDirectory);
            }
            Content::File(_) if mode.directory => return Err(FileError::NotDirectory),
            Content::File(bytes) if mode.truncate => bytes.clear(),
            _ => {}
        }
        Ok(state.keep(found, mode.read, mode.write))
    }

    fn close(&self, handle: Handle) {
        self.0.lock().unwrap().handles.remove(&handle.0);
    }

    fn stat(&self, handle: Handle) -> Result<FileStat> {
        let mut state = self.0.lock().unwrap();
        let number = *state.handle(handle)?.path.last().unwrap();
        state.stat(number)
    }

    fn stat_at(&self, directory: Handle, path: &str, follow: bool) -> Result<FileStat> {
        let mut state = self.0.lock().unwrap();
        let found = state.find(directory, path, follow)?;
        state.stat(*found.last().unwrap())
    }

    fn read(&self, file: Handle, offset: u64, length: u64) -> Result<Vec<u8>> {
        let mut state = self.0.lock().unwrap();
        let bytes = state.file(file, false)?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len() - start);
        Ok(bytes[start..start + length].to_vec())
    }

    fn write(&self, file: Handle, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.0.lock().unwrap();
        let content = state.file(file, true)?;
        let start = usize::try_from(offset).map_err(|_| FileError::Invalid)?;
        let end = start + bytes.len();
        if content.len() < end {
            content.resize(end, 0);
        }
        content[start..end].copy_from_slice(bytes);
        Ok(())
    }

    fn append(&self, file: Handle, bytes: &[u8]) -> Result<u64> {
        let mut state = self.0.lock().unwrap();
        let content = state.file(file, true)?;
        let offset = content.len() as u64;
        content.extend_from_slice(bytes);
        Ok(offset)
    }

    fn set_size(&self, file: Handle, size: u64) -> Result<()> {
        let mut state = self.0.lock().unwrap();
        state.file(file, true)?.resize(usize::try_from(size).unwrap(), 0);
        Ok(())
    }

    fn set_times(
        &self,
        handle: Handle,
        accessed: Option<u64>,
        modified: Option<u64>,
    ) -> Result<()> {
        let mut state = self.0.lock().unwrap();
        let number = *state.handle(handle)?.path.last().unwrap();
        let times = &mut state.node(number)?.times;
        times.accessed = accessed.unwrap_or(times.accessed);
        times.modified = modified.unwrap_or(times.modified);
        Ok(())
    }

    fn read_directory(&self, directory: Handle) -> Result<Arc<[DirectoryEntry]>> {
        let mut state = self.0.lock().unwrap();
        let number = *state.handle(directory)?.path.last().unwrap();
        let entries: Vec<_> = state.directory(number)?.clone().into_iter().collect();
        entries
            .into_iter()
            .map(|(name, number)| Ok(DirectoryEntry { name, kind: state.stat(number)?.kind }))
            .collect()
    }

    fn create_directory(&self, directory: Handle, path: &str) -> Result<()> {
        let mut state = self.0.lock().unwrap();
        state.create(directory, path, Content::Directory(BTreeMap::new())).map(drop)
    }

    fn remove_directory(&self, directory: Handle, path: &str) -> Result<()> {
        let mut state = self.0.lock().unwrap();
        let (folder, name) = state.place(directory, path)?;
        let number = *state.directory(folder)?.get(&name).ok_or(FileError::NotFound)?;
        if !state.directory(number)?.is_empty() {
            return Err(FileError::NotEmpty);
        }
        state.unlink(folder, &name)
    }

    fn unlink(&self, directory: Handle, path: &str) -> Result<()> {
        let mut state = self.0.lock().unwrap();
        let (folder, name) = state.place(directory, path)?;
        let number = *state.directory(folder)?.get(&name).ok_or(FileError::NotFound)?;
        if state.stat(number)?.kind == FileKind::Directory {
            return Err(FileError::IsDirectory);
        }
        state.unlink(folder, &name)
    }

    fn rename(&self, from: Handle, from_path: &str, to: Handle, to_path: &str) -> Result<()> {
        let mut state = self.0.lock().unwrap();
        let (old, old_name) = state.place(from, from_path)?;
        let (new, new_name) = state.place(to, to_path)?;
        let number = *state.directory(old)?.get(&old_name).ok_or(FileError::NotFound)?;
        state.directory(old)?.remove(&old_name);
        state.directory(new)?.insert(new_name, number);
        Ok(())
    }

    fn symlink(&self, target: &str, directory: Handle, path: &str) -> Result<()> {
        if target.starts_with('/') {
            return Err(FileError::NotPermitted);
        }
        let mut state = self.0.lock().unwrap();
        state.create(directory, path, Content::Symlink(target.to_owned())).map(drop)
    }

    fn link(&self, from: Handle, from_path: &str, to: Handle, to_path: &str) -> Result<()> {
        let mut state = self.0.lock().unwrap();
        let found = state.find(from, from_path, false)?;
        let number = *found.last().unwrap();
        let (folder, name) = state.place(to, to_path)?;
        if state.directory(folder)?.insert(name, number).is_some() {
            return Err(FileError::Exists);
        }
        state.node(number)?.links += 1;
        Ok(())
    }

    fn read_link(&self, directory: Handle, path: &str) -> Result<String> {
        let mut state = self.0.lock().unwrap();
        let found = state.find(directory, path, false)?;
        match &state.node(*found.last().unwrap())?.content {
            Content::Symlink(target) => Ok(target.clone()),
            _ => Err(FileError::Invalid),
        }
    }
}
