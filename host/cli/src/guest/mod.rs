//! `fulgurite build`: compiles a plugin's Rust package to a component.
//!
//! The build runs the package's own build scripts and macros with the rights of the user; only
//! the result is sandboxed.

mod toolchain;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// The target of every guest.
const TARGET: &str = "wasm32-wasip2";

/// What a build gave.
#[derive(Debug)]
pub(crate) struct Built {
    /// The component.
    pub(crate) file: PathBuf,
    /// What was done to be able to compile, for people.
    pub(crate) remarks: Vec<String>,
}

/// A line of `cargo build --message-format=json`, as far as it matters here.
#[derive(Deserialize)]
struct CargoMessage {
    reason: String,
    #[serde(default)]
    filenames: Vec<PathBuf>,
    #[serde(default)]
    target: Option<CargoTarget>,
    #[serde(default)]
    manifest_path: Option<PathBuf>,
}

#[derive(Deserialize)]
struct CargoTarget {
    kind: Vec<String>,
}

/// How guests would be compiled, without installing anything.
pub(crate) fn available() -> Result<&'static str> {
    toolchain::available()
}

/// Compiles the package in `folder`; the component is copied to `output`, or beside the
/// package's manifest.
pub(crate) fn build(folder: &Path, output: Option<&Path>, quiet: bool) -> Result<Built> {
    let manifest = folder.join("Cargo.toml");
    if !manifest.is_file() {
        bail!(
            "{} has no Cargo.toml\n  mend: name the folder of a plugin's package; `fulgurite new` \
             starts one",
            folder.display()
        );
    }
    let manifest = manifest.canonicalize()?;
    let toolchain = toolchain::find_or_install()?;
    let mut command = Command::new("cargo");
    command.args(["build", "--release", "--target", TARGET, "--manifest-path"]).arg(&manifest);
    command.arg("--message-format=json-render-diagnostics");
    if quiet {
        command.arg("--quiet");
    }
    toolchain.apply(&mut command);
    let mut child = command
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo; install Rust with rustup")?;
    let messages = child.stdout.take().context("cargo has no standard output")?;
    let mut component = None;
    for line in BufReader::new(messages).lines() {
        let Ok(message) = serde_json::from_str::<CargoMessage>(&line?) else { continue };
        if message.reason == "compiler-artifact"
            && message.manifest_path.as_deref() == Some(&manifest)
            && message.target.is_some_and(|target| {
                target.kind.iter().any(|kind| kind == "cdylib" || kind == "bin")
            })
        {
            component = message
                .filenames
                .into_iter()
                .find(|file| file.extension().is_some_and(|extension| extension == "wasm"));
        }
    }
    if !child.wait()?.success() {
        bail!("cargo could not compile {}; its messages stand above", folder.display());
    }
    let component = component.with_context(|| {
        format!(
            "{} gives no component\n  mend: its Cargo.toml needs `[lib] crate-type = [\"cdylib\"]`, or a `src/main.rs` for a program",
            folder.display()
        )
    })?;
    let file = match output {
        Some(file) => file.to_owned(),
        None => folder
            .join(component.file_name().unwrap_or_default().to_string_lossy().replace('_', "-")),
    };
    // Renamed into place, so that nobody ever sees half a component.
    let scratch = file.with_extension("wasm.partial");
    fs::copy(&component, &scratch)
        .and_then(|_| fs::rename(&scratch, &file))
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(Built { file, remarks: toolchain.remarks })
}
