//! Programs of the wasm lane with a place in the pool and threads of their own.

use crate::{
    clock::EpisodeClock,
    executor::HostFailure,
    program::{Program, ProgramEnd, ProgramError, ProgramRequest},
    runtime::{LoadError, Loaded, Runtime},
};

/// A loaded program. Clones share the code.
#[derive(Debug, Clone)]
pub struct LaneProgram {
    runtime: Runtime,
    loaded: Loaded,
    program: Program,
}

impl LaneProgram {
    pub(crate) fn prepare(runtime: Runtime, loaded: Loaded) -> Result<Self, LoadError> {
        let program = Program::new(loaded.engine.wasm(), &loaded.component)
            .map_err(|error| LoadError::Shape(error.to_string()))?;
        Ok(Self { runtime, loaded, program })
    }

    /// What the program is.
    pub fn inspection(&self) -> &crate::audit::Inspection {
        &self.loaded.inspection
    }

    /// Runs one command to its end, as soon as there is a place for it. `clock` is the caller's
    /// and stands still meanwhile: the command has limits of its own. Dropping the future stops
    /// it.
    pub async fn run(
        &self,
        request: ProgramRequest,
        clock: &EpisodeClock,
    ) -> Result<ProgramEnd, ProgramError> {
        let _waiting = clock.stand_still();
        let place = self.loaded.engine.place(&self.loaded.component).await;
        let program = self.program.clone();
        let ended = self.runtime.executor().run_busy(async move {
            let ended = program.run(request).await;
            drop(place);
            ended
        });
        ended.await.unwrap_or_else(host)
    }

    /// Runs two commands at once, whose requests are connected by [`crate::wasi::connect`]. Both
    /// get their places together, so that connected pairs cannot keep each other waiting.
    pub async fn run_connected(
        left: (&Self, ProgramRequest),
        right: (&Self, ProgramRequest),
        clock: &EpisodeClock,
    ) -> (Result<ProgramEnd, ProgramError>, Result<ProgramEnd, ProgramError>) {
        let _waiting = clock.stand_still();
        let components = [&left.0.loaded.component, &right.0.loaded.component];
        let places = left.0.loaded.engine.places(components).await;
        let run = |(program, request): (&Self, ProgramRequest)| {
            let (inner, runtime) = (program.program.clone(), program.runtime.clone());
            async move {
                let run = async move { inner.run(request).await };
                runtime.executor().run_busy(run).await.unwrap_or_else(host)
            }
        };
        let ended = futures::join!(run(left), run(right));
        drop(places);
        ended
    }
}

fn host(failure: HostFailure) -> Result<ProgramEnd, ProgramError> {
    Err(ProgramError::Host { reason: failure.to_string() })
}
