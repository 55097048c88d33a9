//! Tests of the scripted policy.

use super::*;
use crate::fixed::tests::{key, request};

fn script(text: &str) -> Result<Script, ScriptError> {
    Script::read(text.as_bytes(), Path::new("replies.jsonl"))
}

async fn said(script: &Script, key: CallKey) -> Result<String, PolicyError> {
    Ok(script.reply(request(key), None).await?.message.plain_text())
}

#[tokio::test]
async fn the_more_specific_line_wins_whatever_the_order() {
    let mut lines = [
        r#"{"text":"any"}"#,
        r#"{"turn":1,"text":"turn one"}"#,
        r#"{"harness":"coder","text":"coder"}"#,
        r#"{"task":"a","text":"task a"}"#,
        r#"{"task":"a","turn":1,"text":"task a, turn one"}"#,
        r#"{"harness":"coder","turn":1,"tool_format":"text","text":"as text"}"#,
    ];
    for _ in 0..2 {
        let script = script(&lines.join("\n")).unwrap();
        assert_eq!(said(&script, key("b", "solve", 0)).await.unwrap(), "any");
        assert_eq!(said(&script, key("b", "solve", 1)).await.unwrap(), "turn one");
        assert_eq!(said(&script, key("b", "coder", 1)).await.unwrap(), "coder");
        assert_eq!(said(&script, key("b", "coder", 0)).await.unwrap(), "coder");
        assert_eq!(said(&script, key("a", "coder", 0)).await.unwrap(), "task a");
        assert_eq!(said(&script, key("a", "coder", 1)).await.unwrap(), "task a, turn one");
        let text = CallKey { tool_format: "text", ..key("b", "coder", 1) };
        assert_eq!(said(&script, text).await.unwrap(), "as text");
        lines.reverse();
    }
}

#[tokio::test]
async fn conversation_and_agent_are_told_apart() {
    let script = script(
        "{\"conversation\":0,\"agent\":\"\",\"text\":\"main\"}\n\n\
         {\"conversation\":1,\"agent\":\"helper\",\"text\":\"sub\"}\n",
    )
    .unwrap();
    assert_eq!(said(&script, key("t", "h", 3)).await.unwrap(), "main");
    let sub = CallKey { conversation: 1, agent: "helper".to_owned(), ..key("t", "h", 3) };
    assert_eq!(said(&script, sub).await.unwrap(), "sub");
}

#[tokio::test]
async fn no_match_names_the_key_and_the_nearest() {
    let script = script(
        r#"{"task":"far","harness":"other","turn":9,"text":"x"}
           {"task":"HumanEval/0","harness":"coder","turn":0,"text":"x"}
           {"task":"HumanEval/1","harness":"coder","turn":0,"text":"x"}
           {"task":"HumanEval/1","harness":"coder","turn":1,"text":"x"}"#,
    )
    .unwrap();
    let error = said(&script, key("HumanEval/1", "coder", 2)).await.unwrap_err();
    let PolicyError::NoScript(text) = error else { panic!("{error}") };
    assert!(text.contains(r#"task "HumanEval/1", harness "coder", turn 2"#), "{text}");
    assert!(text.contains(r#"task "HumanEval/1", harness "coder", turn 1"#), "{text}");
    assert!(!text.contains("other"), "{text}");
}

#[tokio::test]
async fn whole_messages_finish_and_usage_are_taken_over() {
    let script = script(
        r#"{"message":{"role":"assistant","parts":[{"thinking":"hm"},{"tool-call":{"id":"1","name":"bash","arguments":"{\"command\":\"ls\"}"}}]},"usage":{"prompt_tokens":5,"cached_tokens":1,"completion_tokens":2}}"#,
    )
    .unwrap();
    let reply = script.reply(request(key("t", "h", 0)), None).await.unwrap();
    assert_eq!(reply.finish, FinishReason::ToolCalls);
    assert_eq!(reply.usage.completion_tokens, 2);
    assert_eq!(reply.message.tool_calls().next().unwrap().name, "bash");
}

#[test]
fn a_broken_line_is_named() {
    for (line, part) in [
        (r#"{"text":"x""#, "EOF"),
        (r#"{"txt":"x"}"#, "unknown field `txt`"),
        (r#"{"turn":-1,"text":"x"}"#, "expected u32"),
        (r#"{"turn":0}"#, "neither"),
        (r#"{"text":"x","message":{"role":"assistant","parts":[]}}"#, "both"),
        (r#"{"message":{"role":"user","parts":[]}}"#, "assistant"),
        (r#"{"tool_format":"xml","text":"x"}"#, "tool_format"),
        (r#"{"text":"x","delay_ms":99999999}"#, "hour"),
        (r#"{"turn":7,"text":"again"}"#, "same key as line 1"),
        (r"[1]", "expected"),
    ] {
        let error = script(&format!("{{\"turn\":7,\"text\":\"ok\"}}\n\n{line}\n")).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("the script replies.jsonl, line 3: "), "{text}");
        assert!(text.contains(part), "{line}: {text}");
    }
}

#[test]
fn empty_missing_and_binary_files_are_errors() {
    assert!(script("\n\n").unwrap_err().to_string().contains("empty"));
    assert!(Script::read(&b"\xff\xfe\x00"[..], Path::new("x")).is_err());
    let missing = Script::open(Path::new("/nonexistent/replies.jsonl")).unwrap_err();
    assert!(missing.to_string().contains("/nonexistent/replies.jsonl"));
    assert!(Script::open(&std::env::temp_dir()).is_err());
}

#[test]
fn the_name_follows_the_content() {
    let one = script(r#"{"text":"a"}"#).unwrap();
    let two = script(r#"{"text":"b"}"#).unwrap();
    assert!(one.info().name.starts_with("script:replies.jsonl@"));
    assert_ne!(one.info().name, two.info().name);
    assert_eq!(one.info().name, script(r#"{"text":"a"}"#).unwrap().info().name);
}
