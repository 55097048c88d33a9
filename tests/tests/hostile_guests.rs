//! Hostile guests: each ends in a failure kind of its own, and the next episode runs. Components
//! that no compiler makes are in `hostile_modules.rs`, many of a kind in one process in `flat.rs`.

use fulgurite_tests::{Episode, Project, component};
use serde_json::{Value, json};

fn kind(episode: &Episode) -> &str {
    let ending = episode.lines.iter().find(|line| line["record"] == "ending");
    ending.and_then(|line| line["kind"].as_str()).unwrap_or("none")
}

fn answer(episode: &Episode) -> &str {
    episode.at("/answer").and_then(Value::as_str).unwrap_or_default()
}

/// Runs the deed, then a harmless episode in the same project.
fn ends(config: &Value, limits: &[&str], expected: &str) -> Episode {
    let project = Project::new();
    let more: Vec<&str> = limits.iter().flat_map(|limit| ["--limit", limit]).collect();
    let (episode, _) = project.probe(config, &more);
    assert_eq!(kind(&episode), expected, "{config}: {episode:#?}");
    let (after, code) = project.probe(&json!({ "do": "turn" }), &[]);
    assert_eq!((kind(&after), code), ("completed", 0));
    episode
}

#[test]
fn an_endless_loop_ends_out_of_fuel() {
    let episode = ends(&json!({ "do": "loop" }), &["fuel=100M"], "out-of-fuel");
    assert_eq!(episode.at("/total"), Some(&json!(0.0)), "graded, with the floor at most");
}

#[test]
fn an_endless_loop_inside_a_host_call_ends_out_of_fuel() {
    ends(&json!({ "do": "loop-in-host" }), &["fuel=100M"], "out-of-fuel");
}

#[test]
fn memory_without_end_ends_out_of_memory() {
    ends(&json!({ "do": "grow-memory" }), &["memory=32M"], "out-of-memory");
}

#[test]
fn deep_recursion_ends_in_a_trap_with_function_names() {
    let episode = ends(&json!({ "do": "recurse" }), &[], "trap");
    assert!(episode.with("recurse") > 0, "{episode:#?}");
}

#[test]
fn a_gigabyte_of_output_is_cut_and_not_a_failure() {
    let config = json!({ "do": "stdout", "size": 1 << 30 });
    let episode = ends(&config, &["fuel=1000G"], "completed");
    let length: usize = episode.lines.iter().map(|line| line.to_string().len()).sum();
    assert!(length < 1 << 20, "{length} bytes were recorded");
}

#[test]
fn a_million_events_are_counted_and_not_kept() {
    let config = json!({ "do": "events", "count": 1_000_000, "size": 10 });
    let episode = ends(&config, &["fuel=1000G"], "completed");
    assert!(episode.lines.len() < 20_000);
    assert!(episode.lines.iter().any(|line| line["record"] == "truncated"));
}

#[test]
fn a_million_open_handles_meet_the_quota() {
    let episode = ends(&json!({ "do": "open-files", "count": 1_000_000 }), &[], "completed");
    let opened: u64 = number(answer(&episode));
    assert!(opened < 10_000, "{}", answer(&episode));
}

#[test]
fn no_path_and_no_link_leads_out_of_the_tree() {
    for deed in ["escape", "links"] {
        let episode = ends(&json!({ "do": deed }), &[], "completed");
        assert_eq!(answer(&episode), "[]", "{deed}");
    }
}

#[test]
fn filling_the_workspace_meets_the_quota_of_bytes() {
    let episode = ends(&json!({ "do": "fill" }), &["workspace-bytes=8M"], "completed");
    let written: u64 = number(answer(&episode));
    assert!(written <= 8 << 20 && written > 7 << 20, "{}", answer(&episode));
}

#[test]
fn a_million_files_meet_the_quota_of_files() {
    let config = json!({ "do": "many-files", "count": 1_000_000 });
    let episode = ends(&config, &["workspace-files=5000"], "completed");
    assert!(number(answer(&episode)) <= 5000, "{}", answer(&episode));
}

#[test]
fn the_environment_is_empty() {
    let episode = ends(&json!({ "do": "environment" }), &[], "completed");
    assert!(!answer(&episode).contains("PATH"), "{}", answer(&episode));
    assert!(!answer(&episode).contains("HOME"), "{}", answer(&episode));
}

#[test]
fn sleeping_takes_no_time_and_has_a_limit() {
    ends(&json!({ "do": "sleep", "size": 3_000_000, "count": 1 }), &[], "completed");
    ends(&json!({ "do": "sleep-forever" }), &["time=10h"], "timeout");
}

#[test]
fn strings_that_are_none_end_in_a_trap() {
    ends(&json!({ "do": "bad-utf8" }), &[], "trap");
    ends(&json!({ "do": "bad-pointer" }), &[], "trap");
}

#[test]
fn a_huge_message_meets_a_limit_or_is_refused() {
    let project = Project::new();
    let (episode, _) = project.probe(&json!({ "do": "huge-message", "size": 1 << 30 }), &[]);
    assert_ne!(kind(&episode), "completed", "{episode:#?}");
}

#[test]
fn a_huge_answer_is_cut_or_refused_and_not_kept() {
    let project = Project::new();
    let config = json!({ "do": "huge-answer", "size": 200 << 20 });
    let (episode, _) = project.probe(&config, &["--limit", "memory=1G"]);
    let length: usize = episode.lines.iter().map(|line| line.to_string().len()).sum();
    assert!(length < 8 << 20, "{} and {length} bytes were recorded", kind(&episode));
}

#[test]
fn catastrophic_expressions_and_floods_in_commands_cost_little_and_are_results() {
    let began = std::time::Instant::now();
    let config = json!({ "do": "exec", "lines": [
        "printf '%05000d' 0 | sed 's/0/a/g' > long; wc -c < long",
        "grep -E '(a*)*b' long; grep -E '(a+)+$x' long; grep '\\(a*\\)*b' long",
        "grep -E '((a{1,40}){1,40}){1,40}b' long",
        "sed -E 's/(a|aa)+!//' long | wc -c",
        "seq 30000000 | wc -l",
    ] });
    let episode = ends(&config, &["command-fuel=2G"], "completed");
    let results: Vec<Value> = serde_json::from_str(answer(&episode)).unwrap();
    assert_eq!(results.len(), 5);
    assert_eq!(results[1]["status"], 1, "no match, and an answer: {}", results[1]);
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}

#[test]
fn a_panic_and_an_exit_are_told_apart() {
    ends(&json!({ "do": "panic" }), &[], "trap");
    ends(&json!({ "do": "exit" }), &[], "harness-error");
}

#[test]
fn budgets_end_the_episodes_that_cannot_stop() {
    let config = json!({ "do": "error-after" });
    ends(&config, &[], "harness-error");
    let episode = ends(&json!({ "do": "until-error" }), &["turns=5"], "completed");
    assert!(answer(&episode).contains("budget"), "{}", answer(&episode));
}

#[test]
fn a_score_from_a_harness_is_only_a_note() {
    let episode = ends(&json!({ "do": "score" }), &[], "completed");
    let scores: Vec<_> = episode.lines.iter().filter(|line| line["record"] == "score").collect();
    assert_eq!(scores.len(), 1);
    assert_eq!(scores[0]["reward"], "exact-match");
    assert_eq!(scores[0]["total"], 0.0);
}

#[test]
fn a_harness_that_brings_its_own_scorer_is_not_scored_by_it() {
    let project = Project::new();
    let tasks = project.plain_tasks(1);
    let (both, reward) = (component("both"), component("exact-match"));
    let (report, code) = project.run(&[
        "--harness",
        both.to_str().unwrap(),
        "--reward",
        reward.to_str().unwrap(),
        "--tasks",
        tasks.to_str().unwrap(),
        "--policy",
        "empty",
    ]);
    assert_eq!((report["mean_reward"].as_f64(), code), (Some(0.0), 0), "{report}");
}

#[test]
fn hostile_text_is_shown_escaped() {
    let project = Project::new();
    project.probe(&json!({ "do": "odd-answer" }), &[]);
    let output = project.fulgurite(&["trace", "show", "last", "0"]).assert().success();
    let text = String::from_utf8_lossy(&output.get_output().stdout).into_owned();
    for hostile in ['\u{1b}', '\u{202e}', '\u{0}', '\u{9b}'] {
        assert!(!text.contains(hostile), "{hostile:?} got through: {text:?}");
    }
}

#[test]
fn ungranted_imports_are_refused_before_anything_runs() {
    let project = Project::new();
    let tasks = project.plain_tasks(1);
    let evil = component("evil-import");
    let output = project
        .fulgurite(&["run", "--policy", "empty", "--tasks"])
        .arg(tasks)
        .arg("--harness")
        .arg(&evil)
        .assert()
        .code(3);
    let error = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(error.contains("evil:thing/x"), "{error}");
    let shown = project.fulgurite(&["inspect"]).arg(&evil).assert().code(3);
    let text = String::from_utf8_lossy(&shown.get_output().stdout).into_owned();
    assert!(text.contains("REFUSED"), "{text}");
}

#[test]
fn sockets_are_stubs_that_deny_and_tell() {
    let project = Project::new();
    let tasks = project.plain_tasks(1);
    let harness = component("sockets");
    project.run(&[
        "--policy",
        "empty",
        "--tasks",
        tasks.to_str().unwrap(),
        "--harness",
        harness.to_str().unwrap(),
    ]);
    let episode = project.episode("last", "0");
    assert!(episode.lines.iter().any(|line| line["record"] == "denied"), "{episode:#?}");
}

#[test]
fn rewards_that_misbehave_are_alarms_and_never_zeros() {
    for deed in ["nan", "infinite", "error", "panic", "loop", "grow-memory", "bad-turns"] {
        let project = Project::new();
        let tasks = project.plain_tasks(1);
        let config = project.write(
            "fulgurite.toml",
            format!(
                "harness = {:?}\ntasks = {tasks:?}\npolicy = 'empty'\n[[rewards]]\nplugin = {:?}\n\
                 config = {{ do = '{deed}' }}\n[limits]\nreward_fuel = '1G'\n",
                component("probe"),
                component("probe-reward"),
            ),
        );
        let (report, code) = project.run(&["--config", config.to_str().unwrap()]);
        assert_eq!((report["alarms"].as_u64(), code), (Some(1), 5), "{deed}: {report}");
        assert_eq!(report["mean_reward"], Value::Null, "{deed}");
    }
}

/// The first number of an answer.
fn number(text: &str) -> u64 {
    let digits: String = text
        .chars()
        .skip_while(|letter| !letter.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().unwrap_or_else(|_| panic!("no number in {text:?}"))
}
