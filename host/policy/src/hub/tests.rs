//! The hub, played by a server on this machine.

use std::path::Path;

use sha2::{Digest as _, Sha256};
use wiremock::{
    Mock, MockServer, ResponseTemplate,
    matchers::{method, path},
};

use super::{client::hexadecimal, *};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn digest(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// A server that lists these files and serves them.
async fn hub(files: &[(&str, &[u8])]) -> MockServer {
    serve(files, files).await
}

/// A server that lists some files and serves others.
async fn serve(files: &[(&str, &[u8])], served: &[(&str, &[u8])]) -> MockServer {
    let server = MockServer::start().await;
    let siblings: Vec<_> = files
        .iter()
        .map(|(name, bytes)| {
            serde_json::json!({
                "rfilename": name, "size": bytes.len(), "lfs": {"sha256": digest(bytes)},
            })
        })
        .collect();
    let list = serde_json::json!({"sha": COMMIT, "siblings": siblings});
    Mock::given(method("GET"))
        .and(path("/api/models/org/small/revision/main"))
        .respond_with(ResponseTemplate::new(200).set_body_json(list))
        .mount(&server)
        .await;
    for (name, bytes) in served {
        Mock::given(method("GET"))
            .and(path(format!("/org/small/resolve/{COMMIT}/{name}")))
            .respond_with(ResponseTemplate::new(200).set_body_bytes(*bytes))
            .mount(&server)
            .await;
    }
    server
}

fn options(server: &str, cache: &Path) -> HubOptions {
    HubOptions {
        endpoint: server.to_owned(),
        cache: cache.to_owned(),
        token: ApiKey::new("hf_secret"),
        connect_timeout: Duration::from_millis(200),
        idle_timeout: Duration::from_millis(300),
    }
}

async fn fetch(options: HubOptions) -> Result<PathBuf, HubError> {
    let model: HubModel = "org/small".parse().unwrap();
    tokio::task::spawn_blocking(move || model.fetch(&options)).await.unwrap()
}

const FILES: [(&str, &[u8]); 5] = [
    ("config.json", b"{}"),
    ("tokenizer.json", b"{\"a\": 1}"),
    ("model.safetensors", b"weights"),
    ("README.md", b"no"),
    ("pytorch_model.bin", b"never"),
];

#[tokio::test]
async fn a_model_is_fetched_once_and_serves_without_the_hub() {
    let server = hub(&FILES).await;
    let cache = tempfile::tempdir().unwrap();
    let folder = fetch(options(&server.uri(), cache.path())).await.unwrap();
    assert_eq!(folder, cache.path().join("models--org--small/snapshots").join(COMMIT));
    assert_eq!(std::fs::read(folder.join("model.safetensors")).unwrap(), b"weights");
    let names = std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(names, 3, "what is no part of the model stays where it is");
    let requests = server.received_requests().await.unwrap();
    assert_eq!(requests.len(), 4);
    assert!(requests.iter().all(|request| request.headers["authorization"] == "Bearer hf_secret"));
    assert_eq!(fetch(options(&server.uri(), cache.path())).await.unwrap(), folder);
    assert_eq!(server.received_requests().await.unwrap().len(), 5, "the list alone");
    drop(server);
    assert_eq!(fetch(options("http://127.0.0.1:9", cache.path())).await.unwrap(), folder);
    std::fs::remove_file(folder.join("model.safetensors")).unwrap();
    let error = fetch(options("http://127.0.0.1:9", cache.path())).await.unwrap_err().to_string();
    assert!(error.contains("hf:org/small: 127.0.0.1 cannot be reached"), "{error}");
    assert!(error.contains("mend: check the network") && error.contains("folder:PATH"), "{error}");
}

#[tokio::test]
async fn weights_in_parts_are_fetched_whole() {
    let files: [(&str, &[u8]); 7] = [
        ("config.json", b"{}"),
        ("tokenizer.json", b"{}"),
        ("model.safetensors.index.json", b"{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\", \"b\": \"model-00002-of-00002.safetensors\"}}"),
        ("model-00001-of-00002.safetensors", b"one"),
        ("model-00002-of-00002.safetensors", b"two"),
        ("model-/../../evil.safetensors", b"evil"),
        ("other.safetensors", b"other"),
    ];
    let server = hub(&files).await;
    let cache = tempfile::tempdir().unwrap();
    let folder = fetch(options(&server.uri(), cache.path())).await.unwrap();
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 5);
    std::fs::remove_file(folder.join("model-00002-of-00002.safetensors")).unwrap();
    assert!(fetch(options("http://127.0.0.1:9", cache.path())).await.is_err(), "one is missing");
}

#[tokio::test]
async fn refusals_say_what_to_do_and_never_the_token() {
    for (status, part) in
        [(401, "HF_TOKEN"), (403, "HF_TOKEN"), (404, "the revision"), (500, "later")]
    {
        let server = MockServer::start().await;
        Mock::given(method("GET"))
            .respond_with(ResponseTemplate::new(status).set_body_string("hf_secret"))
            .mount(&server)
            .await;
        let cache = tempfile::tempdir().unwrap();
        let error = fetch(options(&server.uri(), cache.path())).await.unwrap_err().to_string();
        assert!(error.contains(part) && error.contains(&status.to_string()), "{error}");
        assert!(!error.contains("hf_secret"), "{error}");
    }
    let server = hub(&[("config.json", b"{}"), ("model.safetensors", b"x")]).await;
    let cache = tempfile::tempdir().unwrap();
    let error = fetch(options(&server.uri(), cache.path())).await.unwrap_err().to_string();
    assert!(error.contains("no tokenizer.json on the hub"), "{error}");
}

#[tokio::test]
async fn a_hub_that_does_not_answer_is_given_up_on() {
    let server = MockServer::start().await;
    let late = ResponseTemplate::new(200).set_delay(Duration::from_secs(60));
    Mock::given(method("GET")).respond_with(late).mount(&server).await;
    let cache = tempfile::tempdir().unwrap();
    let begun = std::time::Instant::now();
    let error = fetch(options(&server.uri(), cache.path())).await.unwrap_err().to_string();
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert!(error.contains("cannot be reached"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_not_what_was_listed_is_not_kept() {
    for (bytes, part) in [(b"weighty".as_slice(), "SHA-256"), (b"weight", "6 bytes, not 7")] {
        let mut served = FILES;
        served[2].1 = bytes;
        let server = serve(&FILES, &served).await;
        let cache = tempfile::tempdir().unwrap();
        let error = fetch(options(&server.uri(), cache.path())).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        let snapshot = cache.path().join("models--org--small/snapshots").join(COMMIT);
        let names: Vec<_> = std::fs::read_dir(snapshot).unwrap().flatten().collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }
}

#[test]
fn names_are_read_and_nothing_that_leads_elsewhere() {
    for text in ["org/name", "org/name@v1.0", "HuggingFaceTB/SmolLM2-135M@refs/pr/1"] {
        assert_eq!(text.parse::<HubModel>().unwrap().to_string(), text);
    }
    assert_eq!("a/b@main".parse::<HubModel>().unwrap().to_string(), "a/b");
    for text in
        ["", "name", "a/b/c", "../b", "a/..", "a/b@", "a/b@../x", "a/b@x//y", "a b/c", "a/b?c"]
    {
        assert!(text.parse::<HubModel>().is_err(), "{text}");
    }
}
