//! How much a guest may use, decoded once into types that cannot be zero.
//!
//! # Which limit or signal yields which kind
//!
//! | limit or signal | what the guest sees | kind |
//! |---|---|---|
//! | `fuel`, of instructions and of calls of WASI ([`crate::wasi::fuel`]) | is stopped | `out-of-fuel` |
//! | `memory-bytes`, summed over all memories | `memory.grow` answers −1; a trap or exit afterwards is put down to it | `out-of-memory` |
//! | `table-elements`, summed over all tables | `table.grow` answers −1; likewise | `out-of-memory` |
//! | `memories`, `tables`, `instances` | is never started | `out-of-memory` |
//! | `hostcall-bytes`, passed to one host call | is stopped | `out-of-memory` |
//! | `handles`, alive at once | is stopped | `out-of-memory` |
//! | `resources`, alive at once in the host | the call fails with an error code, or the guest is stopped where the call has none | `out-of-memory` when stopped |
//! | `wall-ms` (the backstop, see [`crate::clock`]) | is stopped | `timeout` |
//! | `virtual-ms` of the guest's own clock | is stopped | `timeout` |
//! | `output-bytes` | nothing: more output is dropped | – |
//! | a trap (unreachable, bad access, stack overflow, …) | is stopped | `trap` |
//! | an import that was only stubbed | the call fails; an error, exit or trap with no good call after it is put down to it | `denied` |
//! | a budget of the episode | `budget`; likewise | `budget` |
//! | history too long | `context-length`; likewise | `context-length` |
//! | policy down, slow or rate-limited | `unavailable`, `timeout`, `rate-limited`; likewise | `policy-error` |
//! | the lane is down | `unavailable`; likewise | `sandbox-error` |
//! | [`crate::clock::Cancellation`] | `cancelled`, then the grace, then is stopped | `cancelled` |
//! | the pool of instances is full, the machine is out of memory | is never started | `sandbox-error` |
//! | the turns that a reward asks for cannot be read | is stopped | `sandbox-error` |
//! | returns an error | – | `harness-error` |
//! | exits without an outcome | – | `harness-error` |
//!
//! For rewards the same signals stand in [`crate::reward::RewardFailure::signal`]; the kind is
//! `reward-error`, or `sandbox-error` and `cancelled` where it is not the reward's doing.

use std::{
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use wasmtime::ResourceLimiter;

/// What is run; decides the defaults of [`Limits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// An agent program.
    Harness,
    /// A scorer.
    Reward,
    /// A program of the wasm lane, for one command.
    Program,
}

/// Limits as written in a configuration. What is absent takes the role's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct LimitSettings {
    /// Fuel: about one unit an instruction, and what calls of WASI cost.
    pub fuel: Option<u64>,
    /// Milliseconds on the wall clock, the backstop.
    pub wall_ms: Option<u64>,
    /// Milliseconds on the guest's own, virtual clock.
    pub virtual_ms: Option<u64>,
    /// Bytes of all linear memories together.
    pub memory_bytes: Option<u64>,
    /// Elements of all tables together.
    pub table_elements: Option<u32>,
    /// Core instances.
    pub instances: Option<u32>,
    /// Linear memories.
    pub memories: Option<u32>,
    /// Tables.
    pub tables: Option<u32>,
    /// Kept bytes of each standard stream.
    pub output_bytes: Option<u32>,
    /// Bytes passed to one host call.
    pub hostcall_bytes: Option<u32>,
    /// Resources alive in the host.
    pub resources: Option<u32>,
    /// Handles alive in the guest.
    pub handles: Option<u32>,
}

/// A limit cannot be what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Nothing could run.
    #[error("the limit `{0}` is 0; give a positive number, or leave it out for the default")]
    Zero(&'static str),
    /// More than can be held to.
    #[error("the limit `{name}` is {value}; it can be {most} at most")]
    TooLarge {
        /// The limit.
        name: &'static str,
        /// What was asked for.
        value: u64,
        /// What is possible.
        most: u64,
    },
}

/// How much one guest may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Limits {
    /// Fuel: about one unit an instruction, and what calls of WASI cost.
    pub fuel: NonZeroU64,
    /// Milliseconds on the wall clock, the backstop.
    pub wall_ms: NonZeroU64,
    /// Milliseconds on the guest's own, virtual clock. Lane programs have theirs by command.
    pub virtual_ms: NonZeroU64,
    /// Bytes of all linear memories together.
    pub memory_bytes: NonZeroU64,
    /// Elements of all tables together.
    pub table_elements: NonZeroU32,
    /// Core instances.
    pub instances: NonZeroU32,
    /// Linear memories.
    pub memories: NonZeroU32,
    /// Tables.
    pub tables: NonZeroU32,
    /// Kept bytes of each standard stream.
    pub output_bytes: NonZeroU32,
    /// Bytes passed to one host call.
    pub hostcall_bytes: NonZeroU32,
    /// Resources alive in the host.
    pub resources: NonZeroU32,
    /// Handles alive in the guest.
    pub handles: NonZeroU32,
}

const MIB: u64 = 1 << 20;

/// One linear memory cannot be larger than this (wasm32).
const MOST_MEMORY: u64 = 4096 * MIB;

/// A hundred years.
const MOST_VIRTUAL: u64 = 100 * 365 * 24 * 3_600_000;

impl Limits {
    /// Decodes settings; the role gives what is absent.
    pub fn decode(role: Role, settings: &LimitSettings) -> Result<Self, LimitError> {
        let (fuel, wall_ms, memory_bytes) = match role {
            Role::Harness => (20_000_000_000, 120_000, 256 * MIB),
            Role::Reward => (50_000_000_000, 300_000, 512 * MIB),
            Role::Program => (10_000_000_000, 60_000, 512 * MIB),
        };
        let limits = Self {
            fuel: wide("fuel", settings.fuel, fuel, u64::MAX / 2)?,
            wall_ms: wide("wall-ms", settings.wall_ms, wall_ms, u64::from(u32::MAX))?,
            virtual_ms: wide("virtual-ms", settings.virtual_ms, 3_600_000, MOST_VIRTUAL)?,
            memory_bytes: wide("memory-bytes", settings.memory_bytes, memory_bytes, MOST_MEMORY)?,
            table_elements: narrow("table-elements", settings.table_elements, 50_000, 10_000_000)?,
            instances: narrow("instances", settings.instances, 100, 1_000)?,
            memories: narrow("memories", settings.memories, 4, 100)?,
            tables: narrow("tables", settings.tables, 50, 1_000)?,
            output_bytes: narrow("output-bytes", settings.output_bytes, 64 << 10, 64 << 20)?,
            hostcall_bytes: narrow("hostcall-bytes", settings.hostcall_bytes, 8 << 20, 256 << 20)?,
            resources: narrow("resources", settings.resources, 1_000, 100_000)?,
            handles: narrow("handles", settings.handles, 2_000, 100_000)?,
        };
        Ok(limits)
    }

    /// The defaults of a role.
    pub fn of(role: Role) -> Self {
        // The defaults are constants that decode; a test holds them to it.
        Self::decode(role, &LimitSettings::default()).unwrap_or(Self::LEAST)
    }

    /// The backstop as a duration.
    pub const fn wall(&self) -> Duration {
        Duration::from_millis(self.wall_ms.get())
    }

    /// Fuel that is left to a guest from the moment it is cancelled.
    pub(crate) const GRACE_FUEL: u64 = 200_000_000;

    /// Wall time that is left to a guest from the moment it is cancelled.
    pub(crate) const GRACE_WALL: Duration = Duration::from_secs(2);

    /// What `describe` may use: it computes a constant, so little; only interpreters need much.
    pub(crate) fn of_describe() -> Self {
        let mut limits = Self::of(Role::Harness);
        limits.fuel = NonZeroU64::new(5_000_000_000).unwrap_or(limits.fuel);
        limits.wall_ms = NonZeroU64::new(20_000).unwrap_or(limits.wall_ms);
        limits
    }

    const LEAST: Self = Self {
        fuel: NonZeroU64::MIN,
        wall_ms: NonZeroU64::MIN,
        virtual_ms: NonZeroU64::MIN,
        memory_bytes: NonZeroU64::MIN,
        table_elements: NonZeroU32::MIN,
        instances: NonZeroU32::MIN,
        memories: NonZeroU32::MIN,
        tables: NonZeroU32::MIN,
        output_bytes: NonZeroU32::MIN,
        hostcall_bytes: NonZeroU32::MIN,
        resources: NonZeroU32::MIN,
        handles: NonZeroU32::MIN,
    };
}

fn wide(
    name: &'static str,
    value: Option<u64>,
    default: u64,
    most: u64,
) -> Result<NonZeroU64, LimitError> {
    let value = value.unwrap_or(default);
    if value > most {
        return Err(LimitError::TooLarge { name, value, most });
    }
    NonZeroU64::new(value).ok_or(LimitError::Zero(name))
}

fn narrow(
    name: &'static str,
    value: Option<u32>,
    default: u32,
    most: u32,
) -> Result<NonZeroU32, LimitError> {
    let value = value.unwrap_or(default);
    if value > most {
        return Err(LimitError::TooLarge { name, value: value.into(), most: most.into() });
    }
    NonZeroU32::new(value).ok_or(LimitError::Zero(name))
}

/// Sums what a guest's memories and tables occupy and refuses what goes over.
#[derive(Debug)]
pub(crate) struct Quota {
    limits: Limits,
    memory: usize,
    elements: usize,
    /// What the last permitted growth added, to be taken back when it fails after all.
    last_memory: usize,
    last_elements: usize,
    refused: Option<Refusal>,
}

/// What a guest was refused first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Memory,
    Table,
}

impl Quota {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, memory: 0, elements: 0, last_memory: 0, last_elements: 0, refused: None }
    }

    /// What was refused, if anything: decides whether a trap is `out-of-memory`.
    pub(crate) fn refused(&self) -> Option<Refusal> {
        self.refused
    }

    /// Bytes of all memories.
    pub(crate) fn memory(&self) -> usize {
        self.memory
    }

    fn refuse(&mut self, what: Refusal) {
        self.refused.get_or_insert(what);
    }
}

impl ResourceLimiter for Quota {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let added = desired.saturating_sub(current);
        let total = self.memory.saturating_add(added);
        let fits = u64::try_from(total).is_ok_and(|total| total <= self.limits.memory_bytes.get());
        if !fits || maximum.is_some_and(|maximum| desired > maximum) {
            self.refuse(Refusal::Memory);
            return Ok(false);
        }
        self.memory = total;
        self.last_memory = added;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.memory = self.memory.saturating_sub(std::mem::take(&mut self.last_memory));
        self.refuse(Refusal::Memory);
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let added = desired.saturating_sub(current);
        let total = self.elements.saturating_add(added);
        let fits = u64::try_from(total)
            .is_ok_and(|total| total <= self.limits.table_elements.get().into());
        if !fits || maximum.is_some_and(|maximum| desired > maximum) {
            self.refuse(Refusal::Table);
            return Ok(false);
        }
        self.elements = total;
        self.last_elements = added;
        Ok(true)
    }

    fn table_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        self.elements = self.elements.saturating_sub(std::mem::take(&mut self.last_elements));
        self.refuse(Refusal::Table);
        Ok(())
    }

    fn instances(&self) -> usize {
        usize::try_from(self.limits.instances.get()).unwrap_or(usize::MAX)
    }

    fn tables(&self) -> usize {
        usize::try_from(self.limits.tables.get()).unwrap_or(usize::MAX)
    }

    fn memories(&self) -> usize {
        usize::try_from(self.limits.memories.get()).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_every_role_decode() {
        for role in [Role::Harness, Role::Reward, Role::Program] {
            let limits = Limits::decode(role, &LimitSettings::default()).unwrap();
            assert_eq!(limits, Limits::of(role));
            assert_ne!(limits, Limits::LEAST);
        }
    }

    #[test]
    fn zero_and_excess_are_refused_by_name() {
        let zero = LimitSettings { handles: Some(0), ..LimitSettings::default() };
        assert_eq!(Limits::decode(Role::Reward, &zero), Err(LimitError::Zero("handles")));
        let large = LimitSettings { memory_bytes: Some(MOST_MEMORY + 1), ..Default::default() };
        let error = Limits::decode(Role::Harness, &large).unwrap_err();
        assert!(error.to_string().contains("`memory-bytes`"), "{error}");
    }

    #[test]
    fn unknown_limits_are_errors() {
        let parsed: Result<LimitSettings, _> = serde_json::from_str(r#"{"fule": 1}"#);
        assert!(parsed.unwrap_err().to_string().contains("fule"));
    }

    #[test]
    fn memory_is_summed_over_memories_and_failed_growth_is_taken_back() {
        let settings = LimitSettings { memory_bytes: Some(300), ..Default::default() };
        let mut quota = Quota::new(Limits::decode(Role::Harness, &settings).unwrap());
        assert!(quota.memory_growing(0, 100, None).unwrap());
        assert!(quota.memory_growing(0, 150, None).unwrap());
        assert_eq!(quota.refused(), None);
        quota.memory_grow_failed(wasmtime::Error::msg("no")).unwrap();
        assert_eq!(quota.memory(), 100);
        assert!(quota.memory_growing(100, 300, None).unwrap());
        assert!(!quota.memory_growing(300, 301, None).unwrap());
        assert_eq!(quota.refused(), Some(Refusal::Memory));
    }
}
