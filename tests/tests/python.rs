//! Plugins in Python: from an empty folder to scored episodes, and the promises that hold for
//! guests in any language.

use fulgurite_tests::{Episode, Project, component};
use serde_json::{Value, json};

fn ending(episode: &Episode) -> &Value {
    let found = episode.lines.iter().find(|line| line["record"] == "ending");
    found.unwrap_or_else(|| panic!("no ending: {episode:#?}"))
}

fn answer(episode: &Episode) -> &str {
    episode.at("/answer").and_then(Value::as_str).unwrap_or_default()
}

/// Runs the probe, which does a deed, and gives what was recorded of its first episode.
fn probe(project: &Project, deed: &str, more: &[&str]) -> (Episode, i32) {
    let tasks = project.tasks(&[json!({
        "id": "t", "input": "say 1", "grading": { "answer": "1" },
        "workspace": { "files": { "a.txt": "a\n" } },
    })]);
    let script = project.write("script.jsonl", json!({ "text": "1" }).to_string());
    let policy = format!("script:{}", script.display());
    let (harness, reward) = (component("python-probe"), component("exact-match"));
    let config = json!({ "do": deed }).to_string();
    let mut arguments = vec![
        "--harness",
        harness.to_str().unwrap(),
        "--harness-config",
        &config,
        "--reward",
        reward.to_str().unwrap(),
        "--tasks",
        tasks.to_str().unwrap(),
        "--policy",
        &policy,
    ];
    arguments.extend(more);
    let (_, code) = project.run(&arguments);
    (project.episode("last", "0"), code)
}

/// Does a deed, then a harmless one in the same project.
fn ends(deed: &str, limits: &[&str], expected: &str) -> Episode {
    let project = Project::new();
    let more: Vec<&str> = limits.iter().flat_map(|limit| ["--limit", limit]).collect();
    let (episode, _) = probe(&project, deed, &more);
    assert_eq!(ending(&episode)["kind"], expected, "{deed}: {episode:#?}");
    let (after, code) = probe(&project, "turn", &[]);
    assert_eq!((&ending(&after)["kind"], code), (&json!("completed"), 0), "{after:#?}");
    assert_eq!(after.at("/total"), Some(&json!(1.0)));
    episode
}

#[test]
fn a_new_harness_and_a_new_reward_in_python_build_inspect_and_run() {
    let project = Project::new();
    for (kind, name) in [("harness", "my-agent"), ("reward", "my-reward")] {
        project.fulgurite(&["new", kind, name, "--lang", "python"]).assert().success();
        project.fulgurite(&["build", name]).assert().success();
    }
    let shown = project.fulgurite(&["inspect", "my-agent/my-agent.wasm"]).assert().success();
    let text = String::from_utf8_lossy(&shown.get_output().stdout).into_owned();
    for part in ["harness", "granted", "stubbed", "wasi:sockets/tcp", "Replies before it gives up"]
    {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    let mut exports = Vec::new();
    for concurrency in ["1", "8"] {
        let (report, code) = project.run(&[
            "--harness",
            "my-agent/my-agent.wasm",
            "--reward",
            "my-reward/my-reward.wasm",
            "--tasks",
            "my-agent/tasks.jsonl",
            "--policy",
            "oracle",
            "-n",
            "4",
            "--concurrency",
            concurrency,
        ]);
        assert_eq!(code, 0, "{report}");
        assert_eq!(report["scored"], 8, "{report}");
        assert_eq!(report["mean_reward"], 1.0, "{report}");
        exports.push(project.export());
    }
    assert_eq!(exports[0], exports[1]);
}

#[test]
fn what_a_build_needs_is_said() {
    let project = Project::new();
    project.write("a/pyproject.toml", "[project]\nname = \"a\"\n");
    let refused = project.fulgurite(&["build", "a"]).assert().failure();
    let text = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
    assert!(text.contains("[tool.fulgurite]"), "{text}");
    project.write(
        "b/pyproject.toml",
        "[project]\nname = \"b\"\n[tool.fulgurite]\nkind = \"reward\"\nmodule = \"none\"\n",
    );
    let refused = project.fulgurite(&["build", "b"]).assert().failure();
    let text = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
    assert!(text.contains("No module named 'none'"), "{text}");
}

#[test]
fn conversations_commands_files_and_notes_work() {
    let project = Project::new();
    let (episode, code) = probe(&project, "parallel", &[]);
    assert_eq!((answer(&episode), code), ("1 1", 0), "{episode:#?}");
    let (episode, code) = probe(&project, "capabilities", &["--limit", "turns=7"]);
    assert_eq!((answer(&episode), code), ("by python 7 True", 0), "{episode:#?}");
    assert_eq!(episode.at("/changes/0/path"), Some(&json!("made.txt")));
    assert_eq!(episode.with("seen"), 1, "{episode:#?}");
    let (episode, _) = probe(&project, "printing", &[]);
    assert!(episode.with("said on the way out") > 0, "{episode:#?}");
}

#[test]
fn an_exception_is_an_error_of_the_harness_with_its_traceback() {
    let project = Project::new();
    let (episode, _) = probe(&project, "failing", &[]);
    assert_eq!(ending(&episode)["kind"], "harness-error");
    let message = ending(&episode)["message"].as_str().unwrap();
    assert!(message.contains("ValueError") && message.contains("in failing"), "{message}");
    let shown = project.fulgurite(&["trace", "show", "last", "0"]).assert().success();
    assert!(!shown.get_output().stdout.contains(&0x1b), "hostile text is escaped");
}

#[test]
fn limits_hold() {
    ends("loop", &["fuel=500M"], "out-of-fuel");
    ends("memory", &["memory=96M"], "out-of-memory");
    let episode = ends("recursion", &[], "harness-error");
    assert!(episode.with("RecursionError") > 0, "{episode:#?}");
    ends("native_recursion", &[], "trap");
}

#[test]
fn the_network_is_denied_and_nothing_of_the_host_shows() {
    let episode = ends("network", &[], "denied");
    assert!(episode.with("wasi:sockets/") > 0, "{episode:#?}");
    let episode = ends("escape", &[], "completed");
    assert_eq!(answer(&episode), "([], {}, [])");
}

#[test]
fn chance_and_time_come_from_the_seed_of_the_episode() {
    let project = Project::new();
    let both = |project: &Project| {
        probe(project, "chance", &["-n", "2", "--seed", "5"]);
        let answer_of = |episode: &str| answer(&project.episode("last", episode)).to_owned();
        (answer_of("0.0"), answer_of("0.1"))
    };
    let first = both(&project);
    assert_ne!(first.0, first.1, "samples of a group differ");
    assert_eq!(first, both(&project), "the same seed gives the same run");
}
