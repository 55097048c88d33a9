//! Plugins in Python: from an empty folder to scored episodes, and the promises that hold for
//! guests in any language.

use fulgurite_tests::{
    Episode, Project,
    author::{new_plugins, run_new_plugins},
    component, run_of,
    said::{says, stderr, stdout},
};
use serde_json::json;

/// Runs the probe, which does a deed, and gives what was recorded of its first episode.
fn probe(project: &Project, deed: &str, more: &[&str]) -> (Episode, i32) {
    let tasks = project.tasks(&[json!({
        "id": "t", "input": "say 1", "grading": { "answer": "1" },
        "workspace": { "files": { "a.txt": "a\n" } },
    })]);
    let policy = project.script(json!({ "text": "1" }).to_string());
    let config = json!({ "do": deed }).to_string();
    let run = run_of(component("python-probe"), component("exact-match"), tasks, policy);
    let (_, code) = project.run(run.with(&["--harness-config", &config]).with(more));
    (project.episode("last", "0"), code)
}

/// Does a deed, then a harmless one in the same project.
#[track_caller]
fn ends(deed: &str, limits: &[&str], kind: &str) -> Episode {
    let [episode, after] = fulgurite_tests::ends(probe, deed, "turn", limits, kind);
    assert_eq!(after.at("/total"), Some(&json!(1.0)));
    episode
}

#[test]
fn a_new_harness_and_a_new_reward_in_python_build_inspect_and_run() {
    let project = Project::new();
    new_plugins(&project, "python");
    let shown = project.fulgurite(&["inspect", "my-agent/my-agent.wasm"]).assert().success();
    let words = ["harness", "granted", "stubbed", "wasi:sockets/tcp", "Replies before it gives up"];
    says(&stdout(shown.get_output()), &words);
    let report = run_new_plugins(&project, 4);
    assert_eq!(report["scored"], 8, "{report}");
}

#[test]
fn what_a_build_needs_is_said() {
    let project = Project::new();
    project.write("a/pyproject.toml", "[project]\nname = \"a\"\n");
    let refused = project.fulgurite(&["build", "a"]).assert().failure();
    says(&stderr(refused.get_output()), &["[tool.fulgurite]"]);
    project.write(
        "b/pyproject.toml",
        "[project]\nname = \"b\"\n[tool.fulgurite]\nkind = \"reward\"\nmodule = \"none\"\n",
    );
    let refused = project.fulgurite(&["build", "b"]).assert().failure();
    says(&stderr(refused.get_output()), &["No module named 'none'"]);
}

#[test]
fn conversations_commands_files_and_notes_work() {
    let project = Project::new();
    let (episode, code) = probe(&project, "parallel", &[]);
    assert_eq!((episode.answer(), code), ("1 1", 0), "{episode:#?}");
    let (episode, code) = probe(&project, "capabilities", &["--limit", "turns=7"]);
    assert_eq!((episode.answer(), code), ("by python 7 True", 0), "{episode:#?}");
    assert_eq!(episode.at("/changes/0/path"), Some(&json!("made.txt")));
    assert_eq!(episode.with("seen"), 1, "{episode:#?}");
    let (episode, _) = probe(&project, "printing", &[]);
    assert!(episode.with("said on the way out") > 0, "{episode:#?}");
}

#[test]
fn an_exception_is_an_error_of_the_harness_with_its_traceback() {
    let project = Project::new();
    let (episode, _) = probe(&project, "failing", &[]);
    assert_eq!(episode.kind(), "harness-error");
    says(episode.ending()["message"].as_str().unwrap(), &["ValueError", "in failing"]);
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
    assert_eq!(episode.answer(), "([], {}, [])");
}

#[test]
fn chance_and_time_come_from_the_seed_of_the_episode() {
    let project = Project::new();
    let both = |project: &Project| {
        probe(project, "chance", &["-n", "2", "--seed", "5"]);
        let answer_of = |episode: &str| project.episode("last", episode).answer().to_owned();
        (answer_of("0.0"), answer_of("0.1"))
    };
    let first = both(&project);
    assert_ne!(first.0, first.1, "samples of a group differ");
    assert_eq!(first, both(&project), "the same seed gives the same run");
}
