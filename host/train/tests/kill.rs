//! A process killed while it writes checkpoints leaves a whole one: at least the last that it
//! said was written.

// Clippy sees tests only inside `#[test]` functions.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use fulgurite_train::{
    checkpoint::{Checkpoints, State},
    optimizer::{AdamW, AdamWSettings},
    order::TaskOrder,
};

const FOLDER: &str = "FULGURITE_TEST_CHECKPOINTS";
const VALUES: usize = 30_000;

fn optimizer(step: u64) -> AdamW {
    let mut optimizer = AdamW::new(AdamWSettings::default());
    let gradient = vec![step as f32; VALUES];
    let mut update = optimizer.begin(0.1, 1.0);
    update.apply("weight", &mut vec![0.0; VALUES], &gradient, true).unwrap();
    optimizer.step = step;
    optimizer
}

fn write_for_ever(folder: &Path) {
    let checkpoints = Checkpoints::open(folder, 2).unwrap();
    let begin = checkpoints.latest().unwrap().map_or(0, |latest| latest.state.step);
    for step in begin + 1.. {
        let order = TaskOrder::new(0, 1);
        let queue = serde_json::json!({ "carried": [step] });
        let state = State { step, version: step, updates: step, order, queue };
        checkpoints
            .save(&state, &optimizer(step), |folder| {
                Ok(std::fs::write(folder.join("weights"), step.to_le_bytes().repeat(VALUES))?)
            })
            .unwrap();
        println!("written {step}");
    }
}

/// Run by the other test in a process of its own.
#[test]
fn child() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        write_for_ever(Path::new(&folder));
    }
}

#[test]
fn a_killed_writer_leaves_what_it_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    for round in 0..8_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let reader = std::thread::spawn(move || {
            // Its first line shares a line with the test runner's.
            let steps = lines.map_while(Result::ok).filter_map(|line| {
                line.rsplit_once("written ").and_then(|(_, step)| step.parse::<u64>().ok())
            });
            steps.max()
        });
        std::thread::sleep(Duration::from_millis(300 + 37 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        acknowledged = acknowledged.max(reader.join().unwrap().unwrap_or(0));
        let checkpoints = Checkpoints::open(folder.path(), 2).unwrap();
        let Some(latest) = checkpoints.latest().unwrap() else {
            assert_eq!(acknowledged, 0);
            continue;
        };
        let step = latest.state.step;
        assert!(step >= acknowledged, "{acknowledged} was acknowledged, {step} is there");
        assert_eq!(latest.optimizer(AdamWSettings::default()).unwrap(), optimizer(step));
        let weights = std::fs::read(latest.folder.join("weights")).unwrap();
        assert_eq!(weights, step.to_le_bytes().repeat(VALUES));
    }
    assert!(acknowledged > 0, "the writer never came to write");
}
