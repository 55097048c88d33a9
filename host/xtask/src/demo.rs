//! The demonstration: real coding episodes, first with reference answers, then with a model.

use std::{fs, path::Path, process::Command};

use anyhow::Result;

use crate::{
    artifacts,
    project::{self, Selection, check},
    say,
};

/// Sets up, then runs `coder` with the oracle and `solve` with SmolLM2 on HumanEval tasks.
pub(crate) fn run(tasks: u32) -> Result<()> {
    let host = project::setup(Selection::Program, None)?;
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
    episodes(&mut host.command(), &file, "solve", &sampling)
}

fn episodes(fulgurite: &mut Command, tasks: &Path, harness: &str, more: &[&str]) -> Result<()> {
    check(
        fulgurite
            .args(["run", "--harness", harness, "--reward", "tests-pass", "--tasks"])
            .arg(tasks)
            .args(more),
    )
}
