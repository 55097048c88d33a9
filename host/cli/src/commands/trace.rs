//! `fulgurite trace`: looking at what was recorded.

use std::{fs::File, io::BufWriter, path::Path};

use anyhow::{Context as _, Result, bail};
use fulgurite_trace::{EpisodeRef, EpisodeSummary, Store, canonical, transcript};
use serde_json::json;

use crate::{args::TraceCommand, exit, output::Output, place::Places, run::resolve_run, table};

pub(crate) fn run(command: &TraceCommand, places: &Places, output: Output) -> Result<()> {
    let store = Store::open_read_only(&places.store)?;
    match command {
        TraceCommand::List { run: None } => runs(&store, output),
        TraceCommand::List { run: Some(run) } => {
            episodes(&store, &resolve_run(&store, run)?, output)
        }
        TraceCommand::Show { run, episode } => {
            show(&store, &resolve_run(&store, run)?, episode, output)
        }
        TraceCommand::Export { run, output: file } => {
            export(&store, &resolve_run(&store, run)?, file.as_deref(), output)
        }
    }
}

fn runs(store: &Store, output: Output) -> Result<()> {
    let runs = store.runs()?;
    let values: Vec<_> = runs
        .iter()
        .map(|run| {
            let plan = |name: &str| run.record.plan.pointer(name).cloned().unwrap_or_default();
            json!({
                "run": run.record.id,
                "started": run.record.started_at.to_string(),
                "status": run.status,
                "harness": plan("/harness/name"),
                "policy": plan("/policy_name"),
                "tasks": plan("/tasks/count"),
                "samples": plan("/samples"),
            })
        })
        .collect();
    output.result(&values, |values| {
        let heads = ["run", "started", "status", "harness", "policy", "tasks", "samples"];
        table::text(heads, values.iter().map(|value| heads.map(|head| cell(value, head))))
    })
}

fn cell(value: &serde_json::Value, name: &str) -> String {
    match value.get(name) {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(serde_json::Value::Null) | None => String::new(),
        Some(value) => value.to_string(),
    }
}

fn episodes(store: &Store, run: &str, output: Output) -> Result<()> {
    let episodes = store.episodes(run)?;
    let values: Vec<_> = episodes
        .iter()
        .map(|summary| {
            let EpisodeRef { task, sample, attempt } = summary.episode;
            json!({
                "episode": format!("{task}.{sample}"),
                "attempt": attempt,
                "task": summary.task_id,
                "state": summary.state,
                "ended": summary.kind,
                "total": summary.total,
                "turns": summary.turns,
                "written": summary.completion_tokens,
                "reason": summary.reason,
            })
        })
        .collect();
    output.result(&values, |values| {
        let heads =
            ["episode", "attempt", "task", "state", "ended", "total", "turns", "written", "reason"];
        table::text(heads, values.iter().map(|value| heads.map(|head| cell(value, head))))
    })
}

fn show(store: &Store, run: &str, episode: &str, output: Output) -> Result<()> {
    let episode = last_attempt(store, run, episode)?.episode;
    let record = transcript::EpisodeRecord::load(store, run, episode)?;
    if output.is_json() {
        let mut bytes = Vec::new();
        canonical::export_episode(store, run, &record.summary, &mut bytes)?;
        return output.text(String::from_utf8_lossy(&bytes).trim_end());
    }
    let options = if output.colored() {
        transcript::Options::default()
    } else {
        transcript::Options { columns: None, ..transcript::Options::default() }
    };
    let lines: Vec<_> = transcript::render(&record, options)
        .iter()
        .map(|line| if output.colored() { line.paint() } else { line.to_string() })
        .collect();
    output.text(&lines.join("\n"))
}

/// The last attempt of `TASK` or `TASK.SAMPLE`.
fn last_attempt(store: &Store, run: &str, text: &str) -> Result<EpisodeSummary> {
    let (task, sample) = text.split_once('.').unwrap_or((text, "0"));
    let (Ok(task), Ok(sample)) = (task.parse::<u32>(), sample.parse::<u32>()) else {
        bail!(exit::Usage(format!(
            "`{}` is not an episode; write TASK or TASK.SAMPLE, numbers as `fulgurite trace list \
             {run}` shows them",
            text.escape_debug()
        )));
    };
    let found = store
        .episodes(run)?
        .into_iter()
        .filter(|summary| (summary.episode.task, summary.episode.sample) == (task, sample))
        .max_by_key(|summary| summary.episode.attempt);
    found.with_context(|| {
        format!("run {run} has no episode {task}.{sample}; `fulgurite trace list {run}` shows them")
    })
}

fn export(store: &Store, run: &str, file: Option<&Path>, output: Output) -> Result<()> {
    match file {
        None => match canonical::export(store, run, &mut std::io::stdout().lock()) {
            // Whoever read has seen enough.
            Err(canonical::ExportError::Write(error))
                if error.kind() == std::io::ErrorKind::BrokenPipe =>
            {
                Ok(())
            }
            done => Ok(done?),
        },
        Some(file) => {
            let problem = || format!("cannot write {}", file.display());
            if let Some(folder) = file.parent() {
                std::fs::create_dir_all(folder).with_context(problem)?;
            }
            let mut writer = BufWriter::new(File::create(file).with_context(problem)?);
            canonical::export(store, run, &mut writer)?;
            let written = writer.into_inner().map_err(std::io::IntoInnerError::into_error);
            written.and_then(|file| file.sync_all()).with_context(problem)?;
            output.remark(format_args!("wrote {}", file.display()));
            Ok(())
        }
    }
}
