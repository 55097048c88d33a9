//! Tests and lints.

use std::process::Command;

use anyhow::Result;

use crate::project::{self, Selection, cargo, check};

/// Sets up and runs every test, also of the guests' own workspaces.
pub(crate) fn test(arguments: &[String]) -> Result<()> {
    let home = project::test_home();
    guests()?;
    let host = project::setup(Selection::Everything, Some(home.clone()))?;
    check(
        cargo()
            .args(["test", "--release", "--workspace", "--no-fail-fast"])
            .args(arguments)
            .env("FULGURITE_HOME", &home)
            .env("FULGURITE_BINARY", &host.binary),
    )
}

/// Unit tests of what guests are made of; these parts run on the host as well.
fn guests() -> Result<()> {
    for workspace in ["sdk/rust", "plugins"] {
        check(
            cargo()
                .current_dir(project::root().join(workspace))
                .env("CARGO_TARGET_DIR", project::target_folder().join("guests"))
                .arg("test"),
        )?;
    }
    check(
        Command::new("python3")
            .current_dir(project::root().join("sdk/python"))
            .args(["-B", "-m", "unittest", "discover", "--quiet", "-s", "tests", "-t", "."]),
    )
}

/// What is checked beside the tests. `cargo-deny` must be installed; CUDA need not be.
pub(crate) fn lint() -> Result<()> {
    check(cargo().args(["fmt", "--all", "--check"]))?;
    check(cargo().args([
        "clippy",
        "--release",
        "--workspace",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ]))?;
    check(
        cargo()
            .args(["doc", "--release", "--workspace", "--no-deps", "--quiet"])
            .env("RUSTDOCFLAGS", "--deny warnings"),
    )?;
    check(cargo().args(["deny", "check", "licenses", "bans", "sources"]))?;
    // What only a machine with a graphics card compiles otherwise.
    check(
        Command::new("bash")
            .arg(project::root().join("host/xtask/cuda-check.sh"))
            .env("CARGO_TARGET_DIR", project::target_folder()),
    )
}
