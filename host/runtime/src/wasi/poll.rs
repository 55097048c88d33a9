//! Waiting, by the rules of [`super::clock`].

use wasmtime::component::Resource;
use wasmtime_wasi_io::{
    bindings::wasi::io::{
        error,
        poll::{self, HostPollable},
        streams::Error,
    },
    poll::DynPollable,
};

use super::{fuel::CALL, pipe::Mode, state::WasiState};
use fulgurite_trace::file::FileError;

/// The most pollables one call may name.
const MAXIMUM_POLLABLES: usize = 4096;

/// What a poll waits for besides timers: its place in the list and its representation.
type Promise = (u32, u32);

impl WasiState {
    fn set_mode(&self, mode: Mode) {
        if let Some(side) = &self.side {
            side.set_mode(mode);
        }
    }

    async fn block_promise(&mut self, representation: u32) -> wasmtime::Result<()> {
        HostPollable::block(&mut self.table, Resource::new_borrow(representation)).await
    }

    /// Waits until each promise is kept or, where a connected program stands still as well, will
    /// not be; answers the places of those that are kept.
    async fn settle(&mut self, promises: &[Promise], patience: u64) -> wasmtime::Result<Vec<u32>> {
        self.set_mode(Mode::Patient(patience));
        for &(_, representation) in promises {
            self.block_promise(representation).await?;
        }
        let mut kept = Vec::with_capacity(promises.len());
        self.set_mode(Mode::Probe);
        for &(place, representation) in promises {
            // Without a connected program, what was awaited is there.
            let pollable = Resource::new_borrow(representation);
            if self.side.is_none() || HostPollable::ready(&mut self.table, pollable).await? {
                kept.push(place);
            }
        }
        self.set_mode(Mode::Firm);
        Ok(kept)
    }
}

impl poll::Host for WasiState {
    async fn poll(&mut self, pollables: Vec<Resource<DynPollable>>) -> wasmtime::Result<Vec<u32>> {
        if pollables.is_empty() || pollables.len() > MAXIMUM_POLLABLES {
            wasmtime::bail!(
                "poll of {} pollables; from 1 to {MAXIMUM_POLLABLES} can be waited for",
                pollables.len()
            );
        }
        self.owe(pollables.len() as u64, CALL);
        let now = self.clock.read()?;
        let mut timers = Vec::new();
        let mut promises = Vec::new();
        for (place, pollable) in (0u32..).zip(&pollables) {
            match self.timers.get(&pollable.rep()) {
                Some(&instant) => timers.push((place, instant)),
                None => promises.push((place, pollable.rep())),
            }
        }
        let earliest = timers.iter().map(|&(_, instant)| instant).min();
        if let ([(place, representation)], None) = (promises.as_slice(), earliest) {
            self.block_promise(*representation).await?;
            return Ok(vec![*place]);
        }
        loop {
            let mut ready = self.settle(&promises, earliest.unwrap_or(u64::MAX)).await?;
            let due = |now| timers.iter().filter(move |timer| timer.1 <= now).map(|timer| timer.0);
            ready.extend(due(now));
            if let (true, Some(instant)) = (ready.is_empty(), earliest) {
                self.clock.advance(instant)?;
                ready.extend(due(instant));
            }
            if !ready.is_empty() {
                ready.sort_unstable();
                return Ok(ready);
            }
            // Only pipes can be left, and the other program has to act first.
            let left = promises.iter().map(|promise| Resource::new_borrow(promise.1)).collect();
            poll::Host::poll(&mut self.table, left).await?;
        }
    }
}

impl HostPollable for WasiState {
    async fn ready(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<bool> {
        let now = self.clock.read()?;
        match self.timers.get(&pollable.rep()) {
            Some(&instant) => Ok(instant <= now),
            None => Ok(!self.settle(&[(0, pollable.rep())], now).await?.is_empty()),
        }
    }

    async fn block(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        match self.timers.get(&pollable.rep()) {
            Some(&instant) => Ok(self.clock.advance(instant)?),
            None => self.block_promise(pollable.rep()).await,
        }
    }

    fn drop(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        self.timers.remove(&pollable.rep());
        HostPollable::drop(&mut self.table, pollable)
    }
}

impl error::Host for WasiState {}

impl error::HostError for WasiState {
    /// A fixed word for each kind: the error itself may hold texts of the host.
    fn to_debug_string(&mut self, error: Resource<Error>) -> wasmtime::Result<String> {
        let error = self.table.get(&error)?;
        Ok(match error.downcast_ref::<FileError>() {
            Some(error) => error.to_string(),
            None => "the stream failed".to_owned(),
        })
    }

    fn drop(&mut self, error: Resource<Error>) -> wasmtime::Result<()> {
        self.table.delete(error)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;
    use wasmtime_wasi::p2::bindings::clocks::monotonic_clock::Host as _;
    use wasmtime_wasi_io::poll::{Pollable, subscribe};

    use super::*;
    use crate::wasi::{ClockConfig, VirtualTimeout, WasiConfig};

    /// Stands for a model's reply: ready when the sender has sent.
    struct Reply(Option<oneshot::Receiver<()>>);

    #[wasmtime_wasi_io::async_trait]
    impl Pollable for Reply {
        async fn ready(&mut self) {
            if let Some(receiver) = &mut self.0 {
                receiver.await.unwrap();
                self.0 = None;
            }
        }
    }

    fn state(limit: Option<u64>) -> WasiState {
        let clock = ClockConfig { limit, ..ClockConfig::default() };
        WasiState::new(WasiConfig { clock, ..WasiConfig::default() })
    }

    /// A reply that comes after this many milliseconds of (paused) real time.
    fn reply(state: &mut WasiState, after: u64) -> Resource<DynPollable> {
        let (sender, receiver) = oneshot::channel();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(after)).await;
            sender.send(()).unwrap();
        });
        let reply = state.table.push(Reply(Some(receiver))).unwrap();
        subscribe(&mut state.table, reply).unwrap()
    }

    fn borrow(pollable: &Resource<DynPollable>) -> Resource<DynPollable> {
        Resource::new_borrow(pollable.rep())
    }

    #[tokio::test(start_paused = true)]
    async fn reply_comes_before_a_timer_however_long_it_takes() {
        let mut state = state(None);
        let timer = state.subscribe_duration(1_000_000).unwrap();
        let reply = reply(&mut state, 3_600_000);
        let ready = poll::Host::poll(&mut state, vec![borrow(&timer), borrow(&reply)]).await;
        assert_eq!(ready.unwrap(), [1]);
        assert!(state.clock().elapsed() < 1_000_000);
        HostPollable::drop(&mut state, reply).unwrap();
        let ready = poll::Host::poll(&mut state, vec![borrow(&timer)]).await.unwrap();
        assert_eq!(ready, [0]);
        assert_eq!(state.clock().elapsed(), 1_000_000);
    }

    #[tokio::test(start_paused = true)]
    async fn all_replies_are_awaited_and_due_timers_are_told() {
        let mut state = state(None);
        let due = state.subscribe_duration(0).unwrap();
        let (late, soon) = (reply(&mut state, 500), reply(&mut state, 5));
        let list = vec![borrow(&late), borrow(&due), borrow(&soon)];
        assert_eq!(poll::Host::poll(&mut state, list).await.unwrap(), [0, 1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn asking_whether_a_reply_is_there_awaits_it() {
        let mut state = state(None);
        let reply = reply(&mut state, 100);
        assert!(HostPollable::ready(&mut state, borrow(&reply)).await.unwrap());
    }

    #[tokio::test]
    async fn earliest_timer_fires_and_those_at_the_same_instant() {
        let mut state = state(None);
        let timers: Vec<_> = [7_000_000, 5_000_000, 5_000_000]
            .map(|when| state.subscribe_instant(when).unwrap())
            .into();
        let list = timers.iter().map(borrow).collect();
        assert_eq!(poll::Host::poll(&mut state, list).await.unwrap(), [1, 2]);
        assert!(!HostPollable::ready(&mut state, borrow(&timers[0])).await.unwrap());
        HostPollable::block(&mut state, borrow(&timers[0])).await.unwrap();
        assert_eq!(state.clock().elapsed(), 7_000_000);
        for timer in timers {
            HostPollable::drop(&mut state, timer).unwrap();
        }
        assert!(state.timers.is_empty() && state.table.is_empty());
    }

    #[tokio::test]
    async fn spinning_on_a_timer_ends() {
        let mut state = state(None);
        let timer = state.subscribe_duration(1_000_000).unwrap();
        let mut turns = 0;
        while !HostPollable::ready(&mut state, borrow(&timer)).await.unwrap() {
            turns += 1;
        }
        assert_eq!(turns, 99);
    }

    #[tokio::test]
    async fn waiting_past_the_limit_ends_the_guest() {
        let mut state = state(Some(1_000_000_000));
        let timer = state.subscribe_duration(u64::MAX).unwrap();
        let error = poll::Host::poll(&mut state, vec![borrow(&timer)]).await.unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&VirtualTimeout { limit_ms: 1000 }));
        assert!(state.clock().expired());
    }

    #[tokio::test]
    async fn empty_and_endless_lists_end_the_guest() {
        let mut state = state(None);
        assert!(poll::Host::poll(&mut state, Vec::new()).await.is_err());
        let timer = state.subscribe_duration(1).unwrap();
        let list = (0..=MAXIMUM_POLLABLES).map(|_| borrow(&timer)).collect();
        assert!(poll::Host::poll(&mut state, list).await.is_err());
    }

    #[test]
    fn errors_are_told_in_fixed_words() {
        use error::HostError;
        let mut state = state(None);
        let own = state.table.push(wasmtime::Error::msg("/home/me/secret")).unwrap();
        let file = state.table.push(wasmtime::Error::from(FileError::NoSpace)).unwrap();
        assert_eq!(state.to_debug_string(own).unwrap(), "the stream failed");
        assert_eq!(state.to_debug_string(file).unwrap(), "no space left on device");
    }
}
