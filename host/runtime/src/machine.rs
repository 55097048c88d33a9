//! What the machine has room for, and the sizes of the pools that follow from it.
//!
//! A guest that is alive costs mappings of the process (at most [`MAPPINGS_A_SLOT`]: guard page
//! and stack, image, heap and the inaccessible rest of its memory), and the kernel allows
//! `vm.max_map_count` of them. With the usual 65,530 just over 10,000 guests fit. When address
//! space is short (`ulimit -v`) the pools shrink their reservations, and where not even that
//! fits, guests are allocated on demand: slower, but they run.

use std::{fs, num::NonZeroU32};

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use serde::{Deserialize, Serialize};

/// Mappings of one guest with one memory.
pub const MAPPINGS_A_SLOT: u64 = 6;

/// Mappings that are left for everything else in the process: libraries, heaps, threads, compiled
/// components, model files.
const MAPPINGS_KEPT: u64 = 2_500;

/// Resident bytes that a waiting guest occupies at least.
const RESIDENT_A_SLOT: u64 = 100 << 10;

/// What Linux allows when it does not say.
const USUAL_MAPPINGS: u64 = 65_530;

/// User address space on x86-64 and aarch64, of which half is taken at most.
const USUAL_ADDRESS_SPACE: u64 = 1 << 47;

/// Pages that a finished guest wrote and that stay resident for the next one in its place: they
/// are copied anew from the component's image, which is cheaper than giving them back and having
/// each faulted in again. wasmtime does so for the first 32 runs of such pages; an interpreter
/// writes hundreds, so most of its pages are given back all the same.
const KEEP_RESIDENT: u64 = 4 * MIB;

/// The share of the machine's memory that such pages of one pool may take together.
const KEEP_RESIDENT_SHARE: u64 = 16;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// What the process may use of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// `vm.max_map_count`.
    pub mappings_allowed: u64,
    /// Mappings of this process at the time of asking.
    pub mappings_used: u64,
    /// Address space: the limit of the process (`ulimit -v`), or what the processor offers.
    pub address_space: u64,
    /// Bytes of memory.
    pub memory: u64,
}

impl Machine {
    /// Asks the kernel. What it does not tell is taken as usual.
    pub fn probe() -> Self {
        let number = |path: &str| -> Option<u64> {
            fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok())
        };
        let mappings_used = fs::read("/proc/self/maps").map_or(0, |maps| {
            u64::try_from(maps.iter().filter(|byte| **byte == b'\n').count()).unwrap_or(0)
        });
        let address_space = getrlimit(Resource::RLIMIT_AS)
            .ok()
            .map(|(soft, _)| soft)
            .filter(|soft| *soft != RLIM_INFINITY)
            .map_or(USUAL_ADDRESS_SPACE, |soft| soft.min(USUAL_ADDRESS_SPACE));
        let total = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_memory(&text));
        let group = number("/sys/fs/cgroup/memory.max");
        Self {
            mappings_allowed: number("/proc/sys/vm/max_map_count").unwrap_or(USUAL_MAPPINGS),
            mappings_used,
            address_space,
            memory: total.unwrap_or(u64::MAX).min(group.unwrap_or(u64::MAX)),
        }
    }
}

fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes << 10)
}

/// How an engine lays out the memories of its guests. Compiled code depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// 4 GiB reserved for each memory: no bounds checks in compiled code.
    Wide,
    /// 1 GiB reserved for each memory: bounds checks, little address space.
    Narrow,
    /// Nothing reserved: each memory is allocated when it is needed, and may move.
    OnDemand,
}

impl Layout {
    /// Bytes reserved for one memory.
    pub(crate) const fn reservation(self) -> u64 {
        match self {
            Self::Wide => 4 * GIB,
            Self::Narrow => GIB,
            Self::OnDemand => 0,
        }
    }

    /// Bytes of inaccessible space behind it.
    pub(crate) const fn guard(self) -> u64 {
        match self {
            Self::Wide => 32 * MIB,
            Self::Narrow | Self::OnDemand => 64 << 10,
        }
    }
}

/// The size of one engine's pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// How memories are laid out.
    pub layout: Layout,
    /// How many guests with one memory can be alive at once. More of them wait for their turn.
    pub slots: NonZeroU32,
    /// Bytes that a finished guest wrote and that stay resident for the next one, at most.
    pub keep_resident: usize,
}

impl Plan {
    fn new(layout: Layout, slots: u64, machine: &Machine) -> Self {
        let slots = u32::try_from(slots).unwrap_or(u32::MAX);
        let slots = NonZeroU32::new(slots).unwrap_or(LEAST_SLOTS).max(LEAST_SLOTS);
        let keep = (machine.memory / KEEP_RESIDENT_SHARE / u64::from(slots.get()))
            .min(KEEP_RESIDENT)
            & !0xfff;
        Self { layout, slots, keep_resident: usize::try_from(keep).unwrap_or_default() }
    }
}

/// Plans both pools: for harnesses and rewards, and for lane programs. Programs come first, since
/// there are few of them and a harness that waits for a command holds a place all the while.
pub(crate) fn plan(machine: &Machine, plugins: NonZeroU32, programs: NonZeroU32) -> [Plan; 2] {
    let mappings = machine
        .mappings_allowed
        .saturating_sub(machine.mappings_used.max(MAPPINGS_KEPT))
        .saturating_sub(MAPPINGS_KEPT / 5);
    let by_mappings = mappings / MAPPINGS_A_SLOT;
    let by_memory = machine.memory / 2 / RESIDENT_A_SLOT;
    let room = by_mappings.min(by_memory);
    let programs = u64::from(programs.get()).min(room / 4);
    let plugins = u64::from(plugins.get()).min(room.saturating_sub(programs));
    let address_space = machine.address_space / 2;
    let space = |layout: Layout| {
        (plugins + programs).saturating_mul(layout.reservation() + layout.guard() + 2 * MIB)
    };
    let layout = [Layout::Wide, Layout::Narrow]
        .into_iter()
        .find(|layout| space(*layout) <= address_space)
        .unwrap_or(Layout::OnDemand);
    [plugins, programs].map(|slots| Plan::new(layout, slots, machine))
}

/// Never fewer than two connected programs, or one guest with a few memories, need.
const LEAST_SLOTS: NonZeroU32 = NonZeroU32::MIN.saturating_add(3);

#[cfg(test)]
mod tests {
    use super::*;

    fn usual() -> Machine {
        Machine {
            mappings_allowed: USUAL_MAPPINGS,
            mappings_used: 400,
            address_space: USUAL_ADDRESS_SPACE,
            memory: 16 * GIB,
        }
    }

    fn count(number: u32) -> NonZeroU32 {
        NonZeroU32::new(number).unwrap()
    }

    #[test]
    fn ten_thousand_guests_fit_a_usual_machine() {
        let [plugins, programs] = plan(&usual(), count(10_000), count(64));
        assert_eq!((plugins.layout, plugins.slots), (Layout::Wide, count(10_000)));
        assert_eq!((programs.layout, programs.slots), (Layout::Wide, count(64)));
    }

    #[test]
    fn pools_never_use_more_mappings_than_there_are() {
        for allowed in [0, 1, 3_000, 8_000, 65_530, 1 << 40] {
            let machine = Machine { mappings_allowed: allowed, ..usual() };
            let [plugins, programs] = plan(&machine, count(1_000_000), count(10_000));
            let slots = u64::from(plugins.slots.get()) + u64::from(programs.slots.get());
            assert!(slots <= 8 || slots * MAPPINGS_A_SLOT < allowed, "{allowed}: {slots}");
        }
    }

    #[test]
    fn what_stays_resident_is_a_small_share_of_the_memory() {
        for slots in [1, 64, 1_000, 10_000] {
            let [plugins, _] = plan(&usual(), count(slots), count(64));
            let together = u64::try_from(plugins.keep_resident).unwrap() * u64::from(slots);
            assert!(together <= GIB, "{slots}: {together}");
            assert_eq!(plugins.keep_resident % 4096, 0);
        }
        let [few, programs] = plan(&usual(), count(64), count(64));
        assert_eq!(few.keep_resident, 4 << 20);
        assert_eq!(programs.keep_resident, 4 << 20);
    }

    #[test]
    fn short_address_space_narrows_and_then_gives_up_pooling() {
        let narrow = Machine { address_space: 300 * GIB, ..usual() };
        assert_eq!(plan(&narrow, count(100), count(10))[0].layout, Layout::Narrow);
        let short = Machine { address_space: 8 * GIB, ..usual() };
        assert_eq!(plan(&short, count(100), count(10))[1].layout, Layout::OnDemand);
    }

    #[test]
    fn the_machine_at_hand_can_be_probed() {
        let machine = Machine::probe();
        assert!(machine.mappings_used > 10 && machine.memory > 64 * MIB, "{machine:?}");
        assert_eq!(total_memory("MemTotal:  5 kB\n"), Some(5 << 10));
    }
}
