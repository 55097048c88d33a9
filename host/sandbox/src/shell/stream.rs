//! Standard streams: bounded buffers, files of the tree, and the kept head and tail.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fulgurite_trace::Captured;
use fulgurite_trace::file::{FileError, FileTree, Handle};

use super::meter::Stop;

/// Bytes that are read or written at once.
pub(crate) const CHUNK: usize = 64 << 10;

/// An open entry that is closed when dropped.
pub(crate) struct OpenEntry {
    tree: Arc<dyn FileTree>,
    handle: Handle,
}

impl OpenEntry {
    pub(crate) fn new(tree: Arc<dyn FileTree>, handle: Handle) -> Self {
        Self { tree, handle }
    }

    pub(crate) fn tree(&self) -> &Arc<dyn FileTree> {
        &self.tree
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }
}

impl Drop for OpenEntry {
    fn drop(&mut self) {
        self.tree.close(self.handle);
    }
}

/// The beginning and the end of a stream that may be endless.
#[derive(Debug)]
pub(crate) struct HeadTail {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_room: usize,
    tail_room: usize,
    total: u64,
}

impl HeadTail {
    pub(crate) fn new(room: usize) -> Self {
        let head_room = room / 2;
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            head_room,
            tail_room: room - head_room,
            total: 0,
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.total = self.total.saturating_add(bytes.len() as u64);
        let room = self.head_room.saturating_sub(self.head.len()).min(bytes.len());
        let (head, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        self.head.extend_from_slice(head);
        let skipped = rest.len().saturating_sub(self.tail_room);
        let kept = rest.get(skipped..).unwrap_or_default();
        let over = (self.tail.len() + kept.len()).saturating_sub(self.tail_room);
        self.tail.drain(..over.min(self.tail.len()));
        self.tail.extend(kept);
    }

    pub(crate) fn into_captured(self) -> Captured {
        let mut bytes = self.head;
        let kept = (bytes.len() + self.tail.len()) as u64;
        if self.total > kept {
            let note = format!("\n[... {} bytes left out ...]\n", self.total - kept);
            bytes.extend_from_slice(note.as_bytes());
        }
        bytes.extend(self.tail);
        Captured { bytes, total: self.total }
    }
}

/// Why bytes could not be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WriteError {
    /// The file refused them.
    File(FileError),
    /// A pipe is full.
    Full(Stop),
}

enum SinkState {
    Null,
    Buffer { bytes: Vec<u8>, room: usize, name: &'static str },
    Capture(HeadTail),
    File { entry: OpenEntry, position: u64, append: bool },
}

/// Where a stream goes. Clones write to the same place, as duplicated descriptors do.
#[derive(Clone)]
pub(crate) struct Sink(Arc<Mutex<SinkState>>);

impl Sink {
    fn with(state: SinkState) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    pub(crate) fn null() -> Self {
        Self::with(SinkState::Null)
    }

    /// Holds at most `room` bytes; `name` says in messages what overflowed.
    pub(crate) fn buffer(room: usize, name: &'static str) -> Self {
        Self::with(SinkState::Buffer { bytes: Vec::new(), room, name })
    }

    pub(crate) fn capture(room: usize) -> Self {
        Self::with(SinkState::Capture(HeadTail::new(room)))
    }

    pub(crate) fn file(entry: OpenEntry, append: bool) -> Self {
        Self::with(SinkState::File { entry, position: 0, append })
    }

    fn lock(&self) -> MutexGuard<'_, SinkState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), WriteError> {
        if bytes.is_empty() {
            return Ok(());
        }
        match &mut *self.lock() {
            SinkState::Null => Ok(()),
            SinkState::Capture(kept) => {
                kept.write(bytes);
                Ok(())
            }
            SinkState::Buffer { bytes: held, room, name } => {
                if held.len() + bytes.len() > *room {
                    return Err(WriteError::Full(Stop::Memory(format!(
                        "{name} holds at most {room} bytes"
                    ))));
                }
                held.extend_from_slice(bytes);
                Ok(())
            }
            SinkState::File { entry, position, append } => {
                let done = if *append {
                    entry.tree().append(entry.handle(), bytes).map(|_| ())
                } else {
                    entry.tree().write(entry.handle(), *position, bytes)
                };
                done.map_err(WriteError::File)?;
                *position += bytes.len() as u64;
                Ok(())
            }
        }
    }

    /// Takes what a buffer holds; empty for every other kind.
    pub(crate) fn take_buffer(&self) -> Vec<u8> {
        match &mut *self.lock() {
            SinkState::Buffer { bytes, .. } => std::mem::take(bytes),
            _ => Vec::new(),
        }
    }

    /// Takes what was captured; empty for every other kind.
    pub(crate) fn take_captured(&self) -> Captured {
        match &mut *self.lock() {
            SinkState::Capture(kept) => std::mem::replace(kept, HeadTail::new(0)).into_captured(),
            _ => Captured::default(),
        }
    }
}

enum InputState {
    Bytes { bytes: Arc<Vec<u8>>, position: usize },
    File { entry: OpenEntry, position: u64 },
}

/// Where a stream comes from. Clones share one position.
#[derive(Clone)]
pub(crate) struct Input(Arc<Mutex<InputState>>);

impl Input {
    pub(crate) fn empty() -> Self {
        Self::bytes(Vec::new())
    }

    pub(crate) fn bytes(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(InputState::Bytes { bytes: Arc::new(bytes), position: 0 })))
    }

    pub(crate) fn file(entry: OpenEntry) -> Self {
        Self(Arc::new(Mutex::new(InputState::File { entry, position: 0 })))
    }

    fn lock(&self) -> MutexGuard<'_, InputState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next bytes, at most `length`; empty at the end. `advance` moves the position.
    fn next(&self, length: usize, advance: bool) -> Result<Vec<u8>, FileError> {
        match &mut *self.lock() {
            InputState::Bytes { bytes, position } => {
                let end = position.saturating_add(length).min(bytes.len());
                let taken = bytes.get(*position..end).unwrap_or_default().to_vec();
                if advance {
                    *position = end;
                }
                Ok(taken)
            }
            InputState::File { entry, position } => {
                let taken = entry.tree().read(entry.handle(), *position, length as u64)?;
                if advance {
                    *position += taken.len() as u64;
                }
                Ok(taken)
            }
        }
    }

    /// The size of the file behind it, if there is one.
    pub(crate) fn file_size(&self) -> Option<u64> {
        match &*self.lock() {
            InputState::Bytes { .. } => None,
            InputState::File { entry, .. } => {
                entry.tree().stat(entry.handle()).ok().map(|stat| stat.size)
            }
        }
    }

    /// The next bytes, at most [`CHUNK`]; empty at the end.
    pub(crate) fn read_chunk(&self) -> Result<Vec<u8>, FileError> {
        self.next(CHUNK, true)
    }

    /// Everything that follows, at most `room` bytes of it.
    pub(crate) fn read_all(&self, room: usize) -> Result<Result<Vec<u8>, Stop>, FileError> {
        let mut all = Vec::new();
        loop {
            let chunk = self.read_chunk()?;
            if chunk.is_empty() {
                return Ok(Ok(all));
            }
            if all.len() + chunk.len() > room {
                return Ok(Err(Stop::Memory(format!(
                    "a command holds at most {room} bytes of its input"
                ))));
            }
            all.extend_from_slice(&chunk);
        }
    }

    /// The next line with its newline, if it has one; `None` at the end.
    pub(crate) fn read_line(&self, room: usize) -> Result<Option<Vec<u8>>, FileError> {
        let mut line = Vec::new();
        loop {
            let ahead = self.next(512, false)?;
            if ahead.is_empty() {
                return Ok((!line.is_empty()).then_some(line));
            }
            let newline = ahead.iter().position(|byte| *byte == b'\n');
            let length = newline.map_or(ahead.len(), |at| at + 1);
            line.extend_from_slice(&self.next(length, true)?);
            if newline.is_some() || line.len() >= room {
                return Ok(Some(line));
            }
        }
    }

    /// Everything that follows, without moving the position: what a program is given, since no
    /// one can tell how much of it the program will read.
    pub(crate) fn peek_all(&self, room: usize) -> Result<Result<Vec<u8>, Stop>, FileError> {
        match &*self.lock() {
            InputState::Bytes { bytes, position } => {
                Ok(Ok(bytes.get(*position..).unwrap_or_default().to_vec()))
            }
            InputState::File { entry, position } => {
                let mut copy = Vec::new();
                loop {
                    let from = *position + copy.len() as u64;
                    let chunk = entry.tree().read(entry.handle(), from, CHUNK as u64)?;
                    if chunk.is_empty() {
                        return Ok(Ok(copy));
                    }
                    copy.extend_from_slice(&chunk);
                    if copy.len() > room {
                        return Ok(Err(Stop::Memory(format!(
                            "a program's standard input holds at most {room} bytes"
                        ))));
                    }
                }
            }
        }
    }
}

/// The three streams of a command.
#[derive(Clone)]
pub(crate) struct Io {
    pub(crate) stdin: Input,
    pub(crate) stdout: Sink,
    pub(crate) stderr: Sink,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_tail_are_kept_and_the_total_is_counted() {
        let mut kept = HeadTail::new(8);
        for part in ["ab", "cdef", "ghijkl", "m"] {
            kept.write(part.as_bytes());
        }
        let captured = kept.into_captured();
        assert_eq!(captured.bytes, b"abcd\n[... 5 bytes left out ...]\njklm");
        assert_eq!(captured.total, 13);
    }

    #[test]
    fn output_that_fits_is_whole() {
        let mut kept = HeadTail::new(8);
        kept.write(b"abcdefgh");
        assert_eq!(kept.into_captured(), Captured { bytes: b"abcdefgh".to_vec(), total: 8 });
    }

    #[test]
    fn clones_of_an_input_share_its_position() {
        let input = Input::bytes(b"one\ntwo\nthree".to_vec());
        assert_eq!(input.clone().read_line(100).unwrap().unwrap(), b"one\n");
        assert_eq!(input.peek_all(100).unwrap().unwrap(), b"two\nthree");
        assert_eq!(input.read_all(100).unwrap().unwrap(), b"two\nthree");
        assert!(input.read_line(100).unwrap().is_none());
    }

    #[test]
    fn a_full_buffer_refuses_more() {
        let sink = Sink::buffer(4, "a pipe");
        assert!(sink.write(b"abcd").is_ok());
        assert!(matches!(sink.write(b"e"), Err(WriteError::Full(Stop::Memory(_)))));
    }
}
