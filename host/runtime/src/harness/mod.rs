//! Harnesses: agent programs, one fresh store an episode.

mod host;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use fulgurite_trace::{
    Ending, FailureKind, Metadata, Outcome, OutcomeStatus, ToolDefinition, file::FileTree,
};
use serde::{Deserialize, Serialize};
use wasmtime::{Store, component::Linker};

use self::host::HarnessState;
use crate::{
    audit::Inspection,
    bindings::harness::{self as bindings, exports::fulgurite::plugin::agent},
    capability::{BudgetHost, ExecHost, JournalHost, LlmHost},
    clock::{Cancellation, EpisodeClock},
    convert::all,
    engine::Engine,
    executor::HostFailure,
    failure::{Failure, truncate},
    guest::{Guest, GuestConfig, GuestView as _, fuel_used, store, watched},
    limits::Limits,
    runtime::{LoadError, Loaded, Runtime},
    wasi,
};

/// Bytes of a message that is kept of a failure.
const MOST_MESSAGE: usize = 4_000;

/// A text that may be tuned through the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// Its name.
    pub name: String,
    /// What it is when nobody tunes it.
    pub default: String,
}

/// What a harness would like to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Want {
    /// The policy.
    Llm,
    /// Commands.
    Exec,
    /// A workspace.
    Workspace,
}

/// What a harness says of itself: hostile text, escape before showing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentDescription {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// JSON Schema of its configuration, as text.
    pub config_schema: String,
    /// Texts that may be tuned.
    pub prompts: Vec<Prompt>,
    /// Models it asks for.
    pub model_roles: Vec<String>,
    /// Tools it offers to the model.
    pub tools: Vec<ToolDefinition>,
    /// What it would like to use.
    pub wants: Vec<Want>,
}

/// A component did not describe itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`describe` of the component failed ({kind}): {message}")]
pub struct DescribeError {
    /// What happened.
    pub kind: FailureKind,
    /// The details: hostile text, escape before showing.
    pub message: String,
    /// Function names, innermost first.
    pub backtrace: Vec<String>,
}

impl DescribeError {
    pub(crate) fn new(failure: Failure) -> Self {
        let Failure { kind, message, backtrace } = failure;
        Self { kind, message, backtrace }
    }

    pub(crate) fn host(failure: HostFailure) -> Self {
        Self {
            kind: FailureKind::SandboxError,
            message: failure.to_string(),
            backtrace: Vec::new(),
        }
    }
}

/// The part of a task that an agent sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentTask {
    /// Its id.
    pub id: String,
    /// What the agent is asked.
    pub input: String,
    /// Room for growth.
    pub metadata: Metadata,
}

/// All that a harness can reach in one episode.
#[derive(Clone)]
pub struct HarnessCapabilities {
    /// The policy.
    pub llm: Arc<dyn LlmHost>,
    /// Commands.
    pub exec: Arc<dyn ExecHost>,
    /// Notes.
    pub journal: Arc<dyn JournalHost>,
    /// Budgets.
    pub budget: Arc<dyn BudgetHost>,
    /// The workspace, at `/workspace` and as the current directory.
    pub files: Option<Arc<dyn FileTree>>,
}

/// One attempt at an episode.
pub struct HarnessRun {
    /// The task.
    pub task: AgentTask,
    /// The harness's configuration, a JSON object as text.
    pub config: String,
    /// What it can reach.
    pub capabilities: HarnessCapabilities,
    /// What it may use.
    pub limits: Limits,
    /// Where its random numbers start.
    pub seed: u64,
    /// The way to stop it.
    pub cancellation: Cancellation,
}

/// A loaded harness. Clones share the code.
#[derive(Clone)]
pub struct Harness {
    runtime: Runtime,
    loaded: Loaded,
    pre: bindings::HarnessPre<HarnessState>,
}

impl std::fmt::Debug for Harness {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Harness").field("loaded", &self.loaded).finish_non_exhaustive()
    }
}

impl Harness {
    pub(crate) fn prepare(runtime: Runtime, loaded: Loaded) -> Result<Self, LoadError> {
        let link = || {
            let mut linker = Linker::new(loaded.engine.wasm());
            wasi::add_to_linker(&mut linker)?;
            host::add_to_linker(&mut linker)?;
            bindings::HarnessPre::new(linker.instantiate_pre(&loaded.component)?)
        };
        let pre =
            link().map_err(|error: wasmtime::Error| LoadError::Shape(format!("{error:#}")))?;
        Ok(Self { runtime, loaded, pre })
    }

    /// What the component is and wants.
    pub fn inspection(&self) -> &Inspection {
        &self.loaded.inspection
    }

    /// Asks the harness to describe itself, in a store where no capability answers.
    pub async fn describe(&self) -> Result<AgentDescription, DescribeError> {
        let place = self.loaded.engine.place(&self.loaded.component).await;
        let (pre, engine) = (self.pre.clone(), self.loaded.engine.clone());
        let describing = self.runtime.executor().run(async move {
            let described = describe(&engine, &pre).await;
            drop(place);
            described
        });
        describing.await.unwrap_or_else(|failure| Err(DescribeError::host(failure)))
    }

    /// Runs one attempt to its end, however it ends, as soon as there is a place for it. Dropping
    /// the future stops it.
    pub async fn run(&self, run: HarnessRun) -> Ending {
        let cancellation = run.cancellation.clone();
        let place = tokio::select! {
            biased;
            place = self.loaded.engine.place(&self.loaded.component) => place,
            () = cancellation.cancelled() => {
                return without_outcome(FailureKind::Cancelled, "cancelled before it began");
            }
        };
        let (pre, engine) = (self.pre.clone(), self.loaded.engine.clone());
        let running = self.runtime.executor().run(async move {
            let ending = attempt(&engine, &pre, run).await;
            drop(place);
            ending
        });
        running.await.unwrap_or_else(|failure| {
            without_outcome(FailureKind::SandboxError, failure.to_string())
        })
    }

    /// How long a fresh store with an instance in it takes to make. For measurements.
    pub async fn time_instantiation(&self) -> Result<Duration, DescribeError> {
        let place = self.loaded.engine.place(&self.loaded.component).await;
        let (pre, engine) = (self.pre.clone(), self.loaded.engine.clone());
        let timing = self.runtime.executor().run(async move {
            let began = Instant::now();
            let mut store = bare(&engine)?;
            let instantiated = pre.instantiate_async(&mut store).await;
            let took = began.elapsed();
            let failed = instantiated
                .map(drop)
                .map_err(|error| DescribeError::new(store.data_mut().guest().failure(&error)));
            drop((store, place));
            failed.map(|()| took)
        });
        timing.await.unwrap_or_else(|failure| Err(DescribeError::host(failure)))
    }
}

/// A store where no capability answers.
fn bare(engine: &Engine) -> Result<Store<HarnessState>, DescribeError> {
    let guest = Guest::new(GuestConfig {
        limits: Limits::of_describe(),
        seed: 0,
        files: None,
        clock: EpisodeClock::start(),
        cancellation: Cancellation::new(),
    });
    store(engine, HarnessState::new(guest, None))
        .map_err(|error| DescribeError::host(HostFailure(error.to_string())))
}

async fn describe(
    engine: &Engine,
    pre: &bindings::HarnessPre<HarnessState>,
) -> Result<AgentDescription, DescribeError> {
    let mut store = bare(engine)?;
    let guest = store.data_mut().guest();
    let (limits, clock) = (guest.limits, guest.clock.clone());
    let call = async {
        let harness = pre.instantiate_async(&mut store).await?;
        harness.fulgurite_plugin_agent().call_describe(&mut store).await
    };
    match watched(&limits, &clock, &Cancellation::new(), call).await {
        Ok(description) => Ok(description.into()),
        Err(error) => Err(DescribeError::new(store.data_mut().guest().failure(&error))),
    }
}

async fn attempt(
    engine: &Engine,
    pre: &bindings::HarnessPre<HarnessState>,
    run: HarnessRun,
) -> Ending {
    let HarnessRun { task, config, capabilities, limits, seed, cancellation } = run;
    let clock = EpisodeClock::start();
    let task = agent::Task {
        id: task.id,
        input: task.input,
        has_workspace: capabilities.files.is_some(),
        metadata: task.metadata,
    };
    let journal = Arc::clone(&capabilities.journal);
    let guest = Guest::new(GuestConfig {
        limits,
        seed,
        files: capabilities.files.clone(),
        clock: clock.clone(),
        cancellation: cancellation.clone(),
    });
    let mut store = match store(engine, HarnessState::new(guest, Some(capabilities))) {
        Ok(store) => store,
        Err(error) => return without_outcome(FailureKind::SandboxError, error.to_string()),
    };
    let call = async {
        let harness = pre.instantiate_async(&mut store).await?;
        harness.fulgurite_plugin_agent().call_run(&mut store, &task, &config).await
    };
    let returned = watched(&limits, &clock, &cancellation, call).await;
    let fuel_used = fuel_used(&mut store);
    // From here on the instance is gone; only what it left behind is looked at.
    let mut state = store.into_data();
    let guest = state.guest();
    let ending = match returned {
        Ok(Ok(outcome)) => Ending {
            kind: FailureKind::Completed,
            outcome: Some(outcome.into()),
            message: None,
            backtrace: Vec::new(),
            fuel_used,
            virtual_ms: guest.virtual_ms(),
        },
        Ok(Err(agent::Failure { mut message, .. })) => {
            truncate(&mut message, MOST_MESSAGE);
            let kind = if cancellation.is_cancelled() {
                FailureKind::Cancelled
            } else {
                guest.blame().kind().unwrap_or(FailureKind::HarnessError)
            };
            let virtual_ms = guest.virtual_ms();
            Ending { fuel_used, virtual_ms, ..without_outcome(kind, message) }
        }
        Err(error) => {
            let Failure { kind, message, backtrace } = guest.failure(&error);
            let virtual_ms = guest.virtual_ms();
            Ending { backtrace, fuel_used, virtual_ms, ..without_outcome(kind, message) }
        }
    };
    for import in guest.wasi.denied().keys() {
        journal.denied(import);
    }
    if let Some((stdout, stderr)) = guest.output() {
        journal.output(stdout, stderr);
    }
    ending
}

fn without_outcome(kind: FailureKind, message: impl Into<String>) -> Ending {
    Ending {
        kind,
        outcome: None,
        message: Some(message.into()),
        backtrace: Vec::new(),
        fuel_used: 0,
        virtual_ms: 0,
    }
}

impl From<agent::Outcome> for Outcome {
    fn from(outcome: agent::Outcome) -> Self {
        let status = match outcome.status {
            agent::Status::Submitted => OutcomeStatus::Submitted,
            agent::Status::GaveUp => OutcomeStatus::GaveUp,
        };
        Self { status, answer: outcome.answer, metadata: outcome.metadata }
    }
}

impl From<agent::Description> for AgentDescription {
    fn from(description: agent::Description) -> Self {
        let want = |capability| match capability {
            agent::Capability::Llm => Want::Llm,
            agent::Capability::Exec => Want::Exec,
            agent::Capability::Workspace => Want::Workspace,
        };
        Self {
            name: description.name,
            version: description.version,
            config_schema: description.config_schema,
            prompts: all(description.prompts),
            model_roles: description.model_roles,
            tools: all(description.tools),
            wants: description.wants.into_iter().map(want).collect(),
        }
    }
}

impl From<agent::Prompt> for Prompt {
    fn from(prompt: agent::Prompt) -> Self {
        Self { name: prompt.name, default: prompt.default }
    }
}
