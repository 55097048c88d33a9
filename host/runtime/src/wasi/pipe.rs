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

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use wasmtime_wasi_io::{
    bytes::Bytes,
    poll::Pollable,
    streams::{InputStream, OutputStream, StreamError, StreamResult},
};

use super::output::{WRITE_PERMIT, check_permit};

/// Bytes in flight in one direction beyond which a writer waits.
const BUFFER: usize = 256 << 10;
/// Writes in flight in one direction beyond which a writer waits; small writes cost memory too.
const BUFFER_WRITES: usize = 1024;

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Left,
    Right,
}

/// How waiting on a side behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Mode {
    /// Until it is ready; at a standstill the connection is given up.
    #[default]
    Firm,
    /// Until it is ready or, at a standstill, until this instant of the own virtual clock is the
    /// earliest that anybody waits for.
    Patient(u64),
    /// Not at all: look.
    Probe,
}

/// One program's place in a connection.
#[derive(Debug, Clone)]
pub struct Side {
    junction: Arc<Mutex<Junction>>,
    end: End,
}

impl Side {
    fn lock(&self) -> MutexGuard<'_, Junction> {
        // Nothing here panics between two changes that belong together.
        self.junction.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the connection was given up because both programs waited for each other.
    pub fn starved(&self) -> bool {
        let mut junction = self.lock();
        junction.seats(self.end).0.starved
    }

    pub(super) fn set_mode(&self, mode: Mode) {
        let mut junction = self.lock();
        let (own, _) = junction.seats(self.end);
        own.mode = mode;
        own.nudged = false;
    }

    /// Waits as the mode says; answers whether it is ready now.
    async fn wait(&self, direction: Direction) -> bool {
        Wait { side: self, direction }.await;
        let mut junction = self.lock();
        let (own, other) = junction.seats(self.end);
        own.able(other, direction)
    }
}

#[derive(Debug, Default)]
struct Junction {
    left: Seat,
    right: Seat,
}

#[derive(Debug)]
struct Seat {
    /// What the other side wrote and this side has not read, one entry a write.
    inbox: VecDeque<Bytes>,
    inbox_bytes: usize,
    /// Whether the first entry of the inbox has been read in part.
    opened: bool,
    reading: bool,
    writing: bool,
    waits_to_read: bool,
    waits_to_write: bool,
    mode: Mode,
    nudged: bool,
    starved: bool,
    waker: Option<Waker>,
}

impl Default for Seat {
    fn default() -> Self {
        Self {
            inbox: VecDeque::new(),
            inbox_bytes: 0,
            opened: false,
            reading: true,
            writing: true,
            waits_to_read: false,
            waits_to_write: false,
            mode: Mode::Firm,
            nudged: false,
            starved: false,
            waker: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

impl Seat {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn waits(&mut self, direction: Direction) -> &mut bool {
        match direction {
            Direction::Read => &mut self.waits_to_read,
            Direction::Write => &mut self.waits_to_write,
        }
    }

    fn able(&self, other: &Self, direction: Direction) -> bool {
        self.starved
            || match direction {
                Direction::Read => !self.inbox.is_empty() || !other.writing,
                Direction::Write => !other.reading || other.has_room(),
            }
    }

    fn has_room(&self) -> bool {
        self.inbox_bytes < BUFFER && self.inbox.len() < BUFFER_WRITES
    }

    /// Waiting, and for nothing that is there.
    fn stuck(&self, other: &Self) -> bool {
        (self.waits_to_read || self.waits_to_write)
            && !self.nudged
            && !(self.waits_to_read && self.able(other, Direction::Read))
            && !(self.waits_to_write && self.able(other, Direction::Write))
    }

    fn patience(&self) -> Option<u64> {
        match self.mode {
            Mode::Patient(instant) => Some(instant),
            Mode::Firm | Mode::Probe => None,
        }
    }
}

impl Junction {
    fn seats(&mut self, end: End) -> (&mut Seat, &mut Seat) {
        match end {
            End::Left => (&mut self.left, &mut self.right),
            End::Right => (&mut self.right, &mut self.left),
        }
    }

    /// Ends a standstill of both sides.
    fn settle(&mut self) {
        let Self { left, right } = self;
        if !left.stuck(right) || !right.stuck(left) {
            return;
        }
        let nudged = match (left.patience(), right.patience()) {
            (Some(one), Some(two)) if two < one => right,
            (Some(_), _) => left,
            (None, Some(_)) => right,
            (None, None) => {
                for seat in [left, right] {
                    seat.starved = true;
                    seat.wake();
                }
                return;
            }
        };
        nudged.nudged = true;
        nudged.wake();
    }
}

/// Waits as the side's mode says.
struct Wait<'a> {
    side: &'a Side,
    direction: Direction,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut junction = self.side.lock();
        let (own, other) = junction.seats(self.side.end);
        if own.able(other, self.direction) || own.nudged {
            return Poll::Ready(());
        }
        if own.mode == Mode::Probe {
            return Poll::Pending;
        }
        *own.waits(self.direction) = true;
        own.waker = Some(context.waker().clone());
        junction.settle();
        let (own, other) = junction.seats(self.side.end);
        if own.able(other, self.direction) || own.nudged { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut junction = self.side.lock();
        *junction.seats(self.side.end).0.waits(self.direction) = false;
    }
}

/// Standard input from the other side.
pub(super) struct PipeInput {
    side: Side,
    /// Whether the guest has waited since the last read.
    granted: bool,
}

impl PipeInput {
    pub(super) fn new(side: Side) -> Self {
        Self { side, granted: false }
    }
}

#[wasmtime_wasi_io::async_trait]
impl Pollable for PipeInput {
    async fn ready(&mut self) {
        self.granted = self.side.wait(Direction::Read).await;
    }
}

#[wasmtime_wasi_io::async_trait]
impl InputStream for PipeInput {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        let mut junction = self.side.lock();
        let (own, other) = junction.seats(self.side.end);
        if !self.granted && !own.opened {
            return Ok(Bytes::new());
        }
        let Some(front) = own.inbox.front_mut() else {
            // Waiting ended without bytes: the other side has ended, or nobody can go on.
            return Err(StreamError::Closed);
        };
        let bytes = front.split_to(size.min(front.len()));
        own.opened = !front.is_empty();
        if front.is_empty() {
            own.inbox.pop_front();
        }
        own.inbox_bytes = own.inbox_bytes.saturating_sub(bytes.len());
        self.granted = false;
        other.wake();
        Ok(bytes)
    }
}

/// Standard output to the other side.
pub(super) struct PipeOutput {
    side: Side,
    granted: bool,
}

impl PipeOutput {
    pub(super) fn new(side: Side) -> Self {
        Self { side, granted: false }
    }
}

#[wasmtime_wasi_io::async_trait]
impl Pollable for PipeOutput {
    async fn ready(&mut self) {
        self.granted = self.side.wait(Direction::Write).await;
    }
}

#[wasmtime_wasi_io::async_trait]
impl OutputStream for PipeOutput {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        check_permit(&bytes)?;
        let mut junction = self.side.lock();
        let (own, other) = junction.seats(self.side.end);
        // An empty write needs no permit.
        if !std::mem::take(&mut self.granted) && !bytes.is_empty() {
            return Err(StreamError::trap("a write that check-write did not permit"));
        }
        if !other.reading || own.starved {
            return Err(StreamError::Closed);
        }
        if !bytes.is_empty() {
            other.inbox_bytes = other.inbox_bytes.saturating_add(bytes.len());
            other.inbox.push_back(bytes);
            other.wake();
        }
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        // What is written is on its way.
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        if !self.granted {
            return Ok(0);
        }
        let mut junction = self.side.lock();
        let (own, other) = junction.seats(self.side.end);
        if !other.reading || own.starved {
            return Err(StreamError::Closed);
        }
        Ok(WRITE_PERMIT)
    }

    async fn blocking_write_and_flush(&mut self, bytes: Bytes) -> StreamResult<()> {
        // Unlike the default, this does not wait for room for the *next* write, which two
        // programs that both write before they read would do for ever.
        self.ready().await;
        self.write(bytes)
    }

    async fn write_ready(&mut self) -> StreamResult<usize> {
        self.ready().await;
        self.check_write()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(connection: &Connection) -> (PipeInput, PipeOutput) {
        (PipeInput::new(connection.input.side()), PipeOutput::new(connection.output.side()))
    }

    async fn write(output: &mut PipeOutput, bytes: &'static [u8]) -> StreamResult<()> {
        output.blocking_write_and_flush(Bytes::from_static(bytes)).await
    }

    #[tokio::test]
    async fn a_read_answers_one_write_at_most() {
        let (left, right) = connect();
        let (_, mut output) = ends(&left);
        let (mut input, _) = ends(&right);
        write(&mut output, b"first").await.unwrap();
        write(&mut output, b"second").await.unwrap();
        assert_eq!(input.blocking_read(3).await.unwrap(), "fir");
        assert_eq!(input.blocking_read(100).await.unwrap(), "st");
        assert_eq!(input.blocking_read(100).await.unwrap(), "second");
        drop(left);
        assert!(matches!(input.blocking_read(1).await, Err(StreamError::Closed)));
    }

    #[tokio::test]
    async fn nothing_is_seen_before_it_was_waited_for() {
        let (left, right) = connect();
        let (_, mut output) = ends(&left);
        let (mut input, _) = ends(&right);
        assert_eq!(output.check_write().unwrap(), 0);
        write(&mut output, b"x").await.unwrap();
        assert_eq!(input.read(1).unwrap(), "");
        input.ready().await;
        assert_eq!(input.read(1).unwrap(), "x");
        drop(left);
        // So is the end.
        assert_eq!(input.read(1).unwrap(), "");
    }

    #[tokio::test]
    async fn writing_without_a_permit_ends_the_guest() {
        let (left, _right) = connect();
        let (_, mut output) = ends(&left);
        assert!(matches!(output.write(Bytes::from_static(b"x")), Err(StreamError::Trap(_))));
        output.ready().await;
        let long = Bytes::from(vec![0; WRITE_PERMIT + 1]);
        assert!(matches!(output.write(long), Err(StreamError::Trap(_))));
    }

    #[tokio::test]
    async fn full_buffer_holds_the_writer_until_there_is_room() {
        let (left, right) = connect();
        let (_, mut output) = ends(&left);
        let (mut input, _) = ends(&right);
        let mut writes = 0;
        while futures::poll!(output.ready()).is_ready() {
            output.write(Bytes::from(vec![0; WRITE_PERMIT])).unwrap();
            writes += 1;
        }
        assert_eq!(writes, BUFFER / WRITE_PERMIT);
        input.blocking_read(usize::MAX).await.unwrap();
        assert!(futures::poll!(output.ready()).is_ready());
    }

    #[tokio::test]
    async fn unused_ends_are_closed_ends() {
        let (left, right) = connect();
        let (mut input, mut output) = ends(&left);
        drop(right);
        assert!(matches!(input.blocking_read(1).await, Err(StreamError::Closed)));
        assert!(matches!(write(&mut output, b"x").await, Err(StreamError::Closed)));
        assert!(!left.input.side().starved());
    }

    #[tokio::test]
    async fn a_wait_that_is_given_up_does_not_count() {
        let (left, right) = connect();
        let (mut input, _) = ends(&left);
        let (mut other, _) = ends(&right);
        assert!(futures::poll!(input.ready()).is_pending());
        // The future is dropped: the left side no longer waits.
        assert!(futures::poll!(other.ready()).is_pending());
        assert!(!left.input.side().starved());
    }

    #[tokio::test]
    async fn standstill_of_two_readers_ends_both() {
        let (left, right) = connect();
        let (mut one, _) = ends(&left);
        let (mut two, _) = ends(&right);
        let (one, two) = tokio::join!(one.blocking_read(1), two.blocking_read(1));
        assert!(matches!((one, two), (Err(StreamError::Closed), Err(StreamError::Closed))));
        assert!(left.input.side().starved() && right.input.side().starved());
    }

    #[tokio::test]
    async fn standstill_nudges_the_earliest_timer_only() {
        let (left, right) = connect();
        let (mut one, _) = ends(&left);
        let (mut two, _) = ends(&right);
        left.input.side().set_mode(Mode::Patient(20));
        right.input.side().set_mode(Mode::Patient(10));
        let mut waiting = Box::pin(one.ready());
        assert!(futures::poll!(&mut waiting).is_pending());
        assert!(futures::poll!(two.ready()).is_ready());
        assert!(futures::poll!(&mut waiting).is_pending());
        // A nudge is no input.
        right.input.side().set_mode(Mode::Probe);
        assert!(futures::poll!(two.ready()).is_pending());
        assert!(!left.input.side().starved());
    }
}
