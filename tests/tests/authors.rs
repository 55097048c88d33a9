//! The author's path: from an empty folder to the first scored episode of one's own harness.

use fulgurite_tests::{
    Project,
    author::{new_plugins, run_new_plugins},
    said::{says, stdout},
};

#[test]
fn a_new_harness_and_a_new_reward_build_inspect_and_run() {
    let project = Project::new();
    new_plugins(&project, "rust");
    let shown = project.fulgurite(&["inspect", "my-agent/my-agent.wasm"]).assert().success();
    says(&stdout(shown.get_output()), &["harness", "granted", "sha256:", "config_schema"]);
    let report = run_new_plugins(&project, 1);
    assert!(report["scored"].as_u64() > Some(0), "{report}");
}
