//! Whole runs with the shipped plugins: oracle, empty policy, determinism, traces.

use fulgurite_tests::{
    Project, component, run_of,
    said::{says, stdout},
    served::tiny,
};
use serde_json::json;

#[test]
fn the_oracle_solves_human_eval_with_both_harnesses_and_the_empty_policy_nothing() {
    let project = Project::new();
    let tasks = project.human_eval(4);
    for harness in ["coder", "solve"] {
        let (report, code) = project.run(run_of(harness, "tests-pass", &tasks, "oracle"));
        assert_eq!(code, 0);
        assert_eq!(report["mean_reward"], 1.0, "{harness}: {report}");
        assert_eq!(report["pass_at_1"]["value"], 1.0);
    }
    let (report, code) = project.run(run_of("solve", "tests-pass", &tasks, "empty"));
    assert_eq!((report["mean_reward"].as_f64(), code), (Some(0.0), 0), "{report}");
}

#[test]
fn the_same_run_gives_the_same_trace_at_any_concurrency() {
    let project = Project::new();
    let tasks = project.human_eval(3);
    for harness in ["coder", "solve"] {
        let mut exports = Vec::new();
        for concurrency in ["1", "64", "64"] {
            let (_, code) = project.run(run_of(harness, "tests-pass", &tasks, "oracle").with(&[
                "--reward",
                "length-penalty:0.1",
                "-n",
                "2",
                "--concurrency",
                concurrency,
            ]));
            assert_eq!(code, 0);
            exports.push(project.export());
        }
        assert!(exports[0].lines().count() > 20);
        assert!(exports[0] == exports[1], "{harness}: concurrency shows");
        assert!(exports[1] == exports[2], "{harness}: two runs differ");
    }
}

/// Everything in which two runs could differ at once: sub-agents whose replies come in any order,
/// clocks, random numbers, hash maps, folders, failures of every kind.
#[test]
fn runs_of_deeds_that_invite_differences_are_equal_too() {
    let project = Project::new();
    let deeds = [
        json!({ "do": "parallel", "count": 6 }),
        json!({ "do": "branch" }),
        json!({ "do": "restart", "text": "again" }),
        json!({ "do": "clock" }),
        json!({ "do": "random" }),
        json!({ "do": "sleep", "size": 700, "count": 3 }),
        json!({ "do": "names" }),
        json!({ "do": "loop" }),
        json!({ "do": "grow-memory" }),
        json!({ "do": "panic" }),
        json!({ "do": "many-files", "count": 1_000_000 }),
        json!({ "do": "exec", "lines": ["python -c 'import random, time; print(random.random(), \
            time.time(), hash(\"a\"), list({\"x\", \"y\", \"z\"}))'", "ls -la; find . | head"] }),
    ];
    let tasks: Vec<_> = deeds
        .iter()
        .map(|deed| {
            json!({ "id": deed["do"], "input": deed.to_string(), "grading": { "answer": "1" } })
        })
        .collect();
    let tasks = project.tasks(&tasks);
    let policy = project.script(
        "{\"text\":\"1\"}\n{\"conversation\":2,\"text\":\"late\",\"delay_ms\":40}\n\
         {\"conversation\":4,\"text\":\"later\",\"delay_ms\":80}\n",
    );
    let mut exports = Vec::new();
    for concurrency in ["1", "64", "64"] {
        let (report, _) =
            project.run(run_of(component("probe"), "exact-match", &tasks, &policy).with(&[
                "--harness-config",
                r#"{"do":"input"}"#,
                "-n",
                "3",
                "--concurrency",
                concurrency,
                "--limit",
                "fuel=300M",
                "--limit",
                "memory=32M",
            ]));
        assert_eq!(report["episodes"], 36, "{report}");
        exports.push(project.export());
    }
    for (first, second) in exports[0].lines().zip(exports[1].lines()) {
        assert_eq!(first, second, "concurrency shows");
    }
    assert!(exports[0] == exports[1] && exports[1] == exports[2]);
}

/// Replies of a model, sampled while others are written and continued turn after turn.
#[test]
fn a_models_run_in_its_batch_invariant_mode_gives_the_same_trace_at_any_concurrency() {
    let project = Project::new();
    project.write("fulgurite.toml", "[policy_options]\nbatch_invariant = true\n");
    let tasks = project.plain_tasks(4);
    let deed = json!({ "do": "turns", "count": 3, "text": "go on" }).to_string();
    let exports = ["1", "16"].map(|concurrency| {
        let more = ["--harness-config", &deed, "-n", "4", "--max-tokens", "24"];
        let run = run_of(component("probe"), "exact-match", &tasks, tiny(&project));
        let run = run.with(&more).with(&["--concurrency", concurrency]);
        let (report, code) = project.run(run);
        assert_eq!((report["scored"].as_u64(), code), (Some(16), 0), "{report}");
        project.export()
    });
    assert!(exports[0] == exports[1], "concurrency shows");
    let responses: std::collections::BTreeSet<String> = exports[0]
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|line| line["record"] == "turn")
        .map(|turn| turn["tokens"]["response"].to_string())
        .collect();
    assert!(responses.len() > 40, "48 samples of noise differ: {}", responses.len());
}

#[test]
fn a_trace_tells_what_happened_in_words_and_in_json() {
    let project = Project::new();
    let tasks = project.human_eval(1);
    project.run(run_of("coder", "tests-pass", &tasks, "oracle"));
    let shown = project.fulgurite(&["trace", "show", "last", "0"]).assert().success();
    let words = ["HumanEval/0", "solution.py", "submit", "tests-pass", "completed"];
    says(&stdout(shown.get_output()), &words);
    let episode = project.episode("last", "0");
    assert_eq!(episode.records("turn").len(), 3);
    assert_eq!(episode.records("command").len(), 1);
    assert_eq!(episode.at("/changes/0/path"), Some(&json!("solution.py")));
    project.fulgurite(&["trace", "list"]).assert().success();
    project.fulgurite(&["trace", "list", "last"]).assert().success();
}

#[test]
fn what_graders_see_never_reaches_the_harness() {
    let project = Project::new();
    let secret = "the-hidden-word";
    let tasks = project.tasks(&[json!({
        "id": "t", "input": "look around", "grading": { "answer": secret },
        "workspace": { "files": { "a.txt": "visible" } },
    })]);
    let text = "```bash\nls -la . /workspace; cat *; env\n```";
    let policy = project.script(json!({ "text": text }).to_string());
    project.run(run_of("coder", "exact-match", &tasks, &policy).with(&["--limit", "turns=3"]));
    let episode = project.episode("last", "0");
    assert!(episode.with("visible") > 0, "{episode:#?}");
    assert_eq!(episode.with(secret), 0, "{episode:#?}");
}

#[test]
fn a_group_has_as_many_episodes_as_asked_for() {
    let project = Project::new();
    let tasks = project.plain_tasks(3);
    let (report, _) =
        project.run(run_of("solve", "exact-match", &tasks, "oracle").with(&["-n", "4"]));
    assert_eq!(report["episodes"], 12);
    assert_eq!(report["mean_reward"], 1.0);
}
