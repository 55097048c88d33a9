//! One attempt at an episode: run the harness, seal the workspace, grade, record.

use std::sync::Arc;

use fulgurite_gateway::{Gateway, Session, SessionConfig, SessionUsage};
use fulgurite_runtime::{
    Harness, Reward, Runtime,
    clock::Cancellation,
    harness::{AgentTask, HarnessCapabilities, HarnessRun},
    limits::Role,
    reward::RewardFailure,
};
use fulgurite_sandbox::{Sealed, Tree};
use fulgurite_trace::{
    Ending, EpisodeRef, EpisodeWriter, FailureKind, Store, StoreError, Task, episode::Cause,
    file::FileTree,
};

use crate::{
    adapt::{
        exec::{Commands, CommandsLeft},
        journal::Journal,
        llm::{Budgets, Policies},
        programs::Programs,
        view::Turns,
    },
    bounds::{command_limits, guest_limits, narrow, quota, seed},
    grading::{Finished, Graded, Grading},
    plan::Plan,
    workspaces::Workspaces,
};

/// Everything loaded that a run needs; shared by its episodes.
pub struct Equipment {
    /// The harness, with the name it describes itself by.
    pub harness: (Harness, String),
    /// The rewards, in the order of the plan.
    pub rewards: Vec<Reward>,
    /// What all of them run in.
    pub runtime: Runtime,
    /// Programs of the wasm lane.
    pub programs: Programs,
    /// The way to the policy.
    pub gateway: Gateway,
    /// The tasks, in the order of their file.
    pub tasks: Vec<Arc<Task>>,
    /// The trace store and the run's id in it; none for measurements without a trace.
    pub store: Option<(Store, String)>,
}

/// An attempt that reached its end: what it left behind, before it is graded.
struct Ran {
    ending: Ending,
    sealed: Sealed,
    usage: SessionUsage,
    /// What the policy or its server said when a call failed; for the run's owner.
    failure: Option<String>,
}

/// How an attempt came out.
pub(crate) struct Attempted {
    pub(crate) kind: FailureKind,
    pub(crate) usage: SessionUsage,
    pub(crate) after: After,
}

/// What is to become of the episode.
pub(crate) enum After {
    /// It has its scores.
    Scored { total: f64, passed: bool },
    /// There are no rewards in this run.
    Unscored,
    /// Infrastructure failed: try again, if there are attempts left.
    Retry { reason: String },
    /// Its owner has to look at it.
    Alarm { reason: String },
    /// The run was stopped.
    Cancelled,
}

/// One attempt's surroundings.
pub(crate) struct Attempt<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) equipment: &'a Equipment,
    pub(crate) workspaces: &'a Workspaces,
    pub(crate) cancellation: &'a Cancellation,
    pub(crate) task: Arc<Task>,
    pub(crate) episode: EpisodeRef,
    pub(crate) writer: EpisodeWriter,
}

impl Attempt<'_> {
    /// Runs the attempt to its end and records it, up to its scores. What becomes of the episode
    /// otherwise is the caller's to record: a retry depends on what came before.
    pub(crate) async fn run(self) -> Result<Attempted, StoreError> {
        let seed = seed(self.plan.seed, &self.task.id, self.episode.sample);
        let ran = match self.harness(seed).await {
            Ok(ran) => ran,
            Err(reason) => {
                let after = After::Retry { reason };
                let kind = FailureKind::SandboxError;
                return Ok(Attempted { kind, usage: SessionUsage::default(), after });
            }
        };
        let Ran { ending, sealed, usage, failure } = ran;
        let kind = ending.kind;
        self.record_ending(&ending, &sealed).await?;
        let reason = || {
            let message = ending.message.clone().unwrap_or_else(|| kind.name().to_owned());
            // The harness learned a code; its owner has to learn the cause.
            match &failure {
                Some(cause) => format!("{cause} (the harness: {message})"),
                None => message,
            }
        };
        let after = match kind.cause(usage.turns > 0) {
            Cause::Infrastructure => After::Retry { reason: reason() },
            Cause::Owner => After::Cancelled,
            Cause::Alarm => After::Alarm { reason: reason() },
            Cause::Policy if self.equipment.rewards.is_empty() => {
                self.writer.score(Vec::new(), 0.0).await?;
                After::Unscored
            }
            Cause::Policy => self.grade(ending, sealed, usage, seed).await?,
        };
        Ok(Attempted { kind, usage, after })
    }

    /// Runs the harness; an error is a workspace that cannot be made or sealed.
    async fn harness(&self, seed: u64) -> Result<Ran, String> {
        let limits = &self.plan.limits;
        let lower = self.workspaces.lower(&self.task).await?;
        let tree = Arc::new(Tree::new(lower, quota(limits)));
        let session = self.equipment.gateway.session(SessionConfig {
            task: self.task.id.clone(),
            harness: self.equipment.harness.1.clone(),
            episode: self.episode,
            writer: self.writer.clone(),
        });
        let commands = Arc::new(CommandsLeft::new(narrow(limits.commands)));
        let run = HarnessRun {
            task: AgentTask {
                id: self.task.id.clone(),
                input: self.task.input.clone(),
                metadata: self.task.metadata.clone(),
            },
            config: serde_json::Value::Object(self.plan.harness_config.clone()).to_string(),
            capabilities: HarnessCapabilities {
                llm: Arc::new(Policies { session: session.clone() }),
                exec: Arc::new(Commands {
                    runtime: self.equipment.runtime.clone(),
                    programs: self.equipment.programs.clone(),
                    seed,
                    tree: Arc::clone(&tree),
                    limits: command_limits(limits),
                    left: Arc::clone(&commands),
                    writer: self.writer.clone(),
                    cancellation: self.cancellation.clone(),
                }),
                journal: Arc::new(Journal { writer: self.writer.clone() }),
                budget: Arc::new(Budgets { session: session.clone(), commands }),
                files: Some(Arc::clone(&tree) as Arc<dyn FileTree>),
            },
            limits: guest_limits(Role::Harness, limits.fuel, limits),
            seed,
            cancellation: self.cancellation.clone(),
        };
        let running = self.equipment.harness.0.run(run);
        tokio::pin!(running);
        let mut ending = tokio::select! {
            ending = &mut running => ending,
            () = self.cancellation.cancelled() => {
                // Calls that wait for the policy answer at once; the harness has its grace.
                session.cancel();
                stopped(running.await)
            }
        };
        ending.kind = judged(ending.kind, &session, self.cancellation);
        session.close();
        let sealed = tree.seal().map_err(|error| format!("the workspace: {error}"))?;
        Ok(Ran { ending, sealed, usage: session.usage(), failure: session.last_failure() })
    }

    async fn record_ending(&self, ending: &Ending, sealed: &Sealed) -> Result<(), StoreError> {
        let manifest = sealed.manifest();
        let changes = if manifest.changes.is_empty() {
            Vec::new()
        } else {
            // Paths, kinds, sizes and digests: plain data that always serialises.
            serde_json::to_vec(manifest).unwrap_or_default()
        };
        self.keep(sealed).await?;
        self.writer.end(ending.clone(), Some(manifest.tree), changes).await
    }

    /// Keeps what the workspace's changed files hold, for those who grade or look at them later.
    async fn keep(&self, sealed: &Sealed) -> Result<(), StoreError> {
        if self.equipment.store.is_none() || sealed.manifest().changes.is_empty() {
            return Ok(());
        }
        match sealed.contents(self.plan.keep_bytes) {
            Ok(Some(contents)) => self.writer.keep(contents).await,
            Ok(None) => Ok(()),
            Err(error) => {
                // The episode's result does not depend on it; its digests are recorded.
                tracing::error!(%error, "the contents of a sealed workspace cannot be kept");
                Ok(())
            }
        }
    }

    async fn grade(
        &self,
        ending: Ending,
        sealed: Sealed,
        usage: SessionUsage,
        seed: u64,
    ) -> Result<After, StoreError> {
        let source = self.equipment.store.as_ref();
        let source = source.map(|(store, run)| (store.clone(), run.clone(), self.episode));
        let grading = Grading {
            runtime: &self.equipment.runtime,
            programs: &self.equipment.programs,
            rewards: &self.plan.rewards,
            loaded: &self.equipment.rewards,
            limits: &self.plan.limits,
            floor: self.plan.floor,
            cancellation: self.cancellation,
        };
        let finished = Finished {
            task: Arc::clone(&self.task),
            ending,
            sealed,
            turns: Turns { source, count: usage.turns, read: tokio::sync::OnceCell::new() },
            seed,
        };
        match grading.score(finished).await {
            Ok(Graded { scores, total, passed }) => {
                self.writer.score(scores, total).await?;
                Ok(After::Scored { total, passed })
            }
            Err((reward, failure)) => Ok(refused(&reward, &failure)),
        }
    }
}

/// The ending of a harness that was under way when the run was stopped. Whatever it made of the
/// calls that were refused to it since then is no result.
fn stopped(ending: Ending) -> Ending {
    match ending.kind {
        FailureKind::Completed => Ending {
            kind: FailureKind::Cancelled,
            outcome: None,
            message: Some("the run was stopped".to_owned()),
            ..ending
        },
        _ => ending,
    }
}

/// The kind of an ending, with what only the gateway knows: whether a call that failed was the
/// policy's doing or the host's. A harness that gives up on a reply of its own has not been
/// cancelled by anybody, and cannot escape its grade that way.
fn judged(kind: FailureKind, session: &Session, run: &Cancellation) -> FailureKind {
    match kind {
        FailureKind::Cancelled if !run.is_cancelled() => {
            session.verdict().unwrap_or(FailureKind::HarnessError)
        }
        FailureKind::HarnessError => session.verdict().unwrap_or(kind),
        kind => kind,
    }
}

/// What a failed reward means for the episode.
fn refused(reward: &str, failure: &RewardFailure) -> After {
    let reason = format!("reward `{reward}`: {failure}");
    match failure.kind {
        FailureKind::Cancelled => After::Cancelled,
        FailureKind::SandboxError => After::Retry { reason },
        _ => After::Alarm { reason },
    }
}
