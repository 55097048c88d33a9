//! Runs that are stopped or killed lose nothing and are completed by `--resume`.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, RwLock},
    time::{Duration, Instant},
};

use fulgurite_tests::{
    Project,
    chance::Chance,
    component,
    released::Witness,
    run_of,
    said::{stderr, wait_for},
    server::{Answer, Ask, Server},
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

/// Harnesses that compute on when they are told to stop, so that draining waits for their grace.
const STUBBORN: usize = 100;
const QUICK: usize = 4;

#[test]
fn a_second_ctrl_c_stops_at_once_and_the_run_can_be_resumed() {
    let project = Project::new();
    let task = |id: String, deed: &str| {
        let input = json!({ "do": deed }).to_string();
        json!({ "id": id, "input": input, "grading": { "answer": "1" } })
    };
    let quick = (0..QUICK).map(|number| task(format!("quick {number}"), "turn"));
    let stubborn = (0..STUBBORN).map(|number| task(format!("stubborn {number}"), "ignore-cancel"));
    let tasks = project.tasks(&quick.chain(stubborn).collect::<Vec<_>>());
    // The stubborn ones wait for their replies for as long as the gate is closed.
    let (asked, gate) = (Arc::new(Mutex::new(Vec::<String>::new())), Arc::new(RwLock::new(())));
    let closed = gate.write().unwrap();
    let server = Server::start({
        let (asked, gate) = (Arc::clone(&asked), Arc::clone(&gate));
        move |ask: &Ask| {
            let input = ask.input();
            let waits = input.contains("ignore-cancel");
            asked.lock().unwrap().push(input);
            if waits {
                drop(gate.read());
            }
            Answer::Text("1".to_owned())
        }
    });
    let waiting = || {
        let asked = asked.lock().unwrap();
        asked.iter().filter(|input| input.contains("ignore-cancel")).count()
    };
    let run = run_of(component("probe"), "exact-match", tasks, server.policy()).with(&[
        "--harness-config",
        r#"{"do":"input"}"#,
        "--concurrency",
        "200",
        "--limit",
        "turns=1",
        "--limit",
        "fuel=200M",
    ]);
    let mut run = project
        .process(&["--json", "run"])
        .args(run)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the quick ones are scored and the others wait", || {
        waiting() == STUBBORN && project.count("scored") == QUICK
    });
    let process = Pid::from_raw(run.id().cast_signed());
    let interrupt = || kill(process, Signal::SIGINT).unwrap();
    interrupt();
    let mut told = BufReader::new(run.stderr.take().unwrap()).lines();
    assert!(told.any(|line| line.unwrap().contains("again to stop at once")));
    // The program begins to listen again after it said so: one that comes too early is not heard.
    wait_for("it stops", || {
        interrupt();
        run.try_wait().unwrap().is_some()
    });
    let told: Vec<String> = told.map_while(Result::ok).collect();
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{told:#?}");
    // A run that drains tells what came of it, and records every episode as cancelled.
    assert!(output.stdout.is_empty(), "it drained: {told:#?}");
    assert!(project.count("interrupted") > 0, "{:?}", project.listed());
    assert_eq!(project.count("scored"), QUICK);
    asked.lock().unwrap().clear();
    drop(closed);
    resume_completes(&project, QUICK + STUBBORN);
    let asked = asked.lock().unwrap();
    assert!(asked.iter().all(|input| input.contains("ignore-cancel")), "done again: {asked:?}");
    assert_eq!(asked.len(), STUBBORN);
}

/// Kills of one store.
const KILLS: u32 = 60;
/// One in so many comes while the program starts, the others while episodes are under way.
const AT_START: u32 = 6;
/// The longest that episodes are under way until a kill.
const UNDER_WAY: Duration = Duration::from_millis(250);

/// Kills the program again and again, at random instants of its start and of its work, and resumes.
fn kill_again_and_again() {
    let mut chance = Chance::seeded();
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
    let start = began.elapsed();
    first.kill().unwrap();
    first.wait().unwrap();
    let (mut finished, mut under_load) = (BTreeSet::new(), 0);
    let (mut resume, mut runs) = (true, 0);
    for number in 0..KILLS {
        let mut run = begin(resume).spawn().unwrap();
        let mut asked = BTreeSet::new();
        let longest = if number % AT_START == 0 {
            start
        } else {
            wait_for("the policy is asked, or the run is over", || {
                asked.extend(witness.take_inputs());
                !asked.is_empty() || run.try_wait().unwrap().is_some()
            });
            UNDER_WAY
        };
        std::thread::sleep(longest.mul_f64(chance.share()));
        let over = run.try_wait().unwrap();
        run.kill().unwrap();
        run.wait().unwrap();
        asked.extend(witness.take_inputs());
        under_load += u32::from(over.is_none() && !asked.is_empty());
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
    println!("{under_load} of {KILLS} kills came while episodes were under way");
    // Of the fifty that are meant to; a run may have come to its end before its kill.
    assert!(under_load >= 40, "only {under_load}");
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
    kill_again_and_again();
}

#[test]
fn and_so_does_another_one_meanwhile() {
    kill_again_and_again();
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
