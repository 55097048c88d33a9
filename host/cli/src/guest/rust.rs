//! Plugins in Rust: compiled with cargo for `wasm32-wasip2`.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::{Built, place, rust_toolchain};

/// The target of every guest.
pub(super) const TARGET: &str = "wasm32-wasip2";

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

/// Compiles the package in `folder`; the component is copied to `output`, or beside the
/// package's manifest.
pub(super) fn build(folder: &Path, output: Option<&Path>, quiet: bool) -> Result<Built> {
    let manifest = folder.join("Cargo.toml");
    let manifest = manifest.canonicalize()?;
    let toolchain = rust_toolchain::find_or_install()?;
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
            "{} gives no component\n  mend: its Cargo.toml needs `[lib] crate-type = [\"cdylib\"]`, or \
             a program a `src/main.rs`",
            folder.display()
        )
    })?;
    let name = component.file_name().unwrap_or_default().to_string_lossy().replace('_', "-");
    let file = output.map_or_else(|| folder.join(name), Path::to_owned);
    place(&component, &file)?;
    Ok(Built { file, remarks: toolchain.remarks })
}
