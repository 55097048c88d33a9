//! How long an episode has waited for its policy.

use std::{sync::Mutex, time::Duration};

use tokio::time::Instant;

use crate::lock;

/// Runs while at least one guard lives: overlapping waits count once.
#[derive(Debug, Default)]
pub(crate) struct Stopwatch(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    total: Duration,
    since: Option<Instant>,
    guards: usize,
}

impl Stopwatch {
    pub(crate) fn wait(&self) -> Waiting<'_> {
        let mut state = lock(&self.0);
        state.guards += 1;
        if state.since.is_none() {
            state.since = Some(Instant::now());
        }
        Waiting(self)
    }

    pub(crate) fn total(&self) -> Duration {
        let state = lock(&self.0);
        state.total + state.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// Keeps the stopwatch running.
#[derive(Debug)]
pub(crate) struct Waiting<'a>(&'a Stopwatch);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.0);
        state.guards = state.guards.saturating_sub(1);
        if state.guards == 0
            && let Some(since) = state.since.take()
        {
            state.total += since.elapsed();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn overlapping_waits_count_once_and_pauses_between_do_not() {
        let stopwatch = Stopwatch::default();
        let first = stopwatch.wait();
        advance(Duration::from_secs(1)).await;
        let second = stopwatch.wait();
        advance(Duration::from_secs(1)).await;
        assert_eq!(stopwatch.total(), Duration::from_secs(2));
        drop(first);
        advance(Duration::from_secs(1)).await;
        drop(second);
        advance(Duration::from_secs(5)).await;
        assert_eq!(stopwatch.total(), Duration::from_secs(3));
    }
}
