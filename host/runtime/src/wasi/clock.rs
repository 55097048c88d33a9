//! The virtual clock and what a guest may conclude from it.
//!
//! # Rules
//! 1. Time is a number the host owns. Each reading moves it by a fixed tick, so that loops which
//!    wait for time to pass end; nothing else moves it but waiting. Nobody ever really sleeps.
//! 2. The monotonic clock and the wall clock are one clock; the wall clock adds a fixed epoch.
//! 3. Waiting for a timer alone moves the clock to the timer's instant.
//! 4. What the host does for a guest takes no virtual time: a model call, a command, a file. A
//!    pending reply therefore always comes before a timer that lies in the future, and `poll` and
//!    `ready` *await* it, however long that really takes. Of several pending replies all are
//!    awaited. So the answer of a poll never depends on how fast a model was.
//! 5. Bytes from a connected program come before a timer too, as long as they come: when both
//!    programs wait and neither can go on, the earliest timer among them fires ([`super::pipe`]).
//! 6. A clock may have a limit. The call that would move it past the limit ends the guest with
//!    [`VirtualTimeout`].

use wasmtime::component::Resource;
use wasmtime_wasi::p2::bindings::clocks::{
    monotonic_clock::{self, Duration, Instant},
    wall_clock::{self, Datetime},
};
use wasmtime_wasi_io::poll::{DynPollable, Pollable, subscribe};

use super::state::WasiState;

pub(crate) const NANOSECONDS: u64 = 1_000_000_000;

/// How the virtual clock of a guest goes. All numbers are nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockConfig {
    /// What the wall clock shows at the start, since 1970.
    pub epoch: u64,
    /// How far each reading moves the clock.
    pub tick: u64,
    /// When the guest's time is up; none for never.
    pub limit: Option<u64>,
}

impl Default for ClockConfig {
    /// Starts at 2025-01-01 00:00 UTC, 10 µs a reading, without limit.
    fn default() -> Self {
        Self { epoch: 1_735_689_600 * NANOSECONDS, tick: 10_000, limit: None }
    }
}

/// The guest's time was up on its virtual clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the guest's time limit of {limit_ms} ms on its virtual clock has passed")]
pub struct VirtualTimeout {
    /// The limit, in milliseconds.
    pub limit_ms: u64,
}

/// One guest's clock; see the rules above.
#[derive(Debug)]
pub struct VirtualClock {
    config: ClockConfig,
    now: u64,
}

impl VirtualClock {
    pub(crate) fn new(config: ClockConfig) -> Self {
        Self { config, now: 0 }
    }

    /// Nanoseconds that have passed for the guest. Looking does not move the clock.
    pub fn elapsed(&self) -> u64 {
        self.now
    }

    /// Nanoseconds left until the limit; none without one.
    pub fn left(&self) -> Option<u64> {
        self.config.limit.map(|limit| limit.saturating_sub(self.now))
    }

    /// Whether the limit has passed.
    pub fn expired(&self) -> bool {
        self.config.limit.is_some_and(|limit| self.now > limit)
    }

    /// What a reading of the wall clock would show, in nanoseconds since 1970.
    pub(crate) fn wall(&self) -> u64 {
        self.config.epoch.saturating_add(self.now)
    }

    /// One reading.
    pub(crate) fn read(&mut self) -> Result<u64, VirtualTimeout> {
        self.advance(self.now.saturating_add(self.config.tick))?;
        Ok(self.now)
    }

    /// Moves the clock to `instant` unless it is past it already.
    pub(crate) fn advance(&mut self, instant: u64) -> Result<(), VirtualTimeout> {
        match self.config.limit {
            Some(limit) if instant.max(self.now) > limit => {
                self.now = self.now.max(limit.saturating_add(1));
                Err(VirtualTimeout { limit_ms: limit / 1_000_000 })
            }
            _ => {
                self.now = self.now.max(instant);
                Ok(())
            }
        }
    }
}

/// What a timer's pollable stands on. Its instant is kept in [`WasiState::timers`], where `poll`
/// looks; nothing ever waits on this.
struct Timer;

#[wasmtime_wasi_io::async_trait]
impl Pollable for Timer {
    async fn ready(&mut self) {}
}

impl WasiState {
    fn subscribe_at(&mut self, instant: u64) -> wasmtime::Result<Resource<DynPollable>> {
        let timer = self.table.push(Timer)?;
        let pollable = subscribe(&mut self.table, timer)?;
        self.timers.insert(pollable.rep(), instant);
        Ok(pollable)
    }
}

impl monotonic_clock::Host for WasiState {
    fn now(&mut self) -> wasmtime::Result<Instant> {
        Ok(self.clock.read()?)
    }

    fn resolution(&mut self) -> wasmtime::Result<Duration> {
        Ok(self.clock.config.tick.max(1))
    }

    fn subscribe_instant(&mut self, when: Instant) -> wasmtime::Result<Resource<DynPollable>> {
        self.subscribe_at(when)
    }

    fn subscribe_duration(&mut self, when: Duration) -> wasmtime::Result<Resource<DynPollable>> {
        self.subscribe_at(self.clock.now.saturating_add(when))
    }
}

impl wall_clock::Host for WasiState {
    fn now(&mut self) -> wasmtime::Result<Datetime> {
        self.clock.read()?;
        Ok(datetime(self.clock.wall()))
    }

    fn resolution(&mut self) -> wasmtime::Result<Datetime> {
        Ok(datetime(self.clock.config.tick.max(1)))
    }
}

/// Nanoseconds as WASI writes them.
pub(crate) fn datetime(nanoseconds: u64) -> Datetime {
    Datetime {
        seconds: nanoseconds / NANOSECONDS,
        // The remainder is below 10⁹ and fits.
        nanoseconds: u32::try_from(nanoseconds % NANOSECONDS).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reading_ticks_and_looking_does_not() {
        let mut clock = VirtualClock::new(ClockConfig { tick: 5, ..ClockConfig::default() });
        assert_eq!(clock.read(), Ok(5));
        assert_eq!(clock.elapsed(), 5);
        assert_eq!(clock.read(), Ok(10));
    }

    #[test]
    fn advancing_never_goes_back() {
        let mut clock = VirtualClock::new(ClockConfig::default());
        clock.advance(100).unwrap();
        clock.advance(50).unwrap();
        assert_eq!(clock.elapsed(), 100);
    }

    #[test]
    fn limit_is_reached_once_and_for_all() {
        let config = ClockConfig { tick: 1, limit: Some(2_000_000), ..ClockConfig::default() };
        let mut clock = VirtualClock::new(config);
        clock.advance(2_000_000).unwrap();
        assert!(!clock.expired());
        assert_eq!(clock.left(), Some(0));
        assert_eq!(clock.read(), Err(VirtualTimeout { limit_ms: 2 }));
        assert!(clock.expired());
        assert_eq!(clock.advance(0), Err(VirtualTimeout { limit_ms: 2 }));
    }

    #[test]
    fn sleeping_forever_saturates() {
        let mut clock = VirtualClock::new(ClockConfig::default());
        clock.advance(u64::MAX).unwrap();
        assert_eq!(clock.read(), Ok(u64::MAX));
        assert_eq!(clock.wall(), u64::MAX);
    }
}
