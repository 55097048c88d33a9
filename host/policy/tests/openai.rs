//! The client of OpenAI-compatible servers, against a mock server and a raw TCP one.
#![allow(clippy::unwrap_used, reason = "a test may panic, in its helpers too")]

use std::{sync::Arc, time::Duration};

use fulgurite_policy::{
    ApiKey, CallKey, Chunk, OpenAi, OpenAiOptions, Policy, PolicyError, PolicyReply, Prompt,
    ReplyRequest, Sampling,
};
use fulgurite_trace::{FinishReason, Message, Part, Role, ToolDefinition};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
};
use wiremock::{Mock, MockServer, ResponseTemplate, matchers};

fn request() -> ReplyRequest {
    ReplyRequest {
        key: CallKey {
            task: "t".to_owned(),
            harness: "h".to_owned(),
            agent: String::new(),
            tool_format: "native",
            conversation: 0,
            turn: 3,
        },
        prompt: Prompt::Messages(Arc::from([Message::text(Role::User, "hi")])),
        tools: Arc::from([ToolDefinition {
            name: "bash".to_owned(),
            description: "run".to_owned(),
            parameters: r#"{"type":"object"}"#.to_owned(),
        }]),
        sampling: Sampling { max_tokens: 9, temperature: 0.5, seed: 7, ..Default::default() },
    }
}

fn client(address: &str, options: OpenAiOptions) -> OpenAi {
    let url = format!("{address}/v1").parse().unwrap();
    OpenAi::new(&url, "org/model", options).unwrap()
}

async fn answering(answer: ResponseTemplate) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(matchers::method("POST"))
        .and(matchers::path("/v1/chat/completions"))
        .respond_with(answer)
        .mount(&server)
        .await;
    server
}

#[tokio::test]
async fn a_check_asks_for_no_completion_and_names_what_is_not_there() {
    let server = answering(ResponseTemplate::new(200)).await;
    client(&server.uri(), OpenAiOptions::default()).check().await.unwrap();
    let received = server.received_requests().await.unwrap();
    let asked: Vec<_> = received.iter().map(|request| request.url.path()).collect();
    assert_eq!(asked, ["/v1/models"]);
    // A port that was free a moment ago.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let began = std::time::Instant::now();
    let error = client(&address, OpenAiOptions::default()).check().await.unwrap_err();
    assert!(error.to_string().contains(&format!("no connection to {address}")), "{error}");
    assert!(began.elapsed() < Duration::from_secs(6));
    let error = client("http://no.such.host.invalid", OpenAiOptions::default()).check().await;
    assert!(matches!(error, Err(PolicyError::Unavailable(_))), "{error:?}");
}

async fn ask(answer: ResponseTemplate) -> Result<PolicyReply, PolicyError> {
    let server = answering(answer).await;
    client(&server.uri(), OpenAiOptions::default()).reply(request(), None).await
}

fn completion(message: Value, finish: &str) -> Value {
    json!({
        "id": "1", "object": "chat.completion", "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14,
                  "prompt_tokens_details": {"cached_tokens": 8}},
    })
}

fn events(pieces: &[Value]) -> String {
    let mut text = String::from(": a comment\n\n");
    for piece in pieces {
        text.push_str(&format!("data: {piece}\n\n"));
    }
    text
}

fn delta(delta: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn event_stream(text: String) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_raw(text, "text/event-stream; charset=utf-8")
}

/// Streams and collects the chunks.
async fn stream(
    address: &str,
    options: OpenAiOptions,
) -> (Result<PolicyReply, PolicyError>, Vec<Chunk>) {
    let (sender, mut receiver) = mpsc::channel(64);
    let reply = client(address, options).reply(request(), Some(sender)).await;
    let mut chunks = Vec::new();
    while let Some(chunk) = receiver.recv().await {
        chunks.push(chunk);
    }
    (reply, chunks)
}

#[tokio::test]
async fn a_plain_reply_is_read() {
    let body = completion(json!({"role": "assistant", "content": "hello"}), "stop");
    let reply = ask(ResponseTemplate::new(200).set_body_json(body)).await.unwrap();
    assert_eq!(reply.message, Message::text(Role::Assistant, "hello"));
    assert_eq!(reply.finish, FinishReason::Stop);
    assert_eq!((reply.usage.prompt_tokens, reply.usage.cached_tokens), (10, 8));
    assert_eq!(reply.usage.completion_tokens, 4);
    assert_eq!(reply.tokens, None, "without token ids a reply is not trainable");
}

#[tokio::test]
async fn the_request_carries_the_key_and_the_call() {
    let server = MockServer::start().await;
    let body = completion(json!({"content": "x"}), "length");
    Mock::given(matchers::header("authorization", "Bearer sk-test"))
        .and(matchers::body_partial_json(json!({
            "model": "org/model", "max_tokens": 9, "temperature": 0.5, "seed": 3,
            "messages": [{"role": "user", "content": "hi"}],
            "tools": [{"type": "function", "function": {"name": "bash"}}],
        })))
        .respond_with(ResponseTemplate::new(200).set_body_json(body))
        .expect(1)
        .mount(&server)
        .await;
    let options = OpenAiOptions { key: ApiKey::new("sk-test"), ..Default::default() };
    let policy = client(&server.uri(), options);
    assert_eq!(policy.info().name, format!("openai:{}/v1#org/model", server.uri()));
    assert!(!format!("{policy:?}").contains("sk-test"));
    let reply = policy.reply(request(), None).await.unwrap();
    assert_eq!(reply.finish, FinishReason::Length);
}

#[tokio::test]
async fn tool_calls_are_content_even_when_malformed() {
    let body = completion(
        json!({"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
            {"id": "a", "type": "function",
             "function": {"name": "bash", "arguments": "{\"command\": \"ls\"}"}},
            {"id": "b", "type": "function", "function": {"name": "bash", "arguments": "{oops"}},
            {"id": "a", "type": "function", "function": {"name": "", "arguments": "{}"}},
            {"function": {"name": "bash", "arguments": {"command": "pwd"}}},
        ]}),
        "stop",
    );
    let reply = ask(ResponseTemplate::new(200).set_body_json(body)).await.unwrap();
    assert_eq!(reply.finish, FinishReason::ToolCalls);
    assert_eq!(reply.message.parts[0], Part::Thinking("hm".to_owned()));
    let calls: Vec<_> = reply.message.tool_calls().collect();
    let ids: Vec<_> = calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["a", "b", "call-3-2", "call-3-3"]);
    assert_eq!(calls[0].problem, None);
    assert_eq!(calls[0].arguments, "{\"command\": \"ls\"}", "exactly as the model wrote them");
    assert!(calls[1].problem.as_ref().unwrap().contains("JSON"));
    assert!(calls[2].problem.as_ref().unwrap().contains("no tool"));
    assert_eq!(calls[3].arguments, r#"{"command":"pwd"}"#);
}

#[tokio::test]
async fn token_ids_and_log_probabilities_are_captured() {
    let mut body = completion(json!({"content": "hi"}), "stop");
    body["prompt_token_ids"] = json!([1, 2, 3]);
    body["choices"][0]["token_ids"] = json!([7, 2]);
    body["choices"][0]["logprobs"] = json!({"content": [
        {"token": "hi", "logprob": -0.25, "bytes": null, "top_logprobs": []},
        {"token": "</s>", "logprob": -1.5},
    ]});
    let answer = ResponseTemplate::new(200).set_body_json(body.clone());
    let server = answering(answer).await;
    let options = OpenAiOptions { token_ids: true, ..Default::default() };
    let reply = client(&server.uri(), options).reply(request(), None).await.unwrap();
    let tokens = reply.tokens.unwrap();
    assert_eq!(tokens.prompt, [1, 2, 3]);
    assert_eq!(tokens.response, [7, 2]);
    assert_eq!(tokens.log_probabilities, [-0.25, -1.5]);
    assert_eq!(tokens.versions.len(), 1);
    let asked: Value = server.received_requests().await.unwrap()[0].body_json().unwrap();
    assert_eq!(asked["return_token_ids"], json!(true));

    body["choices"][0]["logprobs"]["content"].as_array_mut().unwrap().pop();
    let reply = ask(ResponseTemplate::new(200).set_body_json(body)).await.unwrap();
    assert!(reply.tokens.unwrap().log_probabilities.is_empty(), "half a list is no list");
}

#[tokio::test]
async fn a_streamed_reply_is_put_together() {
    let mut last = delta(json!({}));
    last["choices"][0]["finish_reason"] = json!("tool_calls");
    last["choices"][0]["token_ids"] = json!([9]);
    last["choices"][0]["logprobs"] = json!({"content": [{"logprob": -0.5}]});
    let mut first = delta(json!({"role": "assistant", "content": ""}));
    first["prompt_token_ids"] = json!([5, 6]);
    let mut text = delta(json!({"content": "wörld"}));
    text["choices"][0]["token_ids"] = json!([8]);
    text["choices"][0]["logprobs"] = json!({"content": [{"logprob": -0.75}]});
    let call = |index: u32, function: Value| {
        delta(json!({"tool_calls": [{"index": index, "function": function}]}))
    };
    let mut opening = call(1, json!({"name": "bash", "arguments": ""}));
    opening["choices"][0]["delta"]["tool_calls"][0]["id"] = json!("id-1");
    let stream_text = events(&[
        first,
        delta(json!({"reasoning": "think"})),
        text,
        opening,
        call(1, json!({"arguments": "{\"a\":"})),
        call(1, json!({"arguments": "1}"})),
        json!({"choices": [{"index": 1, "delta": {"content": "another choice"}}]}),
        last,
        json!({"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 2}}),
    ]) + "data: [DONE]\n\n";
    let server = answering(event_stream(stream_text)).await;
    let (reply, chunks) = stream(&server.uri(), OpenAiOptions::default()).await;
    let reply = reply.unwrap();
    assert_eq!(reply.message.plain_text(), "wörld");
    let call = reply.message.tool_calls().next().unwrap();
    assert_eq!((call.id.as_str(), call.arguments.as_str()), ("id-1", "{\"a\":1}"));
    assert_eq!(reply.finish, FinishReason::ToolCalls);
    assert_eq!(reply.usage.completion_tokens, 2);
    let tokens = reply.tokens.unwrap();
    assert_eq!((tokens.prompt, tokens.response), (vec![5, 6], vec![8, 9]));
    assert_eq!(tokens.log_probabilities, [-0.75, -0.5]);
    assert_eq!(chunks, [Chunk::Thinking("think".to_owned()), Chunk::Text("wörld".to_owned())]);
}

#[tokio::test]
async fn a_server_that_does_not_stream_is_understood() {
    let body = completion(json!({"content": "whole"}), "stop");
    let server = answering(ResponseTemplate::new(200).set_body_json(body)).await;
    let (reply, chunks) = stream(&server.uri(), OpenAiOptions::default()).await;
    assert_eq!(reply.unwrap().message.plain_text(), "whole");
    assert_eq!(chunks, [Chunk::Text("whole".to_owned())]);
}

#[tokio::test]
async fn statuses_become_errors_and_never_show_the_key() {
    for (code, expected) in [
        (401, "Unauthorized"),
        (403, "Unauthorized"),
        (404, "Invalid"),
        (408, "Unavailable"),
        (409, "Unavailable"),
        (500, "Unavailable"),
        (503, "Unavailable"),
        (302, "Invalid"),
    ] {
        let answer = ResponseTemplate::new(code)
            .insert_header("location", "http://elsewhere.example/")
            .set_body_json(json!({"error": {"message": "bad key sk-secret here"}}));
        let server = answering(answer).await;
        let options = OpenAiOptions { key: ApiKey::new("sk-secret"), ..Default::default() };
        let error = client(&server.uri(), options).reply(request(), None).await.unwrap_err();
        let text = format!("{error:?} {error}");
        assert!(text.starts_with(expected), "{code}: {text}");
        assert!(!text.contains("sk-secret"), "{text}");
        assert_eq!(server.received_requests().await.unwrap().len(), 1, "no retries here");
    }
    let slow = ResponseTemplate::new(429).insert_header("retry-after", "3");
    let error = ask(slow).await.unwrap_err();
    assert_eq!(error, PolicyError::RateLimited { retry_after: Some(Duration::from_secs(3)) });
    let long = json!({"error": {"message": "m", "code": "context_length_exceeded"}});
    let error = ask(ResponseTemplate::new(400).set_body_json(long)).await.unwrap_err();
    assert!(matches!(error, PolicyError::ContextLength(_)), "{error:?}");
}

#[tokio::test]
async fn errors_inside_a_success_are_errors() {
    let body = json!({"error": {"message": "overloaded", "code": 503}});
    let error = ask(ResponseTemplate::new(200).set_body_json(&body)).await.unwrap_err();
    assert!(matches!(error, PolicyError::Unavailable(_)), "{error:?}");
    let text = events(&[delta(json!({"content": "so far"})), body]);
    let server = answering(event_stream(text)).await;
    let (reply, _) = stream(&server.uri(), OpenAiOptions::default()).await;
    assert!(matches!(reply.unwrap_err(), PolicyError::Unavailable(text) if text.contains("overl")));
}

#[tokio::test]
async fn what_is_no_completion_is_shown_shortly() {
    let page = ResponseTemplate::new(200).set_body_raw("<html>welcome</html>", "text/html");
    let error = ask(page).await.unwrap_err();
    assert!(matches!(&error, PolicyError::Internal(text) if text.contains("welcome")), "{error:?}");
    let cut = ResponseTemplate::new(200).set_body_raw(r#"{"choices": [{"ind"#, "application/json");
    assert!(matches!(ask(cut).await.unwrap_err(), PolicyError::Unavailable(_)));
}

#[tokio::test]
async fn too_many_tool_calls_and_too_large_bodies_are_refused() {
    let calls: Vec<Value> = (0..200).map(|index| json!({"index": index * 1_000_000})).collect();
    let body = completion(json!({"tool_calls": calls}), "tool_calls");
    let error = ask(ResponseTemplate::new(200).set_body_json(body)).await.unwrap_err();
    assert!(matches!(error, PolicyError::Internal(_)), "{error:?}");

    let large = ResponseTemplate::new(200).set_body_raw(vec![b' '; 65 << 20], "application/json");
    let error = ask(large).await.unwrap_err();
    assert!(matches!(&error, PolicyError::Internal(text) if text.contains("MiB")), "{error:?}");
    let endless_line = event_stream(format!("data: {}", "x".repeat(5 << 20)));
    let error = ask(endless_line).await.unwrap_err();
    assert!(matches!(&error, PolicyError::Internal(text) if text.contains("MiB")), "{error:?}");
}

/// A server that answers every connection with these bytes and then closes it, or holds it open.
async fn raw_server(answer: String, hold: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut buffer = vec![0; 64 << 10];
                let _ = connection.read(&mut buffer).await;
                let _ = connection.write_all(answer.as_bytes()).await;
                let _ = connection.flush().await;
                if hold {
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    address
}

const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n";

#[tokio::test]
async fn a_cut_off_stream_is_unavailable_however_it_is_cut() {
    let piece = events(&[delta(json!({"content": "so far"}))]);
    let half = format!("{piece}data: {{\"choices\": [{{\"ind");
    let chunked = format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n{piece}\r\n", piece.len());
    for (name, answer) in [
        ("closed between events", format!("{STREAM_HEAD}\r\n{piece}")),
        ("closed within an event", format!("{STREAM_HEAD}\r\n{half}")),
        ("closed without the last chunk", format!("{STREAM_HEAD}{chunked}")),
        ("shorter than promised", format!("{STREAM_HEAD}content-length: 99999\r\n\r\n{piece}")),
        ("done without a reason", format!("{STREAM_HEAD}\r\n{piece}data: [DONE]\n\n")),
        ("closed within the head", "HTTP/1.1 200 OK\r\ncontent-ty".to_owned()),
        ("closed without an answer", String::new()),
    ] {
        let address = raw_server(answer, false).await;
        let (reply, _) = stream(&address, OpenAiOptions::default()).await;
        let error = reply.unwrap_err();
        assert!(matches!(error, PolicyError::Unavailable(_)), "{name}: {error:?}");
    }
}

#[tokio::test]
async fn silence_is_a_timeout() {
    let short = Duration::from_millis(50);
    let silent = raw_server(String::new(), true).await;
    let options = OpenAiOptions { answer_timeout: short, ..Default::default() };
    let error = client(&silent, options).reply(request(), None).await.unwrap_err();
    assert_eq!(error, PolicyError::Timeout);
    let piece = events(&[delta(json!({"content": "so far"}))]);
    let stalled = raw_server(format!("{STREAM_HEAD}\r\n{piece}"), true).await;
    let options = OpenAiOptions { idle_timeout: short, ..Default::default() };
    let (reply, chunks) = stream(&stalled, options).await;
    assert_eq!(reply.unwrap_err(), PolicyError::Timeout);
    assert_eq!(chunks, [Chunk::Text("so far".to_owned())]);
}

#[tokio::test]
async fn a_refused_connection_names_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let policy = client(&address, OpenAiOptions::default());
    let error = policy.reply(request(), None).await.unwrap_err();
    let PolicyError::Unavailable(text) = error else { panic!("{error:?}") };
    assert!(text.contains(&address) && text.contains("refused"), "{text}");
}

#[tokio::test]
async fn a_receiver_that_is_gone_is_no_error() {
    let mut last = delta(json!({"content": "all"}));
    last["choices"][0]["finish_reason"] = json!("stop");
    let server = answering(event_stream(events(&[last]))).await;
    let (sender, receiver) = mpsc::channel(1);
    drop(receiver);
    let policy = client(&server.uri(), OpenAiOptions::default());
    let reply = policy.reply(request(), Some(sender)).await.unwrap();
    assert_eq!(reply.message.plain_text(), "all");
}
