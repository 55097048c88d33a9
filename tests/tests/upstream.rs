//! Policies behind an OpenAI-compatible server: what goes out, what comes back, what goes wrong.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, Ordering},
};

use fulgurite_tests::{
    Project,
    said::{says, stderr},
    server::{Answer, Ask, Server},
};
use serde_json::Value;

/// What came of one episode of `solve`.
struct Ran {
    report: Value,
    code: i32,
    error: String,
}

impl Ran {
    fn says(&self, words: &[&str]) {
        says(&self.error, words);
        let last = self.error.lines().last().unwrap_or_default();
        let told: Value = serde_json::from_str(last).unwrap_or_default();
        for part in ["headline", "hint"] {
            assert!(told["error"][part].is_string(), "no {part} in: {last}");
        }
        assert!(!self.error.contains("panicked"), "{}", self.error);
    }
}

/// One episode, tried once, with so many calls for each reply.
fn run(project: &Project, policy: &str, calls: u32, key: Option<&str>) -> Ran {
    let tasks = project.plain_tasks(1);
    let config = project.write(
        "fulgurite.toml",
        format!(
            "harness = 'solve'\npolicy = '{policy}'\ntasks = {tasks:?}\nattempts = 1\n\
             [policy_options]\ncalls = {calls}\n[[rewards]]\nplugin = 'exact-match'\n"
        ),
    );
    let mut command = project.fulgurite(&["--json", "run", "--config"]);
    command.arg(config);
    if let Some(key) = key {
        command.env("OPENAI_API_KEY", key);
    }
    let output = command.output().unwrap();
    Ran {
        report: serde_json::from_slice(&output.stdout).unwrap_or_default(),
        code: output.status.code().unwrap_or(-1),
        error: stderr(&output),
    }
}

fn always(answer: impl Fn() -> Answer + Send + Sync + 'static) -> Server {
    Server::start(move |_| answer())
}

/// A run whose policy answers like this: the episode is no zero, and the policy is to blame.
fn fails(answer: impl Fn() -> Answer + Send + Sync + 'static, words: &[&str]) {
    let project = Project::new();
    let ran = run(&project, &always(answer).policy(), 2, None);
    assert_eq!((ran.report["dropped"].as_u64(), ran.code), (Some(1), 4), "{}", ran.error);
    assert_eq!(ran.report["kinds"]["policy-error"], 1, "{}", ran.report);
    assert_eq!(ran.report["mean_reward"], Value::Null);
    ran.says(words);
}

#[test]
fn a_server_answers_and_the_key_stays_on_the_host() {
    type Seen = Arc<Mutex<Vec<(Option<String>, Value)>>>;
    let seen: Seen = Arc::default();
    let server = Server::start({
        let seen = Arc::clone(&seen);
        move |ask: &Ask| {
            seen.lock().unwrap().push((ask.authorization.clone(), ask.body.clone()));
            Answer::Text("0".to_owned())
        }
    });
    let project = Project::new();
    let ran = run(&project, &server.policy(), 1, Some("sk-very-secret"));
    assert_eq!((ran.report["mean_reward"].as_f64(), ran.code), (Some(1.0), 0), "{}", ran.error);
    let seen = seen.lock().unwrap();
    let (authorization, body) = &seen[0];
    assert_eq!(authorization.as_deref(), Some("Bearer sk-very-secret"));
    assert_eq!(body["model"], "m");
    assert!(!project.export().contains("sk-very-secret"));
    assert_eq!(project.episode("last", "0").at("/tokens"), Some(&Value::Null));
}

#[test]
fn a_server_that_is_not_there_is_named_before_anything_runs() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let project = Project::new();
    let began = std::time::Instant::now();
    let ran = run(&project, &format!("openai:http://{nobody}/v1#m"), 6, None);
    assert_eq!(ran.code, 4, "{}", ran.error);
    ran.says(&["cannot be reached", &nobody.to_string(), "refused", "start the server"]);
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
}

#[test]
fn a_refused_key_is_a_policy_error_and_no_zero() {
    fails(
        || Answer::Status(401, "", "who are you?".to_owned()),
        &["refuses the key", "401: who are you?"],
    );
}

#[test]
fn a_server_that_stays_busy_or_broken_is_a_policy_error_in_its_own_words() {
    fails(|| Answer::Status(429, "retry-after: 0", String::new()), &["slow down (429)"]);
    fails(|| Answer::Status(500, "", "out of cards".to_owned()), &["500: out of cards"]);
}

#[test]
fn an_answer_that_breaks_off_or_is_none_is_a_policy_error() {
    fails(|| Answer::CutOff("a long story".to_owned()), &["broke off"]);
    let page = || Answer::Status(200, "", "<html>a proxy's page</html>".to_owned());
    fails(page, &["no chat completion", "a proxy's page"]);
    let cut = r#"{"choices":[{"message":{"role":"assistant","con"#;
    fails(move || Answer::Status(200, "", cut.to_owned()), &["broke off"]);
}

#[test]
fn a_refused_request_is_an_alarm_that_says_why() {
    let project = Project::new();
    let server = always(|| Answer::Status(404, "", r#"{"detail":"no model m"}"#.to_owned()));
    let ran = run(&project, &server.policy(), 2, None);
    assert_eq!((ran.report["alarms"].as_u64(), ran.code), (Some(1), 5), "{}", ran.error);
    assert_eq!(ran.report["mean_reward"], Value::Null);
    ran.says(&["404: no model m", "is the URL's path or the model wrong?"]);
}

#[test]
fn a_server_that_is_down_for_a_moment_is_asked_again() {
    let asked = Arc::new(AtomicU32::new(0));
    let server = Server::start({
        let asked = Arc::clone(&asked);
        move |_| match asked.fetch_add(1, Ordering::Relaxed) {
            0 => Answer::Status(429, "retry-after: 0", String::new()),
            1 => Answer::Status(500, "", String::new()),
            2 => Answer::CutOff("0".to_owned()),
            _ => Answer::Text("0".to_owned()),
        }
    });
    let project = Project::new();
    let ran = run(&project, &server.policy(), 6, None);
    assert_eq!((ran.report["mean_reward"].as_f64(), ran.code), (Some(1.0), 0), "{}", ran.error);
    assert_eq!(asked.load(Ordering::Relaxed), 4);
}
