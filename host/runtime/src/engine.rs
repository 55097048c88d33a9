//! The two engines: one for plugins (harnesses and rewards), one for programs of the wasm lane.
//!
//! Both count fuel, tick epochs, canonicalise NaNs, know no threads and take instances from a
//! pool that is sized from the machine ([`crate::machine`]). A guest needs a [`Place`] before it
//! is instantiated, so that a full pool makes guests wait instead of fail.
//!
//! Epochs advance every [`TICK`] on a thread of their own that holds the engines weakly: it is
//! not delayed by busy guests and ends with the engines. At each tick a running guest gives up
//! its thread for a moment ([`crate::executor`]).

use std::{
    hash::{Hash as _, Hasher},
    sync::Arc,
    thread,
    time::Duration,
};

use fulgurite_trace::Digest;
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::{
    Config, Enabled, EngineWeak, InstanceAllocationStrategy, PoolingAllocationConfig,
    WasmBacktraceDetails, component::Component,
};

use crate::machine::{Layout, Plan};

/// How often epochs advance.
pub const TICK: Duration = Duration::from_millis(5);

/// Stack of a guest, its host calls included.
const ASYNC_STACK: usize = 1 << 20;

/// The part of it that WebAssembly may use.
const WASM_STACK: usize = 512 << 10;

/// Tables for each guest in the pool.
const TABLES_A_SLOT: u32 = 4;

/// Elements of one table in the pool.
const TABLE_ELEMENTS: usize = 100_000;

/// Stack of a finished guest that stays resident. The rest is given back, so that guests that
/// recursed deeply do not leave a large process behind.
const KEEP_STACK: usize = 16 << 10;

/// An engine could not be made.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// wasmtime refused the configuration.
    #[error("the WebAssembly engine cannot be set up: {0}")]
    Engine(String),
    /// No thread for the ticker.
    #[error("the epoch thread cannot be started: {0}")]
    Ticker(#[source] std::io::Error),
}

/// One engine with its pool. Clones are the same engine.
#[derive(Clone)]
pub struct Engine {
    wasm: wasmtime::Engine,
    plan: Plan,
    places: Arc<Semaphore>,
    fingerprint: Digest,
    /// Why the pool was given up, when it was.
    fallback: Option<Arc<str>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Engine").field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// The right to have one guest alive. Given back when dropped; drop the store first.
#[derive(Debug)]
pub struct Place(#[allow(dead_code, reason = "held for its drop")] Option<OwnedSemaphorePermit>);

impl Engine {
    /// An engine as planned; on demand where the pool cannot be had.
    pub(crate) fn new(plan: Plan) -> Result<Self, EngineError> {
        let pooled = match plan.layout {
            Layout::OnDemand => Err("address space is short".to_owned()),
            Layout::Wide | Layout::Narrow => pooled(plan).map_err(|error| format!("{error:#}")),
        };
        let (wasm, plan, fallback) = match pooled {
            Ok(wasm) => (wasm, plan, None),
            Err(why) => {
                let plan = Plan { layout: Layout::OnDemand, ..plan };
                (on_demand(plan.layout)?, plan, Some(why.into()))
            }
        };
        let slots = usize::try_from(plan.slots.get()).unwrap_or(usize::MAX);
        let places = Arc::new(Semaphore::new(slots.min(Semaphore::MAX_PERMITS)));
        let fingerprint = fingerprint(&wasm);
        Ok(Self { wasm, plan, places, fingerprint, fallback })
    }

    /// The wasmtime engine.
    pub fn wasm(&self) -> &wasmtime::Engine {
        &self.wasm
    }

    /// How large the pool is.
    pub fn plan(&self) -> Plan {
        self.plan
    }

    /// Why instances are allocated on demand and not from a pool; none when they are pooled.
    pub fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// Names everything that compiled code depends on: wasmtime's version, processor features,
    /// settings.
    pub fn fingerprint(&self) -> Digest {
        self.fingerprint
    }

    /// Waits for room for one guest of `component`.
    pub async fn place(&self, component: &Component) -> Place {
        self.places([component]).await
    }

    /// Waits for room for one guest of each of `components` together.
    pub(crate) async fn places<const N: usize>(&self, components: [&Component; N]) -> Place {
        let needed: u32 = components.into_iter().map(|component| self.places_of(component)).sum();
        let needed = needed.min(self.plan.slots.get());
        // The semaphore is never closed; without a permit nothing is given back either.
        Place(Arc::clone(&self.places).acquire_many_owned(needed).await.ok())
    }

    /// Places that are free just now.
    pub fn places_free(&self) -> usize {
        self.places.available_permits()
    }

    /// A guest with several memories or many tables takes several places, at most all.
    fn places_of(&self, component: &Component) -> u32 {
        let needed = component.resources_required().map_or(1, |required| {
            required.num_memories.max(required.num_tables.div_ceil(TABLES_A_SLOT))
        });
        needed.clamp(1, self.plan.slots.get())
    }
}

/// What both kinds of allocation and the compiling child have in common: everything that compiled
/// code depends on.
pub(crate) fn configuration(layout: Layout) -> Config {
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        .wasm_memory64(false)
        .consume_fuel(true)
        .epoch_interruption(true)
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        .memory_init_cow(true)
        .memory_reservation(layout.reservation())
        .memory_guard_size(layout.guard())
        .memory_reservation_for_growth(1 << 20)
        .memory_may_move(matches!(layout, Layout::OnDemand))
        .async_stack_size(ASYNC_STACK)
        .max_wasm_stack(WASM_STACK)
        // Function names come from the name section; neither debug information nor the native
        // unwinder is needed for them, and both make loading slow.
        .wasm_backtrace_details(WasmBacktraceDetails::Disable)
        .generate_address_map(false)
        .native_unwind_info(false);
    config
}

/// An engine that compiles for `layout` and allocates on demand.
pub(crate) fn on_demand(layout: Layout) -> Result<wasmtime::Engine, EngineError> {
    wasmtime::Engine::new(&configuration(layout))
        .map_err(|error| EngineError::Engine(format!("{error:#}")))
}

fn pooled(plan: Plan) -> wasmtime::Result<wasmtime::Engine> {
    let Plan { layout, slots, keep_resident } = plan;
    let slots = slots.get();
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots)
        .total_core_instances(slots.saturating_mul(100))
        .total_memories(slots)
        .total_tables(slots.saturating_mul(TABLES_A_SLOT))
        .total_stacks(slots)
        // Instances are allocated from the heap; these are caps, not reservations. The limits of
        // each guest are tighter and decide.
        .max_core_instances_per_component(1_000)
        .max_memories_per_component(100)
        .max_tables_per_component(1_000)
        .max_memories_per_module(100)
        .max_tables_per_module(100)
        .max_core_instance_size(8 << 20)
        .max_component_instance_size(8 << 20)
        .table_elements(TABLE_ELEMENTS)
        .max_memory_size(usize::try_from(layout.reservation()).unwrap_or(usize::MAX));
    pool.async_stack_keep_resident(KEEP_STACK);
    // Only where the kernel can tell which pages were touched: elsewhere keeping some would touch
    // those that were not.
    if PoolingAllocationConfig::is_pagemap_scan_available() {
        pool.pagemap_scan(Enabled::Yes)
            .linear_memory_keep_resident(keep_resident)
            .table_keep_resident(keep_resident / 4);
    }
    let mut config = configuration(layout);
    config.async_stack_zeroing(true);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    wasmtime::Engine::new(&config)
}

/// A SHA-256 over what wasmtime hashes of its compilation environment.
fn fingerprint(engine: &wasmtime::Engine) -> Digest {
    struct Sha(Sha256);
    impl Hasher for Sha {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            0
        }
    }
    let mut hasher = Sha(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut hasher);
    Digest::from_bytes(hasher.0.finalize().into())
}

/// Starts the thread that advances the epochs of `engines` until all of them are gone.
pub(crate) fn start_ticker(engines: &[&Engine]) -> Result<(), EngineError> {
    let mut weak: Vec<EngineWeak> = engines.iter().map(|engine| engine.wasm.weak()).collect();
    thread::Builder::new()
        .name("fulgurite-epoch".to_owned())
        .spawn(move || {
            while !weak.is_empty() {
                thread::sleep(TICK);
                weak.retain(|engine| {
                    engine.upgrade().inspect(wasmtime::Engine::increment_epoch).is_some()
                });
            }
        })
        .map(drop)
        .map_err(EngineError::Ticker)
}
