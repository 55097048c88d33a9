//! The author's path: from an empty folder to the first scored episode of one's own harness.

use fulgurite_tests::Project;

#[test]
fn a_new_harness_and_a_new_reward_build_inspect_and_run() {
    let project = Project::new();
    project.fulgurite(&["new", "harness", "my-agent", "--lang", "rust"]).assert().success();
    project.fulgurite(&["new", "reward", "my-reward"]).assert().success();
    for name in ["my-agent", "my-reward"] {
        project
            .fulgurite(&["build", name])
            .env("CARGO_TARGET_DIR", fulgurite_tests::target().join("guests"))
            .assert()
            .success();
    }
    let shown = project.fulgurite(&["inspect", "my-agent/my-agent.wasm"]).assert().success();
    let text = String::from_utf8_lossy(&shown.get_output().stdout).into_owned();
    for part in ["harness", "granted", "sha256:", "config_schema"] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    let (report, code) = project.run(&[
        "--harness",
        "my-agent/my-agent.wasm",
        "--reward",
        "my-reward/my-reward.wasm",
        "--tasks",
        "my-agent/tasks.jsonl",
        "--policy",
        "oracle",
    ]);
    assert_eq!(code, 0, "{report}");
    assert!(report["scored"].as_u64() > Some(0), "{report}");
}
