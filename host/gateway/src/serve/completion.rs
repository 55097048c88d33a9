//! From a reply to the JSON of a chat completion, whole or in pieces.

use std::sync::Arc;

use fulgurite_policy::{
    ChatFormat, Chunk, Policy, PolicyReply, Prompt, ReplyRequest, SampledReply,
};
use fulgurite_trace::{FinishReason, Message, Part, Usage};
use serde_json::{Map, Value, json};

use super::request::Asked;

/// What all pieces of one completion have in common.
pub(super) struct Completion {
    id: String,
    created: u64,
    model: String,
    prompt: Option<Arc<[u32]>>,
    format: Option<Arc<dyn ChatFormat>>,
    pub(super) asked: Asked,
}

impl Completion {
    pub(super) fn new(
        model: &str,
        created: u64,
        asked: Asked,
        request: &ReplyRequest,
        policy: &dyn Policy,
    ) -> Self {
        Self {
            id: format!("chatcmpl-{:016x}", rand::random::<u64>()),
            created,
            model: model.to_owned(),
            prompt: match &request.prompt {
                Prompt::Tokens(ids) => Some(ids.clone()),
                Prompt::Messages(_) => None,
            },
            format: policy.chat_format(),
            asked,
        }
    }

    /// The whole reply.
    pub(super) fn whole(&self, reply: PolicyReply) -> Value {
        let PolicyReply { message, finish, usage, tokens } = reply;
        let mut choice = Map::new();
        choice.insert("index".to_owned(), json!(0));
        choice.insert("message".to_owned(), whole_message(&message));
        choice.insert("finish_reason".to_owned(), json!(reason(finish)));
        self.add_tokens(&mut choice, tokens.as_ref());
        let mut body = self.frame("chat.completion", vec![Value::Object(choice)]);
        body.insert("usage".to_owned(), usage_body(usage));
        self.add_prompt(&mut body, tokens.as_ref());
        Value::Object(body)
    }

    /// The piece that opens a stream.
    pub(super) fn opening(&self) -> Value {
        self.piece(json!({"role": "assistant", "content": ""}))
    }

    /// A piece of text or thinking.
    pub(super) fn chunk(&self, chunk: &Chunk) -> Value {
        self.piece(match chunk {
            Chunk::Text(text) => json!({"content": text}),
            Chunk::Thinking(text) => json!({"reasoning_content": text}),
        })
    }

    fn piece(&self, delta: Value) -> Value {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": null});
        Value::Object(self.frame("chat.completion.chunk", vec![choice]))
    }

    /// The pieces that close a stream: tool calls, which are whole; why it ended, with the tokens;
    /// the usage, if it was asked for.
    pub(super) fn closing(&self, reply: &PolicyReply) -> Vec<Value> {
        let mut pieces = Vec::new();
        let calls = calls(&reply.message);
        if !calls.is_empty() {
            pieces.push(self.piece(json!({"tool_calls": calls})));
        }
        let mut choice = Map::new();
        choice.insert("index".to_owned(), json!(0));
        choice.insert("delta".to_owned(), json!({}));
        choice.insert("finish_reason".to_owned(), json!(reason(reply.finish)));
        self.add_tokens(&mut choice, reply.tokens.as_ref());
        let mut last = self.frame("chat.completion.chunk", vec![Value::Object(choice)]);
        self.add_prompt(&mut last, reply.tokens.as_ref());
        pieces.push(Value::Object(last));
        if self.asked.include_usage {
            let mut usage = self.frame("chat.completion.chunk", Vec::new());
            usage.insert("usage".to_owned(), usage_body(reply.usage));
            pieces.push(Value::Object(usage));
        }
        pieces
    }

    fn frame(&self, object: &str, choices: Vec<Value>) -> Map<String, Value> {
        Map::from_iter([
            ("id".to_owned(), json!(self.id)),
            ("object".to_owned(), json!(object)),
            ("created".to_owned(), json!(self.created)),
            ("model".to_owned(), json!(self.model)),
            ("choices".to_owned(), Value::Array(choices)),
        ])
    }

    fn add_prompt(&self, body: &mut Map<String, Value>, tokens: Option<&SampledReply>) {
        if !self.asked.token_ids {
            return;
        }
        let reported = tokens.map(|tokens| tokens.prompt.as_slice());
        let prompt = self.prompt.as_deref().or(reported).filter(|prompt| !prompt.is_empty());
        body.insert("prompt_token_ids".to_owned(), json!(prompt));
    }

    fn add_tokens(&self, choice: &mut Map<String, Value>, tokens: Option<&SampledReply>) {
        if self.asked.token_ids {
            let ids = tokens.map(|tokens| &tokens.response);
            choice.insert("token_ids".to_owned(), json!(ids));
        }
        if !self.asked.log_probabilities {
            return;
        }
        let content: Option<Vec<Value>> =
            tokens.filter(|tokens| !tokens.log_probabilities.is_empty()).map(|tokens| {
                let pairs = tokens.response.iter().zip(&tokens.log_probabilities);
                pairs.map(|(id, value)| self.log_probability(*id, *value)).collect()
            });
        choice.insert("logprobs".to_owned(), json!({"content": content}));
    }

    fn log_probability(&self, id: u32, value: f32) -> Value {
        let bytes = self.format.as_ref().map(|format| {
            let mut bytes = Vec::new();
            format.spell(id, &mut bytes);
            bytes
        });
        let text = bytes.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        // JSON has no word for minus infinity; OpenAI's is this number.
        let value = if value.is_finite() { value } else { -9999.0 };
        json!({
            "token": text.unwrap_or_else(|| format!("token_id:{id}")),
            "logprob": value,
            "bytes": bytes,
            "top_logprobs": [],
        })
    }
}

fn whole_message(message: &Message) -> Value {
    let mut body = Map::new();
    body.insert("role".to_owned(), json!("assistant"));
    let (text, calls) = (message.plain_text(), calls(message));
    let content = if text.is_empty() && !calls.is_empty() { Value::Null } else { json!(text) };
    body.insert("content".to_owned(), content);
    let thinking = thinking(message);
    if !thinking.is_empty() {
        body.insert("reasoning_content".to_owned(), json!(thinking));
    }
    if !calls.is_empty() {
        body.insert("tool_calls".to_owned(), json!(calls));
    }
    Value::Object(body)
}

pub(super) fn thinking(message: &Message) -> String {
    let parts = message.parts.iter().filter_map(|part| match part {
        Part::Thinking(text) => Some(text.as_str()),
        _ => None,
    });
    parts.collect()
}

fn calls(message: &Message) -> Vec<Value> {
    let numbered = (0u32..).zip(message.tool_calls());
    let calls = numbered.map(|(index, call)| {
        json!({
            "index": index,
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        })
    });
    calls.collect()
}

const fn reason(finish: FinishReason) -> &'static str {
    match finish {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::Filtered => "content_filter",
    }
}

fn usage_body(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens.saturating_add(usage.completion_tokens),
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    })
}
