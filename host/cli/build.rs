//! The commit that the program is built from, for `--version` and for the record of every run.
//!
//! `FULGURITE_COMMIT` of the environment goes first, for those who package a source archive; then
//! git is asked. Where neither answers, the commit is `unknown`, and says so.

#![allow(clippy::print_stdout, reason = "cargo is told by printing")]

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo:rerun-if-env-changed=FULGURITE_COMMIT");
    let given = env::var("FULGURITE_COMMIT").ok().filter(|commit| is_plain(commit));
    let commit = given.or_else(from_git).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=FULGURITE_COMMIT={commit}");
}

/// The checked-out commit of the repository that holds this very crate; a copy of the sources
/// within another repository has none.
fn from_git() -> Option<String> {
    let crate_folder = env::var("CARGO_MANIFEST_DIR").ok()?;
    let root = git(&["rev-parse", "--show-toplevel"])?;
    if Path::new(&root).join("host").join("cli") != Path::new(&crate_folder) {
        return None;
    }
    // Every commit and checkout is noted in the head's log; without a log the head itself must do.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--path-format=absolute", "--git-path", name])
            && Path::new(&path).exists()
        {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "HEAD"]).filter(|commit| is_plain(commit))
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Fit to stand on one line of what cargo reads.
fn is_plain(commit: &str) -> bool {
    !commit.is_empty()
        && commit.len() <= 100
        && commit.chars().all(|character| character.is_ascii_graphic())
}
