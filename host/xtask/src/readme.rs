//! Runs the commands of the READMEs exactly as printed: every fenced block marked `sh`, in order.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result, bail};

use crate::{project, say};

/// The README at the root and those of the examples.
pub(crate) fn run() -> Result<()> {
    let root = project::root();
    let mut readmes = vec![root.join("README.md")];
    let mut examples: Vec<_> = fs::read_dir(root.join("examples"))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path().join("README.md")))
        .filter(|path| path.is_file())
        .collect();
    examples.sort();
    readmes.extend(examples);
    // As after an installation.
    let mut folders = vec![project::target_folder().join("release")];
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let path = std::env::join_paths(folders)?;
    for readme in readmes {
        let text = fs::read_to_string(&readme)
            .with_context(|| format!("cannot read {}", readme.display()))?;
        let script = commands(&text);
        if script.is_empty() {
            bail!("{} prints no command to run", readme.display());
        }
        say(format!("running the commands of {}", readme.display()));
        let folder = readme.parent().unwrap_or(Path::new("."));
        project::check(
            Command::new("bash")
                .args(["-euo", "pipefail", "-x", "-c", &script])
                .current_dir(folder)
                .env("PATH", &path)
                .env("CARGO_TERM_PROGRESS_WHEN", "never")
                // After the tests everything is there.
                .env(project::EVERYTHING, "1"),
        )
        .with_context(|| format!("the commands of {} do not work as printed", readme.display()))?;
    }
    Ok(())
}

/// The contents of all `sh` blocks.
fn commands(text: &str) -> String {
    let mut script = String::new();
    let mut inside = false;
    for line in text.lines() {
        match (inside, line.trim_end()) {
            (false, "```sh") => inside = true,
            (true, "```") => inside = false,
            (true, line) => {
                script.push_str(line);
                script.push('\n');
            }
            (false, _) => {}
        }
    }
    script
}

#[cfg(test)]
mod tests {
    use super::commands;

    #[test]
    fn only_blocks_marked_sh_are_run() {
        let text = "a\n```sh\none\ntwo\n```\nb\n```text\nthree\n```\n```sh\nfour\n```\n";
        assert_eq!(commands(text), "one\ntwo\nfour\n");
    }
}
