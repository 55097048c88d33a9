//! From what a policy answered to what the trace holds.

use fulgurite_policy::{PolicyReply, SampledReply};
use fulgurite_trace::{
    EntryBody, FinishReason, Message, Part, Role, SampledTokens, Turn, Usage, VersionSpan,
};

use crate::{
    LlmError, Reply, ReplyOptions, Session, TokenReply,
    call::Answered,
    check,
    conversation::{Input, Line},
    error::Failure,
    history::Exact,
    lock,
    pending::Asked,
};

/// A reply that the journal holds.
pub(crate) struct Written {
    pub(crate) reply: Reply,
    /// Only for calls with raw ids.
    pub(crate) tokens: Vec<u32>,
    pub(crate) log_probabilities: Vec<f32>,
}

impl Session {
    /// Continues raw token ids. A prompt that extends what an earlier call has seen and said
    /// continues that conversation, so that the turns of a token-level harness are one segment.
    pub async fn generate(
        &self,
        model_role: &str,
        prompt: Vec<u32>,
        options: ReplyOptions,
    ) -> Result<TokenReply, LlmError> {
        self.alive()?;
        if !self.info(model_role)?.token_level {
            let text = "the policy takes messages, not tokens; use a conversation";
            return Err(LlmError::Unsupported(text.to_owned()));
        }
        let conversation = self.recognise_ids(model_role, &prompt)?;
        conversation.ask(Input::Tokens(prompt), options)?.finish_tokens().await
    }

    /// Whether the answer keeps the contract of the policy trait.
    pub(crate) fn check_answer(
        &self,
        line: &Line,
        asked: &Asked,
        answered: &Answered,
    ) -> Result<(), Failure> {
        let most = self.inner.gateway.settings.limits.history_bytes;
        if check::size(&answered.reply.message) > most {
            return Err(Failure::broken_policy(format!("a reply of more than {most} bytes")));
        }
        if asked.ids.is_some() && answered.reply.tokens.is_none() {
            let name = &line.model.policy.info().name;
            let detail = format!("the token-level policy {name} gave no tokens");
            return Err(Failure::broken_policy(detail));
        }
        Ok(())
    }

    /// Brings the reply into the conversation and the turn into the journal, in one step that
    /// cannot fail.
    pub(crate) fn write_turn(
        &self,
        line: &Line,
        index: u32,
        asked: Asked,
        answered: Answered,
    ) -> Written {
        let Answered { reply, version, latency_ms, retries } = answered;
        let ended = has_end_token(line, &reply);
        let uncut = uncut(line, &reply);
        let PolicyReply { mut message, finish, mut usage, tokens } = reply;
        message.role = Role::Assistant;
        let Asked { new, ids, raw, temperature, truncation } = asked;
        // A message-level policy that reports no prompt leaves the context unknown, and a turn
        // with half of its tokens is worse than one without.
        let sampled = tokens.filter(|sampled| ids.is_some() || !sampled.prompt.is_empty());
        let mut sampled = sampled.map(|sampled| sound(sampled, version));
        let prompt = match (&ids, &mut sampled) {
            (Some(ids), _) => ids.to_vec(),
            (None, Some(sampled)) => std::mem::take(&mut sampled.prompt),
            (None, None) => Vec::new(),
        };
        let exact = sampled.as_ref().map(|sampled| {
            count(&mut usage, prompt.len(), sampled.response.len());
            Exact { prompt: &prompt, response: &sampled.response, ended, uncut }
        });
        let accepted = {
            let mut transcript = lock(&line.transcript);
            let accepted = transcript.accept(index, new, message.clone(), exact);
            line.weigh(&transcript);
            accepted
        };
        let (tokens, log_probabilities) = match &sampled {
            Some(sampled) if raw => (sampled.response.clone(), sampled.log_probabilities.clone()),
            _ => (Vec::new(), Vec::new()),
        };
        let turn = Turn {
            index,
            conversation: line.id,
            segment: accepted.segment,
            origin: accepted.origin,
            agent: line.agent.clone(),
            model_role: line.model_role.clone(),
            tools: accepted.tools,
            messages: accepted.messages,
            reply: message.clone(),
            finish,
            usage,
            tokens: accepted.context.zip(sampled).map(|(context, sampled)| SampledTokens {
                context,
                response: sampled.response,
                log_probabilities: sampled.log_probabilities,
                untruncated: sampled.untruncated,
                versions: sampled.versions,
            }),
            temperature,
            truncation,
            policy: line.model.policy.info().name.clone(),
            latency_ms,
            retries,
        };
        self.inner.journal.push(EntryBody::Turn(Box::new(turn)));
        self.succeeded(line);
        let reply = Reply { message, finish, usage, turn: index, metadata: Vec::new() };
        Written { reply, tokens, log_probabilities }
    }
}

/// Whether the policy ended the reply by its end token. It did not when the reply was cut off or
/// ended by a stop string.
fn has_end_token(line: &Line, reply: &PolicyReply) -> bool {
    match (line.model.policy.chat_format(), &reply.tokens) {
        (Some(format), Some(sampled)) => {
            sampled.response.last().is_some_and(|last| format.is_end(*last))
        }
        _ => !matches!(reply.finish, FinishReason::Length | FinishReason::Filtered),
    }
}

/// The reply as its ids spell it, where its message is less: cut at a stop string.
fn uncut(line: &Line, reply: &PolicyReply) -> Option<Message> {
    let format = line.model.policy.chat_format()?;
    let mut message = format.parse(&reply.tokens.as_ref()?.response);
    message.role = Role::Assistant;
    message.metadata.clone_from(&reply.message.metadata);
    // The ids of calls are the policy's to give; parsing cannot know them.
    let calls = message.parts.iter_mut().filter_map(|part| match part {
        Part::ToolCall(call) => Some(call),
        _ => None,
    });
    for (call, known) in calls.zip(reply.message.tool_calls()) {
        call.id.clone_from(&known.id);
    }
    (message.parts != reply.message.parts).then_some(message)
}

/// Usage is never less than the tokens that are there to see.
fn count(usage: &mut Usage, prompt: usize, response: usize) {
    let as_count = |length| u64::try_from(length).unwrap_or(u64::MAX);
    usage.prompt_tokens = usage.prompt_tokens.max(as_count(prompt));
    usage.completion_tokens = usage.completion_tokens.max(as_count(response));
}

/// Drops what contradicts itself: training on it would be worse than doing without.
fn sound(mut sampled: SampledReply, version: u64) -> SampledReply {
    let length = sampled.response.len();
    for values in [&mut sampled.log_probabilities, &mut sampled.untruncated] {
        let broken = values.len() != length || values.iter().any(|value| value.is_nan());
        if !values.is_empty() && broken {
            let given = values.len();
            tracing::warn!(length, given, "log-probabilities do not fit the response");
            values.clear();
        }
    }
    let starts = || sampled.versions.iter().map(|span| span.start);
    let sound = starts().next() == Some(0)
        && starts().zip(starts().skip(1)).all(|(one, next)| one < next)
        && starts().all(|start| usize::try_from(start).is_ok_and(|start| start < length));
    if !sound {
        sampled.versions.clear();
        if length > 0 {
            sampled.versions.push(VersionSpan { start: 0, version });
        }
    }
    sampled
}
