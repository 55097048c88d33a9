//! `fulgurite trace`: looking at what was recorded.

use std::{collections::BTreeMap, fs::File, io::BufWriter, path::Path};

use anyhow::{Context as _, Result, bail};
use fulgurite_trace::{
    EpisodeRef, EpisodeSummary, Graded, Grading, Run, RunStatus, Score, ScoreComponent, State,
    Store, canonical, transcript,
};
use serde_json::{Value, json};

use super::files;
use crate::{
    args::TraceCommand,
    exit,
    output::{Output, escaped},
    place::Places,
    run::resolve_run,
    table,
};

pub(crate) fn run(command: &TraceCommand, places: &Places, output: Output) -> Result<()> {
    let store = Store::open_read_only(&places.store)?;
    match command {
        TraceCommand::List { run: None } => runs(&store, output),
        TraceCommand::List { run: Some(run) } => {
            episodes(&store, &resolve_run(&store, run)?, output)
        }
        TraceCommand::Show { run, episode: None, files: _ } => {
            show_run(&store, &resolve_run(&store, run)?, output)
        }
        TraceCommand::Show { run, episode: Some(episode), files: true } => {
            let run = resolve_run(&store, run)?;
            let attempt = last_attempt(&store, &run, episode)?;
            files::show(&store, &run, attempt.episode, output)
        }
        TraceCommand::Show { run, episode: Some(episode), files: false } => {
            show(&store, &resolve_run(&store, run)?, episode, output)
        }
        TraceCommand::Export { run, files: Some(folder), .. } => {
            files::export(&store, &resolve_run(&store, run)?, folder, output)
        }
        TraceCommand::Export { run, output: file, files: None } => {
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
                "commit": run.record.commit,
                "machine": run.record.machine,
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

/// What a run was made with.
fn show_run(store: &Store, run: &str, output: Output) -> Result<()> {
    let Run { record, status, finished_at } = store.run(run)?;
    let gradings: Vec<_> = store
        .gradings(run)?
        .into_iter()
        .map(|grading| {
            json!({
                "grading": grading.position,
                "graded_at": grading.graded_at.to_string(),
                "graded": grading.graded,
                "mean_reward": grading.mean,
                "rewards": grading.plan.get("rewards"),
            })
        })
        .collect();
    let value = json!({
        "run": record.id,
        "status": status,
        "started": record.started_at.to_string(),
        "finished": finished_at.map(|moment| moment.to_string()),
        "commit": record.commit,
        "machine": record.machine,
        "tasks": record.tasks,
        "gradings": gradings,
        "plan": record.plan,
    });
    output.result(&value, |value| {
        let rows = value.as_object().into_iter().flatten().map(|(name, value)| {
            let text = match value {
                Value::Object(_) | Value::Array(_) => {
                    serde_json::to_string_pretty(value).unwrap_or_default()
                }
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                value => value.to_string(),
            };
            [name.clone(), text]
        });
        table::pairs(rows)
    })
}

fn episodes(store: &Store, run: &str, output: Output) -> Result<()> {
    let episodes = store.episodes(run)?;
    let is_over = store.run(run)?.status != RunStatus::Running;
    let graded = graded(store, run)?;
    let values: Vec<_> = episodes
        .iter()
        .map(|summary| {
            let EpisodeRef { task, sample, attempt } = summary.episode;
            json!({
                "episode": format!("{task}.{sample}"),
                "attempt": attempt,
                "task": summary.task_id,
                // The process of a run that is over is at nothing any more.
                "state": match summary.state {
                    State::Running | State::Ended if is_over => "interrupted",
                    state => state.name(),
                },
                "ended": summary.kind,
                "total": summary.total,
                "turns": summary.turns,
                "written": summary.completion_tokens,
                "reason": summary.reason,
                "graded": graded
                    .get(&summary.episode)
                    .into_iter()
                    .flatten()
                    .map(|(grading, graded)| json!({ "grading": grading, "total": graded.total }))
                    .collect::<Vec<_>>(),
            })
        })
        .collect();
    output.result(&values, |values| {
        let heads =
            ["episode", "attempt", "task", "state", "ended", "total", "turns", "written", "reason"];
        table::text(heads, values.iter().map(|value| heads.map(|head| cell(value, head))))
    })
}

/// What later gradings gave each episode, oldest first.
fn graded(store: &Store, run: &str) -> Result<BTreeMap<EpisodeRef, Vec<(u32, Graded)>>> {
    let mut by_episode = BTreeMap::<_, Vec<_>>::new();
    for Grading { position, .. } in store.gradings(run)? {
        for graded in store.graded(run, position)? {
            by_episode.entry(graded.episode).or_default().push((position, graded));
        }
    }
    Ok(by_episode)
}

/// One grading of an episode, below its transcript.
fn grading_lines(position: u32, graded: &Graded) -> Vec<String> {
    let outcome = match (graded.total, &graded.reason) {
        (Some(total), _) => format!("total {total}"),
        (None, reason) => escaped(reason.as_deref().unwrap_or("not graded")).into_owned(),
    };
    let mut lines = vec![String::new(), format!("grading {position}  {outcome}")];
    for Score { reward, weight, total, components, .. } in &graded.scores {
        lines.push(format!("  {} {total}  weight {weight}", escaped(reward)));
        for ScoreComponent { name, value } in components {
            lines.push(format!("    {} {value}", escaped(name)));
        }
    }
    lines
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
    let mut lines: Vec<_> = transcript::render(&record, options)
        .iter()
        .map(|line| if output.colored() { line.paint() } else { line.to_string() })
        .collect();
    for (position, graded) in graded(store, run)?.get(&episode).into_iter().flatten() {
        lines.extend(grading_lines(*position, graded));
    }
    output.text(&lines.join("\n"))
}

/// The last attempt of every episode, by task and sample.
pub(crate) fn last_attempts(store: &Store, run: &str) -> Result<Vec<EpisodeSummary>> {
    let mut last: Vec<EpisodeSummary> = Vec::new();
    for attempt in store.episodes(run)? {
        let place = |one: &EpisodeSummary| (one.episode.task, one.episode.sample);
        match last.last_mut() {
            Some(before) if place(before) == place(&attempt) => *before = attempt,
            _ => last.push(attempt),
        }
    }
    Ok(last)
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
    let found = last_attempts(store, run)?
        .into_iter()
        .find(|summary| (summary.episode.task, summary.episode.sample) == (task, sample));
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
