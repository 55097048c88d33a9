//! What the stores of harnesses and rewards have in common: one fresh store a run, with all
//! limits in place, watched from outside.

use std::{future::Future, sync::Arc};

use fulgurite_trace::{FailureKind, file::FileTree};
use wasmtime::{Store, UpdateDeadline, component::ResourceTable};

use crate::{
    capability::LlmError,
    clock::{Cancellation, EpisodeClock},
    engine::Engine,
    failure::{Blame, Failure, Stop, classify, truncate},
    limits::{Limits, Quota},
    wasi::{
        ClockConfig, Output, Preopen, WasiConfig, WasiLimits, WasiState, WasiView, pay_for_calls,
    },
};

/// Bytes of standard error that go into the message of a failure.
const MOST_LAST_WORDS: usize = 1_000;

/// Where a workspace is found by those who ask; it is the current directory as well.
pub(crate) const WORKSPACE: &str = "/workspace";

/// How one run is set up.
pub(crate) struct GuestConfig {
    pub(crate) limits: Limits,
    pub(crate) seed: u64,
    pub(crate) files: Option<Arc<dyn FileTree>>,
    pub(crate) clock: EpisodeClock,
    pub(crate) cancellation: Cancellation,
}

/// The part of a store's data that every plugin has.
pub(crate) struct Guest {
    pub(crate) wasi: WasiState,
    pub(crate) limits: Limits,
    pub(crate) clock: EpisodeClock,
    pub(crate) cancellation: Cancellation,
    pub(crate) blame: Blame,
    quota: Quota,
    /// Denied calls at the time of the last good call.
    denied_before: u64,
}

/// The data of a plugin's store.
pub(crate) trait GuestView: WasiView {
    fn guest(&mut self) -> &mut Guest;
}

impl Guest {
    pub(crate) fn new(config: GuestConfig) -> Self {
        let GuestConfig { limits, seed, files, clock, cancellation } = config;
        let resources = usize::try_from(limits.resources.get()).unwrap_or(usize::MAX);
        let output = usize::try_from(limits.output_bytes.get()).unwrap_or(usize::MAX);
        let capture = || Output::Capture { head: output / 2, tail: output - output / 2 };
        // Relative paths of guests on wasi-libc lead to the mount at `/`.
        let preopens = files
            .map(|tree| vec![Preopen::new(WORKSPACE, Arc::clone(&tree)), Preopen::new("/", tree)])
            .unwrap_or_default();
        let wasi = WasiState::new(WasiConfig {
            seed,
            clock: ClockConfig {
                limit: Some(limits.virtual_ms.get().saturating_mul(1_000_000)),
                ..ClockConfig::default()
            },
            initial_cwd: (!preopens.is_empty()).then(|| WORKSPACE.to_owned()),
            stdout: capture(),
            stderr: capture(),
            preopens,
            limits: WasiLimits { descriptors: resources / 2, resources, ..WasiLimits::default() },
            ..WasiConfig::default()
        });
        let quota = Quota::new(limits);
        Self { wasi, limits, clock, cancellation, blame: Blame::default(), quota, denied_before: 0 }
    }

    pub(crate) fn table(&mut self) -> &mut ResourceTable {
        &mut self.wasi.table
    }

    fn denied(&self) -> u64 {
        self.wasi.denied().values().sum()
    }

    /// Notes how a call for the policy went.
    pub(crate) fn note_llm<T>(&mut self, result: &Result<T, LlmError>) {
        self.blame.llm(result.as_ref().err());
        if result.is_ok() {
            self.denied_before = self.denied();
        }
    }

    /// Decides what an error of a call or an instantiation was.
    pub(crate) fn failure(&mut self, error: &wasmtime::Error) -> Failure {
        let mut failure = classify(error, &self.quota, self.blame());
        if matches!(failure.kind, FailureKind::Trap | FailureKind::HarnessError) {
            self.add_last_words(&mut failure.message);
        }
        // Whatever stopped it after that was the grace running out.
        if self.cancellation.is_cancelled() {
            failure.kind = FailureKind::Cancelled;
        }
        failure
    }

    /// What a failure is put down to, denied calls of WASI included.
    pub(crate) fn blame(&self) -> Blame {
        let mut blame = self.blame;
        if self.denied() > self.denied_before {
            blame.denied();
        }
        blame
    }

    /// Language runtimes say there why they gave up.
    fn add_last_words(&self, message: &mut String) {
        let stderr = self.wasi.stderr().bytes;
        let text = String::from_utf8_lossy(&stderr);
        let text = text.trim();
        if !text.is_empty() {
            let start = text.len().saturating_sub(MOST_LAST_WORDS);
            let start = (start..text.len()).find(|start| text.is_char_boundary(*start));
            message.push_str("; its last words: ");
            message.push_str(start.and_then(|start| text.get(start..)).unwrap_or(text));
            truncate(message, 4_000);
        }
    }

    /// Standard output and error as text; none when nothing was written.
    pub(crate) fn output(&self) -> Option<(String, String)> {
        let (stdout, stderr) = (self.wasi.stdout(), self.wasi.stderr());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (stdout.total > 0 || stderr.total > 0).then(|| (text(&stdout.bytes), text(&stderr.bytes)))
    }

    /// Milliseconds that passed on the guest's own clock.
    pub(crate) fn virtual_ms(&self) -> u64 {
        self.wasi.clock().elapsed() / 1_000_000
    }
}

/// A store with every limit in place.
pub(crate) fn store<T: GuestView>(engine: &Engine, mut data: T) -> wasmtime::Result<Store<T>> {
    let limits = data.guest().limits;
    let mut store = Store::new(engine.wasm(), data);
    store.limiter(|data| &mut data.guest().quota);
    store.set_fuel(limits.fuel.get())?;
    store.set_hostcall_fuel(usize::try_from(limits.hostcall_bytes.get())?);
    store.set_max_component_handles(usize::try_from(limits.handles.get())?);
    pay_for_calls(&mut store);
    store.set_epoch_deadline(1);
    let mut graced = false;
    store.epoch_deadline_callback(move |mut store| {
        let guest = store.data_mut().guest();
        if guest.clock.charged() >= limits.wall() {
            // The watch would stop it too, but from outside, where no backtrace can be had.
            return Err(Stop::Timeout.into());
        }
        if !graced && guest.cancellation.is_cancelled() {
            graced = true;
            let left = store.get_fuel()?;
            store.set_fuel(left.min(Limits::GRACE_FUEL))?;
        }
        Ok(UpdateDeadline::Yield(1))
    });
    Ok(store)
}

/// Fuel that was used; the store began with all that its limits allow.
pub(crate) fn fuel_used<T: GuestView>(store: &mut Store<T>) -> u64 {
    let fuel = store.data_mut().guest().limits.fuel.get();
    store.get_fuel().map_or(0, |left| fuel.saturating_sub(left))
}

/// Runs a call until it returns, its time is up or its grace after a cancellation is over.
pub(crate) async fn watched<R>(
    limits: &Limits,
    clock: &EpisodeClock,
    cancellation: &Cancellation,
    call: impl Future<Output = wasmtime::Result<R>>,
) -> wasmtime::Result<R> {
    let stopped = async {
        cancellation.cancelled().await;
        tokio::time::sleep(Limits::GRACE_WALL).await;
        Stop::Cancelled
    };
    tokio::select! {
        biased;
        result = clock.charge(call) => result,
        () = clock.reached(limits.wall()) => Err(Stop::Timeout.into()),
        stop = stopped => Err(stop.into()),
    }
}

/// Waits for something that is not the guest's doing: its clock stands still, and a cancellation
/// answers instead.
pub(crate) async fn wait<T, E>(
    clock: &EpisodeClock,
    cancellation: &Cancellation,
    cancelled: E,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let _waiting = clock.stand_still();
    until_cancelled(cancellation, cancelled, call).await
}

/// Waits for something that a cancellation ends.
pub(crate) async fn until_cancelled<T, E>(
    cancellation: &Cancellation,
    cancelled: E,
    call: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    tokio::select! {
        biased;
        () = cancellation.cancelled() => Err(cancelled),
        result = call => result,
    }
}
