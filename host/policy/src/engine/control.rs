//! Pausing and draining, from outside of the engine's thread.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::EngineStatistics;

/// What the engine's thread and its owner share.
#[derive(Debug)]
pub(crate) struct Control {
    wishes: Mutex<Wishes>,
    changed: Condvar,
    state: watch::Sender<State>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Wishes {
    pauses: usize,
    drains: usize,
    /// The owner is gone.
    closed: bool,
}

impl Wishes {
    const fn hold(self, active: usize) -> bool {
        !self.closed && (self.pauses > 0 || (self.drains > 0 && active == 0))
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    statistics: EngineStatistics,
    /// The engine is between two steps, and looks at the wishes before it begins another.
    stands: bool,
}

impl Control {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            wishes: Mutex::default(),
            changed: Condvar::new(),
            state: watch::Sender::new(State::default()),
        })
    }

    /// Every critical section leaves the wishes whole.
    fn wishes(&self) -> MutexGuard<'_, Wishes> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine's thread: waits while it must stand still. `false`: no calls may be admitted.
    pub(super) fn before_step(&self, active: usize) -> bool {
        loop {
            let wishes = *self.wishes();
            if !wishes.hold(active) {
                return wishes.drains == 0;
            }
            self.stand(true);
            let mut wishes = self.wishes();
            while wishes.hold(active) {
                wishes = self.changed.wait(wishes).unwrap_or_else(PoisonError::into_inner);
            }
            drop(wishes);
            // First told, then looked again: who wished before this was told is seen.
            self.stand(false);
        }
    }

    /// The engine's thread: whether it is between two steps. Never called under the lock of the
    /// wishes, which waiters take while they hold the state.
    pub(super) fn stand(&self, stands: bool) {
        self.state.send_modify(|state| state.stands = stands);
    }

    pub(super) fn publish(&self, statistics: EngineStatistics) {
        self.state.send_modify(|state| state.statistics = statistics);
    }

    pub(crate) fn statistics(&self) -> EngineStatistics {
        self.state.borrow().statistics
    }

    /// Lets the engine's thread end, whatever it waits for.
    pub(crate) fn close(&self) {
        self.wishes().closed = true;
        self.changed.notify_all();
    }

    /// Stops at the next step's end and waits for it.
    pub(crate) async fn pause(self: &Arc<Self>) -> Paused {
        self.hold(Kind::Pause, |_| true).await
    }

    /// Admits no further call and waits until those that are under way have ended.
    pub(crate) async fn drain(self: &Arc<Self>) -> Paused {
        self.hold(Kind::Drain, |statistics| statistics.active == 0).await
    }

    async fn hold(
        self: &Arc<Self>,
        kind: Kind,
        enough: impl Fn(&EngineStatistics) -> bool,
    ) -> Paused {
        let mut state = self.state.subscribe();
        *kind.count(&mut self.wishes()) += 1;
        // From here on a dropped future takes the wish back.
        let paused = Paused { control: self.clone(), kind };
        // The sender lives in `self`: waiting cannot fail.
        let _ = state.wait_for(|now| now.stands && enough(&now.statistics)).await;
        paused
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Pause,
    Drain,
}

impl Kind {
    fn count(self, wishes: &mut Wishes) -> &mut usize {
        match self {
            Self::Pause => &mut wishes.pauses,
            Self::Drain => &mut wishes.drains,
        }
    }
}

/// An engine that stands still; it goes on when this is dropped. Calls wait meanwhile.
#[derive(Debug)]
#[must_use = "the engine goes on when this is dropped"]
pub struct Paused {
    control: Arc<Control>,
    kind: Kind,
}

impl Drop for Paused {
    fn drop(&mut self) {
        *self.kind.count(&mut self.control.wishes()) -= 1;
        self.control.changed.notify_all();
    }
}
