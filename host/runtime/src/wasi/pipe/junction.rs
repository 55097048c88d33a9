//! Where two programs meet: both buffers, who waits for what, and what ends a standstill.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use wasmtime_wasi_io::bytes::Bytes;

/// Bytes in flight in one direction beyond which a writer waits.
pub(super) const BUFFER: usize = 256 << 10;
/// Writes in flight in one direction beyond which a writer waits; small writes cost memory too.
const BUFFER_WRITES: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Left,
    Right,
}

/// How waiting on a side behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::wasi) enum Mode {
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
    pub(super) junction: Arc<Mutex<Junction>>,
    pub(super) end: End,
}

impl Side {
    pub(super) fn lock(&self) -> MutexGuard<'_, Junction> {
        // Nothing here panics between two changes that belong together.
        self.junction.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the connection was given up because both programs waited for each other.
    pub fn starved(&self) -> bool {
        let mut junction = self.lock();
        junction.seats(self.end).0.starved
    }

    pub(in crate::wasi) fn set_mode(&self, mode: Mode) {
        let mut junction = self.lock();
        let (own, _) = junction.seats(self.end);
        own.mode = mode;
        own.nudged = false;
    }

    /// Waits as the mode says; answers whether it is ready now.
    pub(super) async fn wait(&self, direction: Direction) -> bool {
        Wait { side: self, direction }.await;
        let mut junction = self.lock();
        let (own, other) = junction.seats(self.end);
        own.able(other, direction)
    }
}

#[derive(Debug, Default)]
pub(super) struct Junction {
    left: Seat,
    right: Seat,
}

#[derive(Debug)]
pub(super) struct Seat {
    /// What the other side wrote and this side has not read, one entry a write.
    pub(super) inbox: VecDeque<Bytes>,
    pub(super) inbox_bytes: usize,
    /// Whether the first entry of the inbox has been read in part.
    pub(super) opened: bool,
    pub(super) reading: bool,
    pub(super) writing: bool,
    waits_to_read: bool,
    waits_to_write: bool,
    mode: Mode,
    nudged: bool,
    pub(super) starved: bool,
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
pub(super) enum Direction {
    Read,
    Write,
}

impl Seat {
    pub(super) fn wake(&mut self) {
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

    pub(super) fn able(&self, other: &Self, direction: Direction) -> bool {
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
    pub(super) fn seats(&mut self, end: End) -> (&mut Seat, &mut Seat) {
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
