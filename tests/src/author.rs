//! The author's path: from an empty folder to scored episodes of one's own plugins.

use serde_json::Value;

use crate::{Project, run::run_of, target};

/// A new harness `my-agent` and a new reward `my-reward` in a language, from the templates and
/// built.
pub fn new_plugins(project: &Project, language: &str) {
    for (kind, name) in [("harness", "my-agent"), ("reward", "my-reward")] {
        project.fulgurite(&["new", kind, name, "--lang", language]).assert().success();
        project
            .fulgurite(&["build", name])
            // Those in Rust share their compiled standard library with the other guests.
            .env("CARGO_TARGET_DIR", target().join("guests"))
            .assert()
            .success();
    }
}

/// Runs them over the template's tasks with reference replies, one episode at a time and eight at
/// once: all earn 1, and both runs give the same trace. The second report.
pub fn run_new_plugins(project: &Project, samples: u32) -> Value {
    let samples = samples.to_string();
    let [(_, one_by_one), (report, at_once)] = ["1", "8"].map(|concurrency| {
        let run = run_of(
            "my-agent/my-agent.wasm",
            "my-reward/my-reward.wasm",
            "my-agent/tasks.jsonl",
            "oracle",
        );
        let (report, code) = project.run(run.with(&["-n", &samples, "--concurrency", concurrency]));
        assert_eq!(code, 0, "{report}");
        assert_eq!(report["mean_reward"], 1.0, "{report}");
        (report, project.export())
    });
    assert_eq!(one_by_one, at_once);
    report
}
