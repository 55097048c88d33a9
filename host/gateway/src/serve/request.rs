//! From the JSON of a request to a call of the policy.

use std::{num::NonZeroU32, sync::Arc};

use fulgurite_policy::{CallKey, Policy, Prompt, ReplyRequest, Sampling};
use fulgurite_trace::{Message, Part, Role, ToolCall, ToolDefinition, ToolResult, Truncation};
use serde_json::{Map, Value};

use super::{
    body::{Body, CalledBody, Content, FunctionBody, MessageBody, OneOrMany, ToolBody},
    failure::Failure,
};
use crate::{LlmError, SamplingDefaults, check};

/// The most stop strings.
const MOST_STOPS: usize = 16;

/// A request that was understood.
pub(super) struct Asked {
    messages: Vec<Message>,
    tools: Arc<[ToolDefinition]>,
    sampling: Sampling,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) log_probabilities: bool,
    pub(super) token_ids: bool,
}

impl Asked {
    /// Reads a body.
    pub(super) fn parse(
        bytes: &[u8],
        served: &str,
        defaults: &SamplingDefaults,
    ) -> Result<Self, Failure> {
        let body: Body = serde_json::from_slice(bytes).map_err(|error| Failure::no_json(&error))?;
        if body.model != served {
            return Err(Failure::model(&body.model, served));
        }
        unsupported(&body)?;
        let sampling = sampling(&body, defaults)?;
        let messages: Vec<Message> =
            body.messages.into_iter().map(message).collect::<Result<_, _>>()?;
        let told = |name| move |error: LlmError| Failure::invalid(name, error.to_string());
        check::messages(&messages).map_err(told("messages"))?;
        if !messages.last().is_some_and(|last| matches!(last.role, Role::User | Role::Tool)) {
            let text = "the last message must be of the role user or tool";
            return Err(Failure::invalid("messages", text));
        }
        let choice = body.tool_choice.as_ref().and_then(Value::as_str);
        let tools = body.tools.filter(|_| choice != Some("none")).unwrap_or_default();
        let tools: Vec<ToolDefinition> = tools.into_iter().map(tool).collect::<Result<_, _>>()?;
        check::tools(&tools).map_err(told("tools"))?;
        Ok(Self {
            messages,
            tools: tools.into(),
            sampling,
            stream: body.stream.unwrap_or(false),
            include_usage: body.stream_options.is_some_and(|options| options.include_usage),
            log_probabilities: body.logprobs.unwrap_or(false),
            token_ids: body.return_token_ids.unwrap_or(false),
        })
    }

    /// The call of the policy.
    pub(super) fn request(&self, policy: &dyn Policy) -> Result<ReplyRequest, Failure> {
        if !self.tools.is_empty() && !policy.info().native_tools {
            let text = "the policy knows no tools; describe them in the prompt";
            return Err(Failure::unsupported("tools", text));
        }
        let prompt = match policy.chat_format() {
            Some(format) => {
                let ids = format
                    .render(&self.messages, &self.tools)
                    .map_err(|error| Failure::template(&error))?;
                Prompt::Tokens(ids.into())
            }
            None => Prompt::Messages(self.messages.as_slice().into()),
        };
        Ok(ReplyRequest {
            key: CallKey {
                task: String::new(),
                harness: "serve".to_owned(),
                agent: String::new(),
                tool_format: if self.tools.is_empty() { "text" } else { "native" },
                conversation: 0,
                turn: u32::try_from(self.messages.len()).unwrap_or(u32::MAX),
            },
            prompt,
            tools: self.tools.clone(),
            sampling: self.sampling.clone(),
        })
    }
}

/// Refuses what would have to be ignored.
fn unsupported(body: &Body) -> Result<(), Failure> {
    let no = |name, text: &str| Err(Failure::unsupported(name, text));
    if body.n.is_some_and(|count| count != 1) {
        return no("n", "one reply a request; send several requests, their prompt is shared");
    }
    if body.top_logprobs.is_some_and(|count| count > 0) {
        return no("top_logprobs", "only the log-probabilities of sampled tokens are kept");
    }
    for (name, value, neutral) in [
        ("frequency_penalty", body.frequency_penalty, 0.0),
        ("presence_penalty", body.presence_penalty, 0.0),
        ("repetition_penalty", body.repetition_penalty, 1.0),
    ] {
        if value.is_some_and(|value| value != neutral) {
            return no(name, "penalties are not supported");
        }
    }
    if body.logit_bias.as_ref().is_some_and(|bias| !bias.is_empty()) {
        return no("logit_bias", "biases are not supported");
    }
    if body.response_format.as_ref().is_some_and(|format| format.r#type != "text") {
        return no("response_format", "only `text` is supported");
    }
    match &body.tool_choice {
        None => Ok(()),
        Some(Value::String(choice)) if matches!(choice.as_str(), "auto" | "none") => Ok(()),
        Some(_) => no("tool_choice", "only `auto` and `none` are supported"),
    }
}

fn sampling(body: &Body, defaults: &SamplingDefaults) -> Result<Sampling, Failure> {
    let cap = defaults.max_tokens.get();
    let max_tokens = match body.max_completion_tokens.or(body.max_tokens) {
        Some(0) => return Err(Failure::invalid("max_tokens", "must not be 0")),
        Some(asked) => asked.min(cap),
        None => cap,
    };
    let temperature = body.temperature.unwrap_or(defaults.temperature);
    if !(0.0..=100.0).contains(&temperature) {
        return Err(Failure::invalid("temperature", "must lie between 0 and 100"));
    }
    let top_k = match body.top_k {
        None => defaults.truncation.top_k,
        // Both are in use for "all".
        Some(-1 | 0) => None,
        Some(count) => {
            let count = u32::try_from(count).ok().and_then(NonZeroU32::new);
            Some(count.ok_or_else(|| Failure::invalid("top_k", "must be a small number"))?)
        }
    };
    let truncation = Truncation {
        top_k,
        top_p: body.top_p.or(defaults.truncation.top_p),
        min_p: body.min_p.or(defaults.truncation.min_p),
    };
    if let Some(problem) = truncation.problem() {
        return Err(Failure::invalid("top_p", problem));
    }
    let mut stop = match &body.stop {
        None => Vec::new(),
        Some(OneOrMany::One(stop)) => vec![stop.clone()],
        Some(OneOrMany::Many(stops)) => stops.clone(),
    };
    if stop.len() > MOST_STOPS || stop.iter().any(String::is_empty) {
        let text = format!("at most {MOST_STOPS} strings, none of them empty");
        return Err(Failure::invalid("stop", text));
    }
    stop.extend(defaults.stop.iter().cloned());
    Ok(Sampling {
        max_tokens,
        temperature,
        truncation,
        stop,
        stop_tokens: body.stop_token_ids.clone().unwrap_or_default(),
        seed: body.seed.map_or_else(rand::random, i64::cast_unsigned),
    })
}

fn message(body: MessageBody) -> Result<Message, Failure> {
    let MessageBody { role, content, reasoning_content, tool_calls, tool_call_id } = body;
    let text = match content {
        None => String::new(),
        Some(Content::Text(text)) => text,
        Some(Content::Parts(parts)) => {
            if let Some(other) = parts.iter().find(|part| part.r#type != "text") {
                let kind: String = other.r#type.chars().take(50).collect();
                let text = format!("parts of the type {kind:?} are not supported; only text is");
                return Err(Failure::unsupported("messages", text));
            }
            parts.into_iter().map(|part| part.text).collect()
        }
    };
    let role = match role.as_str() {
        "system" | "developer" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        _ => {
            let text = "roles are system, developer, user, assistant and tool";
            return Err(Failure::invalid("messages", text));
        }
    };
    let mut parts = Vec::new();
    match (role, tool_call_id) {
        (Role::Tool, Some(call)) => {
            parts.push(Part::ToolResult(ToolResult { call, content: text, failed: false }));
        }
        (Role::Tool, None) => {
            return Err(Failure::invalid("messages", "a tool message needs its `tool_call_id`"));
        }
        (_, Some(_)) => {
            return Err(Failure::invalid("messages", "only tool messages have a `tool_call_id`"));
        }
        (_, None) => {
            let thinking = reasoning_content.filter(|text| !text.is_empty());
            parts.extend(thinking.map(Part::Thinking));
            let calls = tool_calls.unwrap_or_default();
            if !text.is_empty() || calls.is_empty() {
                parts.push(Part::Text(text));
            }
            parts.extend(calls.into_iter().map(|call| {
                let CalledBody { name, arguments } = call.function;
                Part::ToolCall(ToolCall { id: call.id, name, arguments, problem: None })
            }));
        }
    }
    Ok(Message { role, parts, metadata: Vec::new() })
}

fn tool(body: ToolBody) -> Result<ToolDefinition, Failure> {
    if body.r#type != "function" {
        return Err(Failure::unsupported("tools", "only tools of the type `function` are known"));
    }
    let FunctionBody { name, description, parameters } = body.function;
    let parameters = parameters.unwrap_or_else(|| {
        Map::from_iter([
            ("type".to_owned(), "object".into()),
            ("properties".to_owned(), Map::new().into()),
        ])
    });
    Ok(ToolDefinition {
        name,
        description: description.unwrap_or_default(),
        parameters: Value::Object(parameters).to_string(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(more: Value) -> Result<Asked, Failure> {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
        let fields = body.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        Asked::parse(body.to_string().as_bytes(), "m", &SamplingDefaults::default())
    }

    #[test]
    fn every_field_is_read() {
        let asked = parse(json!({
            "max_completion_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": 40,
            "min_p": 0.1, "stop": "END", "stop_token_ids": [5], "seed": -1, "stream": true,
            "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 0,
            "return_token_ids": true, "n": 1, "unknown": {},
            "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "auto",
        }));
        let asked = asked.ok().unwrap();
        let truncation =
            Truncation { top_k: NonZeroU32::new(40), top_p: Some(0.9), min_p: Some(0.1) };
        let expected = Sampling {
            max_tokens: 7,
            temperature: 0.5,
            truncation,
            stop: vec!["END".to_owned()],
            stop_tokens: vec![5],
            seed: u64::MAX,
        };
        assert_eq!(asked.sampling, expected);
        assert!(asked.stream && asked.include_usage && asked.log_probabilities && asked.token_ids);
        assert_eq!(asked.tools[0].parameters, r#"{"type":"object","properties":{}}"#);
    }

    #[test]
    fn a_history_is_read() {
        let asked = parse(json!({"messages": [
            {"role": "developer", "content": "s"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls":
                [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "r"},
        ]}));
        let messages = asked.ok().unwrap().messages;
        let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::System, Role::User, Role::Assistant, Role::Tool]);
        assert_eq!(messages[1].plain_text(), "ab");
        assert_eq!(messages[2].parts.len(), 2, "thinking and a call, no empty text");
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_name() {
        for (more, name) in [
            (json!({"n": 2}), "n"),
            (json!({"presence_penalty": 0.1}), "presence_penalty"),
            (json!({"repetition_penalty": 1.1}), "repetition_penalty"),
            (json!({"logit_bias": {"5": 1}}), "logit_bias"),
            (json!({"response_format": {"type": "json_object"}}), "response_format"),
            (json!({"tool_choice": "required"}), "tool_choice"),
            (json!({"tool_choice": {"type": "function"}}), "tool_choice"),
            (json!({"top_logprobs": 5}), "top_logprobs"),
            (json!({"max_tokens": 0}), "max_tokens"),
            (json!({"temperature": -1}), "temperature"),
            (json!({"top_p": 0}), "top_p"),
            (json!({"top_k": -5}), "top_k"),
            (json!({"stop": [""]}), "stop"),
            (json!({"messages": []}), "messages"),
            (json!({"messages": [{"role": "assistant", "content": "x"}]}), "messages"),
            (json!({"messages": [{"role": "god", "content": "x"}]}), "messages"),
            (json!({"messages": [{"role": "tool", "content": "x"}]}), "messages"),
            (
                json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
                "messages",
            ),
            (json!({"tools": [{"type": "retrieval", "function": {"name": "x"}}]}), "tools"),
            (json!({"tools": [{"type": "function", "function": {"name": ""}}]}), "tools"),
            (json!({"model": "other"}), "model"),
        ] {
            let failure = parse(more.clone()).err().unwrap();
            assert_eq!(failure.body()["error"]["param"], name, "{more}");
        }
        for broken in ["", "{", "[]", r#"{"model":"m"}"#, &"[".repeat(100_000)] {
            let failure = Asked::parse(broken.as_bytes(), "m", &SamplingDefaults::default());
            let body = failure.err().unwrap().body();
            assert_eq!(body["error"]["code"], "invalid_json");
        }
    }
}
