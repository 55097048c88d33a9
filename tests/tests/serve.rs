//! `fulgurite serve` with a tiny model on this machine: what clients get, who is let in, how it
//! ends, and the program's own harness behind its own client.

use fulgurite_tests::{
    Project, run_of,
    said::{says, stderr},
    served::{Served, tiny},
};
use fulgurite_trace::{SampleSettings, Store, samples::samples};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The events of a stream, which has to end with `[DONE]`.
fn events(body: &str) -> Vec<Value> {
    let data: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let (last, events) = data.split_last().expect("events");
    assert_eq!(*last, "[DONE]", "{body}");
    events.iter().map(|event| parsed(event)).collect()
}

#[test]
fn options_of_the_policy_are_flags_and_unknown_ones_are_told() {
    let project = Project::new();
    let served = Served::start(&project, &["--policy-option", "context_length=256"], &[]);
    let (_, models) = served.request("GET /v1/models", "", None);
    assert_eq!(parsed(&models)["data"][0]["max_model_len"], 256, "{models}");
    let refused = ["serve", "--policy", "empty", "--policy-option", "slots=2"];
    let refused = project.fulgurite(&refused).assert().code(2);
    says(&stderr(refused.get_output()), &["policy_options", "slots"]);
}

#[test]
fn a_completion_has_the_documented_fields_whole_and_streamed() {
    let project = Project::new();
    let served = Served::start(&project, &[], &[]);
    assert_eq!(served.told["model"], "tiny");
    let (status, models) = served.request("GET /v1/models", "", None);
    assert_eq!((status, &parsed(&models)["data"][0]["id"]), (200, &json!("tiny")), "{models}");
    assert_eq!(parsed(&models)["data"][0]["max_model_len"], 1024);
    assert_eq!(served.request("GET /healthz", "", None).0, 200);

    let tokens = json!({ "logprobs": true, "return_token_ids": true });
    let (status, whole) = served.complete(tokens, None);
    assert_eq!(status, 200, "{whole}");
    let whole = parsed(&whole);
    assert_eq!((&whole["object"], &whole["model"]), (&json!("chat.completion"), &json!("tiny")));
    assert!(whole["id"].as_str().unwrap().starts_with("chatcmpl-"), "{whole}");
    assert!(whole["created"].as_u64().unwrap() > 0, "{whole}");
    let choice = &whole["choices"][0];
    assert_eq!((&choice["index"], &choice["message"]["role"]), (&json!(0), &json!("assistant")));
    let written = choice["token_ids"].as_array().unwrap();
    assert!((1..=12).contains(&written.len()), "{whole}");
    let reason = if written.len() == 12 { "length" } else { "stop" };
    assert_eq!(choice["finish_reason"], reason, "{whole}");
    let log_probabilities = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(log_probabilities.len(), written.len());
    assert!(log_probabilities.iter().all(|token| token["logprob"].as_f64().unwrap() <= 0.0));
    let usage = &whole["usage"];
    assert_eq!(usage["prompt_tokens"], whole["prompt_token_ids"].as_array().unwrap().len());
    assert_eq!(usage["completion_tokens"], written.len());
    let sum = usage["prompt_tokens"].as_u64().unwrap() + written.len() as u64;
    assert_eq!(usage["total_tokens"], sum);

    let streamed = json!({
        "logprobs": true, "return_token_ids": true, "stream": true,
        "stream_options": { "include_usage": true },
    });
    let (status, body) = served.complete(streamed, None);
    assert_eq!(status, 200, "{body}");
    let events = events(&body);
    let same = |name: &str| events.iter().all(|event| event[name] == events[0][name]);
    assert!(["id", "created", "model", "object"].into_iter().all(same), "{body}");
    assert_eq!(events[0]["object"], "chat.completion.chunk");
    let deltas = || events.iter().map(|event| &event["choices"][0]["delta"]);
    assert_eq!(deltas().next().unwrap()["role"], "assistant");
    let text: String = deltas().filter_map(|delta| delta["content"].as_str()).collect();
    assert_eq!(text, choice["message"]["content"], "greedy replies are equal");
    let [.., last, usage_alone] = &events[..] else { panic!("{body}") };
    for name in ["token_ids", "finish_reason", "logprobs"] {
        assert_eq!(last["choices"][0][name], choice[name], "{name}");
    }
    assert_eq!(last["prompt_token_ids"], whole["prompt_token_ids"]);
    assert_eq!(usage_alone["choices"], json!([]));
    assert_eq!(usage_alone["usage"]["total_tokens"], sum);
}

#[test]
fn a_model_that_is_not_served_is_refused_with_the_name_of_the_one_that_is() {
    let project = Project::new();
    let served = Served::start(&project, &[], &[]);
    let (status, body) = served.complete(json!({ "model": "gpt-4" }), None);
    let error = parsed(&body)["error"].clone();
    assert_eq!((status, &error["code"]), (404, &json!("model_not_found")), "{body}");
    assert_eq!(error["param"], "model");
    says(error["message"].as_str().unwrap(), &["`gpt-4`", "`tiny`"]);
}

#[test]
fn only_the_key_opens_it_and_an_open_address_needs_one() {
    let project = Project::new();
    let open = ["serve", "--policy", "empty", "--listen", "0.0.0.0:0"];
    let refused = project.fulgurite(&open).assert().code(2);
    says(&stderr(refused.get_output()), &["0.0.0.0:0", "no key is set", "mend: "]);
    let unset = project
        .fulgurite(&open)
        .args(["--api-key-env", "SERVE_KEY"])
        .env_remove("SERVE_KEY")
        .assert()
        .code(2);
    says(&stderr(unset.get_output()), &["SERVE_KEY", "not set"]);

    let everywhere = ["--listen", "0.0.0.0:0", "--api-key-env", "SERVE_KEY"];
    let served = Served::start(&project, &everywhere, &[("SERVE_KEY", "sk-right")]);
    for wrong in [None, Some("sk-wrong"), Some("sk-righ"), Some("")] {
        let (status, body) = served.complete(json!({}), wrong);
        let code = &parsed(&body)["error"]["code"];
        assert_eq!((status, code), (401, &json!("invalid_api_key")), "{wrong:?}");
        assert!(!body.contains("sk-"), "{body}");
    }
    let (status, body) = served.complete(json!({}), Some("sk-right"));
    assert_eq!(status, 200, "{body}");
}

#[test]
fn ctrl_c_ends_it_well() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let project = Project::new();
        let served = Served::start(&project, &[], &[]);
        assert_eq!(served.complete(json!({}), None).0, 200);
        kill(Pid::from_raw(served.id().cast_signed()), signal).unwrap();
        assert_eq!(served.wait(), Some(0), "{signal}");
    }
}

/// The policy, its server, its client and a harness, all the program's own: what is recorded can
/// be trained on, and it is what the model says without a server in between.
#[test]
fn the_solve_harness_learns_token_ids_through_the_servers_client() {
    let project = Project::new();
    let served = Served::start(&project, &[], &[]);
    let config = project.write("fulgurite.toml", "[policy_options]\ntoken_ids = true\n");
    let tasks = project.plain_tasks(3);
    let greedy = ["--temperature", "0", "--max-tokens", "16"];
    let run = run_of("solve", "exact-match", &tasks, served.policy()).with(&greedy);
    let (report, code) = project.run(run);
    assert_eq!((report["scored"].as_u64(), code), (Some(3), 0), "{report}");
    let over_http = recorded(&project);
    assert_eq!(over_http.len(), 3);

    std::fs::remove_file(config).unwrap();
    let (_, code) =
        project.run(run_of("solve", "exact-match", &tasks, tiny(&project)).with(&greedy));
    assert_eq!(code, 0);
    assert_eq!(over_http, recorded(&project));
}

/// Prompt and response of each episode of the last run; each is one row that can be trained on.
fn recorded(project: &Project) -> Vec<(Vec<u32>, Vec<u32>)> {
    let store = Store::open_read_only(project.path(".fulgurite/traces.sqlite")).unwrap();
    let run = store.runs().unwrap().pop().unwrap().record.id;
    let episodes = store.episodes(&run).unwrap();
    let rows = episodes.iter().map(|episode| {
        let entries = store.entries(&run, episode.episode).unwrap();
        let built = samples(episode.episode, &entries, &SampleSettings::default());
        assert_eq!(built.skipped.turns_without_tokens, 0, "{built:?}");
        let [row] = &built.samples[..] else { panic!("not one row: {built:?}") };
        row.check().unwrap();
        assert!((1..=16).contains(&row.trained()), "{row:?}");
        assert_eq!(row.log_probabilities.as_ref().map(Vec::len), Some(row.trained()), "{row:?}");
        (row.prompt.clone(), row.response.clone())
    });
    rows.collect()
}
