//! `fulgurite compare`: two recorded runs side by side.

use fulgurite_tests::Project;
use serde_json::{Value, json};

/// Three tasks of which the script answers some; `exact-match` scores.
fn run(project: &Project, name: &str, answers: &[&str]) -> String {
    let task = |index: usize| {
        json!({ "id": format!("task-{index}"), "input": "say", "grading": { "answer": "yes" },
                "references": { "solve": [answers[index]] } })
    };
    let rows: Vec<Value> = (0..answers.len()).map(task).collect();
    let text: Vec<String> = rows.iter().map(Value::to_string).collect();
    let tasks = project.write(&format!("{name}.jsonl"), text.join("\n"));
    let (report, code) = project.run(&[
        "--harness",
        "solve",
        "--reward",
        "exact-match",
        "--tasks",
        tasks.to_str().unwrap(),
        "--policy",
        "oracle",
    ]);
    assert_eq!(code, 0, "{report}");
    report["run"].as_str().unwrap().to_owned()
}

#[test]
fn two_runs_are_compared_task_by_task() {
    let project = Project::new();
    let before = run(&project, "before", &["no", "no", "yes"]);
    let after = run(&project, "after", &["yes", "no", "yes"]);
    let done = project.fulgurite(&["compare", &before, &after, "--json"]).assert().success();
    let compared: Value = serde_json::from_slice(&done.get_output().stdout).unwrap();
    assert_eq!(compared["tasks"], 3, "{compared}");
    let pass = &compared["pass_at"][0];
    assert_eq!(pass["k"], 1);
    assert!((pass["before"].as_f64().unwrap() - 1.0 / 3.0).abs() < 1e-9, "{compared}");
    assert!((pass["after"].as_f64().unwrap() - 2.0 / 3.0).abs() < 1e-9, "{compared}");
    assert!(pass["interval"]["low"].as_f64().unwrap() <= pass["difference"].as_f64().unwrap());
    assert_eq!(compared["flips"][0]["task_id"], "task-0");
    assert_eq!(compared["flips"][0]["passes_now"], true);

    let shown = project.fulgurite(&["compare", &before, "last"]).assert().success();
    let text = String::from_utf8_lossy(&shown.get_output().stdout).into_owned();
    for part in ["pass@1", "95 % interval", "passes now", "trace show"] {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
}

#[test]
fn runs_without_a_common_task_are_refused_with_the_mend() {
    let project = Project::new();
    let run = run(&project, "one", &["yes"]);
    project.tasks(&[json!({ "id": "other", "input": "say", "grading": { "answer": "yes" },
                            "references": { "solve": ["yes"] } })]);
    let (_, code) = project.run(&[
        "--harness",
        "solve",
        "--reward",
        "exact-match",
        "--tasks",
        "tasks.jsonl",
        "--policy",
        "oracle",
    ]);
    assert_eq!(code, 0);
    let refused = project.fulgurite(&["compare", &run, "last"]).assert().code(2);
    let text = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
    assert!(text.contains("no scored task in common") && text.contains("mend:"), "{text}");
}
