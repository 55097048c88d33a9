//! `wasi:filesystem` over [`FileTree`]s.
//!
//! # What it promises
//! - A guest reaches the trees that were mounted, and nothing else; the trees themselves
//!   refuse paths that lead out of them.
//! - A read-only mount cannot be written through any of its handles.
//! - Every handle is given back to its tree: when its last descriptor and stream are dropped, at
//!   the latest with the store.
//! - No call blocks; syncing does nothing, as a tree is durable when it is sealed.

mod descriptor;
mod link;
mod streams;

use std::sync::Arc;

use fulgurite_trace::file::{FileError, FileTree, Handle, OpenMode};
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorFlags, ErrorCode};

pub(super) use link::add_to_linker;

use descriptor::Descriptor;

/// A folder of a tree and where the guest finds it.
#[derive(Clone)]
pub struct Preopen {
    /// Where the guest finds it: absolute.
    pub guest_path: String,
    /// The tree.
    pub tree: Arc<dyn FileTree>,
    /// The folder within the tree, relative to its root; empty for the root. It is where the guest
    /// starts and no wall: `..` may lead up to the root of the tree. What a guest must not see
    /// belongs into a tree of its own.
    pub folder: String,
    /// Refuse every change.
    pub read_only: bool,
}

impl Preopen {
    /// The root of `tree` at `guest_path`, to read and write.
    pub fn new(guest_path: impl Into<String>, tree: Arc<dyn FileTree>) -> Self {
        Self { guest_path: guest_path.into(), tree, folder: String::new(), read_only: false }
    }

    /// The same, but only to read.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// The same, but a folder within the tree.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<String>) -> Self {
        self.folder = folder.into();
        self
    }
}

impl std::fmt::Debug for Preopen {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Preopen")
            .field("guest_path", &self.guest_path)
            .field("folder", &self.folder)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

/// A preopen while the guest runs.
pub(super) struct Mount {
    preopen: Preopen,
    /// Which of the guest's trees it is from. Two mounts of one tree have the same number.
    tree: u64,
}

impl Mount {
    pub(super) fn all(preopens: Vec<Preopen>) -> Vec<Self> {
        let mut mounts: Vec<Self> = Vec::with_capacity(preopens.len());
        for (number, preopen) in (0u64..).zip(preopens) {
            let same = mounts.iter().find(|mount| Arc::ptr_eq(&mount.preopen.tree, &preopen.tree));
            let tree = same.map_or(number, |mount| mount.tree);
            mounts.push(Self { preopen, tree });
        }
        mounts
    }

    fn open(&self) -> Result<Descriptor, FileError> {
        let Preopen { tree, folder, read_only, .. } = &self.preopen;
        let root = OpenHandle { tree: Arc::clone(tree), handle: tree.root()? };
        let handle = if folder.is_empty() {
            root
        } else {
            let mode = OpenMode {
                directory: true,
                follow: true,
                read: true,
                write: false,
                ..OpenMode::default()
            };
            OpenHandle { tree: Arc::clone(tree), handle: tree.open(root.handle, folder, mode)? }
        };
        let flags = if *read_only {
            DescriptorFlags::READ
        } else {
            DescriptorFlags::READ | DescriptorFlags::MUTATE_DIRECTORY
        };
        Ok(Descriptor::new(Arc::new(handle), self.tree, flags, *read_only))
    }
}

/// A handle of a tree, given back when dropped.
struct OpenHandle {
    tree: Arc<dyn FileTree>,
    handle: Handle,
}

impl Drop for OpenHandle {
    fn drop(&mut self) {
        self.tree.close(self.handle);
    }
}

/// What a guest is told of a tree's error.
fn error_code(error: FileError) -> ErrorCode {
    match error {
        FileError::NotFound => ErrorCode::NoEntry,
        FileError::Exists => ErrorCode::Exist,
        FileError::NotDirectory => ErrorCode::NotDirectory,
        FileError::IsDirectory => ErrorCode::IsDirectory,
        FileError::NotEmpty => ErrorCode::NotEmpty,
        FileError::Loop => ErrorCode::Loop,
        FileError::NotPermitted => ErrorCode::NotPermitted,
        FileError::BadHandle => ErrorCode::BadDescriptor,
        FileError::NameTooLong => ErrorCode::NameTooLong,
        FileError::Invalid => ErrorCode::Invalid,
        FileError::NoSpace => ErrorCode::InsufficientSpace,
        FileError::TooManyHandles => ErrorCode::Quota,
        FileError::Io => ErrorCode::Io,
        FileError::Unsupported => ErrorCode::Unsupported,
        FileError::Busy => ErrorCode::Busy,
    }
}
