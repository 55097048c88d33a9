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

use super::{pipe::Mode, state::WasiState};
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
