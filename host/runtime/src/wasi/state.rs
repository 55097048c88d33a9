//! What one guest is given, and the state it has while it runs.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
};

use fulgurite_trace::Captured;
use wasmtime::component::ResourceTable;
use wasmtime_wasi_io::bytes::Bytes;

use super::{
    clock::{ClockConfig, VirtualClock},
    filesystem::{Mount, Preopen},
    output::{Output, Sink},
    pipe::{PipeReader, Side},
    random::SeededRandom,
};

/// Where a guest's standard input comes from.
#[derive(Debug)]
pub enum Stdin {
    /// These bytes, then the end.
    Bytes(Vec<u8>),
    /// Another program; see [`super::connect`].
    Pipe(PipeReader),
}

impl Default for Stdin {
    fn default() -> Self {
        Self::Bytes(Vec::new())
    }
}

/// How much a guest may hold open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WasiLimits {
    /// Open files and folders. One more is refused with the error code `quota`.
    pub descriptors: usize,
    /// Resources of every kind: descriptors, streams, pollables, and those of other host
    /// functions. One more ends the guest.
    pub resources: usize,
    /// Bytes of one path. Longer ones are refused with the error code `name-too-long`.
    pub path_bytes: usize,
    /// Bytes of memory that all open listings of folders take. One more is refused with the error
    /// code `quota`, unless it is the only one: any folder can be listed.
    pub listing_bytes: usize,
}

impl Default for WasiLimits {
    fn default() -> Self {
        Self { descriptors: 1024, resources: 8192, path_bytes: 4096, listing_bytes: 16 << 20 }
    }
}

/// Everything a guest gets. The default holds nothing at all.
#[derive(Debug, Default)]
pub struct WasiConfig {
    /// Where random numbers start.
    pub seed: u64,
    /// The virtual clock.
    pub clock: ClockConfig,
    /// The whole environment.
    pub environment: Vec<(String, String)>,
    /// Arguments; the first is the program's name.
    pub arguments: Vec<String>,
    /// What `initial-cwd` answers. Guests on wasi-libc do not ask; for them a preopen at `/`
    /// decides where relative paths lead.
    pub initial_cwd: Option<String>,
    /// Standard input.
    pub stdin: Stdin,
    /// Standard output.
    pub stdout: Output,
    /// Standard error.
    pub stderr: Output,
    /// Write standard error to where standard output goes, in the order of writing. `stderr` is
    /// ignored then.
    pub stderr_to_stdout: bool,
    /// File trees.
    pub preopens: Vec<Preopen>,
    /// How much may be held open.
    pub limits: WasiLimits,
}

/// The WASI state of one guest, part of its store's data. Dropping it gives back every file
/// handle and closes its pipes.
pub struct WasiState {
    /// All resources of the guest, those of other host functions too.
    pub table: ResourceTable,
    pub(super) clock: VirtualClock,
    /// Instant by representation of the pollable.
    pub(super) timers: HashMap<u32, u64>,
    pub(super) random: SeededRandom,
    pub(super) environment: Vec<(String, String)>,
    pub(super) arguments: Vec<String>,
    pub(super) initial_cwd: Option<String>,
    pub(super) stdin: Source,
    pub(super) stdout: Sink,
    pub(super) stderr: Sink,
    /// Where this guest sits in a connection of two programs.
    pub(super) side: Option<Side>,
    pub(super) mounts: Vec<Mount>,
    pub(super) limits: WasiLimits,
    pub(super) descriptors: usize,
    /// Bytes of all open listings.
    pub(super) listed: usize,
    /// Fuel that calls have cost and that the store has not paid yet.
    pub(super) owed: u64,
    pub(super) denied: BTreeMap<&'static str, u64>,
}

/// Standard input while the guest runs.
pub(super) enum Source {
    Bytes(Arc<Mutex<Bytes>>),
    Pipe(PipeReader),
}

impl WasiState {
    /// A guest that gets what `config` holds.
    pub fn new(config: WasiConfig) -> Self {
        let mut table = ResourceTable::new();
        table.set_max_capacity(config.limits.resources);
        let stdin = match config.stdin {
            Stdin::Bytes(bytes) => Source::Bytes(Arc::new(Mutex::new(bytes.into()))),
            Stdin::Pipe(reader) => Source::Pipe(reader),
        };
        let stdout = Sink::new(config.stdout);
        let stderr =
            if config.stderr_to_stdout { stdout.share() } else { Sink::new(config.stderr) };
        let side = match &stdin {
            Source::Pipe(reader) => Some(reader.side()),
            Source::Bytes(_) => None,
        };
        let side = side.or_else(|| stdout.side()).or_else(|| stderr.side());
        Self {
            table,
            clock: VirtualClock::new(config.clock),
            timers: HashMap::new(),
            random: SeededRandom::new(config.seed),
            environment: config.environment,
            arguments: config.arguments,
            initial_cwd: config.initial_cwd,
            stdin,
            stdout,
            stderr,
            side,
            mounts: Mount::all(config.preopens),
            limits: config.limits,
            descriptors: 0,
            listed: 0,
            owed: 0,
            denied: BTreeMap::new(),
        }
    }

    /// The guest's clock.
    pub fn clock(&self) -> &VirtualClock {
        &self.clock
    }

    /// Denied calls of stubbed interfaces with their number, sorted by name.
    pub fn denied(&self) -> &BTreeMap<&'static str, u64> {
        &self.denied
    }

    /// Standard output so far; empty when it is a pipe.
    pub fn stdout(&self) -> Captured {
        self.stdout.captured()
    }

    /// Standard error so far; empty when it is a pipe or goes to standard output.
    pub fn stderr(&self) -> Captured {
        self.stderr.captured()
    }

    /// Whether this guest and the one it is connected to waited for each other for ever.
    pub fn starved(&self) -> bool {
        self.side.as_ref().is_some_and(Side::starved)
    }

    pub(super) fn deny(&mut self, call: &'static str) {
        let count = self.denied.entry(call).or_default();
        *count = count.saturating_add(1);
    }
}

impl std::fmt::Debug for WasiState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("WasiState")
            .field("clock", &self.clock)
            .field("descriptors", &self.descriptors)
            .field("denied", &self.denied)
            .finish_non_exhaustive()
    }
}
