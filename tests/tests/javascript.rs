//! A harness and a reward in JavaScript, where Node.js is installed to build them.

use fulgurite_tests::{
    Project,
    author::{new_plugins, run_new_plugins},
    said::not_tried,
};

#[test]
#[ignore = "fetches from npm and takes minutes: cargo xtask test -- --ignored"]
fn a_new_harness_and_a_new_reward_in_javascript_build_and_run() {
    if std::process::Command::new("npm").arg("--version").output().is_err() {
        not_tried("plugins in JavaScript; npm is not installed");
        return;
    }
    let project = Project::new();
    new_plugins(&project, "js");
    for name in ["my-agent", "my-reward"] {
        project.fulgurite(&["inspect", &format!("{name}/{name}.wasm")]).assert().success();
    }
    run_new_plugins(&project, 2);
}
