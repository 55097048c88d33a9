//! Programs of the wasm lane: `sandbox` asks, `runtime` runs.

use std::{collections::BTreeMap, num::NonZeroU64, sync::Arc};

use async_trait::async_trait;
use fulgurite_runtime::{
    clock::EpisodeClock,
    lane::LaneProgram,
    limits::{Limits, Role},
    program::{ProgramError, ProgramRequest},
    wasi::{Output, Preopen, Stdin},
};
use fulgurite_sandbox::{LaneError, OutputState, ProgramCall, ProgramEnd, ProgramRunner};
use fulgurite_trace::{CommandStop, file::FileTree};

use crate::bounds::FUEL_PER_MILLISECOND;

/// Where programs, and harnesses, find the workspace.
pub(crate) const WORKSPACE: &str = "/workspace";

/// Most bytes of standard output that reach a pipe, a file or the output of a command. Two of
/// these, and two of the next, are the memory that one running program may cost the host.
const STDOUT_BYTES: usize = 8 << 20;
const STDERR_BYTES: usize = 1 << 20;

/// The status of a command that was stopped for its time, as a shell has it.
pub(crate) const TIMEOUT_STATUS: i32 = 124;

/// How many times slower than a slow machine one may be before the wall clock stops a program.
const BACKSTOP: u64 = 20;

/// What it means that the wall clock stopped a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overrun {
    /// The host failed: nothing can be said of the program.
    Failure,
    /// The program was too slow, like one that is out of fuel: what is graded does not escape its
    /// grade by finding work that fuel does not see.
    Stop,
}

/// The registered programs of a run, by the names they are called by.
#[derive(Clone, Default)]
pub struct Programs(Arc<BTreeMap<String, LaneProgram>>);

impl Programs {
    /// Programs by name.
    pub fn new(programs: impl IntoIterator<Item = (String, LaneProgram)>) -> Self {
        Self(Arc::new(programs.into_iter().collect()))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&LaneProgram> {
        self.0.get(name)
    }

    /// A runner for one guest: its clock stands still while a program waits for its place.
    pub(crate) fn runner(
        &self,
        clock: &EpisodeClock,
        seed: u64,
        overrun: Overrun,
    ) -> Arc<dyn ProgramRunner> {
        Arc::new(Runner { programs: self.clone(), clock: clock.clone(), seed, overrun })
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }
}

struct Runner {
    programs: Programs,
    clock: EpisodeClock,
    seed: u64,
    overrun: Overrun,
}

#[async_trait]
impl ProgramRunner for Runner {
    fn programs(&self) -> Vec<String> {
        self.programs.names()
    }

    async fn run(&self, call: ProgramCall) -> Result<ProgramEnd, LaneError> {
        let failed = |reason: String| LaneError::Program { program: call.program.clone(), reason };
        let Some(program) = self.programs.get(&call.program) else {
            return Err(failed("it is not registered in this run".to_owned()));
        };
        let mut request = ProgramRequest::new(call.argv.iter().cloned());
        request.environment.clone_from(&call.env);
        request.stdin = Stdin::Bytes(call.stdin);
        request.stdout = Output::Capture { head: STDOUT_BYTES, tail: 0 };
        request.stderr = Output::Capture { head: STDERR_BYTES, tail: 0 };
        request.preopens = preopens(&call.tree, &call.cwd);
        request.limits = limits(call.fuel, call.memory_bytes);
        request.seed = self.seed;
        let end = match program.run(request, &self.clock).await {
            Err(ProgramError::WallClock { fuel_used, .. }) if self.overrun == Overrun::Stop => {
                let stop = Some(CommandStop::Timeout);
                return Ok(ProgramEnd { status: TIMEOUT_STATUS, stop, fuel_used });
            }
            ended => ended.map_err(|error| failed(error.to_string()))?,
        };
        let full = call.output.stdout(&end.stdout.bytes) == OutputState::Full;
        if !full {
            call.output.stderr(&end.stderr.bytes);
        }
        Ok(ProgramEnd { status: end.status, stop: end.stop, fuel_used: end.fuel_used })
    }
}

/// The workspace at its usual place, and the working folder at `/`: programs on wasi-libc begin
/// there, so that is where their relative paths lead.
pub(crate) fn preopens(tree: &Arc<dyn FileTree>, cwd: &str) -> Vec<Preopen> {
    let mut here = Preopen::new("/", Arc::clone(tree));
    here.folder = cwd.trim_matches('/').to_owned();
    vec![Preopen::new(WORKSPACE, Arc::clone(tree)), here]
}

/// The lane's limits with this fuel and memory. The wall clock stays far behind the fuel, however
/// much of it there is.
pub(crate) fn limits(fuel: u64, memory_bytes: u64) -> Limits {
    let mut limits = Limits::of(Role::Program);
    // A command that is out of fuel still starts, and ends at once with its own status.
    limits.fuel = NonZeroU64::new(fuel).unwrap_or(NonZeroU64::MIN);
    limits.memory_bytes = NonZeroU64::new(memory_bytes).unwrap_or(limits.memory_bytes);
    let backstop = (fuel / FUEL_PER_MILLISECOND).saturating_mul(BACKSTOP).min(u32::MAX.into());
    limits.wall_ms = NonZeroU64::new(backstop).map_or(limits.wall_ms, |it| it.max(limits.wall_ms));
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_stays_behind_any_fuel() {
        let usual = Limits::of(Role::Program).wall_ms;
        let wall_ms = |fuel| limits(fuel, 1 << 20).wall_ms;
        assert_eq!((wall_ms(0), wall_ms(1_000_000_000)), (usual, usual));
        assert_eq!(wall_ms(50_000_000_000).get(), 200_000);
        assert_eq!(wall_ms(u64::MAX).get(), u64::from(u32::MAX));
    }
}
