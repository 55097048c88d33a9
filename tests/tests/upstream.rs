//! Policies behind an OpenAI-compatible server: what goes out, what comes back, what goes wrong.

use fulgurite_tests::Project;
use serde_json::{Value, json};
use wiremock::{Mock, MockServer, ResponseTemplate, matchers};

fn reply(text: &str) -> Value {
    json!({
        "id": "1", "object": "chat.completion", "created": 0, "model": "m",
        "choices": [{
            "index": 0, "finish_reason": "stop",
            "message": { "role": "assistant", "content": text },
        }],
        "usage": { "prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7 },
    })
}

async fn server(response: ResponseTemplate) -> MockServer {
    let server = MockServer::start().await;
    Mock::given(matchers::method("POST"))
        .and(matchers::path("/v1/chat/completions"))
        .respond_with(response)
        .mount(&server)
        .await;
    server
}

/// One episode of `solve` against the server.
async fn run(project: &Project, uri: &str, key: Option<&str>) -> (Value, i32, String) {
    let tasks = project.plain_tasks(1);
    let policy = format!("openai:{uri}/v1#m");
    let mut command = project.fulgurite(&[
        "--json",
        "run",
        "--harness",
        "solve",
        "--reward",
        "exact-match",
        "--policy",
        &policy,
        "--tasks",
    ]);
    command.arg(tasks);
    if let Some(key) = key {
        command.env("OPENAI_API_KEY", key);
    }
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    (report, output.status.code().unwrap_or(-1), error)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_answers_and_the_key_stays_on_the_host() {
    let server = server(ResponseTemplate::new(200).set_body_json(reply("0"))).await;
    let project = Project::new();
    let (report, code, _) = run(&project, &server.uri(), Some("sk-very-secret")).await;
    assert_eq!((report["mean_reward"].as_f64(), code), (Some(1.0), 0), "{report}");
    let requests = server.received_requests().await.unwrap();
    assert_eq!(requests[0].headers["authorization"], "Bearer sk-very-secret");
    let body: Value = requests[0].body_json().unwrap();
    assert_eq!(body["model"], "m");
    assert!(!project.export().contains("sk-very-secret"));
    assert_eq!(project.episode("last", "0").at("/tokens"), Some(&Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_key_is_a_policy_error_and_no_zero() {
    let server = server(ResponseTemplate::new(401).set_body_string("who are you?")).await;
    let project = Project::new();
    let (report, code, _) = run(&project, &server.uri(), None).await;
    assert_eq!((report["dropped"].as_u64(), code), (Some(1), 4), "{report}");
    assert_eq!(report["kinds"]["policy-error"], 1);
    assert_eq!(report["mean_reward"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_for_a_moment_is_asked_again() {
    let server = MockServer::start().await;
    let path = || matchers::path("/v1/chat/completions");
    for status in [429, 500] {
        Mock::given(path())
            .respond_with(ResponseTemplate::new(status))
            .up_to_n_times(1)
            .mount(&server)
            .await;
    }
    Mock::given(path())
        .respond_with(ResponseTemplate::new(200).set_body_json(reply("0")))
        .mount(&server)
        .await;
    let project = Project::new();
    let (report, code, _) = run(&project, &server.uri(), None).await;
    assert_eq!((report["mean_reward"].as_f64(), code), (Some(1.0), 0), "{report}");
    assert_eq!(server.received_requests().await.unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_is_no_json_is_a_policy_error() {
    let cut = r#"{"choices":[{"message":{"role":"assistant","con"#;
    let server = server(ResponseTemplate::new(400).set_body_string(cut)).await;
    let project = Project::new();
    let (report, code, _) = run(&project, &server.uri(), None).await;
    assert_eq!(report["mean_reward"], Value::Null, "{report}");
    assert_ne!(code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_found_out_before_the_run() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let project = Project::new();
    let began = std::time::Instant::now();
    let (report, code, error) = run(&project, &uri, None).await;
    assert_eq!((report, code), (Value::Null, 4), "{error}");
    assert!(error.contains("no connection to ") && error.contains("start the server"), "{error}");
    assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:?}", began.elapsed());
    let runs = project.fulgurite(&["--json", "trace", "list"]).output().unwrap();
    assert_eq!(String::from_utf8(runs.stdout).unwrap().trim(), "[]", "no run was begun");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_fails_in_every_attempt_is_warned_of_once() {
    let server = server(ResponseTemplate::new(401)).await;
    let project = Project::new();
    let (report, code, error) = run(&project, &server.uri(), None).await;
    assert_eq!(code, 4, "{report}");
    assert!(server.received_requests().await.unwrap().len() > 1, "it was tried again");
    assert_eq!(error.matches("a model call failed").count(), 1, "{error}");
}
