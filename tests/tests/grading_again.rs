//! What episodes left behind is kept, can be had back, and graded again by other rewards.

use fulgurite_tests::{
    Project, run_of,
    said::{says, stderr},
};
use serde_json::{Value, json};

/// Two samples each of two HumanEval tasks by `coder` with reference replies, and more flags.
fn recorded(project: &Project, more: &[&str]) {
    let run = run_of("coder", "tests-pass", project.human_eval(2), "oracle");
    let (report, code) = project.run(run.with(&["-n", "2"]).with(more));
    assert_eq!((report["mean_reward"].as_f64(), code), (Some(1.0), 0), "{report}");
}

#[test]
fn changed_files_are_shown_and_written_out() {
    let project = Project::new();
    recorded(&project, &[]);
    let files = project.json(&["trace", "show", "last", "0", "--files"], 0);
    let files = files.as_array().unwrap();
    let source = files.iter().find(|file| file["path"].as_str().unwrap().ends_with(".py")).unwrap();
    let text = source["content"]["text"].as_str().unwrap();
    assert!(text.contains("def "), "{source}");
    let shown = project.fulgurite(&["trace", "show", "last", "0", "--files"]).output().unwrap();
    assert!(String::from_utf8(shown.stdout).unwrap().contains("    def "));

    let done = project.json(&["trace", "export", "last", "--files", "out"], 0);
    assert_eq!(done["episodes"], 4);
    let path = project.path("out/0.0/files").join(source["path"].as_str().unwrap());
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
    let changes = std::fs::read(project.path("out/1.1/changes.json")).unwrap();
    let changes: Vec<Value> = serde_json::from_slice(&changes).unwrap();
    assert!(
        changes.iter().all(|change| change["kept"] != json!(false) || change["entry"] != "file")
    );
    // A folder that is there is not written into.
    let output =
        project.fulgurite(&["trace", "export", "last", "--files", "out"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_recorded_run_is_graded_again_beside_its_own_scores() {
    let project = Project::new();
    recorded(&project, &[]);
    let before = project.export();
    let report = project.json(&["grade", "last", "--reward", "tests-pass"], 0);
    assert_eq!((&report["grading"], &report["graded"]), (&json!(1), &json!(4)));
    assert_eq!((&report["mean_reward"], &report["mean_before"]), (&json!(1.0), &json!(1.0)));
    let halved = [
        "grade",
        "last",
        "--reward",
        "tests-pass:0.5",
        "--reward",
        "length-penalty:0.25",
        "--reward-config",
        r#"length-penalty={"free":0,"span":1,"most":1.0}"#,
    ];
    let report = project.json(&halved, 0);
    assert_eq!(report["grading"], 2);
    // Oracle replies count no tokens, or some: the penalty is never a bonus.
    let mean = report["mean_reward"].as_f64().unwrap();
    assert!((0.25..=0.5).contains(&mean), "{report}");
    assert_eq!(project.export(), before, "the run's own record stays as it was");
    let shown = project.json(&["trace", "show", "last"], 0);
    assert_eq!(shown["gradings"].as_array().unwrap().len(), 2);
    assert_eq!(shown["gradings"][1]["rewards"][0]["plugin"]["name"], "tests-pass");
    assert_eq!(shown["gradings"][1]["mean_reward"], mean);
    let list = project.json(&["trace", "list", "last"], 0);
    assert_eq!(list[0]["graded"][0], json!({ "grading": 1, "total": 1.0 }));
    let text = project.fulgurite(&["trace", "show", "last", "0"]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("grading 2  total ") && text.contains("  tests-pass 1  weight 0.5"));
    // A grading that cannot be: a reward that does not know the tasks' grading data.
    let report = project.json(&["grade", "last", "--reward", "exact-match"], 5);
    assert_eq!((&report["graded"], &report["failed"]), (&json!(0), &json!(4)));
    assert!(report["episodes"][0]["reason"].as_str().unwrap().contains("exact-match"), "{report}");
}

#[test]
fn what_was_not_kept_is_told_and_graded_as_far_as_it_goes() {
    let project = Project::new();
    recorded(&project, &["--keep-files", "0"]);
    let files = project.json(&["trace", "show", "last", "0", "--files"], 0);
    assert!(files.as_array().unwrap().iter().all(|file| file["content"].is_null()), "{files}");
    let report = project.json(&["grade", "last", "--reward", "tests-pass"], 5);
    assert_eq!(report["failed"], 4);
    let reason = report["episodes"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("keep_files"), "{reason}");
}

#[test]
fn a_task_file_that_changed_is_refused() {
    let project = Project::new();
    recorded(&project, &[]);
    let file = project.path("human-eval.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("\n{text}\n")).unwrap();
    // Blank lines change nothing; a task less does.
    project.json(&["grade", "last", "--reward", "tests-pass"], 0);
    std::fs::write(&file, text.lines().next().unwrap()).unwrap();
    let output = project.fulgurite(&["grade", "last", "--reward", "tests-pass"]).output().unwrap();
    assert_ne!(output.status.code(), Some(0));
    says(&stderr(&output), &["has changed since the run"]);
}
