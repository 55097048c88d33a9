//! Holding calls back while the policy changes.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

/// Where every call to a policy passes. Counting the calls that have passed and closing the gate
/// is one step, so that nobody slips through between a pause and its drain.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    state: Arc<watch::Sender<State>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    pauses: usize,
    passed: usize,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { state: Arc::new(watch::Sender::new(State::default())) }
    }

    /// Waits while the gate is closed.
    pub(crate) async fn pass(&self) -> Passed {
        let mut changes = self.state.subscribe();
        while !self.try_pass() {
            // The sender lives in `self`, so this cannot fail.
            let _ = changes.wait_for(|state| state.pauses == 0).await;
        }
        Passed { gate: self.clone() }
    }

    fn try_pass(&self) -> bool {
        self.state.send_if_modified(|state| {
            let open = state.pauses == 0;
            state.passed += usize::from(open);
            open
        })
    }

    pub(crate) fn pause(&self) -> Pause {
        self.state.send_modify(|state| state.pauses += 1);
        Pause { gate: self.clone() }
    }

    pub(crate) fn passed(&self) -> usize {
        self.state.borrow().passed
    }
}

/// A call on the other side of the gate.
#[derive(Debug)]
pub(crate) struct Passed {
    gate: Gate,
}

impl Drop for Passed {
    fn drop(&mut self) {
        self.gate.state.send_modify(|state| state.passed = state.passed.saturating_sub(1));
    }
}

/// Whether the policies came to rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// No call runs, and none will until the pause ends.
    Idle,
    /// The time passed and this many calls still run.
    StillRunning(usize),
}

/// While this lives, no new call reaches a policy; calls wait, they do not fail. Pauses may
/// overlap.
#[derive(Debug)]
#[must_use = "the pause ends as soon as this is dropped"]
pub struct Pause {
    gate: Gate,
}

impl Pause {
    /// Waits until no call runs, but not longer than this.
    pub async fn drain(&self, longest: Duration) -> Drained {
        let mut changes = self.gate.state.subscribe();
        let idle = changes.wait_for(|state| state.passed == 0);
        match tokio::time::timeout(longest, idle).await {
            Ok(_) => Drained::Idle,
            Err(_) => Drained::StillRunning(self.gate.passed()),
        }
    }

    /// Lets the calls go on. The same as dropping the pause.
    pub fn resume(self) {}
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.gate.state.send_modify(|state| state.pauses = state.pauses.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use futures_lite_poll::is_pending;

    use super::*;

    /// One poll of a future, without a runtime's help.
    mod futures_lite_poll {
        use std::{
            pin::Pin,
            task::{Context, Waker},
        };

        pub(super) fn is_pending<F: Future>(future: Pin<&mut F>) -> bool {
            future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
        }
    }

    #[tokio::test]
    async fn calls_wait_until_the_last_of_overlapping_pauses_ends() {
        let gate = Gate::new();
        let (first, second) = (gate.pause(), gate.pause());
        let mut pass = std::pin::pin!(gate.pass());
        assert!(is_pending(pass.as_mut()));
        first.resume();
        assert!(is_pending(pass.as_mut()));
        drop(second);
        let passed = pass.await;
        assert_eq!(gate.passed(), 1);
        drop(passed);
        assert_eq!(gate.passed(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_waits_for_running_calls_but_is_bounded() {
        let gate = Gate::new();
        let running = gate.pass().await;
        let pause = gate.pause();
        assert_eq!(pause.drain(Duration::from_secs(3)).await, Drained::StillRunning(1));
        drop(running);
        assert_eq!(pause.drain(Duration::ZERO).await, Drained::Idle);
    }
}
