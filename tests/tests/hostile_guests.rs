//! Hostile guests: each ends in a failure kind of its own, and the next episode runs. Components
//! that no compiler makes are in `hostile_modules.rs`, many of a kind in one process in `flat.rs`.

use std::ffi::OsStr;

use fulgurite_tests::{
    Episode, Project, component, run_of,
    said::{says, stderr, stdout},
};
use serde_json::{Value, json};

/// Runs the deed, then a harmless episode in the same project.
#[track_caller]
fn ends(config: &Value, limits: &[&str], kind: &str) -> Episode {
    let harmless = json!({ "do": "turn" });
    let [episode, _] = fulgurite_tests::ends(Project::probe, config, &harmless, limits, kind);
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

/// Far more work for the host than for the guest: its fuel has to see it.
#[test]
fn reading_without_end_ends_out_of_fuel_and_not_in_time() {
    let began = std::time::Instant::now();
    ends(&json!({ "do": "read-again" }), &["fuel=2G"], "out-of-fuel");
    assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
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
    assert!(!episode.records("truncated").is_empty());
}

#[test]
fn a_million_open_handles_meet_the_quota() {
    let episode = ends(&json!({ "do": "open-files", "count": 1_000_000 }), &[], "completed");
    let opened: u64 = number(episode.answer());
    assert!(opened < 10_000, "{}", episode.answer());
}

#[test]
fn no_path_and_no_link_leads_out_of_the_tree() {
    for deed in ["escape", "links"] {
        let episode = ends(&json!({ "do": deed }), &[], "completed");
        assert_eq!(episode.answer(), "[]", "{deed}");
    }
}

#[test]
fn filling_the_workspace_meets_the_quota_of_bytes() {
    let episode = ends(&json!({ "do": "fill" }), &["workspace-bytes=8M"], "completed");
    let written: u64 = number(episode.answer());
    assert!(written <= 8 << 20 && written > 7 << 20, "{}", episode.answer());
}

#[test]
fn a_million_files_meet_the_quota_of_files() {
    let config = json!({ "do": "many-files", "count": 1_000_000 });
    let episode = ends(&config, &["workspace-files=5000"], "completed");
    assert!(number(episode.answer()) <= 5000, "{}", episode.answer());
}

#[test]
fn the_environment_is_empty() {
    let episode = ends(&json!({ "do": "environment" }), &[], "completed");
    assert!(!episode.answer().contains("PATH"), "{}", episode.answer());
    assert!(!episode.answer().contains("HOME"), "{}", episode.answer());
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
    assert_ne!(episode.kind(), "completed", "{episode:#?}");
}

#[test]
fn a_huge_answer_is_cut_or_refused_and_not_kept() {
    let project = Project::new();
    let config = json!({ "do": "huge-answer", "size": 200 << 20 });
    let (episode, _) = project.probe(&config, &["--limit", "memory=1G"]);
    let length: usize = episode.lines.iter().map(|line| line.to_string().len()).sum();
    assert!(length < 8 << 20, "{} and {length} bytes were recorded", episode.kind());
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
    let results: Vec<Value> = serde_json::from_str(episode.answer()).unwrap();
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
    assert!(episode.answer().contains("budget"), "{}", episode.answer());
}

#[test]
fn a_score_from_a_harness_is_only_a_note() {
    let episode = ends(&json!({ "do": "score" }), &[], "completed");
    let scores = episode.records("score");
    assert_eq!(scores.len(), 1);
    assert_eq!(scores[0]["reward"], "exact-match");
    assert_eq!(scores[0]["total"], 0.0);
}

#[test]
fn a_harness_that_brings_its_own_scorer_is_not_scored_by_it() {
    let project = Project::new();
    let tasks = project.plain_tasks(1);
    let run = run_of(component("both"), component("exact-match"), tasks, "empty");
    let (report, code) = project.run(run);
    assert_eq!((report["mean_reward"].as_f64(), code), (Some(0.0), 0), "{report}");
}

#[test]
fn hostile_text_is_shown_escaped() {
    let project = Project::new();
    project.probe(&json!({ "do": "odd-answer" }), &[]);
    let output = project.fulgurite(&["trace", "show", "last", "0"]).assert().success();
    let text = stdout(output.get_output());
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
    says(&stderr(output.get_output()), &["evil:thing/x"]);
    let shown = project.fulgurite(&["inspect"]).arg(&evil).assert().code(3);
    says(&stdout(shown.get_output()), &["REFUSED"]);
}

#[test]
fn sockets_are_stubs_that_deny_and_tell() {
    let project = Project::new();
    let tasks = project.plain_tasks(1);
    let harness = component("sockets");
    project.run([
        "--policy",
        "empty",
        "--tasks",
        tasks.to_str().unwrap(),
        "--harness",
        harness.to_str().unwrap(),
    ]);
    let episode = project.episode("last", "0");
    assert!(!episode.records("denied").is_empty(), "{episode:#?}");
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
        let (report, code) = project.run([OsStr::new("--config"), config.as_os_str()]);
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
