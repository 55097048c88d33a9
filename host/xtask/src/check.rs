//! Tests and lints.

use std::process::Command;

use anyhow::Result;

use crate::project::{self, Selection, cargo, check};

/// Workspaces of guests whose code also compiles for the host, where its unit tests run.
const GUESTS: [&str; 5] =
    ["sdk/rust", "plugins", "examples/quickstart", "examples/learn", "examples/shell"];

/// Guests of the tests are wrong on purpose; only their form is checked.
const TEST_GUESTS: &str = "tests/guests";

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
    for workspace in GUESTS {
        check(guest_cargo(workspace).arg("test"))?;
    }
    check(
        Command::new("python3")
            .current_dir(project::root().join("sdk/python"))
            .args(["-B", "-m", "unittest", "discover", "--quiet", "-s", "tests", "-t", "."]),
    )
}

/// A cargo command in a workspace of guests.
fn guest_cargo(workspace: &str) -> Command {
    let mut command = cargo();
    command.current_dir(project::root().join(workspace));
    // One folder for all of them, as where they are built, so that the SDK is compiled once.
    command.env("CARGO_TARGET_DIR", project::target_folder().join("guests"));
    command
}

/// What is checked beside the tests. `cargo-deny` must be installed; CUDA need not be.
pub(crate) fn lint() -> Result<()> {
    check(cargo().args(["fmt", "--all", "--check"]))?;
    for workspace in GUESTS.into_iter().chain([TEST_GUESTS]) {
        check(guest_cargo(workspace).args(["fmt", "--all", "--check"]))?;
    }
    for workspace in GUESTS {
        // The SDK's examples are behind a feature.
        let everything = ["clippy", "--workspace", "--all-targets", "--all-features"];
        check(guest_cargo(workspace).args(everything).args(["--", "--deny", "warnings"]))?;
    }
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
