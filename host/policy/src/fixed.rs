//! Policies whose replies are known beforehand, and what they share.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use fulgurite_trace::{FinishReason, Message, Part, Role, Usage};
use tokio::sync::mpsc;

use crate::{Chunk, Policy, PolicyError, PolicyInfo, PolicyReply, Prompt, ReplyRequest};

/// A reply known beforehand.
#[derive(Debug, Clone, PartialEq)]
pub struct FixedReply {
    /// What is said.
    pub message: Message,
    /// Why it ends. Absent: `tool-calls` when the message calls a tool, else `stop`.
    pub finish: Option<FinishReason>,
    /// Tokens of the call. Absent: one token for every four bytes begun.
    pub usage: Option<Usage>,
    /// How long the reply takes.
    pub delay: Duration,
}

impl FixedReply {
    /// A reply of this message, at once.
    pub const fn message(message: Message) -> Self {
        Self { message, finish: None, usage: None, delay: Duration::ZERO }
    }

    /// A reply of this text, at once.
    pub fn text(text: impl Into<String>) -> Self {
        Self::message(Message::text(Role::Assistant, text))
    }

    /// The same reply, taking this long.
    #[must_use]
    pub const fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Waits, streams and replies.
    pub(crate) async fn deliver(
        &self,
        request: &ReplyRequest,
        chunks: Option<mpsc::Sender<Chunk>>,
    ) -> PolicyReply {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        if let Some(chunks) = chunks {
            for part in &self.message.parts {
                let chunk = match part {
                    Part::Text(text) if !text.is_empty() => Chunk::Text(text.clone()),
                    Part::Thinking(text) if !text.is_empty() => Chunk::Thinking(text.clone()),
                    _ => continue,
                };
                // A receiver that does not keep up misses provisional text only.
                let _ = chunks.try_send(chunk);
            }
        }
        let finish = self.finish.unwrap_or_else(|| natural_finish(&self.message));
        let usage = self.usage.unwrap_or_else(|| estimate_usage(&request.prompt, &self.message));
        PolicyReply { message: self.message.clone(), finish, usage, tokens: None }
    }
}

/// `tool-calls` for a message that calls a tool, else `stop`.
pub(crate) fn natural_finish(message: &Message) -> FinishReason {
    if message.tool_calls().next().is_some() { FinishReason::ToolCalls } else { FinishReason::Stop }
}

/// One token for every four bytes begun: deterministic, and near enough for budgets.
fn estimate_usage(prompt: &Prompt, reply: &Message) -> Usage {
    let prompt_tokens = match prompt {
        Prompt::Messages(messages) => messages.iter().map(estimate_tokens).sum(),
        Prompt::Tokens(tokens) => u64::try_from(tokens.len()).unwrap_or(u64::MAX),
    };
    Usage { prompt_tokens, cached_tokens: 0, completion_tokens: estimate_tokens(reply) }
}

fn estimate_tokens(message: &Message) -> u64 {
    let bytes: usize = message
        .parts
        .iter()
        .map(|part| match part {
            Part::Text(text) | Part::Thinking(text) => text.len(),
            Part::ToolCall(call) => call.name.len() + call.arguments.len(),
            Part::ToolResult(result) => result.content.len(),
        })
        .sum();
    u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

/// Answers every call with the same reply, whoever asks.
#[derive(Debug)]
pub struct Constant {
    info: PolicyInfo,
    reply: FixedReply,
}

impl Constant {
    /// A policy of this name that always gives this reply.
    pub fn new(name: impl Into<String>, reply: FixedReply) -> Self {
        Self { info: message_level_info(name), reply }
    }

    /// The policy `empty`: always empty text. What a reward gives it is the reward's floor.
    pub fn empty() -> Self {
        Self::new("empty", FixedReply::text(""))
    }
}

#[async_trait]
impl Policy for Constant {
    fn info(&self) -> &PolicyInfo {
        &self.info
    }

    async fn reply(
        &self,
        request: ReplyRequest,
        chunks: Option<mpsc::Sender<Chunk>>,
    ) -> Result<PolicyReply, PolicyError> {
        Ok(self.reply.deliver(&request, chunks).await)
    }
}

/// What a policy that says fixed messages is: it can say anything, native tool calls included.
pub(crate) fn message_level_info(name: impl Into<String>) -> PolicyInfo {
    PolicyInfo { name: name.into(), context_length: None, native_tools: true }
}

/// Holds every call of another policy until [`Gate::release`]: with it, tests and benchmarks
/// keep any number of episodes waiting in a model call at once.
pub struct Gate {
    inner: Arc<dyn Policy>,
    state: tokio::sync::watch::Sender<GateState>,
}

#[derive(Debug, Clone, Copy, Default)]
struct GateState {
    waiting: usize,
    most: usize,
    open: bool,
}

impl Gate {
    /// A closed gate before this policy.
    pub fn new(inner: Arc<dyn Policy>) -> Self {
        Self { inner, state: tokio::sync::watch::Sender::new(GateState::default()) }
    }

    /// How many calls wait now.
    pub fn waiting(&self) -> usize {
        self.state.borrow().waiting
    }

    /// The most calls that ever waited at once.
    pub fn most_waiting(&self) -> usize {
        self.state.borrow().most
    }

    /// Returns once this many calls wait at once, or the gate is open.
    pub async fn until_waiting(&self, calls: usize) {
        let mut state = self.state.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = state.wait_for(|state| state.waiting >= calls || state.open).await;
    }

    /// Lets all waiting and all later calls through.
    pub fn release(&self) {
        self.state.send_modify(|state| state.open = true);
    }
}

/// Counts a waiting call, and stops counting it however its future ends.
struct Waiting<'a>(&'a tokio::sync::watch::Sender<GateState>);

impl<'a> Waiting<'a> {
    fn enter(state: &'a tokio::sync::watch::Sender<GateState>) -> Self {
        state.send_modify(|state| {
            state.waiting += 1;
            state.most = state.most.max(state.waiting);
        });
        Self(state)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|state| state.waiting -= 1);
    }
}

#[async_trait]
impl Policy for Gate {
    fn info(&self) -> &PolicyInfo {
        self.inner.info()
    }

    fn version(&self) -> u64 {
        self.inner.version()
    }

    fn chat_format(&self) -> Option<Arc<dyn crate::ChatFormat>> {
        self.inner.chat_format()
    }

    async fn reply(
        &self,
        request: ReplyRequest,
        chunks: Option<mpsc::Sender<Chunk>>,
    ) -> Result<PolicyReply, PolicyError> {
        {
            let _waiting = Waiting::enter(&self.state);
            let mut state = self.state.subscribe();
            let _ = state.wait_for(|state| state.open).await;
        }
        self.inner.reply(request, chunks).await
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use fulgurite_trace::ToolCall;

    use super::*;
    use crate::{CallKey, Sampling};

    pub(crate) fn request(key: CallKey) -> ReplyRequest {
        ReplyRequest {
            key,
            prompt: Prompt::Messages(Arc::from([Message::text(Role::User, "12345")])),
            tools: Arc::from([]),
            sampling: Sampling { max_tokens: 16, temperature: 0.0, ..Default::default() },
        }
    }

    pub(crate) fn key(task: &str, harness: &str, turn: u32) -> CallKey {
        CallKey {
            task: task.to_owned(),
            harness: harness.to_owned(),
            agent: String::new(),
            tool_format: "native",
            conversation: 0,
            turn,
        }
    }

    #[tokio::test]
    async fn the_empty_policy_says_nothing() {
        let reply = Constant::empty().reply(request(key("t", "h", 0)), None).await.unwrap();
        assert_eq!(reply.message.plain_text(), "");
        assert_eq!(reply.finish, FinishReason::Stop);
        assert_eq!(reply.usage.prompt_tokens, 2);
        assert_eq!(reply.usage.completion_tokens, 0);
    }

    #[tokio::test]
    async fn a_tool_call_ends_with_tool_calls_and_text_is_streamed() {
        let message = Message {
            role: Role::Assistant,
            parts: vec![
                Part::Thinking("hm".to_owned()),
                Part::Text("look".to_owned()),
                Part::ToolCall(ToolCall {
                    id: "1".to_owned(),
                    name: "bash".to_owned(),
                    arguments: "{}".to_owned(),
                    problem: None,
                }),
            ],
            metadata: vec![],
        };
        let (sender, mut receiver) = mpsc::channel(8);
        let policy = Constant::new("test", FixedReply::message(message.clone()));
        let reply = policy.reply(request(key("t", "h", 0)), Some(sender)).await.unwrap();
        assert_eq!(reply.message, message);
        assert_eq!(reply.finish, FinishReason::ToolCalls);
        assert_eq!(receiver.recv().await, Some(Chunk::Thinking("hm".to_owned())));
        assert_eq!(receiver.recv().await, Some(Chunk::Text("look".to_owned())));
        assert_eq!(receiver.recv().await, None);
    }

    #[tokio::test]
    async fn a_delay_is_kept() {
        let policy = Constant::new("slow", FixedReply::text("x").after(Duration::from_millis(20)));
        let start = std::time::Instant::now();
        policy.reply(request(key("t", "h", 0)), None).await.unwrap();
        assert!(start.elapsed() >= Duration::from_millis(20));
    }

    #[tokio::test]
    async fn a_gate_holds_all_calls_until_released_and_forgets_dropped_ones() {
        let gate = Arc::new(Gate::new(Arc::new(Constant::empty())));
        let mut calls: Vec<_> = (0..100)
            .map(|_| {
                let gate = gate.clone();
                tokio::spawn(async move { gate.reply(request(key("t", "h", 0)), None).await })
            })
            .collect();
        gate.until_waiting(100).await;
        assert_eq!(gate.waiting(), 100);
        let dropped = calls.pop().unwrap();
        dropped.abort();
        assert!(dropped.await.unwrap_err().is_cancelled());
        assert_eq!(gate.waiting(), 99);
        gate.release();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(gate.waiting(), 0);
        assert_eq!(gate.most_waiting(), 100);
    }
}
