//! What the plugins of these tests are given.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use fulgurite_runtime::{
    Harness, Runtime, Settings,
    capability::*,
    clock::{Cancellation, EpisodeClock},
    compile::Compiler,
    harness::{AgentTask, HarnessCapabilities, HarnessRun},
    limits::{LimitSettings, Limits, Role},
};
use fulgurite_trace::{CommandOutput, CommandRequest, FinishReason, Message, Metadata, Usage};
use tempfile::TempDir;
use tokio::sync::Semaphore;

/// A policy that repeats what it is told, as soon as its gate lets the call through.
pub(crate) struct Echo {
    pub(crate) gate: Semaphore,
    pub(crate) waiting: AtomicUsize,
    pub(crate) error: Option<LlmError>,
}

impl Echo {
    pub(crate) fn open() -> Arc<Self> {
        Self::gated(Semaphore::MAX_PERMITS)
    }

    pub(crate) fn gated(open: usize) -> Arc<Self> {
        let gate = Semaphore::new(open);
        Arc::new(Self { gate, waiting: AtomicUsize::new(0), error: None })
    }

    pub(crate) fn failing(error: LlmError) -> Arc<Self> {
        let gate = Semaphore::new(0);
        Arc::new(Self { gate, waiting: AtomicUsize::new(0), error: Some(error) })
    }

    /// Waits until that many calls stand before the gate.
    pub(crate) async fn reached(&self, count: usize) {
        while self.waiting.load(Ordering::SeqCst) < count {
            tokio::task::yield_now().await;
        }
    }

    async fn reply(&self, messages: Vec<Message>) -> Result<Reply, LlmError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.gate.acquire().await.unwrap().forget();
        let mut message = messages.into_iter().next_back().unwrap();
        message.role = fulgurite_trace::Role::Assistant;
        Ok(Reply {
            message,
            finish: FinishReason::Stop,
            usage: Usage::default(),
            turn: 0,
            metadata: Metadata::new(),
        })
    }
}

/// The way from a harness to an [`Echo`].
pub(crate) struct ToEcho(pub(crate) Arc<Echo>);

struct EchoConversation(Arc<Echo>);

struct EchoPending {
    echo: Arc<Echo>,
    messages: Option<Vec<Message>>,
}

#[async_trait]
impl LlmHost for ToEcho {
    async fn info(&self, _: &str) -> Result<ModelInfo, LlmError> {
        let metadata = Metadata::new();
        Ok(ModelInfo { native_tools: false, context_length: None, token_level: false, metadata })
    }

    async fn open(
        &self,
        config: ConversationConfig,
    ) -> Result<Box<dyn ConversationHost>, LlmError> {
        assert_eq!(config.model_role, "policy");
        Ok(Box::new(EchoConversation(Arc::clone(&self.0))))
    }

    async fn chat(
        &self,
        _: ConversationConfig,
        messages: Vec<Message>,
        _: ReplyOptions,
    ) -> Result<Reply, LlmError> {
        self.0.reply(messages).await
    }

    async fn generate(
        &self,
        _: &str,
        _: Vec<u32>,
        _: ReplyOptions,
    ) -> Result<TokenReply, LlmError> {
        Err(LlmError::Unsupported("generate".to_owned()))
    }
}

#[async_trait]
impl ConversationHost for EchoConversation {
    fn id(&self) -> u32 {
        0
    }

    async fn start(
        &mut self,
        messages: Vec<Message>,
        _: ReplyOptions,
    ) -> Result<Box<dyn PendingReply>, LlmError> {
        Ok(Box::new(EchoPending { echo: Arc::clone(&self.0), messages: Some(messages) }))
    }

    async fn branch(&mut self, _: u32) -> Result<Box<dyn ConversationHost>, LlmError> {
        Ok(Box::new(Self(Arc::clone(&self.0))))
    }

    async fn restart(&mut self, _: Vec<Message>, _: String) -> Result<(), LlmError> {
        Ok(())
    }
}

#[async_trait]
impl PendingReply for EchoPending {
    async fn ready(&mut self) {}

    async fn next_chunk(&mut self) -> Result<Option<Chunk>, LlmError> {
        Ok(None)
    }

    async fn finish(&mut self) -> Result<Reply, LlmError> {
        let messages = self.messages.take().ok_or(LlmError::Invalid("again".to_owned()))?;
        self.echo.reply(messages).await
    }

    fn cancel(&mut self) {
        self.messages = None;
    }
}

/// A lane that is down.
pub(crate) struct NoLane;

#[async_trait]
impl ExecHost for NoLane {
    async fn run(&self, _: CommandRequest, _: &EpisodeClock) -> Result<CommandOutput, ExecError> {
        Err(ExecError::Unavailable)
    }

    fn programs(&self) -> Vec<String> {
        vec!["python".to_owned()]
    }
}

/// Keeps what it is told.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) events: Mutex<Vec<(String, Metadata)>>,
    pub(crate) metrics: Mutex<Vec<(String, f64)>>,
    pub(crate) denied: Mutex<Vec<String>>,
    pub(crate) output: Mutex<Option<(String, String)>>,
}

impl JournalHost for Notes {
    fn event(&self, name: String, fields: Metadata) {
        self.events.lock().unwrap().push((name, fields));
    }

    fn metric(&self, name: String, value: f64) {
        self.metrics.lock().unwrap().push((name, value));
    }

    fn denied(&self, import: &str) {
        self.denied.lock().unwrap().push(import.to_owned());
    }

    fn output(&self, stdout: String, stderr: String) {
        *self.output.lock().unwrap() = Some((stdout, stderr));
    }
}

/// Twelve tokens are left, always.
pub(crate) struct Twelve;

impl BudgetHost for Twelve {
    fn remaining(&self) -> Remaining {
        Remaining { tokens: Some(12), turns: None, commands: None }
    }
}

/// A runtime with a cache of its own.
pub(crate) struct Fixture {
    pub(crate) runtime: Runtime,
    pub(crate) echo: Arc<Echo>,
    pub(crate) notes: Arc<Notes>,
    pub(crate) limits: LimitSettings,
    pub(crate) cancellation: Cancellation,
    _cache: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(16, Echo::open())
    }

    pub(crate) fn with(plugins: u32, echo: Arc<Echo>) -> Self {
        let cache = tempfile::tempdir().unwrap();
        let mut settings = Settings::new(cache.path().join("code"), Compiler::ThisProcess);
        settings.plugins = plugins.try_into().unwrap();
        settings.programs = 4.try_into().unwrap();
        settings.threads = NonZeroUsize::MIN;
        Self {
            runtime: Runtime::new(settings).unwrap(),
            echo,
            notes: Arc::default(),
            limits: LimitSettings { fuel: Some(1_000_000_000), ..LimitSettings::default() },
            cancellation: Cancellation::new(),
            _cache: cache,
        }
    }

    pub(crate) async fn harness(&self, bytes: Arc<[u8]>) -> Harness {
        self.runtime.harness(bytes).await.unwrap()
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits::decode(Role::Harness, &self.limits).unwrap()
    }

    pub(crate) fn run(&self) -> HarnessRun {
        HarnessRun {
            task: AgentTask {
                id: "task".to_owned(),
                input: "input".to_owned(),
                metadata: Metadata::new(),
            },
            config: "{}".to_owned(),
            capabilities: HarnessCapabilities {
                llm: Arc::new(ToEcho(Arc::clone(&self.echo))),
                exec: Arc::new(NoLane),
                journal: Arc::clone(&self.notes) as Arc<dyn JournalHost>,
                budget: Arc::new(Twelve),
                files: None,
            },
            limits: self.limits(),
            seed: 1,
            cancellation: self.cancellation.clone(),
        }
    }

    /// Loads and runs.
    pub(crate) async fn ending(&self, bytes: Arc<[u8]>) -> fulgurite_trace::Ending {
        self.harness(bytes).await.run(self.run()).await
    }
}
