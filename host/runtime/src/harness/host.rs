//! The host side of the world `harness`.

use std::sync::Arc;

use wasmtime::{
    StoreContextMut,
    component::{HasSelf, Linker, Resource},
};
use wasmtime_wasi_io::poll::{DynPollable, subscribe};

use super::HarnessCapabilities;
use crate::{
    bindings::harness::fulgurite::plugin::{
        budget, commands, exec,
        llm::{self, LlmError as WitError},
        trace, types,
    },
    capability::{ConversationHost, ExecError, LlmError, PendingReply, Reply, ReplyOptions},
    convert::all,
    failure::{Stop, truncate},
    guest::{Guest, GuestView, until_cancelled, wait},
    resource::{Conversation, Pending},
    wasi::{WasiState, WasiView},
};

/// Bytes of the name of an event or metric.
const MOST_NAME: usize = 200;

/// The data of a harness's store.
pub(crate) struct HarnessState {
    guest: Guest,
    /// None while the harness describes itself.
    capabilities: Option<HarnessCapabilities>,
}

impl HarnessState {
    pub(crate) fn new(guest: Guest, capabilities: Option<HarnessCapabilities>) -> Self {
        Self { guest, capabilities }
    }

    fn capabilities(&self) -> wasmtime::Result<&HarnessCapabilities> {
        self.capabilities.as_ref().ok_or_else(|| Stop::ImportInDescribe.into())
    }

    /// A call for the policy that needs nothing of this state.
    async fn ask<T>(
        &mut self,
        call: impl Future<Output = Result<T, LlmError>>,
    ) -> Result<T, WitError> {
        let (clock, cancellation) = self.waiting();
        let result = wait(&clock, &cancellation, LlmError::Cancelled, call).await;
        self.note(result)
    }

    fn note<T>(&mut self, result: Result<T, LlmError>) -> Result<T, WitError> {
        self.guest.note_llm(&result);
        result.map_err(WitError::from)
    }

    fn waiting(&self) -> (crate::clock::EpisodeClock, crate::clock::Cancellation) {
        (self.guest.clock.clone(), self.guest.cancellation.clone())
    }

    fn keep(
        &mut self,
        conversation: Box<dyn ConversationHost>,
    ) -> wasmtime::Result<Resource<Conversation>> {
        Ok(self.guest.table().push(Conversation(conversation))?)
    }

    fn pending(&self, reply: Box<dyn PendingReply>) -> Pending {
        let (clock, cancellation) = self.waiting();
        Pending { reply, clock, cancellation }
    }

    /// Starts a reply in a conversation.
    async fn start(
        &mut self,
        conversation: &Resource<Conversation>,
        messages: Vec<types::Message>,
        options: llm::Options,
    ) -> wasmtime::Result<Result<Pending, LlmError>> {
        let options = match ReplyOptions::try_from(options) {
            Ok(options) => options,
            Err(error) => return Ok(Err(error)),
        };
        let (clock, cancellation) = self.waiting();
        let Conversation(conversation) = self.guest.table().get_mut(conversation)?;
        let call = conversation.start(all(messages), options);
        let started = wait(&clock, &cancellation, LlmError::Cancelled, call).await;
        Ok(started.map(|reply| self.pending(reply)))
    }
}

impl WasiView for HarnessState {
    fn wasi(&mut self) -> &mut WasiState {
        &mut self.guest.wasi
    }
}

impl GuestView for HarnessState {
    fn guest(&mut self) -> &mut Guest {
        &mut self.guest
    }
}

/// Links everything of the world but WASI.
pub(crate) fn add_to_linker(linker: &mut Linker<HarnessState>) -> wasmtime::Result<()> {
    type Own = HasSelf<HarnessState>;
    types::add_to_linker::<_, Own>(linker, |state| state)?;
    commands::add_to_linker::<_, Own>(linker, |state| state)?;
    llm::add_to_linker::<_, Own>(linker, |state| state)?;
    exec::add_to_linker::<_, Own>(linker, |state| state)?;
    trace::add_to_linker::<_, Own>(linker, |state| state)?;
    // By hand, since the fuel that is left is known to the store only.
    linker
        .instance("fulgurite:plugin/budget@0.1.0")?
        .func_wrap("left", |store, ()| Ok((remaining(store)?,)))
}

fn remaining(store: StoreContextMut<'_, HarnessState>) -> wasmtime::Result<budget::Remaining> {
    let fuel = store.get_fuel()?;
    let state = store.data();
    let left = state.capabilities()?.budget.remaining();
    Ok(budget::Remaining {
        tokens: left.tokens,
        turns: left.turns,
        commands: left.commands,
        time_ms: state.guest.wasi.clock().left().map(|nanoseconds| nanoseconds / 1_000_000),
        fuel: Some(fuel),
    })
}

impl types::Host for HarnessState {}
impl commands::Host for HarnessState {}

impl llm::Host for HarnessState {
    async fn info(
        &mut self,
        model_role: String,
    ) -> wasmtime::Result<Result<llm::ModelInfo, WitError>> {
        let llm = Arc::clone(&self.capabilities()?.llm);
        Ok(self.ask(llm.info(&model_role)).await.map(Into::into))
    }

    async fn chat(
        &mut self,
        config: llm::ConversationConfig,
        messages: Vec<types::Message>,
        options: llm::Options,
    ) -> wasmtime::Result<Result<llm::Reply, WitError>> {
        let llm = Arc::clone(&self.capabilities()?.llm);
        let options = match ReplyOptions::try_from(options) {
            Ok(options) => options,
            Err(error) => return Ok(self.note(Err(error))),
        };
        Ok(self.ask(llm.chat(config.into(), all(messages), options)).await.map(Into::into))
    }

    async fn generate(
        &mut self,
        model_role: String,
        prompt: Vec<u32>,
        options: llm::Options,
    ) -> wasmtime::Result<Result<llm::TokenReply, WitError>> {
        let llm = Arc::clone(&self.capabilities()?.llm);
        let options = match ReplyOptions::try_from(options) {
            Ok(options) => options,
            Err(error) => return Ok(self.note(Err(error))),
        };
        Ok(self.ask(llm.generate(&model_role, prompt, options)).await.map(Into::into))
    }
}

impl llm::HostConversation for HarnessState {
    async fn open(
        &mut self,
        config: llm::ConversationConfig,
    ) -> wasmtime::Result<Result<Resource<Conversation>, WitError>> {
        let llm = Arc::clone(&self.capabilities()?.llm);
        match self.ask(llm.open(config.into())).await {
            Ok(conversation) => Ok(Ok(self.keep(conversation)?)),
            Err(error) => Ok(Err(error)),
        }
    }

    fn id(&mut self, conversation: Resource<Conversation>) -> wasmtime::Result<u32> {
        Ok(self.guest.table().get(&conversation)?.0.id())
    }

    async fn start(
        &mut self,
        conversation: Resource<Conversation>,
        messages: Vec<types::Message>,
        options: llm::Options,
    ) -> wasmtime::Result<Result<Resource<Pending>, WitError>> {
        let started = self.start(&conversation, messages, options).await?;
        // Only the reply tells whether the policy answers.
        match started {
            Ok(pending) => Ok(Ok(self.guest.table().push(pending)?)),
            Err(error) => Ok(self.note(Err(error))),
        }
    }

    async fn send(
        &mut self,
        conversation: Resource<Conversation>,
        messages: Vec<types::Message>,
        options: llm::Options,
    ) -> wasmtime::Result<Result<llm::Reply, WitError>> {
        let replied: Result<Reply, _> = match self.start(&conversation, messages, options).await? {
            Ok(mut pending) => pending.finish().await,
            Err(error) => Err(error),
        };
        Ok(self.note(replied).map(Into::into))
    }

    async fn branch(
        &mut self,
        conversation: Resource<Conversation>,
        at: u32,
    ) -> wasmtime::Result<Result<Resource<Conversation>, WitError>> {
        let (clock, cancellation) = self.waiting();
        let Conversation(conversation) = self.guest.table().get_mut(&conversation)?;
        let call = conversation.branch(at);
        let branched = wait(&clock, &cancellation, LlmError::Cancelled, call).await;
        match self.note(branched) {
            Ok(conversation) => Ok(Ok(self.keep(conversation)?)),
            Err(error) => Ok(Err(error)),
        }
    }

    async fn restart(
        &mut self,
        conversation: Resource<Conversation>,
        messages: Vec<types::Message>,
        reason: String,
    ) -> wasmtime::Result<Result<(), WitError>> {
        let (clock, cancellation) = self.waiting();
        let Conversation(conversation) = self.guest.table().get_mut(&conversation)?;
        let call = conversation.restart(all(messages), reason);
        let restarted = wait(&clock, &cancellation, LlmError::Cancelled, call).await;
        Ok(self.note(restarted))
    }

    fn drop(&mut self, conversation: Resource<Conversation>) -> wasmtime::Result<()> {
        self.guest.table().delete(conversation)?;
        Ok(())
    }
}

impl llm::HostPendingReply for HarnessState {
    fn subscribe(&mut self, reply: Resource<Pending>) -> wasmtime::Result<Resource<DynPollable>> {
        subscribe(self.guest.table(), reply)
    }

    async fn next_chunk(
        &mut self,
        reply: Resource<Pending>,
    ) -> wasmtime::Result<Result<Option<llm::Chunk>, WitError>> {
        let (clock, cancellation) = self.waiting();
        let pending = self.guest.table().get_mut(&reply)?;
        let call = pending.reply.next_chunk();
        let chunk = wait(&clock, &cancellation, LlmError::Cancelled, call).await;
        Ok(self.note(chunk).map(|chunk| chunk.map(Into::into)))
    }

    async fn finish(
        &mut self,
        reply: Resource<Pending>,
    ) -> wasmtime::Result<Result<llm::Reply, WitError>> {
        let replied = self.guest.table().get_mut(&reply)?.finish().await;
        Ok(self.note(replied).map(Into::into))
    }

    fn cancel(&mut self, reply: Resource<Pending>) -> wasmtime::Result<()> {
        self.guest.table().get_mut(&reply)?.reply.cancel();
        Ok(())
    }

    fn drop(&mut self, reply: Resource<Pending>) -> wasmtime::Result<()> {
        self.guest.table().delete(reply)?;
        Ok(())
    }
}

impl exec::Host for HarnessState {
    async fn run(
        &mut self,
        request: commands::Request,
    ) -> wasmtime::Result<Result<commands::Output, commands::ExecError>> {
        let exec = Arc::clone(&self.capabilities()?.exec);
        let (clock, cancellation) = self.waiting();
        let call = exec.run(request.into(), &clock);
        let ran = until_cancelled(&cancellation, ExecError::Cancelled, call).await;
        self.guest.blame.exec(ran.as_ref().err());
        Ok(ran.map(Into::into).map_err(Into::into))
    }

    fn programs(&mut self) -> wasmtime::Result<Vec<String>> {
        Ok(self.capabilities()?.exec.programs())
    }
}

impl trace::Host for HarnessState {
    fn event(&mut self, mut name: String, fields: Vec<(String, String)>) -> wasmtime::Result<()> {
        truncate(&mut name, MOST_NAME);
        self.capabilities()?.journal.event(name, fields);
        Ok(())
    }

    fn metric(&mut self, mut name: String, value: f64) -> wasmtime::Result<()> {
        truncate(&mut name, MOST_NAME);
        let journal = &self.capabilities()?.journal;
        if value.is_finite() {
            journal.metric(name, value);
        } else {
            // A trace holds finite numbers only; the note keeps what was said.
            let fields = vec![("name".to_owned(), name), ("value".to_owned(), value.to_string())];
            journal.event("metric-not-finite".to_owned(), fields);
        }
        Ok(())
    }
}
