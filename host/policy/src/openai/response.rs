//! From the JSON of a chat completion, whole or in pieces, to a reply.

use std::collections::BTreeMap;

use fulgurite_trace::{FinishReason, Message, Metadata, Part, Role, ToolCall, Usage, VersionSpan};
use serde::Deserialize;
use serde_json::Value;

use super::failure;
use crate::{
    Chunk, PolicyError, PolicyReply, SampledReply,
    chunks::ChunkSender,
    fixed::natural_finish,
    tool_calls::{MAXIMUM_CALLS, problem},
};

/// A completion, or one piece of it. Servers differ in what they leave out.
#[derive(Deserialize)]
pub(super) struct Body {
    #[serde(default)]
    choices: Option<Vec<Choice>>,
    #[serde(default)]
    usage: Option<UsageBody>,
    #[serde(default)]
    prompt_token_ids: Option<Vec<u32>>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: u32,
    #[serde(default, alias = "message")]
    delta: Option<Delta>,
    #[serde(default)]
    finish_reason: Option<String>,
    #[serde(default)]
    logprobs: Option<LogProbabilities>,
    #[serde(default)]
    token_ids: Option<Vec<u32>>,
    #[serde(default)]
    prompt_token_ids: Option<Vec<u32>>,
}

#[derive(Deserialize)]
struct Delta {
    #[serde(default)]
    content: Option<Value>,
    #[serde(default)]
    reasoning_content: Option<String>,
    #[serde(default)]
    reasoning: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<CallBody>>,
}

#[derive(Deserialize)]
struct CallBody {
    #[serde(default)]
    index: Option<u32>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    function: Option<FunctionBody>,
}

#[derive(Deserialize)]
struct FunctionBody {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<Value>,
}

#[derive(Deserialize)]
struct LogProbabilities {
    #[serde(default)]
    content: Option<Vec<LogProbability>>,
}

#[derive(Deserialize)]
struct LogProbability {
    logprob: f32,
}

#[derive(Deserialize)]
struct UsageBody {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    #[serde(default)]
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

#[derive(Default)]
struct CallDraft {
    id: String,
    name: String,
    arguments: String,
}

/// A reply while its pieces arrive.
#[derive(Default)]
pub(super) struct Draft {
    thinking: String,
    text: String,
    calls: BTreeMap<u32, CallDraft>,
    finish: Option<String>,
    refused: bool,
    usage: Option<UsageBody>,
    prompt_ids: Vec<u32>,
    ids: Option<Vec<u32>>,
    log_probabilities: Vec<f32>,
}

impl Draft {
    /// Takes a piece in.
    pub(super) fn add(&mut self, body: Body, chunks: &mut ChunkSender) -> Result<(), PolicyError> {
        if let Some(error) = body.error.filter(|error| !error.is_null()) {
            return Err(failure::in_band(&error));
        }
        if let Some(usage) = body.usage {
            self.usage = Some(usage);
        }
        self.add_prompt_ids(body.prompt_token_ids);
        for choice in body.choices.into_iter().flatten().filter(|choice| choice.index == 0) {
            self.add_prompt_ids(choice.prompt_token_ids);
            if let Some(ids) = choice.token_ids {
                self.ids.get_or_insert_default().extend(ids);
            }
            if let Some(content) = choice.logprobs.and_then(|logprobs| logprobs.content) {
                self.log_probabilities.extend(content.into_iter().map(|token| token.logprob));
            }
            if let Some(delta) = choice.delta {
                self.add_delta(delta, chunks)?;
            }
            if choice.finish_reason.is_some() {
                self.finish = choice.finish_reason;
            }
        }
        Ok(())
    }

    fn add_prompt_ids(&mut self, ids: Option<Vec<u32>>) {
        if let Some(ids) = ids
            && self.prompt_ids.is_empty()
        {
            self.prompt_ids = ids;
        }
    }

    fn add_delta(&mut self, delta: Delta, chunks: &mut ChunkSender) -> Result<(), PolicyError> {
        if let Some(thinking) = delta.reasoning_content.or(delta.reasoning) {
            self.thinking.push_str(&thinking);
            chunks.send(Chunk::Thinking(thinking));
        }
        let refusal = delta.refusal.filter(|refusal| !refusal.is_empty());
        self.refused |= refusal.is_some();
        for text in delta.content.map(content_text).into_iter().chain(refusal) {
            self.text.push_str(&text);
            chunks.send(Chunk::Text(text));
        }
        for (position, call) in delta.tool_calls.into_iter().flatten().enumerate() {
            let index = match call.index {
                Some(index) => index,
                None => u32::try_from(position).unwrap_or(u32::MAX),
            };
            if !self.calls.contains_key(&index) && self.calls.len() >= MAXIMUM_CALLS {
                return Err(PolicyError::Internal(format!(
                    "the server's reply calls more than {MAXIMUM_CALLS} tools"
                )));
            }
            let draft = self.calls.entry(index).or_default();
            if let Some(id) = call.id
                && draft.id.is_empty()
            {
                draft.id = id;
            }
            let Some(function) = call.function else { continue };
            draft.name.push_str(&function.name.unwrap_or_default());
            match function.arguments {
                None | Some(Value::Null) => {}
                Some(Value::String(text)) => draft.arguments.push_str(&text),
                // Some servers parse the arguments before they send them.
                Some(value) => draft.arguments.push_str(&value.to_string()),
            }
        }
        Ok(())
    }

    /// Whether the server said why the reply ended.
    pub(super) const fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// How much has arrived, for the message of a reply that broke off.
    pub(super) fn characters(&self) -> usize {
        self.text.chars().count() + self.thinking.chars().count()
    }

    /// The complete reply. `turn` makes ids for calls that have none.
    pub(super) fn finish(mut self, turn: u32) -> Result<PolicyReply, PolicyError> {
        let message =
            Message { role: Role::Assistant, parts: self.parts(turn), metadata: Metadata::new() };
        let natural = natural_finish(&message);
        let finish = match self.finish.as_deref() {
            Some("abort") => {
                return Err(PolicyError::Unavailable("the server aborted the reply".to_owned()));
            }
            Some("length" | "max_tokens") => FinishReason::Length,
            Some("content_filter") => FinishReason::Filtered,
            _ if self.refused => FinishReason::Filtered,
            _ => natural,
        };
        let tokens = self.ids.map(|response| SampledReply {
            prompt: self.prompt_ids,
            // Half a list of log-probabilities, or numbers that are none, are worse than none.
            log_probabilities: if self.log_probabilities.len() == response.len()
                && self.log_probabilities.iter().all(|value| value.is_finite())
            {
                self.log_probabilities
            } else {
                Vec::new()
            },
            untruncated: Vec::new(),
            versions: if response.is_empty() {
                Vec::new()
            } else {
                vec![VersionSpan { start: 0, version: 0 }]
            },
            response,
        });
        let usage = match (self.usage, &tokens) {
            (Some(usage), _) => Usage {
                prompt_tokens: usage.prompt_tokens,
                cached_tokens: usage
                    .prompt_tokens_details
                    .and_then(|details| details.cached_tokens)
                    .unwrap_or(0),
                completion_tokens: usage.completion_tokens,
            },
            (None, Some(tokens)) => Usage {
                prompt_tokens: u64::try_from(tokens.prompt.len()).unwrap_or(u64::MAX),
                cached_tokens: 0,
                completion_tokens: u64::try_from(tokens.response.len()).unwrap_or(u64::MAX),
            },
            (None, None) => Usage::default(),
        };
        Ok(PolicyReply { message, finish, usage, tokens })
    }

    fn parts(&mut self, turn: u32) -> Vec<Part> {
        let mut parts = Vec::new();
        if !self.thinking.is_empty() {
            parts.push(Part::Thinking(std::mem::take(&mut self.thinking)));
        }
        if !self.text.is_empty() || self.calls.is_empty() {
            parts.push(Part::Text(std::mem::take(&mut self.text)));
        }
        let mut ids = std::collections::HashSet::new();
        for (position, call) in std::mem::take(&mut self.calls).into_values().enumerate() {
            let mut id = call.id;
            if id.is_empty() || !ids.insert(id.clone()) {
                id = format!("call-{turn}-{position}");
                ids.insert(id.clone());
            }
            let problem = problem(&call.name, &call.arguments);
            parts.push(Part::ToolCall(ToolCall {
                id,
                name: call.name,
                arguments: call.arguments,
                problem,
            }));
        }
        parts
    }
}

/// Text, or a list of parts of which the texts count.
fn content_text(content: Value) -> String {
    match content {
        Value::String(text) => text,
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect()
        }
        _ => String::new(),
    }
}
