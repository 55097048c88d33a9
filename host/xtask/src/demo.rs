//! The demonstration: real coding episodes, first with reference answers, then with a model.

use std::{fs, path::Path, process::Command};

use anyhow::Result;

use crate::{
    artifacts,
    project::{self, Host, Selection, check},
    say,
};

/// Sets up, runs `coder` with the oracle and `solve` with SmolLM2 on HumanEval tasks, then trains a
/// tiny policy from scratch.
pub(crate) fn run(tasks: u32) -> Result<()> {
    let host = project::setup(Selection::for_users(), None)?;
    let folder = project::root().join(".fulgurite").join("demo");
    fs::create_dir_all(&folder)?;
    let file = folder.join("human-eval.jsonl");
    check(
        host.command()
            .args(["tasks", "import", "human-eval", "--limit", &tasks.to_string(), "--output"])
            .arg(&file),
    )?;
    say("the `coder` harness with reference answers: proves the sandbox and the grader");
    episodes(&mut host.command(), &file, "coder", &["--policy", "oracle"])?;
    say("the `solve` harness with SmolLM2-135M on the CPU: a small model solves few tasks or none");
    let model = artifacts::folder()?.join("SmolLM2-135M-Instruct.Q4_1.gguf");
    let policy = format!("gguf:{}", model.display());
    let sampling = ["--policy", &policy, "--temperature", "0", "--max-tokens", "256"];
    episodes(&mut host.command(), &file, "solve", &sampling)?;
    say("training: a policy with random weights learns to use its tools (examples/learn)");
    learn(&host, &folder.join("learn"))
}

/// Trains in a folder of its own, from the beginning.
fn learn(host: &Host, folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    let example = project::root().join("examples").join("learn");
    for file in ["train.toml", "tiny.toml", "tasks.jsonl", "validation.jsonl"] {
        fs::copy(example.join(file), folder.join(file))?;
    }
    project::build_learn_guests(host, folder)?;
    check(
        host.command()
            .args(["plugin", "add", "--quiet", "--project", "--name", "machine"])
            .args(["--kind", "program"])
            .arg(folder.join("machine.wasm")),
    )?;
    check(host.command().arg("train").arg(folder.join("train.toml")))
}

fn episodes(fulgurite: &mut Command, tasks: &Path, harness: &str, more: &[&str]) -> Result<()> {
    check(
        fulgurite
            .args(["run", "--harness", harness, "--reward", "tests-pass", "--tasks"])
            .arg(tasks)
            .args(more),
    )
}
