//! Everything together: engines, cache, compiler and threads, and how components are loaded.

use std::{
    collections::HashMap,
    io,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    thread::available_parallelism,
    time::{Duration, Instant},
};

use tokio::sync::OnceCell;
use wasmtime::component::Component;

use crate::{
    audit::{self, AuditError, CONTRACT, Inspection},
    cache::{Cache, CacheError, Key},
    compile::{Compilation, CompileError, Compiler},
    engine::{Engine, EngineError, start_ticker},
    executor::{Executor, HostFailure},
    harness::Harness,
    lane::LaneProgram,
    limits::Role,
    machine::{Machine, plan},
    reward::Reward,
};

/// How a [`Runtime`] is set up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where compiled components are kept; made when it is not there, for this user alone.
    pub cache: PathBuf,
    /// Where components are compiled.
    pub compiler: Compiler,
    /// Compilations at once.
    pub compilations: NonZeroUsize,
    /// Harnesses and rewards alive at once, as far as the machine has room.
    pub plugins: NonZeroU32,
    /// Lane programs alive at once, as far as the machine has room.
    pub programs: NonZeroU32,
    /// Threads in each of the two sets of [`Executor`].
    pub threads: NonZeroUsize,
}

impl Settings {
    /// For a thousand guests and as many threads as there are processors.
    pub fn new(cache: impl Into<PathBuf>, compiler: Compiler) -> Self {
        let threads = available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self {
            cache: cache.into(),
            compiler,
            compilations: threads,
            plugins: NonZeroU32::MIN.saturating_add(999),
            programs: NonZeroU32::MIN.saturating_add(63),
            threads,
        }
    }
}

/// A [`Runtime`] cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// No engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// No cache.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// No threads.
    #[error("the threads for components cannot be started: {0}")]
    Threads(#[source] io::Error),
}

/// A component cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It is not what is needed, or wants what is not granted.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// It cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// Its code cannot be kept.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// It needs more of something than the pool has for one guest.
    #[error("the component is too demanding: {0}")]
    TooDemanding(String),
    /// An import or export is there by name, but of another shape.
    #[error(
        "the component does not fit the contract: {0}; build it against version {CONTRACT} of the SDK"
    )]
    Shape(String),
    /// The host failed.
    #[error(transparent)]
    Host(#[from] HostFailure),
}

/// A component that was audited and compiled. Clones share the code.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    pub(crate) engine: Engine,
    pub(crate) component: Component,
    pub(crate) inspection: Arc<Inspection>,
}

type Slot = Arc<OnceCell<Component>>;

/// Loads and runs components. Clones are the same runtime.
#[derive(Debug, Clone)]
pub struct Runtime {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    plugins: Engine,
    programs: Engine,
    executor: Executor,
    cache: Cache,
    compilation: Compilation,
    loaded: Mutex<HashMap<Key, Slot>>,
    machine: Machine,
}

impl Runtime {
    /// Sets everything up.
    pub fn new(settings: Settings) -> Result<Self, SetupError> {
        let cache = Cache::open(&settings.cache)?;
        let machine = Machine::probe();
        let [plugins, programs] = plan(&machine, settings.plugins, settings.programs);
        let (plugins, programs) = (Engine::new(plugins)?, Engine::new(programs)?);
        start_ticker(&[&plugins, &programs])?;
        let executor = Executor::new(settings.threads).map_err(SetupError::Threads)?;
        let compilation = Compilation::new(settings.compiler, settings.compilations.get());
        let loaded = Mutex::new(HashMap::new());
        let inner = Inner { plugins, programs, executor, cache, compilation, loaded, machine };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The engine of harnesses and rewards.
    pub fn plugins(&self) -> &Engine {
        &self.inner.plugins
    }

    /// The engine of lane programs.
    pub fn programs(&self) -> &Engine {
        &self.inner.programs
    }

    /// The threads of guests.
    pub fn executor(&self) -> &Executor {
        &self.inner.executor
    }

    /// What the machine had room for when the runtime was set up.
    pub fn machine(&self) -> &Machine {
        &self.inner.machine
    }

    /// Loads a harness.
    pub async fn harness(&self, bytes: impl Into<Arc<[u8]>>) -> Result<Harness, LoadError> {
        let loaded = self.load(Role::Harness, bytes.into()).await?;
        Harness::prepare(self.clone(), loaded)
    }

    /// Loads a reward.
    pub async fn reward(&self, bytes: impl Into<Arc<[u8]>>) -> Result<Reward, LoadError> {
        let loaded = self.load(Role::Reward, bytes.into()).await?;
        Reward::prepare(self.clone(), loaded)
    }

    /// Loads a program of the lane: a component that exports `wasi:cli/run`. A module for
    /// `wasm32-wasip1` becomes one by [`crate::componentize::componentize`].
    pub async fn program(&self, bytes: impl Into<Arc<[u8]>>) -> Result<LaneProgram, LoadError> {
        let loaded = self.load(Role::Program, bytes.into()).await?;
        LaneProgram::prepare(self.clone(), loaded)
    }

    /// How long a cached component takes to load from disk: reads it past the copy that is
    /// loaded already. For measurements.
    pub fn time_cached_load(&self, inspection: &Inspection) -> Option<Duration> {
        let role = inspection.role?;
        let engine = self.engine(role);
        let key = Key { component: inspection.digest, fingerprint: engine.fingerprint() };
        let began = Instant::now();
        self.inner.cache.load(engine, &key)?.ok()?;
        Some(began.elapsed())
    }

    fn engine(&self, role: Role) -> &Engine {
        match role {
            Role::Harness | Role::Reward => &self.inner.plugins,
            Role::Program => &self.inner.programs,
        }
    }

    /// Audits, then takes the compiled code from this process, from disk, or from the compiler.
    async fn load(&self, role: Role, bytes: Arc<[u8]>) -> Result<Loaded, LoadError> {
        let inspection = audit::inspect(&bytes)?;
        inspection.check(role)?;
        let engine = self.engine(role);
        let key = Key { component: inspection.digest, fingerprint: engine.fingerprint() };
        let slot = Arc::clone(
            self.inner
                .loaded
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(key)
                .or_default(),
        );
        // Whoever asks for the same component meanwhile waits for the one compilation.
        let component = slot.get_or_try_init(|| self.obtain(engine, key, bytes)).await?.clone();
        Ok(Loaded { engine: engine.clone(), component, inspection: Arc::new(inspection) })
    }

    async fn obtain(
        &self,
        engine: &Engine,
        key: Key,
        bytes: Arc<[u8]>,
    ) -> Result<Component, LoadError> {
        match self.inner.cache.load(engine, &key) {
            Some(Ok(component)) => return Ok(component),
            Some(Err(why)) => tracing::warn!(component = %key.component, why, "compiling again"),
            None => {}
        }
        let draft = self.inner.cache.draft()?;
        let (runtime, layout) = (self.clone(), engine.plan().layout);
        // On our own threads, which drive processes; the caller's may not.
        let compile = async move {
            let compiled = runtime.inner.compilation.compile(bytes, layout, draft.path()).await;
            compiled.map(|()| draft)
        };
        let draft = self.inner.executor.run_busy(compile).await??;
        self.inner.cache.publish(draft, &key)?;
        self.inner
            .cache
            .load(engine, &key)
            .unwrap_or_else(|| Err("its code vanished from the cache".to_owned()))
            .map_err(LoadError::TooDemanding)
    }
}
