//! `fulgurite build`: makes a component of a plugin's source, in Rust, Python or JavaScript.
//!
//! A build runs what the plugin's author wrote (build scripts, macros, modules that are imported)
//! with the rights of the user, and what its dependencies bring; only the result is sandboxed.

mod embedded;
mod javascript;
mod python;
mod rust;
mod rust_toolchain;

use std::{fs, path::Path, path::PathBuf};

use anyhow::{Context as _, Result, bail};

/// What a build gave.
#[derive(Debug)]
pub(crate) struct Built {
    /// The component.
    pub(crate) file: PathBuf,
    /// What was done to be able to compile, for people.
    pub(crate) remarks: Vec<String>,
}

/// How guests in Rust would be compiled, without installing anything.
pub(crate) fn available() -> Result<&'static str> {
    rust_toolchain::available()
}

/// Builds the plugin in `folder`; the component goes to `output`, or into that folder. Tools that
/// are missing are kept in `tools`.
pub(crate) fn build(
    folder: &Path,
    output: Option<&Path>,
    tools: &Path,
    quiet: bool,
) -> Result<Built> {
    if folder.join("Cargo.toml").is_file() {
        rust::build(folder, output, quiet)
    } else if folder.join("pyproject.toml").is_file() {
        python::build(folder, output, tools)
    } else if folder.join("package.json").is_file() {
        javascript::build(folder, output, tools)
    } else {
        bail!(
            "{} has no Cargo.toml, pyproject.toml or package.json\n  mend: name the folder of a \
             plugin; `fulgurite new` starts one",
            folder.display()
        )
    }
}

/// Puts a finished component where it belongs, by a rename, so that nobody ever sees half of it.
fn place(component: &Path, file: &Path) -> Result<()> {
    let scratch = file.with_extension("wasm.partial");
    fs::copy(component, &scratch)
        .and_then(|_| fs::rename(&scratch, file))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Writes files below a folder that is emptied before.
fn lay_down(folder: &Path, files: &[(&str, &str)]) -> Result<()> {
    let write = || {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        for (path, contents) in files {
            let file = folder.join(path);
            fs::create_dir_all(file.parent().unwrap_or(folder))?;
            fs::write(file, contents)?;
        }
        Ok(())
    };
    write().map_err(|cause: std::io::Error| {
        anyhow::Error::new(cause).context(format!("cannot write {}", folder.display()))
    })
}

/// The last line of a tool's message.
fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or("no message")
        .trim()
        .to_owned()
}
