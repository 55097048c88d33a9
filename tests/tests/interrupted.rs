//! Runs that are stopped or killed lose nothing and are completed by `--resume`.

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use fulgurite_tests::{
    Project, component,
    released::Witness,
    run_of,
    said::{stderr, wait_for},
};
use fulgurite_trace::{State, Store};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;

/// Starts a run of as many tasks, each with a turn that takes a while; answers the process.
fn start(project: &Project, tasks: u32, delay_ms: u32) -> Child {
    let file = project.plain_tasks(tasks);
    let policy = project.script(json!({ "text": "1", "delay_ms": delay_ms }).to_string());
    let run = run_of("solve", "exact-match", file, policy).with(&["--concurrency", "4"]);
    let mut command = project.process(&["run"]);
    command.args(run).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Resumes and wants every task to be recorded as scored exactly once.
fn resume_completes(project: &Project, tasks: usize) {
    let output = project.fulgurite(&["run", "--resume", "last"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let mut done: Vec<String> = project
        .listed()
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
    wait_for("some episodes are scored", || project.count("scored") >= 4);
    kill(Pid::from_raw(run.id().cast_signed()), Signal::SIGINT).unwrap();
    let status = run.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    let after = project.listed();
    let count = |state: &str| after.iter().filter(|episode| episode["state"] == state).count();
    assert_eq!(count("running"), 0, "{after:?}");
    assert!(count("scored") >= 4 && count("scored") < 40, "{after:?}");
    assert!(count("cancelled") >= 1, "{after:?}");
    resume_completes(&project, 40);
}

/// Kills of one store.
const KILLS: u32 = 50;

/// Kills the program again and again, at instants that are spread over its life, and resumes.
fn kill_again_and_again(seed: u64) {
    let project = Project::new();
    let file = project.plain_tasks(1_200);
    let store = project.path(".fulgurite/traces.sqlite");
    let witness = Witness::default();
    let server = witness.serve(Duration::from_millis(30), 200);
    let (harness, reward) = (component("probe"), component("exact-match"));
    let config = json!({ "do": "turns", "count": 3, "text": "go on" }).to_string();
    let begin = |resume: bool| -> Command {
        let mut command = project.process(&["run", "--quiet"]);
        if resume {
            command.args(["--resume", "last"]);
        } else {
            command.args(["--concurrency", "8", "--harness-config", &config, "--harness"]);
            command.arg(&harness).arg("--reward").arg(&reward).arg("--tasks").arg(&file);
            command.args(["--policy", &server.policy()]);
        }
        // Without programs of the lane, which take their time to load.
        command.env("FULGURITE_HOME", project.path("home"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    // Once everything is compiled, the first one tells how long it takes until there is work.
    Project::new().probe(&json!({ "do": "turn" }), &[]);
    let began = Instant::now();
    let mut first = begin(false).spawn().unwrap();
    wait_for("the policy is asked", || !witness.take_inputs().is_empty());
    let life = 2 * began.elapsed() + Duration::from_millis(100);
    first.kill().unwrap();
    first.wait().unwrap();
    let mut random = seed;
    let (mut finished, mut under_load) = (BTreeSet::new(), 0);
    let (mut resume, mut runs) = (true, 0);
    for _ in 0..KILLS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mut run = begin(resume).spawn().unwrap();
        std::thread::sleep(life.mul_f64((random >> 33) as f64 / f64::from(1_u32 << 31)));
        let over = run.try_wait().unwrap();
        run.kill().unwrap();
        run.wait().unwrap();
        let asked = witness.take_inputs();
        under_load += u32::from(!asked.is_empty());
        let again: Vec<_> = asked.intersection(&finished).collect();
        assert!(again.is_empty(), "these were scored already, and done again: {again:?}");
        witness.check(&store);
        finished.extend(scored_inputs(&store));
        if let Some(status) = over {
            assert!(status.success(), "{status}");
            (resume, runs) = (false, runs + 1);
            finished.clear();
        } else {
            // Killed before it began a run, it has to be begun.
            resume = Store::open_read_only(&store)
                .is_ok_and(|store| store.runs().is_ok_and(|known| known.len() > runs));
        }
    }
    assert!(under_load > KILLS / 3, "only {under_load} were killed under load");
    assert!(begin(resume).status().unwrap().success());
    witness.check(&store);
    let store = Store::open_read_only(&store).unwrap();
    store.check().unwrap();
    let run = store.runs().unwrap().pop().unwrap().record.id;
    let mut done: Vec<u32> = store
        .episodes(&run)
        .unwrap()
        .iter()
        .filter(|episode| episode.state == State::Scored)
        .map(|episode| episode.episode.task)
        .collect();
    done.sort_unstable();
    assert_eq!(done, (0..1_200).collect::<Vec<_>>(), "each task is done, and none twice");
}

/// The inputs of the tasks of the last run that are scored.
fn scored_inputs(store: &Path) -> BTreeSet<String> {
    let Ok(store) = Store::open_read_only(store) else { return BTreeSet::new() };
    // Killed while it made the store, it left one without tables.
    let Some(run) = store.runs().ok().and_then(|mut runs| runs.pop()) else {
        return BTreeSet::new();
    };
    store
        .episodes(&run.record.id)
        .unwrap()
        .iter()
        .filter(|episode| episode.state == State::Scored)
        .map(|episode| format!("say {}", episode.episode.task))
        .collect()
}

#[test]
fn a_run_that_is_killed_at_any_instant_loses_nothing_and_repeats_nothing() {
    kill_again_and_again(1);
}

#[test]
fn and_so_does_another_one_meanwhile() {
    kill_again_and_again(2);
}

#[test]
fn a_second_process_is_told_that_the_store_is_in_use() {
    let project = Project::new();
    let mut run = start(&project, 30, 300);
    wait_for("the run is under way", || project.count("scored") >= 1);
    let second = project.fulgurite(&["run", "--resume", "last"]).output().unwrap();
    assert_ne!(second.status.code(), Some(0));
    let error = stderr(&second);
    assert!(error.contains("in use") || error.contains("another"), "{error}");
    run.kill().unwrap();
    run.wait().unwrap();
}
