//! A file's bytes in chunks that are shared until they are written to.
//!
//! A chunk's stored bytes may be fewer than the file's size says; the rest is zeros. Chunks past
//! the end of the list are holes.

use std::sync::Arc;

use fulgurite_trace::{Digest, file::FileError};
use sha2::{Digest as _, Sha256};

use super::spill::{Slot, Spill};

/// Bytes of one chunk: what a first write to a shared file copies at most.
pub(crate) const CHUNK: usize = 64 << 10;

static ZEROS: [u8; CHUNK] = [0; CHUNK];

/// Where the chunks that an operation makes may go.
pub(crate) struct Room<'a> {
    /// Bytes in memory of the tree's other files.
    pub(crate) others: u64,
    /// Bytes in memory of all of the tree's files.
    pub(crate) limit: u64,
    /// Where the rest goes.
    pub(crate) spill: &'a Arc<Spill>,
}

#[derive(Debug, Clone, Default)]
enum Chunk {
    /// Zeros.
    #[default]
    Hole,
    /// Of the lower layer, in memory once for all trees.
    Base(Arc<Vec<u8>>),
    /// Of this tree or one it came from.
    Memory(Arc<Vec<u8>>),
    /// On disk. `length` bytes of the slot are ours.
    Disk { slot: Arc<Slot>, length: usize },
}

/// A file's bytes. Cloning copies pointers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Content {
    size: u64,
    chunks: Vec<Chunk>,
    resident: u64,
}

impl Content {
    /// Bytes of the lower layer.
    pub(crate) fn base(bytes: &[u8]) -> Self {
        let chunks = bytes.chunks(CHUNK).map(|chunk| Chunk::Base(Arc::new(chunk.to_vec())));
        Self { size: bytes.len() as u64, chunks: chunks.collect(), resident: 0 }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes in memory that count for this tree.
    pub(crate) fn resident(&self) -> u64 {
        self.resident
    }

    /// At most `length` bytes from `offset`.
    pub(crate) fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, FileError> {
        let end = offset.saturating_add(length).min(self.size);
        let mut bytes = Vec::with_capacity(usize_of(end.saturating_sub(offset)));
        self.pieces(offset, end, |piece| bytes.extend_from_slice(piece))?;
        Ok(bytes)
    }

    /// SHA-256 of the bytes.
    pub(crate) fn digest(&self) -> Result<Digest, FileError> {
        let mut hasher = Sha256::new();
        self.pieces(0, self.size, |piece| hasher.update(piece))?;
        Ok(Digest::from_bytes(hasher.finalize().into()))
    }

    /// Shows the bytes from `offset` to `end`, which is at most the size, in order.
    pub(crate) fn pieces(
        &self,
        mut offset: u64,
        end: u64,
        mut show: impl FnMut(&[u8]),
    ) -> Result<(), FileError> {
        while offset < end {
            let (index, start) = place(offset);
            let stop = usize_of((CHUNK as u64).min(start as u64 + (end - offset)));
            let mut on_disk;
            let stored = match self.chunks.get(index).unwrap_or(&Chunk::Hole) {
                Chunk::Hole => &[],
                Chunk::Base(bytes) | Chunk::Memory(bytes) => {
                    bytes.get(start..stop.min(bytes.len())).unwrap_or_default()
                }
                Chunk::Disk { slot, length } => {
                    on_disk = vec![0; stop.min(*length).saturating_sub(start)];
                    slot.read(start, &mut on_disk).map_err(|_| FileError::Io)?;
                    on_disk.as_slice()
                }
            };
            show(stored);
            show(ZEROS.get(..stop - start - stored.len()).unwrap_or_default());
            offset += (stop - start) as u64;
        }
        Ok(())
    }

    /// Writes all bytes; the caller has seen to it that `offset + bytes.len()` is no overflow.
    pub(crate) fn write(
        &mut self,
        mut offset: u64,
        mut bytes: &[u8],
        room: &Room<'_>,
    ) -> Result<(), FileError> {
        while !bytes.is_empty() {
            let (index, start) = place(offset);
            let (piece, rest) = bytes.split_at(bytes.len().min(CHUNK - start));
            self.write_chunk(index, start, piece, room)?;
            offset += piece.len() as u64;
            self.size = self.size.max(offset);
            bytes = rest;
        }
        Ok(())
    }

    /// Cuts, or extends with a hole.
    pub(crate) fn set_size(&mut self, size: u64, room: &Room<'_>) -> Result<(), FileError> {
        if size < self.size {
            let (index, keep) = place(size);
            let kept = index + usize::from(keep > 0);
            for dropped in self.chunks.get(kept..).unwrap_or_default() {
                self.resident -= dropped.resident();
            }
            self.chunks.truncate(kept);
            if keep > 0 {
                self.cut_chunk(index, keep, room)?;
            }
        }
        self.size = size;
        Ok(())
    }

    fn take_chunk(&mut self, index: usize) -> Chunk {
        let chunk = self.chunks.get_mut(index).map(std::mem::take).unwrap_or_default();
        self.resident -= chunk.resident();
        chunk
    }

    fn put_chunk(&mut self, index: usize, chunk: Chunk) {
        if self.chunks.len() <= index {
            self.chunks.resize_with(index + 1, Chunk::default);
        }
        self.resident += chunk.resident();
        if let Some(place) = self.chunks.get_mut(index) {
            *place = chunk;
        }
    }

    /// Keeps a chunk in memory while there is room, otherwise on disk. When the disk fails, the
    /// bytes stay in memory, so that nothing already written is lost.
    fn settle(
        &mut self,
        index: usize,
        bytes: Arc<Vec<u8>>,
        room: &Room<'_>,
    ) -> Result<(), FileError> {
        let memory = room.others.saturating_add(self.resident).saturating_add(bytes.len() as u64);
        if memory <= room.limit {
            self.put_chunk(index, Chunk::Memory(bytes));
            return Ok(());
        }
        match room.spill.store(&bytes) {
            Ok(slot) => {
                let length = bytes.len();
                self.put_chunk(index, Chunk::Disk { slot: Arc::new(slot), length });
                Ok(())
            }
            Err(_) => {
                self.put_chunk(index, Chunk::Memory(bytes));
                Err(FileError::Io)
            }
        }
    }

    fn write_chunk(
        &mut self,
        index: usize,
        start: usize,
        piece: &[u8],
        room: &Room<'_>,
    ) -> Result<(), FileError> {
        let bytes = match self.take_chunk(index) {
            Chunk::Disk { mut slot, length } => {
                if Arc::get_mut(&mut slot).is_some() {
                    // Nobody else sees this slot: no copy needed.
                    let gap = ZEROS.get(..start.saturating_sub(length)).unwrap_or_default();
                    let written = slot.write(length.min(start), gap);
                    let written = written.and_then(|()| slot.write(start, piece));
                    let length = match written {
                        Ok(()) => length.max(start + piece.len()),
                        Err(_) => length,
                    };
                    self.put_chunk(index, Chunk::Disk { slot, length });
                    return written.map_err(|_| FileError::Io);
                }
                let mut bytes = vec![0; length];
                let read = slot.read(0, &mut bytes);
                if read.is_err() {
                    self.put_chunk(index, Chunk::Disk { slot, length });
                    return Err(FileError::Io);
                }
                Arc::new(bytes)
            }
            Chunk::Hole => Arc::default(),
            Chunk::Base(bytes) | Chunk::Memory(bytes) => bytes,
        };
        self.settle(index, overwrite(bytes, start, piece), room)
    }

    fn cut_chunk(&mut self, index: usize, keep: usize, room: &Room<'_>) -> Result<(), FileError> {
        match self.take_chunk(index) {
            Chunk::Hole => Ok(()),
            Chunk::Disk { slot, length } => {
                self.put_chunk(index, Chunk::Disk { slot, length: length.min(keep) });
                Ok(())
            }
            Chunk::Base(bytes) if bytes.len() <= keep => {
                self.put_chunk(index, Chunk::Base(bytes));
                Ok(())
            }
            Chunk::Base(mut bytes) | Chunk::Memory(mut bytes) => {
                match Arc::get_mut(&mut bytes) {
                    Some(own) => own.truncate(keep),
                    None => bytes = Arc::new(bytes.iter().take(keep).copied().collect()),
                }
                self.settle(index, bytes, room)
            }
        }
    }
}

impl Chunk {
    fn resident(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Hole | Self::Base(_) | Self::Disk { .. } => 0,
        }
    }
}

/// In place when nobody shares the bytes.
fn overwrite(mut bytes: Arc<Vec<u8>>, start: usize, piece: &[u8]) -> Arc<Vec<u8>> {
    let own = Arc::make_mut(&mut bytes);
    let end = start + piece.len();
    if own.len() < end {
        if own.capacity() < end {
            // Doubling as usual, but never beyond a chunk.
            let wanted = end.max(own.capacity().saturating_mul(2).min(CHUNK));
            own.reserve_exact(wanted - own.len());
        }
        own.resize(end, 0);
    }
    if let Some(target) = own.get_mut(start..end) {
        target.copy_from_slice(piece);
    }
    bytes
}

/// The chunk of an offset and the place in it. Offsets are below `MAX_FILE_BYTES`.
fn place(offset: u64) -> (usize, usize) {
    (usize_of(offset / CHUNK as u64), usize_of(offset % CHUNK as u64))
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
