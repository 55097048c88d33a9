//! The wall clock of one guest, and how its run is cancelled.
//!
//! Fuel decides when a guest has had enough; the wall clock is the backstop for what fuel cannot
//! see (a host call that hangs, above all). It counts only time that is the guest's or its host
//! functions': while the guest waits for the policy or for a place in a queue,
//! [`EpisodeClock::stand_still`] holds it, and while it could go on but others have the threads it
//! stands still as well. That of a program of the lane runs only while the program computes: it
//! waits for nothing but the program it is connected to, whose time is not its own. It has nothing
//! to do with the clock the guest reads, which is virtual (see [`crate::wasi`]).

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::watch;

use crate::executor::Turns;

/// The shortest sleep while waiting for a clock.
const LEAST_SLEEP: Duration = Duration::from_millis(10);

/// Counts the time that is charged to a guest. Clones share one count.
#[derive(Debug, Clone)]
pub struct EpisodeClock {
    state: Arc<Mutex<ClockState>>,
}

#[derive(Debug)]
struct ClockState {
    /// Time charged before `since`.
    charged: Duration,
    /// When the clock last began to run; none while it stands still.
    since: Option<Instant>,
    /// How many guards hold it.
    holds: usize,
}

impl EpisodeClock {
    /// A running clock at zero.
    pub fn start() -> Self {
        let state = ClockState { charged: Duration::ZERO, since: Some(Instant::now()), holds: 0 };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// The time charged so far.
    pub fn charged(&self) -> Duration {
        let state = self.lock();
        state.charged + state.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Whether the clock is held just now.
    pub fn stands_still(&self) -> bool {
        self.lock().since.is_none()
    }

    /// Holds the clock until the guard is dropped. Guards may overlap.
    #[must_use = "the clock runs on as soon as the guard is dropped"]
    pub fn stand_still(&self) -> StandStill {
        let mut state = self.lock();
        state.holds += 1;
        if let Some(since) = state.since.take() {
            state.charged += since.elapsed();
        }
        drop(state);
        StandStill { clock: self.clone() }
    }

    /// Runs `call`; the clock stands still between its turns when it gave up the thread without
    /// waiting for anything.
    pub(crate) async fn charge<F: Future>(&self, call: F) -> F::Output {
        let mut call = pin!(call);
        let mut turns = Turns::default();
        let mut queued = None;
        poll_fn(|context| {
            queued = None;
            let (polled, could_go_on) = turns.poll(call.as_mut(), context);
            if polled.is_pending() && could_go_on {
                queued = Some(self.stand_still());
            }
            polled
        })
        .await
    }

    /// Runs `call`; the clock stands still between its turns, whatever it waits for.
    pub(crate) async fn charge_turns<F: Future>(&self, call: F) -> F::Output {
        let mut call = pin!(call);
        let mut between = None;
        poll_fn(|context| {
            between = None;
            let polled = call.as_mut().poll(context);
            if polled.is_pending() {
                between = Some(self.stand_still());
            }
            polled
        })
        .await
    }

    /// Waits until the clock has reached `limit`.
    pub(crate) async fn reached(&self, limit: Duration) {
        loop {
            let left = limit.saturating_sub(self.charged());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.max(LEAST_SLEEP)).await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ClockState> {
        // A panic elsewhere cannot leave the three fields in a harmful state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Holds an [`EpisodeClock`] while it lives.
#[derive(Debug)]
pub struct StandStill {
    clock: EpisodeClock,
}

impl Drop for StandStill {
    fn drop(&mut self) {
        let mut state = self.clock.lock();
        state.holds = state.holds.saturating_sub(1);
        if state.holds == 0 {
            state.since = Some(Instant::now());
        }
    }
}

/// Tells a running guest to stop. Clones share one state; it never goes back.
///
/// Once cancelled, calls for the policy and for commands answer `cancelled`, the guest has the
/// grace of its [`crate::limits::Limits`] left, and then is stopped.
#[derive(Debug, Clone)]
pub struct Cancellation {
    sender: Arc<watch::Sender<bool>>,
}

impl Default for Cancellation {
    fn default() -> Self {
        Self::new()
    }
}

impl Cancellation {
    /// Not cancelled.
    pub fn new() -> Self {
        Self { sender: Arc::new(watch::Sender::new(false)) }
    }

    /// Cancels, for all clones.
    pub fn cancel(&self) {
        self.sender.send_replace(true);
    }

    /// Whether it has been cancelled.
    pub fn is_cancelled(&self) -> bool {
        *self.sender.borrow()
    }

    /// Waits until it is cancelled.
    pub async fn cancelled(&self) {
        let mut receiver = self.sender.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = receiver.wait_for(|cancelled| *cancelled).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_stands_still_until_the_last_guard_is_dropped() {
        let clock = EpisodeClock::start();
        let first = clock.stand_still();
        let second = clock.stand_still();
        let held = clock.charged();
        drop(first);
        assert!(clock.stands_still());
        assert_eq!(clock.charged(), held);
        drop(second);
        assert!(!clock.stands_still());
        assert!(clock.charged() >= held);
    }

    #[tokio::test]
    async fn waiting_for_a_turn_is_not_charged_and_waiting_for_others_is() {
        let clock = EpisodeClock::start();
        let inside = clock.clone();
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let call = async move {
            let mut yielded = false;
            poll_fn(|context| {
                if std::mem::replace(&mut yielded, true) {
                    return std::task::Poll::Ready(());
                }
                context.waker().wake_by_ref();
                std::task::Poll::Pending
            })
            .await;
            assert!(!inside.stands_still());
            receiver.await.unwrap();
        };
        let mut call = pin!(clock.charge(call));
        assert!(futures::poll!(&mut call).is_pending());
        assert!(clock.stands_still());
        assert!(futures::poll!(&mut call).is_pending());
        assert!(!clock.stands_still());
        sender.send(()).unwrap();
        call.await;
        assert!(!clock.stands_still());
        clock.reached(Duration::from_nanos(1)).await;
    }

    #[tokio::test]
    async fn only_turns_are_charged_to_a_call_that_waits_for_another_guest() {
        let clock = EpisodeClock::start();
        let inside = clock.clone();
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let call = async move {
            receiver.await.unwrap();
            inside.stands_still()
        };
        let mut call = pin!(clock.charge_turns(call));
        assert!(!clock.stands_still());
        assert!(futures::poll!(&mut call).is_pending());
        assert!(clock.stands_still());
        sender.send(()).unwrap();
        assert!(!call.await, "the clock runs in a turn");
    }

    #[tokio::test]
    async fn cancelling_wakes_all_clones() {
        let cancellation = Cancellation::new();
        let clone = cancellation.clone();
        assert!(!clone.is_cancelled());
        let waiting = tokio::spawn(async move { clone.cancelled().await });
        cancellation.cancel();
        waiting.await.unwrap();
        assert!(cancellation.is_cancelled());
        // Waiting after the fact returns at once.
        cancellation.cancelled().await;
    }
}
