//! The demonstration: real coding episodes, first with reference answers, then with a model.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, bail};
use serde_json::Value;

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
    every_answer_passed(&host, &file)?;
    say("the `solve` harness with SmolLM2-135M on the CPU: a small model solves few tasks or none");
    let model = artifacts::folder()?.join("SmolLM2-135M-Instruct.Q4_1.gguf");
    let policy = format!("gguf:{}", model.display());
    let sampling = ["--policy", &policy, "--temperature", "0", "--max-tokens", "256"];
    episodes(&mut host.command(), &file, "solve", &sampling)?;
    say("training: a policy with random weights learns to use its tools (examples/learn)");
    let folder = folder.join("learn");
    learn(&host, &folder)?;
    something_was_learned(&folder.join("out").join("metrics.jsonl"))
}

/// Fails unless every task of the last run earned 1: the reference answers are right.
fn every_answer_passed(host: &Host, tasks: &Path) -> Result<()> {
    let mut list = host.command();
    list.args(["--json", "trace", "list", "last"]);
    let listed = list.output().with_context(|| format!("cannot start {list:?}"))?;
    if !listed.status.success() {
        bail!("{list:?} failed: {}", String::from_utf8_lossy(&listed.stderr).trim());
    }
    let episodes: Vec<Value> =
        serde_json::from_slice(&listed.stdout).with_context(|| format!("{list:?} is not read"))?;
    let earned = |episode: &&Value| episode.get("total").and_then(Value::as_f64) >= Some(1.0);
    let passed = episodes.iter().filter(earned).count();
    let wanted = fs::read_to_string(tasks)?.lines().count();
    if passed != wanted {
        bail!(
            "{passed} of {wanted} reference answers passed their tests, and all of them have to\n  \
             mend: look at the others, which `fulgurite trace list last` names, with `fulgurite \
             trace show last TASK`"
        );
    }
    say(format!("{passed} of {wanted} reference answers passed their tests"));
    Ok(())
}

/// Fails unless the reward on tasks that were held out is higher after the training than before.
fn something_was_learned(metrics: &Path) -> Result<()> {
    let lines = fs::read_to_string(metrics)
        .with_context(|| format!("cannot read {}", metrics.display()))?;
    let mut rewards = Vec::new();
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line)
            .with_context(|| format!("{} is not read", metrics.display()))?;
        rewards.extend(line.pointer("/metrics/validation~1reward").and_then(Value::as_f64));
    }
    match (rewards.first(), rewards.last()) {
        (Some(before), Some(after)) if after > before => {
            say(format!("the reward on held-out tasks rose from {before:.3} to {after:.3}"));
            Ok(())
        }
        _ => bail!(
            "nothing was learned: the rewards on held-out tasks were {rewards:?}, first to last\n  \
             mend: {} tells of every step",
            metrics.display()
        ),
    }
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
