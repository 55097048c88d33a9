//! A harness and a reward in JavaScript, where Node.js is installed to build them.

use fulgurite_tests::Project;

#[test]
#[ignore = "fetches from npm and takes minutes: cargo xtask test -- --ignored"]
fn a_new_harness_and_a_new_reward_in_javascript_build_and_run() {
    if std::process::Command::new("npm").arg("--version").output().is_err() {
        eprintln!("npm is not installed: plugins in JavaScript are not tested");
        return;
    }
    let project = Project::new();
    for (kind, name) in [("harness", "my-agent"), ("reward", "my-reward")] {
        project.fulgurite(&["new", kind, name, "--lang", "js"]).assert().success();
        project.fulgurite(&["build", name]).assert().success();
        project.fulgurite(&["inspect", &format!("{name}/{name}.wasm")]).assert().success();
    }
    let mut exports = Vec::new();
    for concurrency in ["1", "8"] {
        let (report, code) = project.run(&[
            "--harness",
            "my-agent/my-agent.wasm",
            "--reward",
            "my-reward/my-reward.wasm",
            "--tasks",
            "my-agent/tasks.jsonl",
            "--policy",
            "oracle",
            "-n",
            "2",
            "--concurrency",
            concurrency,
        ]);
        assert_eq!(code, 0, "{report}");
        assert_eq!(report["mean_reward"], 1.0, "{report}");
        exports.push(project.export());
    }
    assert_eq!(exports[0], exports[1]);
}
