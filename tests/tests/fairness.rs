//! Guests that compute do not hold up guests that wait for the model.

use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
    time::{Duration, Instant},
};

use fulgurite_tests::{Project, component};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

const WAITING: usize = 1000;
const BUSY: usize = 65;

/// How a run went until the last of the waiting episodes was scored, and its report.
struct Went {
    took: Duration,
    report: Value,
    states: Vec<Value>,
}

/// 1,000 episodes, each of which waits for the model three times, with or without 64 that run
/// endless Python commands and one that computes for ever itself.
fn went(busy: bool) -> Went {
    let project = Project::new();
    let row = |id: String, config: Value| json!({ "id": id, "input": config.to_string() });
    let mut rows = Vec::new();
    if busy {
        let python = json!({ "do": "exec", "lines": ["python -c 'while True: pass'"] });
        rows.extend((1..BUSY).map(|number| row(format!("busy {number}"), python.clone())));
        rows.push(row("busy 0".to_owned(), json!({ "do": "loop" })));
    }
    let turns = json!({ "do": "turns", "count": 3, "text": "go on" });
    rows.extend((0..WAITING).map(|number| row(format!("waiting {number}"), turns.clone())));
    let total = rows.len();
    let tasks = project.tasks(&rows);
    let policy = project.script(r#"{"text":"yes","delay_ms":700}"#);
    let began = Instant::now();
    let mut run = project
        .process(&["--json", "run", "--concurrency", &(WAITING + BUSY).to_string(), "--policy"])
        .arg(policy)
        .args(["--limit", "fuel=1000G", "--limit", "command-fuel=1000G", "--tasks"])
        .arg(tasks)
        .args(["--harness-config", r#"{"do":"input"}"#, "--harness"])
        .arg(component("probe"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program tells each tenth of the run; the last one it can tell of comes before the end
    // when busy episodes never end.
    let last = format!("{}/{total} ", total.div_ceil(10) * (WAITING / total.div_ceil(10)));
    let mut lines = BufReader::new(run.stderr.take().unwrap()).lines();
    assert!(
        lines.any(|line| line.unwrap().starts_with(&last)),
        "the waiting episodes did not get so far as {last}"
    );
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
    let waited = Instant::now();
    while project.count("scored") < WAITING {
        assert!(waited.elapsed() < Duration::from_secs(60), "the last ones are held up");
        std::thread::sleep(Duration::from_millis(50));
    }
    let took = began.elapsed();
    if busy {
        kill(Pid::from_raw(run.id().cast_signed()), Signal::SIGINT).unwrap();
    }
    let output = run.wait_with_output().unwrap();
    let told = rest.join().unwrap();
    assert_eq!(output.status.code(), Some(if busy { 130 } else { 0 }), "{told:#?}");
    Went { took, report: serde_json::from_slice(&output.stdout).unwrap(), states: project.listed() }
}

fn scored(states: &[Value]) -> usize {
    states.iter().filter(|episode| episode["state"] == "scored").count()
}

#[test]
fn busy_commands_and_an_endless_loop_do_not_delay_episodes_that_wait_for_the_model() {
    let (calm, busy) = (went(false), went(true));
    println!("{:?} alone, {:?} beside busy ones", calm.took, busy.took);
    assert_eq!(scored(&calm.states), WAITING);
    for episode in &busy.states {
        let waiting = episode["task"].as_str().unwrap().starts_with("waiting");
        assert_eq!(episode["state"], if waiting { "scored" } else { "cancelled" }, "{episode}");
    }
    assert_eq!(busy.states.len(), WAITING + BUSY);
    // The busy ones did compute: they took at least half a processor from start to end.
    let cpu = |went: &Went| went.report["cpu_s"].as_f64().unwrap();
    let wall = busy.report["wall_s"].as_f64().unwrap();
    assert!(cpu(&busy) > wall / 2.0, "{}", busy.report);
    // Half of the processors is the busy ones', so the waiting ones may need twice as long for what
    // they compute; what they wait for takes as long as before. On two cores that other programs
    // kept busy it took 1.2 times as long; waiting behind each other's turns takes many times.
    let most = calm.took * 2 + Duration::from_secs(1);
    assert!(busy.took < most, "{:?} alone, {:?} beside busy ones", calm.took, busy.took);
}
