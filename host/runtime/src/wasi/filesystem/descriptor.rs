//! An open file or folder, and what can be done with it.

use std::sync::Arc;

use fulgurite_trace::file::{DirectoryEntry, FileKind, FileStat, OpenMode};
use wasmtime_wasi::p2::bindings::{
    clocks::wall_clock::Datetime,
    filesystem::types::{
        DescriptorFlags, DescriptorStat, DescriptorType, ErrorCode, MetadataHashValue,
        NewTimestamp, OpenFlags, PathFlags,
    },
};
use wasmtime_wasi_io::streams::{DynInputStream, DynOutputStream};

use super::{
    OpenHandle, error_code,
    streams::{FileInput, FileOutput, Position},
};
use crate::wasi::clock::{NANOSECONDS, datetime};

/// The most one read answers.
pub(super) const READ_LIMIT: u64 = 1 << 20;

type Answer<T> = Result<T, ErrorCode>;

/// An open file or folder of a guest.
pub(super) struct Descriptor {
    open: Arc<OpenHandle>,
    /// Number of the tree among the guest's trees.
    tree: u64,
    flags: DescriptorFlags,
    /// Whether it comes from a read-only mount.
    read_only: bool,
}

impl Descriptor {
    pub(super) fn new(
        open: Arc<OpenHandle>,
        tree: u64,
        flags: DescriptorFlags,
        read_only: bool,
    ) -> Self {
        Self { open, tree, flags, read_only }
    }

    fn changeable(&self) -> Answer<()> {
        if self.read_only { Err(ErrorCode::ReadOnly) } else { Ok(()) }
    }

    fn readable(&self) -> Answer<()> {
        if self.flags.contains(DescriptorFlags::READ) {
            Ok(())
        } else {
            Err(ErrorCode::BadDescriptor)
        }
    }

    fn writable(&self) -> Answer<()> {
        self.changeable()?;
        if self.flags.contains(DescriptorFlags::WRITE) {
            Ok(())
        } else {
            Err(ErrorCode::BadDescriptor)
        }
    }

    fn file_stat(&self) -> Answer<FileStat> {
        self.open.tree.stat(self.open.handle).map_err(error_code)
    }

    fn regular_file(&self) -> Answer<()> {
        match self.file_stat()?.kind {
            FileKind::File => Ok(()),
            FileKind::Directory => Err(ErrorCode::IsDirectory),
            FileKind::Symlink => Err(ErrorCode::BadDescriptor),
        }
    }

    /// Both must be of one tree for a name to move from one to the other.
    fn same_tree(&self, other: &Self) -> Answer<()> {
        if self.tree == other.tree { Ok(()) } else { Err(ErrorCode::CrossDevice) }
    }

    pub(super) fn read_via_stream(&self, offset: u64) -> Answer<DynInputStream> {
        self.readable()?;
        self.regular_file()?;
        Ok(Box::new(FileInput::new(Arc::clone(&self.open), offset)))
    }

    pub(super) fn write_via_stream(&self, position: Position) -> Answer<DynOutputStream> {
        self.writable()?;
        self.regular_file()?;
        Ok(Box::new(FileOutput::new(Arc::clone(&self.open), position)))
    }

    pub(super) fn advise(&self) -> Answer<()> {
        self.regular_file()
    }

    pub(super) fn sync(&self) -> Answer<()> {
        self.file_stat().map(drop)
    }

    pub(super) fn flags(&self) -> DescriptorFlags {
        self.flags
    }

    pub(super) fn descriptor_type(&self) -> Answer<DescriptorType> {
        Ok(descriptor_type(self.file_stat()?.kind))
    }

    pub(super) fn set_size(&self, size: u64) -> Answer<()> {
        self.writable()?;
        self.open.tree.set_size(self.open.handle, size).map_err(error_code)
    }

    pub(super) fn set_times(
        &self,
        accessed: NewTimestamp,
        modified: NewTimestamp,
        now: u64,
    ) -> Answer<()> {
        self.changeable()?;
        let (accessed, modified) = (new_time(accessed, now)?, new_time(modified, now)?);
        self.open.tree.set_times(self.open.handle, accessed, modified).map_err(error_code)
    }

    pub(super) fn set_times_at(
        &self,
        flags: PathFlags,
        path: &str,
        accessed: NewTimestamp,
        modified: NewTimestamp,
        now: u64,
    ) -> Answer<()> {
        self.changeable()?;
        let mode = OpenMode { follow: follow(flags), read: true, ..OpenMode::default() };
        let handle = self.open.tree.open(self.open.handle, path, mode).map_err(error_code)?;
        let open = Arc::new(OpenHandle { tree: Arc::clone(&self.open.tree), handle });
        Self::new(open, self.tree, DescriptorFlags::READ, false).set_times(accessed, modified, now)
    }

    pub(super) fn read(&self, length: u64, offset: u64) -> Answer<(Vec<u8>, bool)> {
        self.readable()?;
        let length = length.min(READ_LIMIT);
        let bytes = self.open.tree.read(self.open.handle, offset, length).map_err(error_code)?;
        let end = (bytes.len() as u64) < length;
        Ok((bytes, end))
    }

    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> Answer<u64> {
        self.writable()?;
        self.open.tree.write(self.open.handle, offset, bytes).map_err(error_code)?;
        Ok(bytes.len() as u64)
    }

    pub(super) fn read_directory(&self) -> Answer<EntryStream> {
        self.readable()?;
        let entries = self.open.tree.read_directory(self.open.handle).map_err(error_code)?;
        Ok(EntryStream::new(entries))
    }

    pub(super) fn create_directory_at(&self, path: &str) -> Answer<()> {
        self.changeable()?;
        self.open.tree.create_directory(self.open.handle, path).map_err(error_code)
    }

    pub(super) fn stat(&self) -> Answer<DescriptorStat> {
        Ok(descriptor_stat(self.file_stat()?))
    }

    fn file_stat_at(&self, flags: PathFlags, path: &str) -> Answer<FileStat> {
        self.open.tree.stat_at(self.open.handle, path, follow(flags)).map_err(error_code)
    }

    pub(super) fn stat_at(&self, flags: PathFlags, path: &str) -> Answer<DescriptorStat> {
        Ok(descriptor_stat(self.file_stat_at(flags, path)?))
    }

    pub(super) fn link_at(
        &self,
        flags: PathFlags,
        path: &str,
        other: &Self,
        other_path: &str,
    ) -> Answer<()> {
        other.changeable()?;
        self.changeable()?;
        self.same_tree(other)?;
        if follow(flags) {
            return Err(ErrorCode::Invalid);
        }
        let (from, to) = (self.open.handle, other.open.handle);
        self.open.tree.link(from, path, to, other_path).map_err(error_code)
    }

    pub(super) fn open_at(
        &self,
        path_flags: PathFlags,
        path: &str,
        open_flags: OpenFlags,
        mut flags: DescriptorFlags,
    ) -> Answer<Self> {
        let mode = OpenMode {
            create: open_flags.contains(OpenFlags::CREATE),
            exclusive: open_flags.contains(OpenFlags::EXCLUSIVE),
            truncate: open_flags.contains(OpenFlags::TRUNCATE),
            directory: open_flags.contains(OpenFlags::DIRECTORY),
            follow: follow(path_flags),
            read: flags.contains(DescriptorFlags::READ),
            write: flags.contains(DescriptorFlags::WRITE),
        };
        if mode.create && mode.directory {
            return Err(ErrorCode::Invalid);
        }
        if self.read_only {
            if mode.create && !mode.exclusive && self.file_stat_at(path_flags, path).is_ok() {
                // POSIX lets `O_CREAT` pass for what is there.
                return self.open_at(path_flags, path, open_flags & !OpenFlags::CREATE, flags);
            }
            if mode.write || mode.create || mode.truncate {
                return Err(ErrorCode::ReadOnly);
            }
            flags &= !DescriptorFlags::MUTATE_DIRECTORY;
        }
        let handle = self.open.tree.open(self.open.handle, path, mode).map_err(error_code)?;
        let open = Arc::new(OpenHandle { tree: Arc::clone(&self.open.tree), handle });
        Ok(Self::new(open, self.tree, flags, self.read_only))
    }

    pub(super) fn read_link_at(&self, path: &str) -> Answer<String> {
        self.open.tree.read_link(self.open.handle, path).map_err(error_code)
    }

    pub(super) fn remove_directory_at(&self, path: &str) -> Answer<()> {
        self.changeable()?;
        self.open.tree.remove_directory(self.open.handle, path).map_err(error_code)
    }

    pub(super) fn rename_at(&self, path: &str, other: &Self, other_path: &str) -> Answer<()> {
        self.changeable()?;
        other.changeable()?;
        self.same_tree(other)?;
        let (from, to) = (self.open.handle, other.open.handle);
        self.open.tree.rename(from, path, to, other_path).map_err(error_code)
    }

    pub(super) fn symlink_at(&self, target: &str, path: &str) -> Answer<()> {
        self.changeable()?;
        self.open.tree.symlink(target, self.open.handle, path).map_err(error_code)
    }

    pub(super) fn unlink_file_at(&self, path: &str) -> Answer<()> {
        self.changeable()?;
        self.open.tree.unlink(self.open.handle, path).map_err(error_code)
    }

    pub(super) fn is_same_object(&self, other: &Self) -> bool {
        match (self.file_stat(), other.file_stat()) {
            (Ok(one), Ok(two)) => self.tree == other.tree && one.identity == two.identity,
            _ => false,
        }
    }

    pub(super) fn metadata_hash(&self) -> Answer<MetadataHashValue> {
        Ok(self.hash(&self.file_stat()?))
    }

    pub(super) fn metadata_hash_at(
        &self,
        flags: PathFlags,
        path: &str,
    ) -> Answer<MetadataHashValue> {
        Ok(self.hash(&self.file_stat_at(flags, path)?))
    }

    /// wasi-libc takes the lower half for the inode number and has no device numbers, so the lower
    /// half alone must tell the files of all mounts apart.
    fn hash(&self, stat: &FileStat) -> MetadataHashValue {
        let lower = mix(mix(self.tree).wrapping_add(stat.identity));
        MetadataHashValue { lower, upper: mix(lower) }
    }
}

/// One step of the SplitMix64 generator: a bijection that scatters small numbers.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The entries of a folder as they were when it was opened.
pub(super) struct EntryStream {
    entries: Arc<[DirectoryEntry]>,
    /// Bytes of memory that the entries take.
    bytes: usize,
    next: usize,
}

impl EntryStream {
    fn new(entries: Arc<[DirectoryEntry]>) -> Self {
        let bytes = entries.iter().map(|entry| size_of::<DirectoryEntry>() + entry.name.len());
        Self { bytes: bytes.sum(), entries, next: 0 }
    }

    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn next(&mut self) -> Option<&DirectoryEntry> {
        let entry = self.entries.get(self.next)?;
        self.next += 1;
        Some(entry)
    }
}

fn follow(flags: PathFlags) -> bool {
    flags.contains(PathFlags::SYMLINK_FOLLOW)
}

pub(super) fn descriptor_type(kind: FileKind) -> DescriptorType {
    match kind {
        FileKind::File => DescriptorType::RegularFile,
        FileKind::Directory => DescriptorType::Directory,
        FileKind::Symlink => DescriptorType::SymbolicLink,
    }
}

fn descriptor_stat(stat: FileStat) -> DescriptorStat {
    DescriptorStat {
        type_: descriptor_type(stat.kind),
        link_count: stat.links,
        size: stat.size,
        data_access_timestamp: Some(datetime(stat.times.accessed)),
        data_modification_timestamp: Some(datetime(stat.times.modified)),
        status_change_timestamp: Some(datetime(stat.times.modified)),
    }
}

fn new_time(time: NewTimestamp, now: u64) -> Answer<Option<u64>> {
    match time {
        NewTimestamp::NoChange => Ok(None),
        NewTimestamp::Now => Ok(Some(now)),
        NewTimestamp::Timestamp(Datetime { seconds, nanoseconds }) => seconds
            .checked_mul(NANOSECONDS)
            .and_then(|time| time.checked_add(u64::from(nanoseconds)))
            .map(Some)
            .ok_or(ErrorCode::Overflow),
    }
}
