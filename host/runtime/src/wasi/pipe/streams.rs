//! The ends of a connection as the guest's standard streams.

use wasmtime_wasi_io::{
    bytes::Bytes,
    poll::Pollable,
    streams::{InputStream, OutputStream, StreamError, StreamResult},
};

use super::junction::{Direction, Side};
use crate::wasi::output::{WRITE_PERMIT, check_permit};

/// Standard input from the other side.
pub(in crate::wasi) struct PipeInput {
    side: Side,
    /// Whether the guest has waited since the last read.
    granted: bool,
}

impl PipeInput {
    pub(in crate::wasi) fn new(side: Side) -> Self {
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
pub(in crate::wasi) struct PipeOutput {
    side: Side,
    granted: bool,
}

impl PipeOutput {
    pub(in crate::wasi) fn new(side: Side) -> Self {
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
    use crate::wasi::pipe::{
        Connection, connect,
        junction::{BUFFER, Mode},
    };

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
