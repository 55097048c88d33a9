//! `fulgurite train` over the real binary: real episodes, a real model, real updates.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    thread::sleep,
    time::Duration,
};

use fulgurite_tests::{Project, component, root};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

/// A training on the example's tasks; `more` and the keys in it come last.
fn training(more: &str) -> Project {
    let project = Project::new();
    let example = root().join("examples").join("learn");
    for file in ["tasks.jsonl", "validation.jsonl"] {
        project.write(file, fs::read(example.join(file)).unwrap());
    }
    project.write("tiny.toml", "hidden = 32\nlayers = 2\nheads = 2\ncontext = 128\nseed = 3\n");
    let (harness, reward) = (component("apprentice"), component("machine-tests"));
    project.write(
        "train.toml",
        format!(
            "policy = 'tiny:tiny.toml'\nharness = '{}'\ntasks = 'tasks.jsonl'\n\
             validation = 'validation.jsonl'\noutput = 'out'\n{more}\n\
             [[rewards]]\nplugin = '{}'\n[sampling]\nmax_tokens = 5\n",
            harness.display(),
            reward.display()
        ),
    );
    let machine = component("machine");
    let add = ["plugin", "add", "--name", "machine", "--kind", "program", "--project"];
    project.fulgurite(&add).arg(machine).assert().success();
    project
}

fn report(project: &Project, arguments: &[&str]) -> Value {
    let done = project.fulgurite(&["train", "--json"]).args(arguments).assert().success();
    serde_json::from_slice(&done.get_output().stdout).unwrap()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const IMITATES: &str = "\
validate_every = 30
checkpoint_every = 30
[warm_start]
steps = 30
from = 'references'
[group]
episodes = 8
groups = 8
[budget]
steps = 32
[algorithm]
schedule = { rate = 5e-3 }";

#[test]
fn a_policy_gets_better_and_runs_can_use_it() {
    let project = training(IMITATES);
    let report = report(&project, &[]);
    let number = |name: &str| report[name].as_f64().unwrap();
    assert!(number("validation_before") < 0.05, "{report}");
    assert!(number("validation_after") > 0.15, "{report}");
    assert_eq!(report["end"], "budget");
    assert_eq!(number("steps"), 32.0);
    // 30 steps of a reference for each of 8 tasks, 2 of 8 groups of 8, 3 validations of 25 tasks.
    assert_eq!(number("episodes"), 30.0 * 8.0 + 2.0 * 64.0 + 3.0 * 25.0);
    assert!(number("tokens_trained") > 0.0 && number("cpu_core_hours") > 0.0);

    let metrics = lines(&project.path("out/metrics.jsonl"));
    assert_eq!(metrics.len(), 32 + 3);
    assert!(metrics.iter().any(|line| line["metrics"]["policy/entropy"].is_number()));
    assert_eq!(fs::read_dir(project.path("out/tensorboard")).unwrap().count(), 1);

    // What was trained earns in a run what it earned in the last validation.
    let policy = format!("tiny:{}", project.path("out/model.toml").display());
    let run = project
        .fulgurite(&[
            "run",
            "--json",
            "--temperature",
            "0",
            "--max-tokens",
            "5",
            "--policy",
            &policy,
        ])
        .arg("--harness")
        .arg(component("apprentice"))
        .arg("--reward")
        .arg(component("machine-tests"))
        .arg("--tasks")
        .arg(project.path("validation.jsonl"))
        .assert()
        .success();
    let run: Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
    let mean = run["mean_reward"].as_f64().unwrap();
    assert!((mean - number("validation_after")).abs() < 1e-6, "{mean}: {report}");

    // The validations are runs that can be compared.
    let runs = [&report["validation_runs"][0], &report["validation_runs"][1]];
    let [before, after] = runs.map(|run| run.as_str().unwrap());
    let compared = project.fulgurite(&["compare", before, after, "--json"]).assert().success();
    let compared: Value = serde_json::from_slice(&compared.get_output().stdout).unwrap();
    assert_eq!(compared["tasks"], 25, "{compared}");

    // Its episodes are runs like others.
    let id = report["run"].as_str().unwrap();
    let listed = project.fulgurite(&["trace", "list", id, "--json"]).assert().success();
    let listed: Value = serde_json::from_slice(&listed.get_output().stdout).unwrap();
    let episode = listed[0]["episode"].as_str().unwrap();
    project.fulgurite(&["trace", "show", id, episode]).assert().success();
    let resumed = project.fulgurite(&["run", "--resume", id]).assert().code(2);
    let told = String::from_utf8_lossy(&resumed.get_output().stderr).into_owned();
    assert!(told.contains("fulgurite train"), "{told}");
}

const REPEATS: &str = "\
validate_every = 4
policy_options = { batch_invariant = true }
[group]
episodes = 4
groups = 4
[warm_start]
steps = 3
from = 'references'
[budget]
steps = 8
[algorithm]
schedule = { rate = 5e-3 }
groups = { no_variance = 'keep' }";

fn start(project: &Project) -> Child {
    let mut command = project.process(&["train", "--resume", "--quiet"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn killed_at_any_instant_it_makes_the_same_weights() {
    let whole = training(REPEATS);
    report(&whole, &[]);
    let expected = fs::read(whole.path("out/model/model.safetensors")).unwrap();
    let killed = training(REPEATS);
    let mut kills = 0;
    for pause in (0..).map(|round| 150 + round * 83 % 700) {
        let mut child = start(&killed);
        sleep(Duration::from_millis(pause));
        match child.try_wait().unwrap() {
            Some(status) => {
                assert!(status.success());
                break;
            }
            None => {
                child.kill().unwrap();
                child.wait().unwrap();
                kills += 1;
            }
        }
        assert!(kills < 200, "it never ends");
    }
    assert!(kills > 0);
    assert!(
        fs::read(killed.path("out/model/model.safetensors")).unwrap() == expected,
        "other weights after {kills} kills"
    );
    // Every step and validation is told of once.
    let steps = |project: &Project| -> Vec<(u64, bool)> {
        lines(&project.path("out/metrics.jsonl"))
            .iter()
            .map(|line| {
                let step = line["step"].as_u64().unwrap();
                (step, line["metrics"]["validation/reward"].is_number())
            })
            .collect()
    };
    assert_eq!(steps(&killed), steps(&whole));
}

#[test]
fn stopped_by_its_user_it_says_how_to_go_on_and_does() {
    let project = training(&REPEATS.replace("steps = 8", "steps = 300"));
    let mut process = project.process(&["train"]);
    let mut child = process.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = project.path("out/checkpoints/step-00000001");
    while !begun.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        sleep(Duration::from_millis(5));
    }
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{told}");
    assert!(told.contains("fulgurite train --resume"), "{told}");
    let config = fs::read_to_string(project.path("train.toml")).unwrap();
    project.write("train.toml", config.replace("steps = 300", "steps = 8"));
    let resumed = project.fulgurite(&["train", "--json", "--resume"]).assert().success();
    let resumed: Value = serde_json::from_slice(&resumed.get_output().stdout).unwrap();
    assert!(resumed["steps"].as_u64().unwrap() >= 8, "{resumed}");
}

#[test]
fn an_adapter_is_trained_taken_up_and_used_in_a_run() {
    let adapts = "\
[lora]
rank = 4
alpha = 8
[group]
episodes = 4
groups = 4
active = 6
[warm_start]
steps = 2
from = 'references'
[budget]
steps = 4
[algorithm]
schedule = { rate = 5e-3 }
kl = { coefficient = 0.01, estimator = 'k3', place = 'loss' }
importance_threshold = 2.0
groups = { no_variance = 'keep' }";
    let project = training(adapts);
    report(&project, &[]);
    let config = fs::read_to_string(project.path("train.toml")).unwrap();
    project.write("train.toml", config.replace("steps = 4", "steps = 6"));
    let resumed = report(&project, &["--resume"]);
    assert_eq!(resumed["steps"], 6);
    let adapter = project.path("out/adapter");
    assert!(adapter.join("adapter_config.json").is_file());
    let run = |more: &[&str]| -> PathBuf {
        let traces = project.path(&format!("traces-{}.jsonl", more.len()));
        project
            .fulgurite(&["run", "--quiet", "--temperature", "0", "--max-tokens", "5"])
            .arg("--policy")
            .arg(format!("tiny:{}", project.path("tiny.toml").display()))
            .arg("--harness")
            .arg(component("apprentice"))
            .arg("--reward")
            .arg(component("machine-tests"))
            .arg("--tasks")
            .arg(project.path("validation.jsonl"))
            .args(more)
            .assert()
            .success();
        let export = ["trace", "export", "last", "--output"];
        project.fulgurite(&export).arg(&traces).assert().success();
        traces
    };
    let option = format!("adapter={}", adapter.display());
    let plain = fs::read_to_string(run(&[])).unwrap();
    let adapted = fs::read_to_string(run(&["--policy-option", &option])).unwrap();
    assert_ne!(plain, adapted);
}

/// What trains an adapter: imitation, then so many steps.
fn adapter(steps: u64) -> String {
    format!(
        "\
[lora]
rank = 4
alpha = 8
[group]
groups = 8
[warm_start]
steps = 4
from = 'references'
rate = 1e-2
[budget]
steps = {steps}
[algorithm]
schedule = {{ rate = 1e-3 }}"
    )
}

#[test]
fn an_adapter_for_a_gguf_file_does_in_a_run_what_it_did_in_training() {
    let project = training(&adapter(4));
    let model = root().join("host/model/tests/golden/tiny-llama.gguf");
    let policy = format!("gguf:{}", model.display());
    let config = fs::read_to_string(project.path("train.toml")).unwrap();
    project.write("train.toml", config.replace("tiny:tiny.toml", &policy));
    let report = report(&project, &[]);
    let option = format!("adapter={}", project.path("out/adapter").display());
    project
        .fulgurite(&["run", "--quiet", "--temperature", "0", "--max-tokens", "5"])
        .args(["--policy", &policy, "--policy-option", &option, "--tasks", "validation.jsonl"])
        .arg("--harness")
        .arg(component("apprentice"))
        .arg("--reward")
        .arg(component("machine-tests"))
        .assert()
        .success();
    let replies = |run: &str| -> Vec<Value> {
        let export = ["trace", "export", run, "--output", "run.jsonl"];
        project.fulgurite(&export).assert().success();
        let records = lines(&project.path("run.jsonl"));
        fs::remove_file(project.path("run.jsonl")).unwrap();
        let turns = records.into_iter().filter(|record| record["record"] == "turn");
        turns.map(|turn| turn["reply"].clone()).collect()
    };
    let runs = [&report["validation_runs"][0], &report["validation_runs"][1]];
    let [before, after] = runs.map(|run| replies(run.as_str().unwrap()));
    assert_ne!(before, after, "the adapter does nothing");
    assert_eq!(replies("last"), after);
}

#[test]
fn flags_come_before_the_file_and_a_merged_adapter_is_a_model_of_its_own() {
    let project = training(&format!("merge = true\n{}", adapter(300)));
    let flags = ["--steps", "4", "--seed", "7", "--output", "elsewhere"];
    let trained = report(&project, &flags);
    assert_eq!(trained["steps"], 4);
    assert!(!project.path("out").exists());
    assert!(project.path("elsewhere/adapter/adapter_config.json").is_file());
    let run = |more: &[&str]| -> f64 {
        let run = project
            .fulgurite(&["run", "--json", "--temperature", "0", "--max-tokens", "5"])
            .args(["--tasks", "validation.jsonl"])
            .args(more)
            .arg("--harness")
            .arg(component("apprentice"))
            .arg("--reward")
            .arg(component("machine-tests"))
            .assert()
            .success();
        let run: Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
        run["mean_reward"].as_f64().unwrap()
    };
    let merged = run(&["--policy", "tiny:elsewhere/model.toml"]);
    let beside = ["--policy", "tiny:tiny.toml", "--policy-option", "adapter=elsewhere/adapter"];
    assert!((merged - trained["validation_after"].as_f64().unwrap()).abs() < 0.05, "{trained}");
    assert!((merged - run(&beside)).abs() < 0.05);
}

#[test]
fn training_that_learns_nothing_more_ends_with_a_model() {
    // Every episode of a policy that is nearly greedy is the same: groups without a difference.
    let project = training(
        "[group]\nepisodes = 2\ngroups = 1\n[budget]\nsteps = 300\n\
                            [algorithm]\nschedule = { rate = 1e-9 }",
    );
    let config = fs::read_to_string(project.path("train.toml")).unwrap();
    let config = config.replace("max_tokens = 5", "max_tokens = 5\ntemperature = 1e-3");
    project.write("train.toml", config);
    let ended = project.fulgurite(&["train"]).assert().code(1);
    let told = String::from_utf8_lossy(&ended.get_output().stderr).into_owned();
    assert!(told.contains("nothing to learn from") && told.contains("mend"), "{told}");
    assert!(project.path("out/model.toml").is_file(), "{told}");
}

#[test]
fn what_cannot_be_trained_is_told_before_anything_runs() {
    let good = "[budget]\nsteps = 1\n[algorithm]\nschedule = { rate = 1e-3 }";
    let refused = |project: &Project, arguments: &[&str], part: &str| {
        let done = project.fulgurite(&["train"]).args(arguments).assert().code(2);
        let told = String::from_utf8_lossy(&done.get_output().stderr).into_owned();
        assert!(told.contains(part) && told.contains("mend"), "{part}: {told}");
    };
    let change = |from: &str, to: &str| {
        let project = training(good);
        let config = fs::read_to_string(project.path("train.toml")).unwrap();
        assert!(config.contains(from));
        project.write("train.toml", config.replace(from, to));
        project
    };
    refused(&change("steps = 1", "stepz = 1"), &[], "did you mean `steps`");
    refused(&change("steps = 1", ""), &[], "no end");
    refused(&change("'tiny:tiny.toml'", "'oracle'"), &[], "cannot be trained");
    let project = training(good);
    report(&project, &[]);
    refused(&project, &[], "--resume");
    let config = fs::read_to_string(project.path("train.toml")).unwrap();
    project.write("train.toml", config.replace("max_tokens = 5", "max_tokens = 6"));
    refused(&project, &["--resume"], "`sampling`");
}
