//! Random operations on the tree and, by system calls, on a real folder.
//!
//! The folder lies deep inside a temporary one, and an operation that the tree refuses as leaving
//! it is not tried on the folder, so nothing outside can be touched.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{FileExt, MetadataExt},
    },
    path::Path,
};

use fulgurite_sandbox::{Lower, Quota, Spill, Tree};
use fulgurite_trace::file::{FileError, FileKind, FileTree, Handle, OpenMode};
use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, openat, readlinkat, renameat},
    sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat},
    unistd::{LinkatFlags, UnlinkatFlags, ftruncate, linkat, symlinkat, unlinkat},
};
use proptest::prelude::*;

use super::operations::{Operation, posix};

const QUOTA: Quota = Quota {
    bytes: 1 << 30,
    files: 1000,
    handles: 1000,
    depth: 200,
    name_bytes: 255,
    memory_bytes: 100_000,
};

struct Pair {
    tree: Tree,
    root: Handle,
    folder: OwnedFd,
    handles: Vec<(Handle, OpenMode, File)>,
    _temporary: tempfile::TempDir,
}

/// The error that the tree gives for what the system calls so.
fn error(errno: Errno) -> FileError {
    match errno {
        Errno::ENOENT => FileError::NotFound,
        Errno::EEXIST => FileError::Exists,
        Errno::ENOTDIR => FileError::NotDirectory,
        Errno::EISDIR => FileError::IsDirectory,
        Errno::ENOTEMPTY => FileError::NotEmpty,
        Errno::ELOOP => FileError::Loop,
        Errno::EPERM => FileError::NotPermitted,
        Errno::EBADF => FileError::BadHandle,
        Errno::ENAMETOOLONG => FileError::NameTooLong,
        Errno::EINVAL => FileError::Invalid,
        Errno::EBUSY => FileError::Busy,
        other => panic!("the system answered {other}, which no operation here should cause"),
    }
}

fn kind(stat: &FileStat) -> FileKind {
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFREG => FileKind::File,
        SFlag::S_IFDIR => FileKind::Directory,
        SFlag::S_IFLNK => FileKind::Symlink,
        other => panic!("an entry of kind {other:?}"),
    }
}

/// What both must agree on. The size of a folder and its number of links are the system's own.
fn summary(kind: FileKind, size: u64, links: u64) -> (FileKind, u64, u64) {
    match kind {
        FileKind::Directory => (kind, 0, 0),
        _ => (kind, size, links),
    }
}

fn flags(mode: OpenMode) -> OFlag {
    let mut flags = OFlag::O_CLOEXEC;
    flags |= if mode.write { OFlag::O_RDWR } else { OFlag::O_RDONLY };
    for (set, flag) in [
        (mode.create, OFlag::O_CREAT),
        (mode.create && mode.exclusive, OFlag::O_EXCL),
        (mode.truncate, OFlag::O_TRUNC),
        (mode.directory, OFlag::O_DIRECTORY),
        (!mode.follow, OFlag::O_NOFOLLOW),
    ] {
        flags.set(flag, set || flags.contains(flag));
    }
    flags
}

impl Pair {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let path = temporary.path().join("1/2/3/4/5/6/7/8/9/root");
        std::fs::create_dir_all(&path).unwrap();
        let folder = File::open(path).unwrap().into();
        let tree = Tree::with_spill(Lower::empty(), QUOTA, Spill::in_folder(std::env::temp_dir()));
        let root = tree.root().unwrap();
        Self { tree, root, folder, handles: Vec::new(), _temporary: temporary }
    }

    fn slot(&self, slot: usize) -> Option<&(Handle, OpenMode, File)> {
        self.handles.get(slot % self.handles.len().max(1))
    }

    /// Compares two answers; `NotPermitted` is the tree's own.
    fn compare<T: PartialEq + std::fmt::Debug>(
        tree: Result<T, FileError>,
        real: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<(), TestCaseError> {
        if tree.as_ref().err() != Some(&FileError::NotPermitted) {
            prop_assert_eq!(tree, real().map_err(error));
        }
        Ok(())
    }

    fn apply(&mut self, operation: &Operation) -> Result<(), TestCaseError> {
        let (tree, root, folder) = (&self.tree, self.root, self.folder.as_fd());
        match operation {
            Operation::Open { path, mode, .. } => {
                let mode = OpenMode::from(*mode);
                // The system has no folder made by opening, and reads without being asked to.
                let handle = match tree.open(root, path, mode) {
                    Err(FileError::NotPermitted) => return Ok(()),
                    Err(FileError::Invalid) if mode.truncate || mode.directory => return Ok(()),
                    handle => handle,
                };
                let real = openat(folder, path.as_str(), flags(mode), Mode::S_IRWXU);
                let real = real.map_err(error);
                prop_assert_eq!(handle.as_ref().map(drop), real.as_ref().map(drop));
                if let (Ok(handle), Ok(real)) = (handle, real) {
                    self.handles.push((handle, mode, File::from(real)));
                }
            }
            Operation::Close { slot } => {
                if !self.handles.is_empty() {
                    let (handle, ..) = self.handles.remove(slot % self.handles.len());
                    tree.close(handle);
                }
            }
            Operation::Read { slot, offset, length } => {
                if let Some((handle, mode, real)) = self.slot(*slot)
                    && *offset < 1 << 32
                    && mode.read
                {
                    Self::compare(tree.read(*handle, *offset, *length), || {
                        read(real, *offset, *length as usize)
                    })?;
                }
            }
            Operation::Write { slot, offset, bytes } => {
                if let Some((handle, mode, real)) = self.slot(*slot)
                    && *offset < 1 << 32
                    && mode.write
                {
                    Self::compare(tree.write(*handle, *offset, bytes), || {
                        real.write_all_at(bytes, *offset).map_err(errno)
                    })?;
                }
            }
            Operation::Append { slot, bytes } => {
                if let Some((handle, mode, real)) = self.slot(*slot)
                    && mode.write
                {
                    Self::compare(tree.append(*handle, bytes), || {
                        let size = real.metadata().map_err(errno)?.size();
                        real.write_all_at(bytes, size).map_err(errno)?;
                        Ok(size)
                    })?;
                }
            }
            Operation::SetSize { slot, size } => {
                if let Some((handle, mode, real)) = self.slot(*slot)
                    && *size < 1 << 29
                    && mode.write
                {
                    Self::compare(tree.set_size(*handle, *size), || {
                        ftruncate(real, i64::try_from(*size).unwrap())
                    })?;
                }
            }
            Operation::Stat { slot } => {
                if let Some((handle, _, real)) = self.slot(*slot) {
                    let stat = tree.stat(*handle).map(|it| summary(it.kind, it.size, it.links));
                    Self::compare(stat, || Ok(real_summary(&fstat(real)?)))?;
                }
            }
            Operation::StatAt { path, follow, .. } => {
                let stat = tree.stat_at(root, path, *follow);
                let stat = stat.map(|it| summary(it.kind, it.size, it.links));
                let flags = match follow {
                    true => AtFlags::empty(),
                    false => AtFlags::AT_SYMLINK_NOFOLLOW,
                };
                Self::compare(stat, || Ok(real_summary(&fstatat(folder, path.as_str(), flags)?)))?;
            }
            Operation::ReadDirectory { slot } => {
                if let Some((handle, _, real)) = self.slot(*slot) {
                    let list = tree.read_directory(*handle).map(|entries| {
                        entries.iter().map(|entry| entry.name.clone()).collect::<BTreeSet<_>>()
                    });
                    Self::compare(list, || names(real))?;
                }
            }
            Operation::MakeDirectory { path, .. } => {
                Self::compare(tree.create_directory(root, path), || {
                    mkdirat(folder, path.as_str(), Mode::S_IRWXU)
                })?;
            }
            Operation::RemoveDirectory { path } => {
                Self::compare(tree.remove_directory(root, path), || {
                    unlinkat(folder, path.as_str(), UnlinkatFlags::RemoveDir)
                })?;
            }
            Operation::Unlink { path, .. } => {
                Self::compare(tree.unlink(root, path), || {
                    unlinkat(folder, path.as_str(), UnlinkatFlags::NoRemoveDir)
                })?;
            }
            Operation::Rename { from, to } => {
                Self::compare(tree.rename(root, from, root, to), || {
                    renameat(folder, from.as_str(), folder, to.as_str())
                })?;
            }
            Operation::Symlink { target, path } => {
                Self::compare(tree.symlink(target, root, path), || {
                    symlinkat(target.as_str(), folder, path.as_str())
                })?;
            }
            Operation::Link { from, to } => {
                Self::compare(tree.link(root, from, root, to), || {
                    linkat(folder, from.as_str(), folder, to.as_str(), LinkatFlags::empty())
                })?;
            }
            Operation::ReadLink { path } => {
                Self::compare(tree.read_link(root, path), || {
                    Ok(readlinkat(folder, path.as_str())?.into_string().unwrap())
                })?;
            }
            Operation::WriteFile { .. }
            | Operation::CopyFile { .. }
            | Operation::RemoveRecursive { .. }
            | Operation::LayDown { .. }
            | Operation::Fork
            | Operation::Digest => unreachable!("not among the system's operations"),
        }
        Ok(())
    }
}

#[allow(clippy::unnecessary_cast, reason = "the number of links is narrower on some machines")]
fn real_summary(stat: &FileStat) -> (FileKind, u64, u64) {
    summary(kind(stat), stat.st_size as u64, stat.st_nlink as u64)
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap())
}

fn read(file: &File, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    loop {
        match file.read_at(&mut bytes[filled..], offset + filled as u64).map_err(errno)? {
            0 => break,
            more => filled += more,
        }
    }
    // The system answers an empty read of a folder as well with an error.
    bytes.truncate(filled);
    Ok(bytes)
}

fn names(folder: &File) -> Result<BTreeSet<String>, Errno> {
    use std::os::fd::AsRawFd;
    if !folder.metadata().map_err(errno)?.is_dir() {
        return Err(Errno::ENOTDIR);
    }
    let entries = std::fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    let entries = match entries {
        Ok(entries) => entries,
        // The folder was removed; it is empty then.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(errno(error)),
    };
    entries.map(|entry| Ok(entry.map_err(errno)?.file_name().into_string().unwrap())).collect()
}

/// Every path with its kind, content or target, and the first path of the same file.
type All = BTreeMap<String, (FileKind, Vec<u8>, String)>;

fn all_of_tree(tree: &Tree) -> All {
    let snapshot = tree.snapshot();
    let mut first: BTreeMap<u64, String> = BTreeMap::new();
    let mut entries = snapshot.entries().unwrap();
    entries.sort_by(|one, other| one.0.cmp(&other.0));
    let described = entries.into_iter().map(|(path, stat)| {
        let bytes = match stat.kind {
            FileKind::File => read_whole(|offset| snapshot.read(&path, offset, 1 << 20).unwrap()),
            FileKind::Symlink => snapshot.read_link(&path).unwrap().into_bytes(),
            FileKind::Directory => Vec::new(),
        };
        let first = first.entry(stat.identity).or_insert_with(|| path.clone()).clone();
        (path, (stat.kind, bytes, first))
    });
    described.collect()
}

fn read_whole(read: impl Fn(u64) -> Vec<u8>) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let more = read(bytes.len() as u64);
        if more.is_empty() {
            return bytes;
        }
        bytes.extend(more);
    }
}

fn all_of_folder(root: &Path) -> All {
    fn collect(root: &Path, above: &str, into: &mut BTreeMap<String, (FileKind, Vec<u8>, u64)>) {
        for entry in std::fs::read_dir(root.join(above)).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let path = if above.is_empty() { name } else { format!("{above}/{name}") };
            let metadata = entry.metadata().unwrap();
            let (kind, bytes) = if metadata.is_dir() {
                collect(root, &path, into);
                (FileKind::Directory, Vec::new())
            } else if metadata.is_symlink() {
                let target = std::fs::read_link(entry.path()).unwrap();
                (FileKind::Symlink, target.into_os_string().into_string().unwrap().into_bytes())
            } else {
                (FileKind::File, std::fs::read(entry.path()).unwrap())
            };
            into.insert(path, (kind, bytes, metadata.ino()));
        }
    }
    let mut all = BTreeMap::new();
    collect(root, "", &mut all);
    let mut first: BTreeMap<u64, String> = BTreeMap::new();
    all.into_iter()
        .map(|(path, (kind, bytes, inode))| {
            let first = first.entry(inode).or_insert_with(|| path.clone()).clone();
            (path, (kind, bytes, first))
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_tree_behaves_as_a_real_folder(operations in prop::collection::vec(posix(), 1..60)) {
        let mut pair = Pair::new();
        for operation in &operations {
            pair.apply(operation)?;
        }
        let path = pair._temporary.path().join("1/2/3/4/5/6/7/8/9/root");
        prop_assert_eq!(all_of_tree(&pair.tree), all_of_folder(&path));
    }
}
