//! Small policies, a chat format and a journal to watch.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use fulgurite_policy::{
    ChatFormat, Chunk, FormatError, Policy, PolicyError, PolicyInfo, PolicyReply, Prompt,
    ReplyRequest, SampledReply,
};
use fulgurite_trace::{
    EntryBody, EpisodeRef, FinishReason, Message, Part, Role, ToolDefinition, Turn, Usage,
};
use tokio::sync::{mpsc, watch};

use crate::{ConversationConfig, Gateway, ReplyOptions, Session, Settings, journal::Journal};

pub(super) const EPISODE: EpisodeRef = EpisodeRef { task: 0, sample: 0, attempt: 0 };

/// A journal in memory whose commits can be held back or fail.
pub(super) struct Notes {
    entries: Mutex<Vec<EntryBody>>,
    open: watch::Sender<bool>,
    pub(super) broken: watch::Sender<bool>,
}

impl Notes {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            entries: Mutex::default(),
            open: watch::Sender::new(true),
            broken: watch::Sender::new(false),
        })
    }

    pub(super) fn hold(&self) {
        self.open.send_replace(false);
    }

    pub(super) fn release(&self) {
        self.open.send_replace(true);
    }

    pub(super) fn entries(&self) -> Vec<EntryBody> {
        self.entries.lock().unwrap().clone()
    }

    pub(super) fn turns(&self) -> Vec<Turn> {
        let turns = self.entries().into_iter().filter_map(|entry| match entry {
            EntryBody::Turn(turn) => Some(*turn),
            _ => None,
        });
        turns.collect()
    }

    /// `turn 0`, `failed 1 cancelled`, … in the order of writing.
    pub(super) fn lines(&self) -> Vec<String> {
        let lines = self.entries().into_iter().map(|entry| match entry {
            EntryBody::Turn(turn) => format!("turn {} of {}", turn.index, turn.conversation),
            EntryBody::TurnFailed { index, error, .. } => format!("failed {index} {error}"),
            other => format!("{other:?}"),
        });
        lines.collect()
    }
}

#[async_trait]
impl Journal for Notes {
    fn push(&self, body: EntryBody) {
        self.entries.lock().unwrap().push(body);
    }

    async fn commit(&self) -> Result<(), String> {
        self.open.subscribe().wait_for(|open| *open).await.unwrap();
        if *self.broken.borrow() { Err("disk full".to_owned()) } else { Ok(()) }
    }
}

pub(super) fn gateway(settings: Settings, policy: Arc<dyn Policy>) -> Gateway {
    Gateway::builder(settings).policy("policy", policy).build().unwrap()
}

pub(super) fn session_of(gateway: &Gateway, notes: &Arc<Notes>) -> Session {
    let journal: Arc<dyn Journal> = notes.clone();
    let shared = Arc::clone(&gateway.shared);
    Session::with_journal(shared, "task".to_owned(), "harness".to_owned(), EPISODE, journal)
}

pub(super) fn session(settings: Settings, policy: Arc<dyn Policy>) -> (Session, Arc<Notes>) {
    let notes = Notes::new();
    (session_of(&gateway(settings, policy), &notes), notes)
}

pub(super) fn plain() -> ConversationConfig {
    ConversationConfig { model_role: "policy".to_owned(), ..Default::default() }
}

pub(super) fn user(text: &str) -> Vec<Message> {
    vec![Message::text(Role::User, text)]
}

pub(super) fn at_most(max_tokens: u32) -> ReplyOptions {
    ReplyOptions { max_tokens: Some(max_tokens), ..Default::default() }
}

pub(super) fn reply(text: &str, completion_tokens: u64) -> PolicyReply {
    PolicyReply {
        message: Message::text(Role::Assistant, text),
        finish: FinishReason::Stop,
        usage: Usage { prompt_tokens: 1, cached_tokens: 0, completion_tokens },
        tokens: None,
    }
}

pub(super) type Answer = Result<PolicyReply, PolicyError>;

/// A message-level policy that answers from a list, and then with what it was allowed to write.
pub(super) struct Listed {
    info: PolicyInfo,
    answers: Mutex<VecDeque<Answer>>,
    pub(super) asked: Mutex<Vec<ReplyRequest>>,
}

impl Listed {
    pub(super) fn new(answers: impl IntoIterator<Item = Answer>) -> Arc<Self> {
        Self::with_tools(answers, true)
    }

    pub(super) fn with_tools(
        answers: impl IntoIterator<Item = Answer>,
        native_tools: bool,
    ) -> Arc<Self> {
        let info = PolicyInfo { name: "listed".to_owned(), context_length: None, native_tools };
        let answers = Mutex::new(answers.into_iter().collect());
        Arc::new(Self { info, answers, asked: Mutex::default() })
    }

    pub(super) fn calls(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

#[async_trait]
impl Policy for Listed {
    fn info(&self) -> &PolicyInfo {
        &self.info
    }

    async fn reply(&self, request: ReplyRequest, _: Option<mpsc::Sender<Chunk>>) -> Answer {
        let max_tokens = u64::from(request.sampling.max_tokens);
        self.asked.lock().unwrap().push(request);
        let answer = self.answers.lock().unwrap().pop_front();
        answer.unwrap_or_else(|| Ok(reply("all I may", max_tokens)))
    }
}

/// Never answers.
pub(super) struct Silent(PolicyInfo);

impl Silent {
    pub(super) fn new() -> Arc<Self> {
        let name = "silent".to_owned();
        Arc::new(Self(PolicyInfo { name, context_length: None, native_tools: true }))
    }
}

#[async_trait]
impl Policy for Silent {
    fn info(&self) -> &PolicyInfo {
        &self.0
    }

    async fn reply(&self, _: ReplyRequest, _: Option<mpsc::Sender<Chunk>>) -> Answer {
        std::future::pending().await
    }
}

pub(super) const END: u32 = 5;
pub(super) const THINK: u32 = 6;
const THOUGHT: u32 = 7;
/// A second token that ends a reply, which rendering never uses.
pub(super) const OTHER_END: u32 = 8;
const BYTE: u32 = 100;
/// An id that stands for two bytes, which rendering never uses: as when a model samples a text
/// in other pieces than the tokenizer would cut.
const PAIR: u32 = 1000;

/// A byte-level chat format.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bytes {
    /// Drops the thinking of turns before the last user message, as many templates do.
    pub(super) forgets_thinking: bool,
}

fn bytes(text: &str) -> impl Iterator<Item = u32> {
    text.bytes().map(|byte| BYTE + u32::from(byte))
}

impl Bytes {
    fn render_one(self, message: &Message, think: bool, ids: &mut Vec<u32>) {
        ids.push(match message.role {
            Role::System => 1,
            Role::User => 2,
            Role::Assistant => 3,
            Role::Tool => 4,
        });
        for part in &message.parts {
            match part {
                Part::Text(text) => ids.extend(bytes(text)),
                Part::Thinking(text) if think => {
                    ids.push(THINK);
                    ids.extend(bytes(text));
                    ids.push(THOUGHT);
                }
                Part::Thinking(_) => {}
                Part::ToolCall(call) => ids.extend(bytes(&call.arguments)),
                Part::ToolResult(result) => ids.extend(bytes(&result.content)),
            }
        }
        ids.push(END);
    }
}

impl ChatFormat for Bytes {
    fn render(&self, messages: &[Message], _: &[ToolDefinition]) -> Result<Vec<u32>, FormatError> {
        let last_user = messages.iter().rposition(|message| message.role == Role::User);
        let mut ids = Vec::new();
        for (position, message) in messages.iter().enumerate() {
            if message.plain_text() == "{{ refuse }}" {
                return Err(FormatError("secret path of the template".to_owned()));
            }
            let recent = last_user.is_none_or(|user| position > user);
            self.render_one(message, !self.forgets_thinking || recent, &mut ids);
        }
        ids.push(3);
        Ok(ids)
    }

    fn render_continuation(
        &self,
        messages: &[Message],
        _: &[ToolDefinition],
        ended: bool,
    ) -> Result<Vec<u32>, FormatError> {
        let mut ids = if ended { vec![] } else { vec![END] };
        for message in messages {
            self.render_one(message, true, &mut ids);
        }
        ids.push(3);
        Ok(ids)
    }

    fn parse(&self, response: &[u32]) -> Message {
        let (mut text, mut thinking, mut thinks) = (Vec::new(), Vec::new(), false);
        for &id in response {
            match id {
                THINK => thinks = true,
                THOUGHT => thinks = false,
                END | OTHER_END => break,
                id => {
                    let into = if thinks { &mut thinking } else { &mut text };
                    match id.checked_sub(PAIR) {
                        Some(pair) => into.extend([(pair >> 8) as u8, pair as u8]),
                        None => into.push((id - BYTE) as u8),
                    }
                }
            }
        }
        let string = |bytes| String::from_utf8(bytes).unwrap();
        let mut parts = vec![];
        if !thinking.is_empty() {
            parts.push(Part::Thinking(string(thinking)));
        }
        parts.push(Part::Text(string(text)));
        Message { role: Role::Assistant, parts, metadata: vec![] }
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        bytes(text).collect()
    }

    fn spell(&self, id: u32, bytes: &mut Vec<u8>) {
        match (id.checked_sub(PAIR), id.checked_sub(BYTE)) {
            (Some(pair), _) => bytes.extend([(pair >> 8) as u8, pair as u8]),
            (None, Some(byte)) => bytes.push(byte as u8),
            (None, None) => {}
        }
    }

    fn is_end(&self, id: u32) -> bool {
        id == END || id == OTHER_END
    }
}

/// A token-level policy whose replies follow the seed of the call.
pub(super) struct Babbler {
    info: PolicyInfo,
    format: Bytes,
    /// Samples pairs of bytes as one id.
    pairs: bool,
    /// Prompt and response of every call, by the call's seed.
    pub(super) said: Mutex<Vec<(Vec<u32>, Vec<u32>)>>,
}

impl Babbler {
    pub(super) fn new(format: Bytes, pairs: bool, context_length: Option<u32>) -> Arc<Self> {
        let info = PolicyInfo { name: "babbler".to_owned(), context_length, native_tools: true };
        Arc::new(Self { info, format, pairs, said: Mutex::default() })
    }

    fn sample(&self, seed: u64, max_tokens: u32, stop: &[String]) -> (Vec<u32>, FinishReason) {
        let mut ids = Vec::new();
        if seed & 1 == 1 {
            ids.extend([THINK, BYTE + 104, BYTE + 109, THOUGHT]);
        }
        for step in 0..(seed >> 8) % 6 {
            let letter = BYTE + 97 + u32::try_from((seed >> (10 + step)) % 26).unwrap();
            ids.push(letter);
            if self.pairs && (seed >> step) & 1 == 1 {
                ids.push(PAIR + (97 << 8) + 98);
            }
        }
        if !stop.is_empty() && seed & 2 == 2 {
            ids.extend(bytes(&stop[0]));
            return (ids, FinishReason::Stop);
        }
        ids.push(if seed & 4 == 4 { OTHER_END } else { END });
        let most = usize::try_from(max_tokens).unwrap();
        let finish = if ids.len() > most { FinishReason::Length } else { FinishReason::Stop };
        ids.truncate(most);
        (ids, finish)
    }
}

#[async_trait]
impl Policy for Babbler {
    fn info(&self) -> &PolicyInfo {
        &self.info
    }

    fn version(&self) -> u64 {
        7
    }

    fn chat_format(&self) -> Option<Arc<dyn ChatFormat>> {
        Some(Arc::new(self.format))
    }

    async fn reply(&self, request: ReplyRequest, _: Option<mpsc::Sender<Chunk>>) -> Answer {
        let Prompt::Tokens(prompt) = &request.prompt else { panic!("asked with messages") };
        let sampling = &request.sampling;
        let (response, finish) = self.sample(sampling.seed, sampling.max_tokens, &sampling.stop);
        self.said.lock().unwrap().push((prompt.to_vec(), response.clone()));
        let mut message = self.format.parse(&response);
        for part in &mut message.parts {
            if let (Part::Text(text), Some(stop)) = (part, sampling.stop.first())
                && let Some(cut) = text.find(stop.as_str())
            {
                text.truncate(cut);
            }
        }
        let usage = Usage {
            prompt_tokens: u64::try_from(prompt.len()).unwrap(),
            cached_tokens: 0,
            completion_tokens: u64::try_from(response.len()).unwrap(),
        };
        let log_probabilities = vec![-0.5; response.len()];
        let tokens = SampledReply { response, log_probabilities, ..Default::default() };
        Ok(PolicyReply { message, finish, usage, tokens: Some(tokens) })
    }
}
