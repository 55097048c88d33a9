//! A line of turns that share one history.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use fulgurite_policy::{CallKey, Prompt, ReplyRequest, Sampling};
use fulgurite_trace::Message;

use crate::{
    ConversationConfig, LlmError, PendingReply, Reply, ReplyOptions, Session,
    call::Model,
    check::{self, Wish},
    error::Failure,
    history::Transcript,
    lock,
    pending::Asked,
    seed::call_seed,
};

/// A line of turns that share one history. Dropping it leaves pending replies alone.
#[derive(Clone)]
pub struct Conversation {
    session: Session,
    line: Arc<Line>,
}

/// The conversation itself, which knows nothing of its session.
pub(crate) struct Line {
    pub(crate) id: u32,
    pub(crate) agent: String,
    pub(crate) model_role: String,
    pub(crate) model: Model,
    pub(crate) transcript: Mutex<Transcript>,
    busy: AtomicBool,
    held: Held,
}

/// What is asked for.
pub(crate) enum Input {
    Messages(Vec<Message>),
    Tokens(Vec<u32>),
}

impl Conversation {
    pub(crate) fn open(session: &Session, config: ConversationConfig) -> Result<Self, LlmError> {
        session.alive()?;
        check::config(&config)?;
        let model = session.inner.gateway.model(&config.model_role)?.clone();
        if !config.tools.is_empty() && !model.policy.info().native_tools {
            return Err(LlmError::Unsupported(
                "the policy knows no tools; describe them in the prompt".to_owned(),
            ));
        }
        let transcript = Transcript::new(config.system, config.tools.into());
        Self::begin(session, config.agent, config.model_role, model, transcript)
    }

    fn begin(
        session: &Session,
        agent: String,
        model_role: String,
        model: Model,
        transcript: Transcript,
    ) -> Result<Self, LlmError> {
        let held = Held::new(Arc::clone(&session.inner.held));
        held.set(transcript.size());
        session.check_held(0)?;
        let id = session.number_conversation()?;
        let transcript = Mutex::new(transcript);
        let busy = AtomicBool::new(false);
        let line = Line { id, agent, model_role, model, transcript, busy, held };
        Ok(Self { session: session.clone(), line: Arc::new(line) })
    }

    pub(crate) fn of(session: &Session, line: Arc<Line>) -> Self {
        Self { session: session.clone(), line }
    }

    pub(crate) const fn line(&self) -> &Arc<Line> {
        &self.line
    }

    /// Unique within the episode: 0, 1, 2, … in the order of opening.
    pub fn id(&self) -> u32 {
        self.line.id
    }

    /// Appends messages and asks for a reply. Answers at once; the call goes on in the background.
    /// While a reply is pending, another start is [`LlmError::Busy`]. When the call fails or is
    /// given up on, the messages count as never sent.
    pub fn start(
        &self,
        messages: Vec<Message>,
        options: ReplyOptions,
    ) -> Result<PendingReply, LlmError> {
        self.ask(Input::Messages(messages), options)
    }

    /// [`Self::start`] and [`PendingReply::finish`] in one.
    pub async fn send(
        &self,
        messages: Vec<Message>,
        options: ReplyOptions,
    ) -> Result<Reply, LlmError> {
        self.start(messages, options)?.finish().await
    }

    /// A new conversation that shares the history up to and including turn `at`, one of this
    /// conversation's.
    pub fn branch(&self, at: u32) -> Result<Self, LlmError> {
        self.session.alive()?;
        let Some(transcript) = lock(&self.line.transcript).branch(at) else {
            return Err(LlmError::Invalid(format!(
                "turn {at} is not a recorded turn of conversation {}",
                self.line.id
            )));
        };
        let Line { agent, model_role, model, .. } = &*self.line;
        Self::begin(&self.session, agent.clone(), model_role.clone(), model.clone(), transcript)
    }

    /// Replaces the history by the system message and these messages.
    pub fn restart(&self, messages: Vec<Message>, reason: String) -> Result<(), LlmError> {
        self.session.alive()?;
        check::messages(&messages)?;
        let _claim = Claim::take(&self.line)?;
        let more = reason.len() + messages.iter().map(check::size).sum::<usize>();
        self.session.check_held(more)?;
        let mut transcript = lock(&self.line.transcript);
        transcript.restart(messages, reason);
        self.line.held.set(transcript.size());
        Ok(())
    }

    pub(crate) fn ask(
        &self,
        input: Input,
        options: ReplyOptions,
    ) -> Result<PendingReply, LlmError> {
        let session = &self.session;
        session.alive()?;
        let wish = check::options(&options, &session.inner.gateway.settings.sampling)?;
        let new = match &input {
            Input::Messages(messages) => messages.as_slice(),
            Input::Tokens(_) => &[],
        };
        check::messages(new)?;
        let claim = Claim::take(&self.line)?;
        let transcript = lock(&self.line.transcript);
        match &input {
            Input::Messages(new) if !transcript.awaits_reply(new) => {
                return Err(LlmError::invalid(
                    "nothing to answer: the last message must be of the role user or tool",
                ));
            }
            Input::Tokens(prompt) if prompt.is_empty() => {
                return Err(LlmError::invalid("an empty prompt cannot be continued"));
            }
            _ => {}
        }
        let more = match &input {
            Input::Messages(new) => new.iter().map(check::size).sum(),
            Input::Tokens(prompt) => prompt.len().saturating_mul(size_of::<u32>()),
        };
        let mut reservation = session.reserve(wish.max_tokens, more)?;
        let prepared = self.prepare(&transcript, &input);
        let prompt = match prepared.and_then(|prompt| Ok((self.room(&prompt)?, prompt))) {
            Ok((room, prompt)) => {
                let tokens = reservation.tokens.min(room);
                lock(&session.inner.ledger).shrink(&mut reservation, tokens);
                prompt
            }
            Err(failure) => {
                session.failed(reservation.index, &self.line, &failure);
                lock(&session.inner.ledger).fail(reservation, 0);
                return Err(failure.error);
            }
        };
        let asked_ids = match &prompt {
            Prompt::Tokens(ids) => Some(Arc::clone(ids)),
            Prompt::Messages(_) => None,
        };
        let tokens = reservation.tokens;
        let request = self.request(&transcript, prompt, &wish, reservation.index, tokens);
        drop(transcript);
        let (new, raw) = match input {
            Input::Messages(new) => (new, false),
            Input::Tokens(_) => (Vec::new(), true),
        };
        let Wish { temperature, truncation, .. } = wish;
        let asked = Asked { new, ids: asked_ids, raw, temperature, truncation };
        let stream = options.wants_stream();
        Ok(PendingReply::start(session.clone(), claim, asked, reservation, request, stream))
    }

    fn prepare(&self, transcript: &Transcript, input: &Input) -> Result<Prompt, Failure> {
        let format = self.line.model.policy.chat_format();
        let history = self.session.inner.gateway.settings.history;
        match input {
            Input::Tokens(prompt) => Ok(Prompt::Tokens(prompt.as_slice().into())),
            Input::Messages(new) => {
                transcript.prepare(new, history, format.as_deref()).map_err(|error| {
                    Failure::refused("the chat template refuses the messages", error.to_string())
                })
            }
        }
    }

    /// How many tokens the model can still write after this prompt.
    fn room(&self, prompt: &Prompt) -> Result<u32, Failure> {
        let (Prompt::Tokens(ids), Some(length)) =
            (prompt, self.line.model.policy.info().context_length)
        else {
            return Ok(u32::MAX);
        };
        let used = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        match length.checked_sub(used) {
            None | Some(0) => Err(Failure::context_length(format!(
                "the prompt has {used} tokens, the model takes {length} with the reply"
            ))),
            Some(room) => Ok(room),
        }
    }

    fn request(
        &self,
        transcript: &Transcript,
        prompt: Prompt,
        wish: &Wish,
        turn: u32,
        max_tokens: u32,
    ) -> ReplyRequest {
        let inner = &self.session.inner;
        let tools = Arc::clone(transcript.tools());
        ReplyRequest {
            key: CallKey {
                task: inner.task.clone(),
                harness: inner.harness.clone(),
                agent: self.line.agent.clone(),
                tool_format: if tools.is_empty() { "text" } else { "native" },
                conversation: self.line.id,
                turn: transcript.turns(),
            },
            prompt,
            tools,
            sampling: Sampling {
                max_tokens,
                temperature: wish.temperature,
                truncation: wish.truncation,
                stop: wish.stop.clone(),
                stop_tokens: Vec::new(),
                seed: call_seed(inner.gateway.settings.seed, &inner.task, inner.episode, turn),
            },
        }
    }
}

impl Line {
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    /// Counts what the history holds now.
    pub(crate) fn weigh(&self, transcript: &Transcript) {
        self.held.set(transcript.size());
    }
}

/// The right to change a conversation; given back when dropped.
pub(crate) struct Claim {
    pub(crate) line: Arc<Line>,
}

impl Claim {
    pub(crate) fn take(line: &Arc<Line>) -> Result<Self, LlmError> {
        if line.busy.swap(true, Ordering::AcqRel) {
            return Err(LlmError::Busy);
        }
        Ok(Self { line: Arc::clone(line) })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.line.busy.store(false, Ordering::Release);
    }
}

/// One conversation's part of the bytes that its session holds.
struct Held {
    total: Arc<AtomicUsize>,
    own: AtomicUsize,
}

impl Held {
    const fn new(total: Arc<AtomicUsize>) -> Self {
        Self { total, own: AtomicUsize::new(0) }
    }

    fn set(&self, bytes: usize) {
        let before = self.own.swap(bytes, Ordering::Relaxed);
        // Wrapping, so that one addition serves both directions.
        self.total.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}
