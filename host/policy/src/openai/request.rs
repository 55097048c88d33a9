//! From a call to the JSON of a chat completion request.

use fulgurite_trace::{ToolCall, ToolDefinition, Truncation};
use serde_json::{Map, Value, json};

use crate::{
    PolicyError, Prompt, ReplyRequest,
    flat::{FlatMessage, flatten},
    tool_calls::arguments_problem,
};

/// What of a request depends on the server rather than on the call.
#[derive(Debug, Clone)]
pub(super) struct RequestStyle {
    /// The model's name at the server.
    pub(super) model: String,
    /// `max_tokens`, or the newer name that OpenAI's own models insist on.
    pub(super) maximum_field: &'static str,
    /// Ask for token ids and log-probabilities.
    pub(super) token_ids: bool,
    /// Send earlier thinking back.
    pub(super) send_thinking: bool,
    /// Fields added to every request.
    pub(super) extra: Map<String, Value>,
}

/// The body of a request.
pub(super) fn body(
    style: &RequestStyle,
    request: &ReplyRequest,
    stream: bool,
) -> Result<Value, PolicyError> {
    let Prompt::Messages(history) = &request.prompt else {
        return Err(PolicyError::Invalid(
            "an upstream server is asked with messages, not with token ids".to_owned(),
        ));
    };
    let messages = flatten(history).into_iter();
    let messages = messages.map(|flat| message(flat, style.send_thinking)).collect();
    let sampling = &request.sampling;
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(style.model));
    body.insert("messages".to_owned(), Value::Array(messages));
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(tool).collect::<Result<Vec<_>, _>>()?;
        body.insert("tools".to_owned(), Value::Array(tools));
    }
    body.insert(style.maximum_field.to_owned(), json!(sampling.max_tokens));
    body.insert("temperature".to_owned(), json!(sampling.temperature));
    let Truncation { top_k, top_p, min_p } = sampling.truncation;
    if let Some(top_p) = top_p {
        body.insert("top_p".to_owned(), json!(top_p));
    }
    // The next two are vLLM's, SGLang's and llama.cpp's; other servers refuse or ignore them.
    if let Some(top_k) = top_k {
        body.insert("top_k".to_owned(), json!(top_k));
    }
    if let Some(min_p) = min_p {
        body.insert("min_p".to_owned(), json!(min_p));
    }
    if !sampling.stop.is_empty() {
        body.insert("stop".to_owned(), json!(sampling.stop));
    }
    if !sampling.stop_tokens.is_empty() {
        body.insert("stop_token_ids".to_owned(), json!(sampling.stop_tokens));
    }
    // Servers read seeds as signed 64-bit numbers.
    body.insert("seed".to_owned(), json!(sampling.seed >> 1));
    if style.token_ids {
        body.insert("logprobs".to_owned(), json!(true));
        body.insert("return_token_ids".to_owned(), json!(true));
    }
    body.insert("stream".to_owned(), json!(stream));
    if stream {
        body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    for (name, value) in &style.extra {
        body.insert(name.clone(), value.clone());
    }
    Ok(Value::Object(body))
}

fn tool(definition: &ToolDefinition) -> Result<Value, PolicyError> {
    let parameters: Map<String, Value> =
        serde_json::from_str(&definition.parameters).map_err(|error| {
            PolicyError::Invalid(format!(
                "the parameters of the tool {:?} are no JSON object: {error}",
                definition.name
            ))
        })?;
    Ok(json!({
        "type": "function",
        "function": {
            "name": definition.name,
            "description": definition.description,
            "parameters": parameters,
        },
    }))
}

fn message(flat: FlatMessage<'_>, send_thinking: bool) -> Value {
    let mut object = Map::new();
    object.insert("role".to_owned(), json!(flat.role));
    if let Some(id) = flat.answers {
        object.insert("tool_call_id".to_owned(), json!(id));
    }
    let content =
        if flat.text.is_empty() && !flat.calls.is_empty() { Value::Null } else { json!(flat.text) };
    object.insert("content".to_owned(), content);
    if !flat.calls.is_empty() {
        let calls = flat.calls.into_iter().map(call).collect();
        object.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    if send_thinking && !flat.thinking.is_empty() {
        object.insert("reasoning_content".to_owned(), json!(flat.thinking));
    }
    Value::Object(object)
}

/// Servers parse the arguments of earlier calls and refuse the whole request where they are no
/// JSON object. A call that the model once got wrong must not end the episode, so such
/// arguments are wrapped.
fn call(call: &ToolCall) -> Value {
    let arguments = if arguments_problem(&call.arguments).is_some() {
        json!({"malformed_arguments": call.arguments}).to_string()
    } else {
        call.arguments.clone()
    };
    json!({
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    })
}

#[cfg(test)]
mod tests {
    use fulgurite_trace::{Message, Part, Role, ToolResult};

    use super::*;
    use crate::fixed::tests::{key, request};

    fn style() -> RequestStyle {
        RequestStyle {
            model: "m".to_owned(),
            maximum_field: "max_tokens",
            token_ids: false,
            send_thinking: false,
            extra: Map::new(),
        }
    }

    fn history() -> Vec<Message> {
        let call = |id: &str, arguments: &str| {
            Part::ToolCall(ToolCall {
                id: id.to_owned(),
                name: "bash".to_owned(),
                arguments: arguments.to_owned(),
                problem: None,
            })
        };
        let result = |call: &str, content: &str| {
            Part::ToolResult(ToolResult {
                call: call.to_owned(),
                content: content.to_owned(),
                failed: false,
            })
        };
        let message = |role, parts| Message { role, parts, metadata: vec![] };
        vec![
            Message::text(Role::System, "be good"),
            Message::text(Role::User, "list"),
            message(
                Role::Assistant,
                vec![
                    Part::Thinking("hm".to_owned()),
                    call("a", r#"{"command":"ls"}"#),
                    call("b", "{broken"),
                ],
            ),
            message(
                Role::Tool,
                vec![result("a", "x.py"), result("b", "no"), Part::Text("mind the time".into())],
            ),
        ]
    }

    #[test]
    fn a_history_with_tools_becomes_their_messages() {
        let mut call = request(key("t", "h", 0));
        call.prompt = Prompt::Messages(history().into());
        call.tools = std::sync::Arc::from([ToolDefinition {
            name: "bash".to_owned(),
            description: "run".to_owned(),
            parameters: r#"{"type":"object","properties":{}}"#.to_owned(),
        }]);
        call.sampling.stop = vec!["END".to_owned()];
        call.sampling.seed = u64::MAX;
        let body = body(&style(), &call, false).unwrap();
        assert_eq!(
            body,
            json!({
                "model": "m",
                "messages": [
                    {"role": "system", "content": "be good"},
                    {"role": "user", "content": "list"},
                    {"role": "assistant", "content": null, "tool_calls": [
                        {"id": "a", "type": "function",
                         "function": {"name": "bash", "arguments": "{\"command\":\"ls\"}"}},
                        {"id": "b", "type": "function", "function": {
                            "name": "bash",
                            "arguments": "{\"malformed_arguments\":\"{broken\"}"}},
                    ]},
                    {"role": "tool", "tool_call_id": "a", "content": "x.py"},
                    {"role": "tool", "tool_call_id": "b", "content": "no"},
                    {"role": "user", "content": "mind the time"},
                ],
                "tools": [{"type": "function", "function": {
                    "name": "bash", "description": "run",
                    "parameters": {"type": "object", "properties": {}}}}],
                "max_tokens": 16,
                "temperature": 0.0,
                "stop": ["END"],
                "seed": i64::MAX,
                "stream": false,
            })
        );
    }

    #[test]
    fn token_ids_thinking_and_extra_fields_are_asked_for_when_configured() {
        let mut call = request(key("t", "h", 0));
        call.prompt = Prompt::Messages(history().into());
        let mut style = style();
        style.token_ids = true;
        style.send_thinking = true;
        style.extra.insert("top_k".to_owned(), json!(5));
        let body = body(&style, &call, true).unwrap();
        assert_eq!(body["return_token_ids"], json!(true));
        assert_eq!(body["logprobs"], json!(true));
        assert_eq!(body["stream_options"], json!({"include_usage": true}));
        assert_eq!(body["top_k"], json!(5));
        assert_eq!(body["messages"][2]["reasoning_content"], json!("hm"));
    }

    #[test]
    fn token_prompts_and_broken_tools_are_refused() {
        let mut call = request(key("t", "h", 0));
        call.tools = std::sync::Arc::from([ToolDefinition {
            name: "bad".to_owned(),
            description: String::new(),
            parameters: "[]".to_owned(),
        }]);
        let error = body(&style(), &call, false).unwrap_err();
        assert!(error.to_string().contains("\"bad\""), "{error}");
        call.prompt = Prompt::Tokens([1].into());
        assert!(matches!(body(&style(), &call, false), Err(PolicyError::Invalid(_))));
    }
}
