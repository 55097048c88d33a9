//! The host side of the world `reward`.

use std::sync::Arc;

use wasmtime::component::{HasSelf, Linker, Resource};

use crate::{
    bindings::{
        harness::fulgurite::plugin::{commands, types},
        reward::fulgurite::plugin::{
            episode,
            grader::{self, GraderError},
        },
    },
    capability::{EpisodeView, ExecError, GraderHost, SandboxId},
    convert::all,
    failure::Stop,
    guest::{Guest, GuestView, until_cancelled},
    resource::Sandbox,
    wasi::{WasiState, WasiView},
};

/// Turns of one answer.
const MOST_TURNS: u32 = 64;

/// Bytes of the messages of one answer, beyond which no further turn is added.
const MOST_TURN_BYTES: usize = 4 << 20;

/// Changes of one answer.
const MOST_CHANGES: u32 = 1_000;

/// Bytes of a file that are read at once.
const MOST_READ: u32 = 4 << 20;

/// What is there while the reward scores; none while it describes itself.
type Given = (Arc<dyn EpisodeView>, Arc<dyn GraderHost>);

/// The data of a reward's store.
pub(crate) struct RewardState {
    guest: Guest,
    given: Option<Given>,
}

impl RewardState {
    pub(crate) fn new(guest: Guest, given: Option<Given>) -> Self {
        Self { guest, given }
    }

    fn episode(&self) -> wasmtime::Result<&Arc<dyn EpisodeView>> {
        self.given.as_ref().map(|given| &given.0).ok_or_else(|| Stop::ImportInDescribe.into())
    }

    fn grader(&self) -> wasmtime::Result<Arc<dyn GraderHost>> {
        let given = self.given.as_ref().ok_or(Stop::ImportInDescribe)?;
        Ok(Arc::clone(&given.1))
    }

    fn id(&mut self, sandbox: &Resource<Sandbox>) -> wasmtime::Result<SandboxId> {
        Ok(self.guest.table().get(sandbox)?.id)
    }
}

impl WasiView for RewardState {
    fn wasi(&mut self) -> &mut WasiState {
        &mut self.guest.wasi
    }
}

impl GuestView for RewardState {
    fn guest(&mut self) -> &mut Guest {
        &mut self.guest
    }
}

/// Links everything of the world but WASI.
pub(crate) fn add_to_linker(linker: &mut Linker<RewardState>) -> wasmtime::Result<()> {
    type Own = HasSelf<RewardState>;
    types::add_to_linker::<_, Own>(linker, |state| state)?;
    commands::add_to_linker::<_, Own>(linker, |state| state)?;
    episode::add_to_linker::<_, Own>(linker, |state| state)?;
    grader::add_to_linker::<_, Own>(linker, |state| state)
}

impl types::Host for RewardState {}
impl commands::Host for RewardState {}

impl episode::Host for RewardState {
    fn task(&mut self) -> wasmtime::Result<episode::GradedTask> {
        Ok(self.episode()?.task().into())
    }

    fn ending(&mut self) -> wasmtime::Result<episode::EpisodeEnding> {
        Ok(self.episode()?.ending().into())
    }

    fn turn_count(&mut self) -> wasmtime::Result<u32> {
        Ok(self.episode()?.turn_count())
    }

    async fn turns(&mut self, start: u32, count: u32) -> wasmtime::Result<Vec<episode::Turn>> {
        let view = Arc::clone(self.episode()?);
        let found = view.turns(start, count.min(MOST_TURNS)).await;
        let found = found.map_err(|_| Stop::Record)?;
        let mut bytes = 0_usize;
        let fits = found.iter().take_while(|turn| {
            // The first is always given, whatever its size: a guest could not go on otherwise.
            let fits = bytes <= MOST_TURN_BYTES;
            let messages = turn.messages.iter().chain([&turn.reply]);
            bytes += messages.map(size_of_message).sum::<usize>();
            fits
        });
        Ok(fits.map(|turn| episode::Turn::from(turn.as_ref())).collect())
    }

    fn change_count(&mut self) -> wasmtime::Result<u32> {
        Ok(self.episode()?.change_count())
    }

    fn changes(&mut self, start: u32, count: u32) -> wasmtime::Result<Vec<episode::ChangeEntry>> {
        Ok(all(self.episode()?.changes(start, count.min(MOST_CHANGES))))
    }

    fn read_file(
        &mut self,
        path: String,
        offset: u64,
        length: u32,
    ) -> wasmtime::Result<Result<Vec<u8>, episode::ReadError>> {
        let view = self.episode()?;
        if length > MOST_READ {
            return Ok(Err(episode::ReadError::TooLarge));
        }
        Ok(view.read_file(&path, offset, length).map_err(Into::into))
    }
}

/// Bytes of a message, roughly.
fn size_of_message(message: &fulgurite_trace::Message) -> usize {
    use fulgurite_trace::Part;
    let part = |part: &Part| match part {
        Part::Text(text) | Part::Thinking(text) => text.len(),
        Part::ToolCall(call) => call.arguments.len() + call.name.len(),
        Part::ToolResult(result) => result.content.len(),
    };
    64 + message.parts.iter().map(part).sum::<usize>()
}

impl grader::Host for RewardState {
    async fn run_connected(
        &mut self,
        left: Resource<Sandbox>,
        left_request: commands::Request,
        right: Resource<Sandbox>,
        right_request: commands::Request,
    ) -> wasmtime::Result<Result<(commands::Output, commands::Output), commands::ExecError>> {
        let grader = self.grader()?;
        let left = (self.id(&left)?, left_request.into());
        let right = (self.id(&right)?, right_request.into());
        let (clock, cancellation) = (self.guest.clock.clone(), self.guest.cancellation.clone());
        let call = grader.run_connected(left, right, &clock);
        let ran = until_cancelled(&cancellation, ExecError::Cancelled, call).await;
        self.guest.blame.exec(ran.as_ref().err());
        Ok(ran.map(|(left, right)| (left.into(), right.into())).map_err(Into::into))
    }
}

impl grader::HostSandbox for RewardState {
    async fn open(
        &mut self,
        base: grader::Base,
    ) -> wasmtime::Result<Result<Resource<Sandbox>, GraderError>> {
        let grader = self.grader()?;
        match grader.open(base.into()).await {
            Ok(id) => {
                // Made first, so that the sandbox is given back when the table is full.
                let sandbox = Sandbox { grader, id };
                Ok(Ok(self.guest.table().push(sandbox)?))
            }
            Err(error) => Ok(Err(error.into())),
        }
    }

    fn put_file(
        &mut self,
        sandbox: Resource<Sandbox>,
        path: String,
        contents: Vec<u8>,
    ) -> wasmtime::Result<Result<(), GraderError>> {
        let id = self.id(&sandbox)?;
        Ok(self.grader()?.put_file(id, &path, contents).map_err(Into::into))
    }

    fn read_file(
        &mut self,
        sandbox: Resource<Sandbox>,
        path: String,
        limit: u32,
    ) -> wasmtime::Result<Result<Vec<u8>, GraderError>> {
        let id = self.id(&sandbox)?;
        let read = self.grader()?.read_file(id, &path, limit.min(MOST_READ));
        Ok(read.map_err(Into::into))
    }

    fn remove(
        &mut self,
        sandbox: Resource<Sandbox>,
        path: String,
    ) -> wasmtime::Result<Result<(), GraderError>> {
        let id = self.id(&sandbox)?;
        Ok(self.grader()?.remove(id, &path).map_err(Into::into))
    }

    async fn run(
        &mut self,
        sandbox: Resource<Sandbox>,
        request: commands::Request,
    ) -> wasmtime::Result<Result<commands::Output, commands::ExecError>> {
        let (grader, id) = (self.grader()?, self.id(&sandbox)?);
        let (clock, cancellation) = (self.guest.clock.clone(), self.guest.cancellation.clone());
        let call = grader.run(id, request.into(), &clock);
        let ran = until_cancelled(&cancellation, ExecError::Cancelled, call).await;
        self.guest.blame.exec(ran.as_ref().err());
        Ok(ran.map(Into::into).map_err(Into::into))
    }

    fn drop(&mut self, sandbox: Resource<Sandbox>) -> wasmtime::Result<()> {
        self.guest.table().delete(sandbox)?;
        Ok(())
    }
}
