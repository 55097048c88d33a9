//! Building the host and the guests, and registering what ships.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{artifacts, say};

/// The shipped plugins: folder below `plugins/`, which is also the registered name.
const PLUGINS: [(&str, &str); 5] = [
    ("coder", "harness"),
    ("solve", "harness"),
    ("tests-pass", "reward"),
    ("exact-match", "reward"),
    ("length-penalty", "reward"),
];

/// Folders of guests that only tests use.
const TEST_GUESTS: [&str; 7] = [
    "tests/guests/both",
    "tests/guests/evil-import",
    "tests/guests/one-turn",
    "tests/guests/probe",
    "tests/guests/probe-reward",
    "tests/guests/python-probe",
    "tests/guests/sockets",
];

/// Guests of the example of learning: folders below `examples/learn`, and what they are called.
const LEARN_GUESTS: [(&str, &str); 3] =
    [("harness", "apprentice"), ("machine", "machine"), ("reward", "machine-tests")];

/// What of the host is compiled. Always for release: what users run is what is tested, and
/// dependencies are compiled once for both.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    /// The program.
    Program,
    /// Everything, tests included.
    Everything,
}

impl Selection {
    /// The program, or what is compiled already ([`EVERYTHING`]).
    pub(crate) fn for_users() -> Self {
        if std::env::var_os(EVERYTHING).is_some() { Self::Everything } else { Self::Program }
    }
}

/// Set where everything is compiled already, so that the demonstration takes that: the program
/// alone has dependencies with fewer features, which would all be compiled once more.
pub(crate) const EVERYTHING: &str = "FULGURITE_XTASK_EVERYTHING";

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// A cargo command at the root.
pub(crate) fn cargo() -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root());
    // What `cargo xtask` sets for itself must not reach other workspaces. The toolchain must:
    // cargo starts rustc in the folder of each crate, and some crates bring a toolchain file.
    for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME"] {
        command.env_remove(name);
    }
    command
}

/// Runs a command; an error names it.
pub(crate) fn check(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed ({status})");
    }
    Ok(())
}

/// The compiled binary, and the home it uses.
pub(crate) struct Host {
    /// Path of the binary.
    pub(crate) binary: PathBuf,
    /// `FULGURITE_HOME`, where not the user's own.
    home: Option<PathBuf>,
}

impl Host {
    /// A call of the binary at the root.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.current_dir(root());
        if let Some(home) = &self.home {
            command.env("FULGURITE_HOME", home);
        }
        command
    }
}

/// Everything a first run needs, registered in `home` (default: the user's own).
pub(crate) fn setup(selection: Selection, home: Option<PathBuf>) -> Result<Host> {
    let host = Host { binary: build_host(selection)?, home };
    artifacts::fetch()?;
    let components = build_guests(&host)?;
    register(&host, &components)?;
    Ok(host)
}

/// Compiles the host; answers the path of the binary.
fn build_host(selection: Selection) -> Result<PathBuf> {
    say("compiling the host (the first time takes many minutes on a small machine)");
    let mut command = cargo();
    command.args(["build", "--release"]);
    match selection {
        Selection::Program => command.args(["--package", "fulgurite"]),
        // The same selection as the tests', so that dependencies are compiled once for both.
        Selection::Everything => command.args(["--workspace", "--all-targets"]),
    };
    check(&mut command)?;
    Ok(target_folder().join("release").join("fulgurite"))
}

/// Compiles every guest into `target/components`; answers that folder.
fn build_guests(host: &Host) -> Result<PathBuf> {
    let components = target_folder().join("components");
    fs::create_dir_all(&components)?;
    let plugins = PLUGINS.iter().map(|(name, _)| format!("plugins/{name}"));
    for folder in plugins.chain(TEST_GUESTS.map(str::to_owned)) {
        let name = folder.rsplit('/').next().unwrap_or(&folder);
        build_guest(host, &folder, &components.join(format!("{name}.wasm")))?;
    }
    build_learn_guests(host, &components)?;
    Ok(components)
}

/// Compiles what the example of learning consists of into a folder.
pub(crate) fn build_learn_guests(host: &Host, folder: &Path) -> Result<()> {
    for (part, name) in LEARN_GUESTS {
        let file = folder.join(format!("{name}.wasm"));
        build_guest(host, &format!("examples/learn/{part}"), &file)?;
    }
    Ok(())
}

fn build_guest(host: &Host, folder: &str, file: &Path) -> Result<()> {
    say(format!("compiling {folder}"));
    check(
        host.command()
            // One folder for all of them, so that their standard library is compiled once.
            .env("CARGO_TARGET_DIR", target_folder().join("guests"))
            .args(["build", folder, "--quiet", "--output"])
            .arg(file),
    )
}

fn register(host: &Host, components: &Path) -> Result<()> {
    for (name, kind) in PLUGINS {
        check(
            host.command()
                .args(["plugin", "add", "--quiet", "--name", name, "--kind", kind])
                .arg(components.join(format!("{name}.wasm"))),
        )?;
    }
    let python = artifacts::folder()?.join("python-3.12.0.wasm");
    check(
        host.command()
            .args(["plugin", "add", "--quiet", "--name", "python", "--kind", "program"])
            .arg(python),
    )
}

/// Where the host is compiled.
pub(crate) fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Where tests keep their plugins, apart from the user's own.
pub(crate) fn test_home() -> PathBuf {
    target_folder().join("test-home")
}
