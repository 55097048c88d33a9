//! File contents that no longer fit into memory, in one temporary file that has no name.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use super::content::CHUNK;

/// A temporary file for contents beyond [`memory_bytes`](super::Quota::memory_bytes), shared by
/// any number of trees.
///
/// It is made when first needed and unlinked at once, so nothing remains however the process
/// ends; it shrinks to nothing whenever no tree has contents in it. Trees see only the bytes they
/// wrote themselves.
#[derive(Debug)]
pub struct Spill {
    folder: PathBuf,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    file: Option<Arc<File>>,
    free: Vec<u64>,
    next: u64,
}

impl Spill {
    /// A spill file in `folder` of the host, made when first needed.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Arc<Self> {
        Arc::new(Self { folder: folder.into(), slots: Mutex::default() })
    }

    /// The process's own, in the folder for temporary files.
    pub fn shared() -> Arc<Self> {
        static SHARED: OnceLock<Arc<Spill>> = OnceLock::new();
        Arc::clone(SHARED.get_or_init(|| Self::in_folder(std::env::temp_dir())))
    }

    /// Number of 64 KiB slots in use by all trees together.
    pub fn slots_in_use(&self) -> u64 {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.next.saturating_sub(slots.free.len() as u64)
    }

    /// Writes at most one chunk of bytes to a slot of their own.
    pub(crate) fn store(self: &Arc<Self>, bytes: &[u8]) -> io::Result<Slot> {
        let slot = self.take()?;
        slot.write(0, bytes)?;
        Ok(slot)
    }

    fn take(self: &Arc<Self>) -> io::Result<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match &slots.file {
            Some(file) => Arc::clone(file),
            None => {
                let file = Arc::new(tempfile::tempfile_in(&self.folder)?);
                slots.file = Some(Arc::clone(&file));
                file
            }
        };
        let index = slots.free.pop().unwrap_or_else(|| {
            let index = slots.next;
            slots.next += 1;
            index
        });
        Ok(Slot { spill: Arc::clone(self), file, index })
    }

    fn give_back(&self, index: u64) {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.free.push(index);
        if slots.free.len() as u64 == slots.next {
            // A file that cannot be shortened only keeps its space for longer.
            if let Some(file) = &slots.file {
                let _ = file.set_len(0);
            }
            slots.free.clear();
            slots.next = 0;
        }
    }
}

/// One chunk's place in a spill file. Given back when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    spill: Arc<Spill>,
    file: Arc<File>,
    index: u64,
}

impl Slot {
    fn position(&self, offset: usize) -> u64 {
        self.index * CHUNK as u64 + offset as u64
    }

    /// The caller reads only what it wrote: a slot may hold another tree's old bytes.
    pub(crate) fn read(&self, offset: usize, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, self.position(offset))
    }

    /// `offset` and `bytes` must lie within one chunk.
    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        debug_assert!(offset + bytes.len() <= CHUNK, "a slot holds one chunk");
        self.file.write_all_at(bytes, self.position(offset))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.spill.give_back(self.index);
    }
}
