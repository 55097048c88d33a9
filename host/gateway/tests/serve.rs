//! The server over real sockets, spoken to by the project's own client and by plain HTTP.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic, in its helpers too"
)]

use std::{
    net::SocketAddr,
    num::NonZeroU32,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use fulgurite_gateway::{
    SamplingDefaults,
    serve::{ServeError, ServeOptions, Server},
};
use fulgurite_policy::{
    ApiKey, CallKey, Chunk, Constant, FixedReply, Gate, OpenAi, OpenAiOptions, Policy, PolicyError,
    PolicyInfo, PolicyReply, Prompt, ReplyRequest, Sampling,
};
use fulgurite_trace::{FinishReason, Message, Part, Role, ToolCall, ToolDefinition};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{mpsc, oneshot},
    task::JoinHandle,
};

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A server that runs until it is told to stop.
struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ServeError>>,
}

async fn serve(policy: Arc<dyn Policy>, options: ServeOptions) -> Running {
    let server = Server::bind(policy, LOCAL, options).await.unwrap();
    let address = server.address();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(server.run(async move {
        let _ = stopped.await;
    }));
    Running { address, stop, task }
}

impl Running {
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn client(&self, model: &str, options: OpenAiOptions) -> OpenAi {
        OpenAi::new(&self.url("/v1").parse().unwrap(), model, options).unwrap()
    }

    async fn post(&self, body: String) -> (u16, Value) {
        let client = reqwest::Client::new();
        let sent = client.post(self.url("/v1/chat/completions")).body(body).send().await.unwrap();
        (sent.status().as_u16(), sent.json().await.unwrap())
    }

    async fn end(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap();
    }
}

fn named(name: &str) -> ServeOptions {
    ServeOptions { name: Some(name.to_owned()), ..Default::default() }
}

fn request(text: &str) -> ReplyRequest {
    ReplyRequest {
        key: CallKey {
            task: "t".to_owned(),
            harness: "h".to_owned(),
            agent: String::new(),
            tool_format: "text",
            conversation: 0,
            turn: 0,
        },
        prompt: Prompt::Messages(Arc::from([Message::text(Role::User, text)])),
        tools: Arc::from([]),
        sampling: Sampling { max_tokens: 24, seed: 8, ..Default::default() },
    }
}

fn tiny() -> Arc<dyn Policy> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/golden/tiny-llama.gguf");
    let spec = fulgurite_policy::PolicySpec::Gguf(file);
    fulgurite_policy::open(&spec, fulgurite_policy::OpenContext::default()).unwrap()
}

async fn streamed(policy: &dyn Policy, request: ReplyRequest) -> (PolicyReply, String, String) {
    let (sender, mut receiver) = mpsc::channel(1000);
    let reply = policy.reply(request, Some(sender)).await.unwrap();
    let (mut text, mut thinking) = (String::new(), String::new());
    while let Some(chunk) = receiver.recv().await {
        match chunk {
            Chunk::Text(more) => text.push_str(&more),
            Chunk::Thinking(more) => thinking.push_str(&more),
        }
    }
    (reply, text, thinking)
}

#[tokio::test]
async fn our_own_client_gets_what_the_policy_samples_with_its_tokens() {
    let policy = tiny();
    let server = serve(policy.clone(), named("tiny")).await;
    let client =
        server.client("tiny", OpenAiOptions { token_ids: true, ..OpenAiOptions::default() });
    let mut asked = request("hello there");
    let history = [Message::text(Role::User, "hello there")];
    let prompt = policy.chat_format().unwrap().render(&history, &[]).unwrap();
    let mut direct = asked.clone();
    direct.prompt = Prompt::Tokens(prompt.clone().into());
    // The client halves seeds, which servers read as signed numbers.
    direct.sampling.seed = asked.sampling.seed / 2;
    let expected = policy.reply(direct, None).await.unwrap();
    let over_http = client.reply(asked.clone(), None).await.unwrap();
    let (tokens, expected_tokens) = (over_http.tokens.unwrap(), expected.tokens.unwrap());
    assert_eq!(tokens.prompt, prompt);
    assert_eq!(tokens.response, expected_tokens.response);
    assert_eq!(tokens.log_probabilities, expected_tokens.log_probabilities);
    assert_eq!(over_http.message, expected.message);
    assert_eq!(over_http.finish, expected.finish);
    assert_eq!(over_http.usage.prompt_tokens, prompt.len() as u64);
    assert_eq!(over_http.usage.completion_tokens, tokens.response.len() as u64);

    let (reply, text, _) = streamed(&client, asked.clone()).await;
    let streamed = reply.tokens.unwrap();
    assert_eq!(text, expected.message.plain_text());
    assert_eq!(reply.message, expected.message);
    assert_eq!((&streamed.prompt, &streamed.response), (&prompt, &tokens.response));
    assert_eq!(streamed.log_probabilities, tokens.log_probabilities);

    asked.sampling.max_tokens = 2;
    let short = client.reply(asked, None).await.unwrap();
    assert_eq!(short.finish, FinishReason::Length);
    server.end().await;
}

#[tokio::test]
async fn tools_and_thinking_travel_both_ways() {
    let message = Message {
        role: Role::Assistant,
        parts: vec![
            Part::Thinking("hm".to_owned()),
            Part::Text("look:".to_owned()),
            Part::ToolCall(ToolCall {
                id: "call-1".to_owned(),
                name: "bash".to_owned(),
                arguments: r#"{"command":"ls"}"#.to_owned(),
                problem: None,
            }),
        ],
        metadata: vec![],
    };
    let policy = Arc::new(Constant::new("fixed", FixedReply::message(message.clone())));
    let server = serve(policy, ServeOptions::default()).await;
    let client = server.client("fixed", OpenAiOptions::default());
    let mut asked = request("x");
    asked.tools = Arc::from([ToolDefinition {
        name: "bash".to_owned(),
        description: "runs".to_owned(),
        parameters: r#"{"type":"object"}"#.to_owned(),
    }]);
    let whole = client.reply(asked.clone(), None).await.unwrap();
    assert_eq!((&whole.message, whole.finish), (&message, FinishReason::ToolCalls));
    let (reply, text, thinking) = streamed(&client, asked).await;
    assert_eq!((&reply.message, reply.finish), (&message, FinishReason::ToolCalls));
    assert_eq!((text.as_str(), thinking.as_str()), ("look:", "hm"));
    server.end().await;
}

#[tokio::test]
async fn only_the_key_opens_it() {
    let policy = Arc::new(Constant::new("fixed", FixedReply::text("yes")));
    let key = ApiKey::new("sk-right").unwrap();
    let server = serve(policy.clone(), ServeOptions { key: Some(key.clone()), ..named("m") }).await;
    for wrong in [None, ApiKey::new("sk-righ"), ApiKey::new("sk-right2"), ApiKey::new("sk-wrong")] {
        let client = server.client("m", OpenAiOptions { key: wrong, ..Default::default() });
        let error = client.reply(request("x"), None).await.unwrap_err();
        assert!(matches!(&error, PolicyError::Unauthorized(text) if !text.contains("sk-")));
    }
    let client = server.client("m", OpenAiOptions { key: Some(key), ..Default::default() });
    assert_eq!(client.reply(request("x"), None).await.unwrap().message.plain_text(), "yes");
    let open = reqwest::get(server.url("/healthz")).await.unwrap();
    assert_eq!(open.json::<Value>().await.unwrap(), json!({"status": "ok"}));
    assert_eq!(reqwest::get(server.url("/v1/models")).await.unwrap().status(), 401);
    assert_eq!(reqwest::get(server.url("/secret")).await.unwrap().status(), 401);
    server.end().await;

    let everywhere = "0.0.0.0:0".parse().unwrap();
    let refused = Server::bind(policy, everywhere, ServeOptions::default()).await;
    assert!(matches!(refused.err().unwrap(), ServeError::KeyNeeded(_)));
}

#[tokio::test]
async fn errors_have_one_form_and_say_what_is_wrong() {
    let options = ServeOptions {
        body_bytes: 1000,
        sampling: SamplingDefaults {
            max_tokens: NonZeroU32::new(5).unwrap(),
            ..Default::default()
        },
        ..named("m")
    };
    let server = serve(tiny(), options).await;
    let hello = |more: Value| {
        let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body.to_string()
    };
    let (status, body) = server.post(hello(json!({}))).await;
    assert_eq!((status, &body["object"]), (200, &json!("chat.completion")));
    assert!(body["usage"]["completion_tokens"].as_u64().unwrap() <= 5, "the cap of the server");
    let long = "Qz7 ".repeat(200);
    for (body, status, code) in [
        ("{".to_owned(), 400, "invalid_json"),
        (hello(json!({"model": "x"})), 404, "model_not_found"),
        (hello(json!({"n": 3})), 400, "unsupported_value"),
        (hello(json!({"stop_token_ids": vec![1; 600]})), 413, "body_too_large"),
        (
            hello(json!({"messages": [{"role": "user", "content": long}]})),
            400,
            "context_length_exceeded",
        ),
    ] {
        let (got, answer) = server.post(body).await;
        assert_eq!((got, &answer["error"]["code"]), (status, &json!(code)), "{answer}");
        assert!(!answer["error"]["message"].as_str().unwrap().is_empty());
    }
    let missing = reqwest::get(server.url("/v2")).await.unwrap();
    assert_eq!(missing.status(), 404);
    assert_eq!(missing.json::<Value>().await.unwrap()["error"]["code"], "not_found");
    let wrong = reqwest::get(server.url("/v1/chat/completions")).await.unwrap();
    assert_eq!(wrong.status(), 405);
    let models: Value = reqwest::get(server.url("/v1/models")).await.unwrap().json().await.unwrap();
    assert_eq!(models["data"][0]["id"], "m");
    assert_eq!(models["data"][0]["max_model_len"], 256);
    server.end().await;
}

#[tokio::test]
async fn log_probabilities_name_their_tokens() {
    let server = serve(tiny(), named("m")).await;
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "seed": 3,
        "max_tokens": 12, "logprobs": true, "return_token_ids": true});
    let (_, body) = server.post(body.to_string()).await;
    let choice = &body["choices"][0];
    let content = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(content.len(), choice["token_ids"].as_array().unwrap().len());
    let bytes: Vec<u8> = content
        .iter()
        .flat_map(|token| token["bytes"].as_array().unwrap())
        .map(|byte| u8::try_from(byte.as_u64().unwrap()).unwrap())
        .collect();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert_eq!(text.trim(), choice["message"]["content"].as_str().unwrap().trim());
    server.end().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let policy = Arc::new(Constant::empty());
    let options = ServeOptions { body_timeout: Duration::from_millis(50), ..Default::default() };
    let server = serve(policy, options).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n{";
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    socket.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
    drop(socket);
    server.end().await;
}

#[tokio::test]
async fn more_requests_than_places_are_told_to_come_back() {
    let gate = Arc::new(Gate::new(Arc::new(Constant::empty())));
    let server = serve(gate.clone(), ServeOptions { requests: 1, ..named("m") }).await;
    let client = Arc::new(server.client("m", OpenAiOptions::default()));
    let first = tokio::spawn({
        let client = client.clone();
        async move { client.reply(request("x"), None).await }
    });
    gate.until_waiting(1).await;
    let error = client.reply(request("x"), None).await.unwrap_err();
    let retry_after = Some(Duration::from_secs(1));
    assert_eq!(error, PolicyError::RateLimited { retry_after });
    gate.release();
    first.await.unwrap().unwrap();
    client.reply(request("x"), None).await.unwrap();
    server.end().await;
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_its_call() {
    let gate = Arc::new(Gate::new(Arc::new(Constant::empty())));
    let server = serve(gate.clone(), named("m")).await;
    for stream in [false, true] {
        let client = server.client("m", OpenAiOptions::default());
        let call = tokio::spawn(async move {
            let (sender, _kept) = mpsc::channel(8);
            client.reply(request("x"), stream.then_some(sender)).await
        });
        gate.until_waiting(1).await;
        call.abort();
        let _ = call.await;
        let began = Instant::now();
        while gate.waiting() > 0 {
            assert!(began.elapsed() < Duration::from_secs(10), "stream: {stream}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    server.end().await;
}

#[tokio::test]
async fn shutting_down_lets_replies_end_but_not_for_ever() {
    let gate = Arc::new(Gate::new(Arc::new(Constant::new("m", FixedReply::text("late")))));
    let server = serve(gate.clone(), named("m")).await;
    let client = server.client("m", OpenAiOptions::default());
    let call = tokio::spawn(async move { client.reply(request("x"), None).await });
    gate.until_waiting(1).await;
    server.stop.send(()).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!server.task.is_finished());
    gate.release();
    assert_eq!(call.await.unwrap().unwrap().message.plain_text(), "late");
    server.task.await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err(), "nobody listens any more");

    let stuck = Arc::new(Gate::new(Arc::new(Constant::empty())));
    let options = ServeOptions { grace: Duration::from_millis(50), ..named("m") };
    let server = serve(stuck.clone(), options).await;
    let client = server.client("m", OpenAiOptions::default());
    let call = tokio::spawn(async move { client.reply(request("x"), None).await });
    stuck.until_waiting(1).await;
    server.end().await;
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, PolicyError::Unavailable(_)), "{error:?}");
}

/// Fails as a policy of this machine may.
struct Broken(PolicyInfo);

#[async_trait::async_trait]
impl Policy for Broken {
    fn info(&self) -> &PolicyInfo {
        &self.0
    }

    async fn reply(
        &self,
        _: ReplyRequest,
        _: Option<mpsc::Sender<Chunk>>,
    ) -> Result<PolicyReply, PolicyError> {
        Err(PolicyError::Internal("secret path".to_owned()))
    }
}

#[tokio::test]
async fn failures_inside_the_policy_tell_clients_no_details() {
    let info = PolicyInfo { name: "m".to_owned(), context_length: None, native_tools: true };
    let server = serve(Arc::new(Broken(info)), ServeOptions::default()).await;
    for stream in [false, true] {
        let messages = json!([{"role": "user", "content": "x"}]);
        let body = json!({"model": "m", "messages": messages, "stream": stream});
        let client = reqwest::Client::new();
        let url = server.url("/v1/chat/completions");
        let answer = client.post(url).body(body.to_string()).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), if stream { 200 } else { 500 });
        let text = answer.text().await.unwrap();
        assert!(text.contains("policy_failed") && !text.contains("secret"), "{text}");
    }
    server.end().await;
}
