//! Sandboxes that rewards grade in.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use fulgurite_runtime::{
    Runtime,
    capability::{ExecError, GraderBase, GraderError, GraderHost, SandboxId},
    clock::EpisodeClock,
    lane::LaneProgram,
    program::{ProgramEnd, ProgramError, ProgramRequest},
    wasi::{self, Output, Stdin},
};
use fulgurite_sandbox::{CommandLimits, Lane, Lower, Quota, Sealed, Tree};
use fulgurite_trace::{
    Captured, CommandLine, CommandOutput, CommandRequest, CommandStop,
    file::{FileError, FileTree},
};

use super::{
    exec::on_busy_threads,
    programs::{Overrun, Programs, TIMEOUT_STATUS, limits, preopens},
};

/// Sandboxes that one reward may have open at once.
const MOST_SANDBOXES: usize = 16;

/// Grading one episode.
pub(crate) struct Grader {
    sealed: Sealed,
    quota: Quota,
    runtime: Runtime,
    programs: Programs,
    limits: CommandLimits,
    seed: u64,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u32,
    trees: HashMap<SandboxId, Arc<Tree>>,
}

impl Grader {
    pub(crate) fn new(
        sealed: Sealed,
        quota: Quota,
        runtime: Runtime,
        programs: Programs,
        limits: CommandLimits,
        seed: u64,
    ) -> Self {
        Self { sealed, quota, runtime, programs, limits, seed, open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Every critical section leaves the map whole.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tree(&self, sandbox: SandboxId) -> Option<Arc<Tree>> {
        self.open().trees.get(&sandbox).cloned()
    }

    /// The program and what it is asked for one half of a connected pair.
    fn half(
        &self,
        (sandbox, request): (SandboxId, &CommandRequest),
        connection: wasi::Connection,
    ) -> Result<(LaneProgram, ProgramRequest), ExecError> {
        let tree = self.tree(sandbox).ok_or_else(gone)?;
        let CommandLine::Argv(argv) = &request.command else {
            return Err(ExecError::Invalid("connected programs take arguments, no line".into()));
        };
        let program = argv.first().and_then(|name| self.programs.get(name)).ok_or_else(|| {
            let wanted = argv.first().map_or("", String::as_str);
            let known = self.programs.names().join(", ");
            ExecError::Invalid(format!(
                "no program `{wanted}` is registered (there are: {known}); `cargo xtask setup` \
                 registers python, `fulgurite plugin add FILE --kind program` others"
            ))
        })?;
        let wanted = request.timeout_ms.map_or(u64::MAX, |milliseconds| {
            u64::from(milliseconds).saturating_mul(self.limits.fuel_per_millisecond)
        });
        let kept = request.output_bytes.map_or(self.limits.output_bytes, |bytes| {
            self.limits.output_bytes.min(usize::try_from(bytes).unwrap_or(usize::MAX))
        });
        let mut ask = ProgramRequest::new(argv.iter().cloned());
        ask.environment.clone_from(&request.env);
        ask.stdin = Stdin::Pipe(connection.input);
        ask.stdout = Output::Pipe(connection.output);
        ask.stderr = Output::Capture { head: kept / 2, tail: kept / 2 };
        let tree: Arc<dyn FileTree> = tree;
        ask.preopens = preopens(&tree, request.cwd.as_deref().unwrap_or("/"));
        ask.limits = limits(self.limits.fuel.min(wanted), self.limits.program_memory_bytes);
        ask.seed = self.seed;
        Ok((program.clone(), ask))
    }
}

#[async_trait]
impl GraderHost for Grader {
    async fn open(&self, base: GraderBase) -> Result<SandboxId, GraderError> {
        let tree = match base {
            GraderBase::Empty => Tree::new(Lower::empty(), self.quota),
            GraderBase::Pristine => Tree::new(Arc::clone(self.sealed.lower()), self.quota),
            GraderBase::Changed => self.sealed.tree(self.quota).map_err(|error| {
                tracing::error!(%error, "a sealed workspace cannot be opened");
                GraderError::Other(1, "the sealed workspace cannot be opened".to_owned())
            })?,
        };
        let mut open = self.open();
        if open.trees.len() >= MOST_SANDBOXES {
            return Err(GraderError::Quota);
        }
        let id = SandboxId(open.next);
        open.next = open.next.saturating_add(1);
        open.trees.insert(id, Arc::new(tree));
        Ok(id)
    }

    fn close(&self, sandbox: SandboxId) {
        self.open().trees.remove(&sandbox);
    }

    fn put_file(
        &self,
        sandbox: SandboxId,
        path: &str,
        contents: Vec<u8>,
    ) -> Result<(), GraderError> {
        let tree = self.tree(sandbox).ok_or(GraderError::NotFound)?;
        tree.lay_down(relative(path)?, &contents).map_err(file_error)
    }

    fn read_file(
        &self,
        sandbox: SandboxId,
        path: &str,
        limit: u32,
    ) -> Result<Vec<u8>, GraderError> {
        let tree = self.tree(sandbox).ok_or(GraderError::NotFound)?;
        // Programs may have put a link there since: the snapshot follows none.
        tree.snapshot().read(path, 0, limit.into()).map_err(file_error)
    }

    fn remove(&self, sandbox: SandboxId, path: &str) -> Result<(), GraderError> {
        let tree = self.tree(sandbox).ok_or(GraderError::NotFound)?;
        tree.take_up(relative(path)?).map_err(file_error)
    }

    async fn run(
        &self,
        sandbox: SandboxId,
        request: CommandRequest,
        clock: &EpisodeClock,
    ) -> Result<CommandOutput, ExecError> {
        let tree = self.tree(sandbox).ok_or_else(gone)?;
        let lane = Lane::new(self.programs.runner(clock, self.seed, Overrun::Stop));
        let limits = self.limits.clone();
        let (_, output) = on_busy_threads(&self.runtime, lane, request, tree, limits).await?;
        Ok(output)
    }

    async fn run_connected(
        &self,
        left: (SandboxId, CommandRequest),
        right: (SandboxId, CommandRequest),
        clock: &EpisodeClock,
    ) -> Result<(CommandOutput, CommandOutput), ExecError> {
        let (left_end, right_end) = wasi::connect();
        let (left_program, left) = self.half((left.0, &left.1), left_end)?;
        let (right_program, right) = self.half((right.0, &right.1), right_end)?;
        let (left, right) =
            LaneProgram::run_connected((&left_program, left), (&right_program, right), clock).await;
        Ok((output(left)?, output(right)?))
    }
}

/// The contract promises that grading paths are relative.
fn relative(path: &str) -> Result<&str, GraderError> {
    if path.starts_with('/') { Err(GraderError::BadPath) } else { Ok(path) }
}

fn gone() -> ExecError {
    ExecError::Invalid("the sandbox is closed".to_owned())
}

fn output(end: Result<ProgramEnd, ProgramError>) -> Result<CommandOutput, ExecError> {
    let end = match end {
        Ok(end) => end,
        Err(ProgramError::WallClock { wall_ms, fuel_used }) => {
            tracing::warn!(wall_ms, fuel_used, "the wall clock stopped a program of a grader");
            return Ok(overrun(fuel_used));
        }
        Err(error) => {
            tracing::error!(%error, "a program of a grader could not be run");
            return Err(ExecError::Unavailable);
        }
    };
    let mut metadata = vec![("fuel".to_owned(), end.fuel_used.to_string())];
    if end.starved {
        metadata.push(("starved".to_owned(), "true".to_owned()));
    }
    Ok(CommandOutput {
        status: end.status,
        stopped: end.stop,
        stdout: Captured::default(),
        stderr: end.stderr,
        metadata,
    })
}

/// What the wall clock stopped, see [`Overrun::Stop`]. The reward is told, since of the two that
/// are connected it may trust one.
fn overrun(fuel_used: u64) -> CommandOutput {
    CommandOutput {
        status: TIMEOUT_STATUS,
        stopped: Some(CommandStop::Timeout),
        stdout: Captured::default(),
        stderr: Captured::default(),
        metadata: vec![
            ("fuel".to_owned(), fuel_used.to_string()),
            ("wall-clock".to_owned(), "true".to_owned()),
        ],
    }
}

fn file_error(error: FileError) -> GraderError {
    match error {
        FileError::NotFound => GraderError::NotFound,
        FileError::NoSpace | FileError::TooManyHandles => GraderError::Quota,
        FileError::Io => GraderError::Other(2, "the host's storage failed".to_owned()),
        _ => GraderError::BadPath,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_the_wall_clock_stopped_is_graded_and_one_that_could_not_run_is_not() {
        let overran = output(Err(ProgramError::WallClock { wall_ms: 60_000, fuel_used: 7 }));
        let overran = overran.unwrap();
        assert_eq!((overran.status, overran.stopped), (124, Some(CommandStop::Timeout)));
        assert!(overran.metadata.contains(&("fuel".to_owned(), "7".to_owned())));
        assert!(overran.metadata.contains(&("wall-clock".to_owned(), "true".to_owned())));
        let failed = output(Err(ProgramError::Host { reason: "no memory".to_owned() }));
        assert_eq!(failed, Err(ExecError::Unavailable));
    }
}
