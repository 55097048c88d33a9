//! What a tree may grow to, and the bounds that no quota lifts.

/// Deepest folder a tree can hold, whatever its quota: traversals recurse this deep at most.
pub(crate) const MAX_DEPTH: u32 = 256;
/// Largest file, whatever the quota: bounds the table of chunks of a file that is one hole.
pub(crate) const MAX_FILE_BYTES: u64 = 1 << 36;
/// Longest path and longest link target in bytes, as on Linux.
pub(crate) const MAX_PATH_BYTES: usize = 4096;
/// Longest path that the host itself uses without following links: guests reach deeper than one
/// path allows by way of open folders.
pub(crate) const MAX_HOST_PATH_BYTES: usize = 128 << 10;
/// Links followed in one path, as on Linux.
pub(crate) const MAX_LINKS: u32 = 40;
/// Most bytes one read answers.
pub(crate) const MAX_READ_BYTES: u64 = 16 << 20;

/// What a tree may grow to beyond its lower layer.
///
/// A file of the lower layer counts nothing until its content is changed, and then its whole
/// size; removing what the lower layer holds gives nothing back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Bytes of file contents and link targets. A hole counts like bytes. A removed file counts
    /// until its last handle is closed.
    pub bytes: u64,
    /// Names of files, folders and links.
    pub files: u64,
    /// Handles open at one time.
    pub handles: u32,
    /// Folders on the way to an entry, the entry counted. At most 256.
    pub depth: u32,
    /// Bytes of one name.
    pub name_bytes: u32,
    /// Bytes of file contents kept in memory; what is written beyond goes to disk. Not a limit
    /// that an operation can fail on. Content that files of the tree share counts for each.
    pub memory_bytes: u64,
}

impl Quota {
    /// With the depth within the bound that no quota lifts.
    pub(crate) fn bounded(mut self) -> Self {
        self.depth = self.depth.min(MAX_DEPTH);
        self
    }
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            bytes: 256 << 20,
            files: 20_000,
            handles: 512,
            depth: 64,
            name_bytes: 255,
            memory_bytes: 16 << 20,
        }
    }
}

/// What a tree uses of its quota. Each field counts what the field of [`Quota`] limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// See [`Quota::bytes`].
    pub bytes: u64,
    /// See [`Quota::files`].
    pub files: u64,
    /// See [`Quota::handles`].
    pub handles: u32,
    /// See [`Quota::memory_bytes`].
    pub memory_bytes: u64,
}
