//! From what a model wrote to thinking, text and tool calls.

use fulgurite_trace::ToolCall;
use serde_json::Value;

use crate::tool_calls::{MAXIMUM_CALLS, problem};

pub(crate) const THINK_OPEN: &str = "<think>";
pub(crate) const THINK_CLOSE: &str = "</think>";
pub(crate) const TOOL_CALL_OPEN: &str = "<tool_call>";
const TOOL_CALL_CLOSE: &str = "</tool_call>";

/// A reply taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParsedReply {
    pub(crate) thinking: String,
    pub(crate) text: String,
    /// Calls, still without ids.
    pub(crate) calls: Vec<ToolCall>,
}

/// How a model writes tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallStyle {
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, any number of them, as Qwen does.
    Tagged,
    /// The whole reply is `{"name": …, "parameters": {…}}`, as with Llama 3.
    Bare,
}

impl CallStyle {
    /// The style of a template that knows tools.
    pub(super) fn of(template: &str) -> Self {
        let bare = template.contains("\"parameters\": ") && !template.contains(TOOL_CALL_OPEN);
        if bare { Self::Bare } else { Self::Tagged }
    }
}

/// Takes a reply apart: `<think>…</think>` at its beginning is thinking (also where the template
/// already opened it, and where it was cut off before its end); calls are found where there is a
/// style of them; everything else is text, kept as it is where there are no calls.
pub(super) fn parse_reply(reply: &str, calls: Option<CallStyle>) -> ParsedReply {
    let (thinking, rest) = split_thinking(reply);
    let thinking = thinking.trim_matches('\n').to_owned();
    if calls == Some(CallStyle::Bare)
        && let Some(call) = bare_call(rest.trim())
    {
        return ParsedReply { thinking, text: String::new(), calls: vec![call] };
    }
    if calls != Some(CallStyle::Tagged) || !rest.contains(TOOL_CALL_OPEN) {
        return ParsedReply { thinking, text: rest.to_owned(), calls: Vec::new() };
    }
    let mut text = String::new();
    let mut calls = Vec::new();
    let mut rest = rest;
    while let Some((before, inner)) = rest.split_once(TOOL_CALL_OPEN)
        && calls.len() < MAXIMUM_CALLS
    {
        text.push_str(before);
        // A call that was cut off, or followed by the next without an end.
        let end = inner.find(TOOL_CALL_CLOSE).unwrap_or(inner.len());
        let end = inner.find(TOOL_CALL_OPEN).map_or(end, |next| end.min(next));
        let (body, behind) = inner.split_at(end);
        calls.push(parse_call(body.trim(), "arguments"));
        rest = behind.strip_prefix(TOOL_CALL_CLOSE).unwrap_or(behind);
    }
    text.push_str(rest);
    ParsedReply { thinking, text: text.trim().to_owned(), calls }
}

fn split_thinking(reply: &str) -> (&str, &str) {
    let opened = reply.trim_start().strip_prefix(THINK_OPEN);
    let inner = opened.unwrap_or(reply);
    match (inner.split_once(THINK_CLOSE), opened) {
        (Some((thinking, rest)), _) => (thinking, rest.trim_start_matches('\n')),
        (None, Some(unfinished)) => (unfinished, ""),
        (None, None) => ("", reply),
    }
}

/// The call that a whole reply is; none for JSON that is something else.
fn bare_call(body: &str) -> Option<ToolCall> {
    let object = serde_json::from_str::<serde_json::Map<String, Value>>(body).ok()?;
    object.get("name")?.as_str()?;
    object.get("parameters")?.as_object()?;
    Some(parse_call(body, "parameters"))
}

/// The call that an object spells whose arguments are called `key`.
fn parse_call(body: &str, key: &str) -> ToolCall {
    let broken = |problem: String| ToolCall {
        id: String::new(),
        name: String::new(),
        arguments: body.to_owned(),
        problem: Some(problem),
    };
    let object = match serde_json::from_str::<Value>(body) {
        Ok(Value::Object(object)) => object,
        Ok(_) => return broken("the call is no JSON object".to_owned()),
        Err(error) => return broken(format!("the call is no JSON object: {error}")),
    };
    let name = object.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(value) = object.get(key) else {
        return ToolCall { name, ..broken(format!("the call has no `{key}`")) };
    };
    let arguments = match value {
        // Some models write the arguments as a string that holds JSON.
        Value::String(text) => text.clone(),
        value => as_written(body, key, value).unwrap_or_else(|| value.to_string()),
    };
    let problem = problem(&name, &arguments);
    ToolCall { id: String::new(), name, arguments, problem }
}

/// The arguments exactly as the model wrote them: the stretch of the body behind some
/// `"key":` that reads as this value.
fn as_written(body: &str, key: &str, value: &Value) -> Option<String> {
    let key = format!("\"{key}\"");
    body.match_indices(&key).find_map(|(at, _)| {
        let rest = body.get(at + key.len()..)?.trim_start().strip_prefix(':')?.trim_start();
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let read = stream.next()?.ok()?;
        (read == *value).then(|| rest.get(..stream.byte_offset()))?.map(str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(reply: &str) -> ParsedReply {
        parse_reply(reply, Some(CallStyle::Tagged))
    }

    #[test]
    fn plain_text_stays_as_it_is() {
        for text in ["", " hello \n", "a < b", "<tool_cal", "think about it"] {
            let reply = parsed(text);
            assert_eq!((reply.text.as_str(), reply.calls.len()), (text, 0));
            assert_eq!(reply.thinking, "");
        }
    }

    #[test]
    fn thinking_is_set_apart_wherever_it_opens() {
        for reply in ["<think>\nhm\n</think>\n\nyes", "hm\n</think>\nyes", "\n<think>hm</think>yes"]
        {
            let reply = parsed(reply);
            assert_eq!((reply.thinking.as_str(), reply.text.as_str()), ("hm", "yes"));
        }
        let cut = parsed("<think>\nnot done");
        assert_eq!((cut.thinking.as_str(), cut.text.as_str()), ("not done", ""));
    }

    #[test]
    fn calls_keep_their_arguments_as_written() {
        let reply = parsed(
            "I look.\n<tool_call>\n{\"name\": \"bash\", \"arguments\":  {\"command\" : \"ls\"} }\n\
             </tool_call>\n<tool_call>{\"arguments\": \"{\\\"a\\\":1}\", \"name\": \"f\"}</tool_call>",
        );
        assert_eq!(reply.text, "I look.");
        assert_eq!(reply.calls[0].name, "bash");
        assert_eq!(reply.calls[0].arguments, "{\"command\" : \"ls\"}");
        assert_eq!(reply.calls[0].problem, None);
        assert_eq!(reply.calls[1].arguments, "{\"a\":1}");
        assert_eq!(reply.calls[1].problem, None);
    }

    #[test]
    fn a_decoy_key_does_not_mislead() {
        let body = r#"{"name": "f", "note": "\"arguments\": {}", "arguments": {"x": 1}}"#;
        let reply = parsed(&format!("<tool_call>{body}</tool_call>"));
        assert_eq!(reply.calls[0].arguments, r#"{"x": 1}"#);
    }

    #[test]
    fn malformed_calls_are_content_with_a_problem() {
        for (body, part) in [
            ("{\"name\": \"bash\"", "JSON"),
            ("[1]", "no JSON object"),
            ("{\"name\": \"bash\"}", "no `arguments`"),
            ("{\"arguments\": {}}", "names no tool"),
            ("{\"name\": \"bash\", \"arguments\": [1]}", "no JSON object"),
            ("", "JSON"),
        ] {
            for close in ["</tool_call>", ""] {
                let reply = parsed(&format!("<tool_call>{body}{close}"));
                let problem = reply.calls[0].problem.as_ref().unwrap();
                assert!(problem.contains(part), "{body}: {problem}");
            }
        }
        assert_eq!(parsed("<tool_call>{<tool_call>{").calls.len(), 2);
        assert_eq!(parsed(&"<tool_call>".repeat(1000)).calls.len(), MAXIMUM_CALLS);
    }

    #[test]
    fn a_bare_call_is_the_whole_reply() {
        let bare = |reply| parse_reply(reply, Some(CallStyle::Bare));
        let reply = bare(" {\"name\": \"bash\", \"parameters\": {\"command\" :\"ls\"}}\n");
        assert_eq!((reply.text.as_str(), reply.calls.len()), ("", 1));
        assert_eq!(reply.calls[0].name, "bash");
        assert_eq!(reply.calls[0].arguments, "{\"command\" :\"ls\"}");
        assert_eq!(reply.calls[0].problem, None);
        for text in [
            "{\"name\": \"bash\"}",
            "{\"name\": 1, \"parameters\": {}}",
            "so: {\"name\": \"f\"}",
            "{}",
        ] {
            assert_eq!((bare(text).text.as_str(), bare(text).calls.len()), (text, 0));
        }
    }

    #[test]
    fn a_model_without_tools_calls_none() {
        let text = "<tool_call>{}</tool_call>";
        assert_eq!(parse_reply(text, None).text, text);
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(parts in proptest::collection::vec(
            proptest::sample::select(vec!["<think>", "</think>", "<tool_call>", "</tool_call>",
                "{\"name\":\"f\",\"arguments\":{", "}", "\"", "é", "\n", " x "]), 0..20)) {
            let reply = parts.concat();
            let tools = parse_reply(&reply, Some(CallStyle::Tagged));
            parse_reply(&reply, Some(CallStyle::Bare));
            proptest::prop_assert!(tools.calls.len() <= 20);
            let none = parse_reply(&reply, None);
            proptest::prop_assert!(none.calls.is_empty());
        }
    }
}
