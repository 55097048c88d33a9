//! Two programs that run at once, standard output of each connected to standard input of the
//! other.
//!
//! # What it promises
//! - Only bytes cross, through buffers of fixed size. A writer waits for room, a reader for bytes.
//! - When one program ends (or is stopped), the other sees the end of its input once it has read
//!   what was written, and its own writes fail.
//! - Two programs that both wait, so that neither can ever go on, are not left hanging: first the
//!   earliest timer that one of them waits for fires; without one, both see the end of their input
//!   and failing writes ([`Side::starved`]).
//! - What a program reads depends on what the other wrote, not on who was faster: a read answers
//!   at most one write of the other side, nothing is readable or writable before the program has
//!   waited for it, and waiting for one thing out of several, or looking without waiting, is
//!   answered when the other side has come to a stop or everything asked for is ready.
//!
//! The last point is why a guest that spins on non-blocking reads without ever polling sees
//! nothing at all. Runtimes do not do that; they block or poll.

mod junction;
mod streams;

use std::sync::{Arc, Mutex};

pub(in crate::wasi) use junction::Mode;
pub use junction::Side;
use junction::{End, Junction};
pub(in crate::wasi) use streams::{PipeInput, PipeOutput};

/// What one of two connected programs gets.
#[derive(Debug)]
pub struct Connection {
    /// For its standard input.
    pub input: PipeReader,
    /// For its standard output.
    pub output: PipeWriter,
}

/// Connects two programs. An end that is not used must be dropped; the other side sees it closed.
pub fn connect() -> (Connection, Connection) {
    let junction = Arc::new(Mutex::new(Junction::default()));
    let connection = |end| {
        let side = Side { junction: Arc::clone(&junction), end };
        Connection { input: PipeReader(side.clone()), output: PipeWriter(side) }
    };
    (connection(End::Left), connection(End::Right))
}

/// The reading end of a connection. Dropping it makes writes of the other side fail.
#[derive(Debug)]
pub struct PipeReader(Side);

impl PipeReader {
    pub(super) fn side(&self) -> Side {
        self.0.clone()
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        let mut junction = self.0.lock();
        let (own, other) = junction.seats(self.0.end);
        own.reading = false;
        own.inbox.clear();
        own.inbox_bytes = 0;
        other.wake();
    }
}

/// The writing end of a connection. Dropping it ends the input of the other side.
#[derive(Debug)]
pub struct PipeWriter(Side);

impl PipeWriter {
    pub(super) fn side(&self) -> Side {
        self.0.clone()
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        let mut junction = self.0.lock();
        let (own, other) = junction.seats(self.0.end);
        own.writing = false;
        other.wake();
    }
}
