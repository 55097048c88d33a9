//! `fulgurite compare`: two recorded runs side by side.

use fulgurite_tests::{
    Project, run_of,
    said::{says, stderr, stdout},
};
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
    let (report, code) = project.run(run_of("solve", "exact-match", &tasks, "oracle"));
    assert_eq!(code, 0, "{report}");
    report["run"].as_str().unwrap().to_owned()
}

#[test]
fn two_runs_are_compared_task_by_task() {
    let project = Project::new();
    let before = run(&project, "before", &["no", "no", "yes"]);
    let after = run(&project, "after", &["yes", "no", "yes"]);
    let compared = project.json(&["compare", &before, &after], 0);
    assert_eq!(compared["tasks"], 3, "{compared}");
    let pass = &compared["pass_at"][0];
    assert_eq!(pass["k"], 1);
    assert!((pass["before"].as_f64().unwrap() - 1.0 / 3.0).abs() < 1e-9, "{compared}");
    assert!((pass["after"].as_f64().unwrap() - 2.0 / 3.0).abs() < 1e-9, "{compared}");
    assert!(pass["interval"]["low"].as_f64().unwrap() <= pass["difference"].as_f64().unwrap());
    assert_eq!(compared["flips"][0]["task_id"], "task-0");
    assert_eq!(compared["flips"][0]["passes_now"], true);

    let shown = project.fulgurite(&["compare", &before, "last"]).assert().success();
    let words = ["pass@1", "95 % interval", "passes now", "trace show"];
    says(&stdout(shown.get_output()), &words);
}

#[test]
fn runs_without_a_common_task_are_refused_with_the_mend() {
    let project = Project::new();
    let run = run(&project, "one", &["yes"]);
    project.tasks(&[json!({ "id": "other", "input": "say", "grading": { "answer": "yes" },
                            "references": { "solve": ["yes"] } })]);
    let (_, code) = project.run(run_of("solve", "exact-match", "tasks.jsonl", "oracle"));
    assert_eq!(code, 0);
    let refused = project.fulgurite(&["compare", &run, "last"]).assert().code(2);
    says(&stderr(refused.get_output()), &["no scored task in common", "mend:"]);
}
