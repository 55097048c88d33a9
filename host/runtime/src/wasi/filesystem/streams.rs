//! Files as streams. All of them are always ready: a tree answers at once.

use std::sync::Arc;

use fulgurite_trace::file::FileError;
use wasmtime_wasi_io::{
    bytes::Bytes,
    poll::Pollable,
    streams::{InputStream, OutputStream, StreamError, StreamResult},
};

use super::{OpenHandle, descriptor::READ_LIMIT};
use crate::wasi::output::{WRITE_PERMIT, check_permit};

/// Keeps the tree's error in the stream's error, where `filesystem-error-code` finds it.
fn failed(error: FileError) -> StreamError {
    StreamError::LastOperationFailed(error.into())
}

/// A file, read from a position on.
pub(super) struct FileInput {
    open: Arc<OpenHandle>,
    offset: u64,
}

impl FileInput {
    pub(super) fn new(open: Arc<OpenHandle>, offset: u64) -> Self {
        Self { open, offset }
    }
}

#[wasmtime_wasi_io::async_trait]
impl Pollable for FileInput {
    async fn ready(&mut self) {}
}

impl InputStream for FileInput {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        if size == 0 {
            return Ok(Bytes::new());
        }
        let length = (size as u64).min(READ_LIMIT);
        let bytes = self.open.tree.read(self.open.handle, self.offset, length).map_err(failed)?;
        if bytes.is_empty() {
            return Err(StreamError::Closed);
        }
        self.offset = self.offset.saturating_add(bytes.len() as u64);
        Ok(bytes.into())
    }
}

/// Where a stream writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// From this offset on.
    At(u64),
    /// At the end, wherever that is by then.
    End,
}

/// A file, written to.
pub(super) struct FileOutput {
    open: Arc<OpenHandle>,
    position: Position,
    /// The first error; reported once, after which the stream is closed.
    error: Option<FileError>,
    closed: bool,
}

impl FileOutput {
    pub(super) fn new(open: Arc<OpenHandle>, position: Position) -> Self {
        Self { open, position, error: None, closed: false }
    }

    fn check(&mut self) -> StreamResult<()> {
        if let Some(error) = self.error.take() {
            self.closed = true;
            return Err(failed(error));
        }
        if self.closed { Err(StreamError::Closed) } else { Ok(()) }
    }
}

#[wasmtime_wasi_io::async_trait]
impl Pollable for FileOutput {
    async fn ready(&mut self) {}
}

impl OutputStream for FileOutput {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        check_permit(&bytes)?;
        self.check()?;
        let Self { open, position, .. } = self;
        let written = match position {
            Position::At(offset) => {
                let written = open.tree.write(open.handle, *offset, &bytes);
                *offset = offset.saturating_add(bytes.len() as u64);
                written
            }
            Position::End => open.tree.append(open.handle, &bytes).map(drop),
        };
        // WASI reports a failed write with the next call of the stream.
        self.error = written.err();
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.check()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.check()?;
        Ok(WRITE_PERMIT)
    }
}
