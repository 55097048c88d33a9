//! `fulgurite tasks`: making and checking task files.

use std::{io::Write as _, path::Path};

use anyhow::{Context as _, Result, bail};
use fulgurite_episode::dataset;
use fulgurite_trace::escape::{Lines, escape};
use serde_json::json;

use crate::{
    args::{ImportedDataset, TasksCommand},
    human_eval,
    output::Output,
    place::Places,
};

pub(crate) fn run(command: &TasksCommand, places: &Places, output: Output) -> Result<()> {
    match command {
        TasksCommand::Import { dataset: ImportedDataset::HumanEval, from, limit, output: file } => {
            let fetched = places.artifact("HumanEval.jsonl.gz");
            let from = match from {
                Some(from) => from,
                None if fetched.is_file() => &fetched,
                None => bail!(
                    "HumanEval has not been fetched\n  mend: run `cargo xtask setup`, or name its \
                     file with --from"
                ),
            };
            let tasks = human_eval::read(from, *limit)?;
            write(&tasks, file)?;
            let done = json!({ "file": file, "tasks": tasks.len() });
            output.result(&done, |_| format!("{} tasks in {}", tasks.len(), file.display()))
        }
        TasksCommand::Check { file } => check(file, output),
    }
}

fn write(tasks: &[fulgurite_trace::Task], file: &Path) -> Result<()> {
    let folder = file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let problem = || format!("cannot write {}", file.display());
    std::fs::create_dir_all(folder).with_context(problem)?;
    // Renamed into place, so that nobody ever reads half a file.
    let mut scratch = tempfile::NamedTempFile::new_in(folder).with_context(problem)?;
    for task in tasks {
        serde_json::to_writer(&mut scratch, task)?;
        scratch.write_all(b"\n").with_context(problem)?;
    }
    scratch.as_file().sync_all().with_context(problem)?;
    scratch.persist(file).with_context(problem)?;
    Ok(())
}

fn check(file: &Path, output: Output) -> Result<()> {
    let dataset = dataset::read(file, true)?;
    let bad: Vec<String> = dataset.skipped.iter().map(ToString::to_string).collect();
    let found = json!({ "tasks": dataset.tasks.len(), "digest": dataset.digest, "bad": bad });
    output.result(&found, |_| {
        let mut text = escape(&bad.join("\n"), Lines::Keep).into_owned();
        if !text.is_empty() {
            text.push('\n');
        }
        text + &format!("{} good tasks, {} broken rows", dataset.tasks.len(), bad.len())
    })?;
    if bad.is_empty() {
        Ok(())
    } else {
        bail!(crate::exit::Usage("the file has broken rows".into()))
    }
}
