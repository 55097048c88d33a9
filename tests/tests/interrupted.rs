//! Runs that are stopped or killed lose nothing and are completed by `--resume`.

use std::{
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use fulgurite_tests::Project;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

/// Starts a run of as many tasks, each with a turn that takes a while; answers the process.
fn start(project: &Project, tasks: u32, delay_ms: u32) -> Child {
    let file = project.plain_tasks(tasks);
    let script =
        project.write("script.jsonl", json!({ "text": "1", "delay_ms": delay_ms }).to_string());
    let policy = format!("script:{}", script.display());
    let mut command = project.process(&["run"]);
    command
        .args(["--harness", "solve", "--reward", "exact-match", "--concurrency", "4", "--tasks"])
        .arg(file)
        .args(["--policy", &policy])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Episodes of the last run by state, once there are any.
fn states(project: &Project) -> Vec<Value> {
    let output = project.fulgurite(&["--json", "trace", "list", "last"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

fn scored(project: &Project) -> usize {
    states(project).iter().filter(|episode| episode["state"] == "scored").count()
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(120), "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Resumes and wants every task to be recorded as scored exactly once.
fn resume_completes(project: &Project, tasks: usize) {
    let output = project.fulgurite(&["run", "--resume", "last"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{error}");
    let mut done: Vec<String> = states(project)
        .iter()
        .filter(|episode| episode["state"] == "scored")
        .map(|episode| episode["task"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(done.len(), tasks);
    done.sort();
    done.dedup();
    assert_eq!(done.len(), tasks, "a task was done twice");
}

#[test]
fn ctrl_c_drains_records_and_can_be_resumed() {
    let project = Project::new();
    let mut run = start(&project, 40, 200);
    wait_for("some episodes are scored", || scored(&project) >= 4);
    kill(Pid::from_raw(run.id().cast_signed()), Signal::SIGINT).unwrap();
    let status = run.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    let after = states(&project);
    let count = |state: &str| after.iter().filter(|episode| episode["state"] == state).count();
    assert_eq!(count("running"), 0, "{after:?}");
    assert!(count("scored") >= 4 && count("scored") < 40, "{after:?}");
    assert!(count("cancelled") >= 1, "{after:?}");
    resume_completes(&project, 40);
}

#[test]
fn a_killed_run_is_completed_by_resume_and_no_task_is_done_twice() {
    for round in 0..4 {
        let project = Project::new();
        let mut run = start(&project, 30, 20);
        wait_for("the run is under way", || scored(&project) > round * 5);
        run.kill().unwrap();
        run.wait().unwrap();
        let before = scored(&project);
        resume_completes(&project, 30);
        assert!(before < 30, "the run was over before it was killed");
    }
}

#[test]
fn a_second_process_is_told_that_the_store_is_in_use() {
    let project = Project::new();
    let mut run = start(&project, 30, 300);
    wait_for("the run is under way", || scored(&project) >= 1);
    let second = project.fulgurite(&["run", "--resume", "last"]).output().unwrap();
    assert_ne!(second.status.code(), Some(0));
    let error = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(error.contains("in use") || error.contains("another"), "{error}");
    run.kill().unwrap();
    run.wait().unwrap();
}
