//! From the limits of a plan to those of the rooms that hold them, and an episode's seed.

use std::num::{NonZeroU32, NonZeroU64};

use fulgurite_runtime::limits::{Limits, Role};
use fulgurite_sandbox::{CommandLimits, Quota};
use fulgurite_trace::Digest;

use crate::limits::EpisodeLimits;

/// What a wished timeout of a command is worth in fuel. An interpreter in the lane was measured at
/// 7 to 8 million a millisecond (CPython 3.12, an endless loop, one core of a busy machine); a
/// little less gives slow machines the time that was asked for.
pub(crate) const FUEL_PER_MILLISECOND: u64 = 5_000_000;

/// The seed of an episode: the same for every attempt, so that a retry is the same episode.
pub(crate) fn seed(run: u64, task: &str, sample: u32) -> u64 {
    let digest = Digest::of(format!("{run}\0{sample}\0{task}"));
    let [a, b, c, d, e, f, g, h, ..] = *digest.as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

pub(crate) fn quota(limits: &EpisodeLimits) -> Quota {
    Quota {
        bytes: limits.workspace_bytes,
        files: limits.workspace_files,
        handles: narrow(limits.open_files),
        ..Quota::default()
    }
}

pub(crate) fn command_limits(limits: &EpisodeLimits) -> CommandLimits {
    CommandLimits {
        fuel: limits.command_fuel,
        fuel_per_millisecond: FUEL_PER_MILLISECOND,
        program_memory_bytes: limits.command_memory,
        output_bytes: usize::try_from(limits.output).unwrap_or(usize::MAX),
        ..CommandLimits::default()
    }
}

pub(crate) fn guest_limits(role: Role, fuel: u64, episode: &EpisodeLimits) -> Limits {
    let mut limits = Limits::of(role);
    limits.fuel = NonZeroU64::new(fuel).unwrap_or(limits.fuel);
    limits.memory_bytes = NonZeroU64::new(episode.memory).unwrap_or(limits.memory_bytes);
    let wall = u64::try_from(episode.wall.as_millis()).unwrap_or(u64::MAX);
    limits.wall_ms = NonZeroU64::new(wall).unwrap_or(limits.wall_ms);
    let time = u64::try_from(episode.time.as_millis()).unwrap_or(u64::MAX);
    limits.virtual_ms = NonZeroU64::new(time).unwrap_or(limits.virtual_ms);
    limits.output_bytes = NonZeroU32::new(narrow(episode.output)).unwrap_or(limits.output_bytes);
    limits
}

pub(crate) fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
