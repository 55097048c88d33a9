//! Programs of the wasm lane: components that export `wasi:cli/run`, one fresh instance a command.
//!
//! # What it promises
//! - A program gets what its [`ProgramRequest`] holds and nothing else; see [`crate::wasi`].
//! - However it ends, [`Program::run`] answers with a status as a shell would see it: its own, 124
//!   when fuel or virtual time ran out, 137 when it was refused memory and ended in a trap, 134
//!   after any other trap. A program that takes a refusal well (Python raises `MemoryError`) ends
//!   by itself. Errors are for what is not the program's doing.
//! - The same program with the same request gives the same output and uses the same fuel, on any
//!   machine, alone or connected to another program.
//! - The wall clock is a backstop only, and counts only while the program computes, not while it
//!   waits for the one it is connected to. Where it strikes, the answer is an error.
//! - What the host does for a program costs it fuel ([`crate::wasi::fuel`]).
//! - Two programs connected by [`crate::wasi::connect`] and run at once cannot hang each other.
//!
//! The caller owns the threads: a run is one future that computes between awaits and yields every
//! millisecond or so.

use fulgurite_trace::{Captured, CommandStop, FailureKind};
use wasmtime::{
    Engine, Store, UpdateDeadline,
    component::{Component, Linker},
};
use wasmtime_wasi::p2::bindings::CommandPre;

use crate::{
    clock::EpisodeClock,
    failure::{Blame, classify},
    limits::{Limits, Quota, Role},
    wasi::{
        self, ClockConfig, Exit, Output, Preopen, Stdin, VirtualTimeout, WasiConfig, WasiLimits,
        WasiState, WasiView,
    },
};

/// Fuel between two yields to other futures of the same thread: about a millisecond.
const YIELD_FUEL: u64 = 5_000_000;

/// One command.
#[derive(Debug)]
pub struct ProgramRequest {
    /// Arguments; the first is the program's name.
    pub argv: Vec<String>,
    /// The whole environment.
    pub environment: Vec<(String, String)>,
    /// The current folder, for programs that ask `wasi:cli`. Those on wasi-libc do not; for them
    /// a preopen at `/` decides where relative paths lead.
    pub cwd: Option<String>,
    /// Standard input.
    pub stdin: Stdin,
    /// Standard output.
    pub stdout: Output,
    /// Standard error.
    pub stderr: Output,
    /// Write standard error to where standard output goes (`2>&1`).
    pub stderr_to_stdout: bool,
    /// File trees.
    pub preopens: Vec<Preopen>,
    /// How much it may use. `output-bytes` is not used here; see [`Self::stdout`].
    pub limits: Limits,
    /// The program's clock and its limit.
    pub clock: ClockConfig,
    /// Where random numbers start.
    pub seed: u64,
}

impl ProgramRequest {
    /// A command without environment, input or files and with the lane's default limits.
    pub fn new<S: Into<String>>(argv: impl IntoIterator<Item = S>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            environment: Vec::new(),
            cwd: None,
            stdin: Stdin::default(),
            stdout: Output::default(),
            stderr: Output::default(),
            stderr_to_stdout: false,
            preopens: Vec::new(),
            limits: Limits::of(Role::Program),
            clock: ClockConfig::default(),
            seed: 0,
        }
    }
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramEnd {
    /// As a shell would see it.
    pub status: i32,
    /// Set when the program did not end by itself.
    pub stop: Option<CommandStop>,
    /// What stopped it, for people. May hold names chosen by the program's author.
    pub message: Option<String>,
    /// Standard output; empty when it was a pipe.
    pub stdout: Captured,
    /// Standard error; empty when it was a pipe or went to standard output.
    pub stderr: Captured,
    /// Fuel it used.
    pub fuel_used: u64,
    /// Nanoseconds that passed on its clock.
    pub virtual_elapsed: u64,
    /// Whether it and the program it was connected to waited for each other for ever, so that
    /// the connection was given up.
    pub starved: bool,
    /// Denied calls of stubbed interfaces, with their number.
    pub denied: Vec<(&'static str, u64)>,
}

/// A command could not be run, or not to its end, and it is not the command's doing.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The component is no command, or wants what the lane does not give.
    #[error(
        "the component cannot be a program of the lane: {reason}; it has to export `wasi:cli/run` \
         and import WASI 0.2 only, without `wasi:http`"
    )]
    Unfit {
        /// What does not fit.
        reason: String,
    },
    /// The backstop struck.
    #[error(
        "the command was stopped after {wall_ms} ms on the wall clock with {fuel_used} fuel used; \
         the machine is overloaded, or fuel and `wall-ms` do not fit each other"
    )]
    WallClock {
        /// The limit.
        wall_ms: u64,
        /// What it had used by then.
        fuel_used: u64,
    },
    /// The pool of instances is full, or the machine is out of memory.
    #[error("the command could not be run: {reason}")]
    Host {
        /// What failed.
        reason: String,
    },
}

/// The data of a program's store.
struct ProgramState {
    wasi: WasiState,
    quota: Quota,
}

impl WasiView for ProgramState {
    fn wasi(&mut self) -> &mut WasiState {
        &mut self.wasi
    }
}

/// A compiled command component, linked and ready to be instantiated many times.
#[derive(Clone)]
pub struct Program {
    pre: CommandPre<ProgramState>,
}

impl Program {
    /// Links a component. Its engine must count fuel.
    pub fn new(engine: &Engine, component: &Component) -> Result<Self, ProgramError> {
        let link = || {
            let mut linker = Linker::new(engine);
            wasi::add_to_linker(&mut linker)?;
            CommandPre::new(linker.instantiate_pre(component)?)
        };
        let pre = link().map_err(|error: wasmtime::Error| ProgramError::Unfit {
            reason: format!("{error:#}"),
        })?;
        Ok(Self { pre })
    }

    /// Runs one command to its end. Dropping the future stops it.
    pub async fn run(&self, request: ProgramRequest) -> Result<ProgramEnd, ProgramError> {
        let limits = request.limits;
        let mut store = self.store(request).map_err(host)?;
        let call = async {
            let command = self.pre.instantiate_async(&mut store).await?;
            command.wasi_cli_run().call_run(&mut store).await
        };
        // Time in which others had the threads is not the command's, nor is that in which the
        // program it is connected to computes.
        let clock = EpisodeClock::start();
        let called = tokio::select! {
            biased;
            called = clock.charge_turns(call) => Some(called),
            () = clock.reached(limits.wall()) => None,
        };
        let fuel = limits.fuel.get();
        let fuel_used = fuel.saturating_sub(store.get_fuel().map_err(host)?);
        let called =
            called.ok_or(ProgramError::WallClock { wall_ms: limits.wall_ms.get(), fuel_used })?;
        let ProgramState { wasi, quota } = store.into_data();
        let (status, stopped) = ending(called, &quota)?;
        let (stop, message) = match stopped {
            Some((stop, message)) => (Some(stop), Some(message)),
            None => (None, None),
        };
        Ok(ProgramEnd {
            status,
            stop,
            message,
            stdout: wasi.stdout(),
            stderr: wasi.stderr(),
            fuel_used,
            virtual_elapsed: wasi.clock().elapsed(),
            starved: wasi.starved(),
            denied: wasi.denied().iter().map(|(call, count)| (*call, *count)).collect(),
        })
    }

    fn store(&self, request: ProgramRequest) -> wasmtime::Result<Store<ProgramState>> {
        let limits = request.limits;
        let resources = usize::try_from(limits.resources.get())?;
        let wasi = WasiState::new(WasiConfig {
            seed: request.seed,
            clock: request.clock,
            environment: request.environment,
            arguments: request.argv,
            initial_cwd: request.cwd,
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            stderr_to_stdout: request.stderr_to_stdout,
            preopens: request.preopens,
            // Leave resources for the streams of open files.
            limits: WasiLimits { descriptors: resources / 2, resources, ..WasiLimits::default() },
        });
        let state = ProgramState { wasi, quota: Quota::new(limits) };
        let mut store = Store::new(self.pre.engine(), state);
        store.limiter(|state| &mut state.quota);
        store.set_fuel(limits.fuel.get())?;
        store.fuel_async_yield_interval(Some(YIELD_FUEL))?;
        // Fuel decides when it ends. But paying for a call begins the interval anew, and programs
        // that call all the time must give way too: at each epoch, where the engine counts them.
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|_| Ok(UpdateDeadline::Yield(1)));
        wasi::pay_for_calls(&mut store);
        store.set_hostcall_fuel(usize::try_from(limits.hostcall_bytes.get())?);
        store.set_max_component_handles(usize::try_from(limits.handles.get())?);
        Ok(store)
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Program").finish_non_exhaustive()
    }
}

fn host(error: wasmtime::Error) -> ProgramError {
    ProgramError::Host { reason: format!("{error:#}") }
}

/// Status, and what stopped the program if it did not end by itself.
type Status = (i32, Option<(CommandStop, String)>);

fn ending(called: wasmtime::Result<Result<(), ()>>, quota: &Quota) -> Result<Status, ProgramError> {
    let error = match called {
        Ok(Ok(())) => return Ok((0, None)),
        Ok(Err(())) => return Ok((1, None)),
        Err(error) => error,
    };
    if let Some(Exit { code }) = error.downcast_ref() {
        return Ok((i32::from(*code), None));
    }
    if let Some(timeout) = error.downcast_ref::<VirtualTimeout>() {
        return Ok((124, Some((CommandStop::Timeout, timeout.to_string()))));
    }
    let failure = classify(&error, quota, Blame::default());
    let (status, stop) = match failure.kind {
        FailureKind::SandboxError => return Err(ProgramError::Host { reason: failure.message }),
        FailureKind::OutOfFuel => (124, CommandStop::Timeout),
        FailureKind::OutOfMemory => (137, CommandStop::Memory),
        _ => (134, CommandStop::Trap),
    };
    Ok((status, Some((stop, failure.message))))
}
