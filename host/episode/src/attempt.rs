//! One attempt at an episode: run the harness, seal the workspace, grade, record.

use std::{
    num::{NonZeroU32, NonZeroU64},
    sync::Arc,
};

use fulgurite_gateway::{Gateway, Session, SessionConfig, SessionUsage};
use fulgurite_runtime::{
    Harness, Reward, Runtime,
    clock::Cancellation,
    harness::{AgentTask, HarnessCapabilities, HarnessRun},
    limits::{Limits, Role},
    reward::{RewardFailure, RewardRun, Scored},
};
use fulgurite_sandbox::{CommandLimits, Quota, Sealed, Tree};
use fulgurite_trace::{
    Digest, Ending, EpisodeRef, EpisodeWriter, FailureKind, Score, Store, StoreError, Task,
    episode::Cause, file::FileTree,
};

use crate::{
    adapt::{
        exec::{Commands, CommandsLeft},
        grader::Grader,
        journal::Journal,
        llm::{Budgets, Policies},
        programs::Programs,
        view::{Turns, View},
    },
    limits::EpisodeLimits,
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
                running.await
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
        self.writer.end(ending.clone(), Some(manifest.tree), changes).await
    }

    async fn grade(
        &self,
        ending: Ending,
        sealed: Sealed,
        usage: SessionUsage,
        seed: u64,
    ) -> Result<After, StoreError> {
        let limits = &self.plan.limits;
        let kind = ending.kind;
        let source = self.equipment.store.as_ref();
        let source = source.map(|(store, run)| (store.clone(), run.clone(), self.episode));
        let turns = Turns { source, count: usage.turns, read: tokio::sync::OnceCell::new() };
        let task = Arc::clone(&self.task);
        let view = Arc::new(View { task, ending, sealed: sealed.clone(), turns });
        let mut scores = Vec::with_capacity(self.equipment.rewards.len());
        for (plan, reward) in self.plan.rewards.iter().zip(&self.equipment.rewards) {
            let grader = Grader::new(
                sealed.clone(),
                quota(limits),
                self.equipment.runtime.clone(),
                self.equipment.programs.clone(),
                command_limits(limits),
                seed,
            );
            let scored = reward.score(RewardRun {
                config: serde_json::Value::Object(plan.config.clone()).to_string(),
                episode: view.clone(),
                grader: Arc::new(grader),
                limits: guest_limits(Role::Reward, limits.reward_fuel, limits),
                seed,
                cancellation: self.cancellation.clone(),
            });
            match scored.await {
                Ok(Scored { total, components, turns, notes, fuel_used: _ }) => {
                    let (reward, weight) = (plan.plugin.name.clone(), plan.weight);
                    scores.push(Score { reward, weight, total, components, turns, notes });
                }
                Err(failure) => return Ok(refused(&plan.plugin.name, &failure)),
            }
        }
        let passed = kind == FailureKind::Completed
            && scores.first().is_some_and(|score| score.total >= 1.0);
        let sum: f64 = scores.iter().map(|score| score.weight * score.total).sum();
        let total = if kind == FailureKind::Completed { sum } else { sum.min(self.plan.floor) };
        self.writer.score(scores, total).await?;
        Ok(After::Scored { total, passed })
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

/// What a wished timeout of a command is worth in fuel. An interpreter in the lane was measured at
/// 7 to 8 million a millisecond (CPython 3.12, an endless loop, one core of a busy machine); a
/// little less gives slow machines the time that was asked for.
const FUEL_PER_MILLISECOND: u64 = 5_000_000;

/// The seed of an episode: the same for every attempt, so that a retry is the same episode.
fn seed(run: u64, task: &str, sample: u32) -> u64 {
    let digest = Digest::of(format!("{run}\0{sample}\0{task}"));
    let [a, b, c, d, e, f, g, h, ..] = *digest.as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

fn quota(limits: &EpisodeLimits) -> Quota {
    Quota {
        bytes: limits.workspace_bytes,
        files: limits.workspace_files,
        handles: narrow(limits.open_files),
        ..Quota::default()
    }
}

fn command_limits(limits: &EpisodeLimits) -> CommandLimits {
    CommandLimits {
        fuel: limits.command_fuel,
        fuel_per_millisecond: FUEL_PER_MILLISECOND,
        program_memory_bytes: limits.command_memory,
        output_bytes: usize::try_from(limits.output).unwrap_or(usize::MAX),
        ..CommandLimits::default()
    }
}

fn guest_limits(role: Role, fuel: u64, episode: &EpisodeLimits) -> Limits {
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

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
