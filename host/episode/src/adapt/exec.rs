//! Commands of a harness, in the lane of its workspace.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use super::programs::{Overrun, Programs};
use async_trait::async_trait;
use fulgurite_runtime::{
    Runtime,
    capability::{BudgetKind, ExecError, ExecHost},
    clock::{Cancellation, EpisodeClock},
};
use fulgurite_sandbox::{CommandLimits, Lane, LaneError, Tree};
use fulgurite_trace::{CommandOutput, CommandRequest, EntryBody, EpisodeWriter};

/// The commands of one attempt.
pub(crate) struct Commands {
    pub(crate) runtime: Runtime,
    pub(crate) programs: Programs,
    pub(crate) seed: u64,
    pub(crate) tree: Arc<Tree>,
    pub(crate) limits: CommandLimits,
    pub(crate) left: Arc<CommandsLeft>,
    pub(crate) writer: EpisodeWriter,
    pub(crate) cancellation: Cancellation,
}

/// How many commands an attempt may still run.
pub(crate) struct CommandsLeft(AtomicU32);

impl CommandsLeft {
    pub(crate) fn new(commands: u32) -> Self {
        Self(AtomicU32::new(commands))
    }

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn take(&self) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
    }
}

#[async_trait]
impl ExecHost for Commands {
    async fn run(
        &self,
        request: CommandRequest,
        clock: &EpisodeClock,
    ) -> Result<CommandOutput, ExecError> {
        if self.cancellation.is_cancelled() {
            return Err(ExecError::Cancelled);
        }
        if !self.left.take() {
            return Err(ExecError::Budget(BudgetKind::Commands));
        }
        let lane = Lane::new(self.programs.runner(clock, self.seed, Overrun::Failure));
        let (tree, limits) = (Arc::clone(&self.tree), self.limits.clone());
        let (request, output) = on_busy_threads(&self.runtime, lane, request, tree, limits).await?;
        let tree = self.tree.digest().map_err(|error| {
            tracing::error!(%error, "the workspace cannot be read");
            ExecError::Unavailable
        })?;
        self.writer.push(EntryBody::Command { request, output: output.clone(), tree });
        Ok(output)
    }

    fn programs(&self) -> Vec<String> {
        let clock = EpisodeClock::start();
        Lane::new(self.programs.runner(&clock, self.seed, Overrun::Failure)).programs()
    }
}

/// Runs a command where guests compute: built-in commands (a grep over everything) would hold up
/// the threads on which episodes wait for the model.
pub(crate) async fn on_busy_threads(
    runtime: &Runtime,
    lane: Lane,
    request: CommandRequest,
    tree: Arc<Tree>,
    limits: CommandLimits,
) -> Result<(CommandRequest, CommandOutput), ExecError> {
    let run = async move {
        let output = lane.run(&request, tree, &limits).await?;
        Ok((request, output))
    };
    match runtime.executor().run_busy(run).await {
        Ok(ran) => ran.map_err(|error| refusal(&error)),
        Err(failure) => {
            tracing::error!(%failure, "a command could not be run");
            Err(ExecError::Unavailable)
        }
    }
}

/// A lane's error in the words of the contract. Host details stay in the log.
pub(crate) fn refusal(error: &LaneError) -> ExecError {
    match error {
        LaneError::Invalid(reason) => ExecError::Invalid(reason.clone()),
        LaneError::Cancelled => ExecError::Cancelled,
        error => {
            tracing::error!(%error, "the lane failed");
            ExecError::Unavailable
        }
    }
}
