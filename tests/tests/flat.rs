//! Hostile guests by the hundred in one process: its memory, its files and its temporary files
//! stay where they were, and the next episodes run.
//!
//! The run is a line of blocks. In each, a few episodes do the same evil, and then calm ones ask
//! the policy, which holds them until all of them wait: nothing else is alive at that moment, and
//! the process can be measured.

use std::{
    collections::BTreeMap,
    process::Stdio,
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use fulgurite_tests::{
    Project, component,
    resident::{Held, names},
    server::{Answer, Server},
};
use serde_json::{Value, json};

/// Episodes alive at once, and calm ones after each block.
const ALIVE: usize = 8;
/// Episodes of each block.
const REPEATS: usize = 24;
/// What each guest may have.
const MEMORY_MIB: u64 = 32;

/// What a block does: its harness, its reward, and the kind of its endings (none where the reward
/// is the hostile one).
struct Deed {
    name: &'static str,
    input: Value,
    grading: Value,
    kind: Option<&'static str>,
}

fn harnesses() -> Vec<Deed> {
    let deeds = [
        ("loop", json!({}), "out-of-fuel"),
        ("loop-in-host", json!({}), "out-of-fuel"),
        ("loop-through-memory", json!({}), "out-of-fuel"),
        ("grow-memory", json!({}), "out-of-memory"),
        ("recurse", json!({}), "trap"),
        ("stdout", json!({ "size": 8 << 20 }), "completed"),
        ("stderr", json!({ "size": 8 << 20 }), "completed"),
        ("events", json!({ "count": 20_000, "size": 100 }), "completed"),
        ("metrics", json!({ "count": 20_000 }), "completed"),
        ("conversations", json!({ "count": 20_000 }), "out-of-memory"),
        ("abandon", json!({ "count": 20 }), "completed"),
        ("open-files", json!({ "count": 1_000_000 }), "completed"),
        ("many-files", json!({ "count": 1_000_000 }), "completed"),
        ("many-folders", json!({}), "completed"),
        ("fill", json!({}), "completed"),
        ("read-again", json!({}), "out-of-fuel"),
        ("names", json!({}), "completed"),
        ("escape", json!({}), "completed"),
        ("links", json!({}), "completed"),
        ("environment", json!({}), "completed"),
        ("sleep-forever", json!({}), "timeout"),
        ("bad-utf8", json!({}), "trap"),
        ("bad-pointer", json!({}), "trap"),
        ("huge-message", json!({ "size": 12 << 20 }), "out-of-memory"),
        ("huge-answer", json!({ "size": 12 << 20 }), "out-of-memory"),
        ("odd-answer", json!({}), "completed"),
        ("panic", json!({}), "trap"),
        ("until-error", json!({}), "completed"),
        ("score", json!({}), "completed"),
    ];
    deeds
        .into_iter()
        .map(|(name, mut input, kind)| {
            input["do"] = name.into();
            Deed { name, input, grading: fair(), kind: Some(kind) }
        })
        .collect()
}

fn commands() -> Vec<Deed> {
    let lines = [
        (
            "regex",
            "printf 'a%.0s' {1..2000} > long; grep -E '(a*)*b' long; \
             grep -E '((a{1,40}){1,40}){1,40}b' long; sed -E 's/(a+)+$x//' long",
        ),
        ("python-memory", "python -c 'a = [bytearray(1 << 20) for _ in range(1 << 20)]'"),
        ("python-loop", "python -c 'while True: pass'"),
        ("flood", "seq 30000000; seq 1000000 | sort -rn | wc -l"),
    ];
    lines
        .into_iter()
        .map(|(name, line)| {
            let input = json!({ "do": "exec", "lines": [line] });
            Deed { name, input, grading: fair(), kind: Some("completed") }
        })
        .collect()
}

fn rewards() -> Vec<Deed> {
    let deeds = [
        ("reward-nan", json!({ "do": "nan" })),
        ("reward-infinite", json!({ "do": "infinite" })),
        ("reward-error", json!({ "do": "error" })),
        ("reward-panic", json!({ "do": "panic" })),
        ("reward-loop", json!({ "do": "loop" })),
        ("reward-memory", json!({ "do": "grow-memory" })),
        ("reward-turns", json!({ "do": "bad-turns" })),
        ("reward-sandboxes", json!({ "do": "sandboxes", "count": 100_000 })),
        ("reward-notes", json!({ "do": "huge-notes", "count": 1000, "value": 100_000 })),
    ];
    deeds
        .into_iter()
        .map(|(name, grading)| Deed {
            name,
            input: json!({ "do": "nothing" }),
            grading,
            kind: None,
        })
        .collect()
}

fn fair() -> Value {
    json!({ "do": "fixed", "value": 1 })
}

/// Where calm episodes wait.
#[derive(Default)]
struct Gate {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    arrived: BTreeMap<u64, usize>,
    open: u64,
}

impl Gate {
    /// Waits until the block's gate is opened.
    fn pass(&self, block: u64) {
        let mut state = self.state.lock().unwrap();
        *state.arrived.entry(block).or_default() += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| state.open <= block).unwrap());
    }

    /// Whether the calm episodes of a block all wait, after a moment at most.
    fn all_wait(&self, block: u64) -> bool {
        let state = self.state.lock().unwrap();
        let all = |state: &mut Waiting| state.arrived.get(&block).copied() != Some(ALIVE);
        let moment = Duration::from_millis(100);
        !self.changed.wait_timeout_while(state, moment, all).unwrap().1.timed_out()
    }

    fn open(&self, block: u64) {
        self.state.lock().unwrap().open = block + 1;
        self.changed.notify_all();
    }
}

/// The task file's rows: warm-up, then block after block, each with its calm end.
fn rows(deeds: &[Deed]) -> Vec<Value> {
    let mut rows = Vec::new();
    let evil = |rows: &mut Vec<Value>, deed: &Deed, round: &str, count: usize| {
        for number in 0..count {
            rows.push(json!({
                "id": format!("{} {round}{number}", deed.name),
                "input": deed.input.to_string(), "grading": deed.grading,
            }));
        }
    };
    let calm = |rows: &mut Vec<Value>, block: usize| {
        for number in 0..ALIVE {
            let input = json!({ "do": "turn", "size": block });
            rows.push(json!({
                "id": format!("calm {block}.{number}"),
                "input": input.to_string(), "grading": fair(),
            }));
        }
    };
    for deed in deeds {
        evil(&mut rows, deed, "w", ALIVE);
    }
    calm(&mut rows, 0);
    for (block, deed) in (1..).zip(deeds) {
        evil(&mut rows, deed, "", REPEATS);
        calm(&mut rows, block);
    }
    rows
}

#[test]
fn memory_and_files_stay_flat_under_every_hostile_guest_and_the_next_episode_runs() {
    let deeds: Vec<Deed> = harnesses().into_iter().chain(commands()).chain(rewards()).collect();
    let project = Project::new();
    let tasks = project.tasks(&rows(&deeds));
    let temporary = project.path("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let gate = Arc::new(Gate::default());
    let server = Server::start({
        let gate = Arc::clone(&gate);
        move |ask| {
            let input: Value = serde_json::from_str(&ask.input()).unwrap_or_default();
            if input["do"] == "turn" {
                gate.pass(input["size"].as_u64().unwrap_or_default());
            }
            Answer::Text("yes".to_owned())
        }
    });
    let (alive, memory) = (ALIVE.to_string(), format!("memory={MEMORY_MIB}M"));
    let mut command = project.process(&["run", "--quiet", "--policy", &server.policy()]);
    command
        .args(["--concurrency", &alive, "--harness-config", r#"{"do":"input"}"#, "--harness"])
        .arg(component("probe"))
        .args(["--limit", &memory, "--limit", "command-memory=64M", "--limit", "turns=20"])
        .args(["--limit", "fuel=100M", "--limit", "command-fuel=500M", "--limit", "time=10h"])
        .args(["--limit", "workspace-bytes=8M", "--limit", "workspace-files=2000"])
        .args(["--limit", "reward-fuel=50M", "--reward"])
        .arg(component("probe-reward"))
        .arg("--reward-config")
        .arg(format!("{}={}", component("probe-reward").display(), r#"{"do":"grading"}"#))
        .arg("--tasks")
        .arg(tasks)
        .env("TMPDIR", &temporary)
        .env("RUST_LOG", "off")
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut run = command.spawn().unwrap();
    let mut measured: Vec<(&str, Held)> = Vec::new();
    for (block, name) in (0..).zip(["warm-up"].into_iter().chain(deeds.iter().map(|d| d.name))) {
        let began = Instant::now();
        while !gate.all_wait(block) {
            assert!(began.elapsed() < Duration::from_secs(300), "`{name}` does not end");
            assert!(run.try_wait().unwrap().is_none(), "the run ended within `{name}`");
        }
        let held = Held::by(run.id()).unwrap();
        println!("{name:<20} {held:?} {:?}", began.elapsed());
        measured.push((name, held));
        assert_eq!(names(&temporary), Vec::<String>::new(), "after `{name}`");
        gate.open(block);
    }
    let output = run.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "hostile rewards are alarms: {error}");
    assert_eq!(names(&temporary), Vec::<String>::new(), "at the end");
    flat(&measured);
    ended_in_their_kinds(&project, &deeds);
}

/// Nothing grows with the episodes: not in one block, not over all of them.
fn flat(measured: &[(&str, Held)]) {
    let (_, base) = measured[0];
    for pair in measured.windows(2) {
        let ((_, before), (name, after)) = (pair[0], pair[1]);
        assert!(after.resident <= before.resident + 24, "`{name}`: {before:?} to {after:?}");
        assert!(after.resident <= base.resident + 64, "`{name}`: {base:?} to {after:?}");
        assert!(after.files <= base.files + 8, "`{name}`: {base:?} to {after:?}");
        assert!(after.threads <= base.threads + 4, "`{name}`: {base:?} to {after:?}");
        // Guests' memory, their workspaces and programs, and as much again.
        let most = base.resident + 2 * ALIVE as u64 * (MEMORY_MIB + 8 + 64);
        assert!(after.peak <= most, "`{name}`: {after:?}, {most}");
    }
}

fn ended_in_their_kinds(project: &Project, deeds: &[Deed]) {
    let episodes = project.listed();
    let mut wrong = std::collections::BTreeSet::new();
    for episode in &episodes {
        let task = episode["task"].as_str().unwrap();
        let name = task.split(' ').next().unwrap();
        let as_told = match deeds.iter().find(|deed| deed.name == name).map(|deed| deed.kind) {
            Some(Some(kind)) => episode["ended"] == kind,
            Some(None) if name == "reward-sandboxes" || name == "reward-notes" => true,
            Some(None) => episode["state"] == "failed",
            None => episode["ended"] == "completed" && episode["total"] == 1.0,
        };
        if !as_told {
            wrong.insert(format!("{name}: {} {}", episode["ended"], episode["state"]));
        }
    }
    assert_eq!(wrong, std::collections::BTreeSet::new());
    assert_eq!(episodes.len(), deeds.len() * (ALIVE + REPEATS) + (deeds.len() + 1) * ALIVE);
}
