//! `fulgurite run`: from settings to a plan, from a plan to recorded episodes and a table.

pub(crate) mod equip;
mod progress;
mod report;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use fulgurite_episode::{
    plan::Plan,
    run::{RunEnd, run as run_episodes},
    summary::{EpisodeResult, Summary, Tally, Verdict},
};
use fulgurite_runtime::clock::Cancellation;
use fulgurite_trace::{
    EpisodeRef, EpisodeSummary, FailureKind, QueuedEpisode, RunRecord, RunStatus, State, Store,
    passed,
};
use tokio::sync::mpsc;

use crate::{
    args,
    config::Settings,
    exit,
    output::{Output, counted},
    place::Places,
    signals::Ends,
};
use equip::Equipped;
use progress::Progress;

/// Runs what the flags and the configuration ask for, or what is missing of an earlier run.
pub(crate) async fn run(flags: &args::Run, places: &Places, output: Output) -> Result<()> {
    let (store, equipped, run, missing) = match &flags.resume {
        Some(run) => resume(run, flags, places, output).await?,
        None => begin(flags, places, output).await?,
    };
    let plan = Arc::new(equipped.plan);
    let (tally, first) = recorded(&store, &run)?;
    let (summary, first, end) = watch(
        Watched { store: &store, run: &run, tally, first },
        Arc::clone(&plan),
        equipped.equipment,
        missing,
        output,
    )
    .await?;
    report::show(&run, &plan, &summary, places, output)?;
    verdict(&run, &summary, first.as_deref(), end)
}

/// What a run is watched with.
struct Watched<'a> {
    store: &'a Store,
    run: &'a str,
    /// What is recorded already.
    tally: Tally,
    /// The first reason why an episode does not count.
    first: Option<String>,
}

/// The episodes of an earlier run that are recorded to their end.
fn recorded(store: &Store, run: &str) -> Result<(Tally, Option<String>)> {
    let mut tally = Tally::default();
    let mut first = None;
    for summary in store.resume_plan(run)?.recorded {
        let EpisodeSummary { episode, task_id, state, kind, total, reason, .. } = summary;
        let kind = kind.unwrap_or(FailureKind::SandboxError);
        let verdict = match (state, total) {
            (State::Scored, Some(total)) => {
                let scores = store.scores(run, episode)?;
                Verdict::Scored { total, passed: passed(Some(kind), &scores) }
            }
            (State::Dropped, _) => Verdict::Dropped,
            _ => Verdict::Alarm,
        };
        if first.is_none() {
            first.clone_from(&reason);
        }
        tally.add(&EpisodeResult {
            episode,
            task_id,
            kind,
            verdict,
            reason,
            turns: u32::try_from(summary.turns).unwrap_or(u32::MAX),
            prompt_tokens: summary.prompt_tokens,
            completion_tokens: summary.completion_tokens,
        });
    }
    Ok((tally, first))
}

type Prepared = (Store, Equipped, String, Vec<EpisodeRef>);

async fn begin(flags: &args::Run, places: &Places, output: Output) -> Result<Prepared> {
    let settings = Settings::resolve(flags, &places.project)
        .map_err(|error| error.context(exit::Usage("the run is not fully described".to_owned())))?;
    let store = Store::open(&places.store)?;
    let mut equipped = equip::equip(settings, None, places, output).await?;
    let run = record(&store, &equipped.plan).await?;
    let episodes = equip::episodes(&equipped);
    store.queue_episodes(&run, &episodes).await?;
    let missing = episodes.into_iter().map(|queued| queued.episode).collect();
    equipped.record_in(store.clone(), run.clone())?;
    Ok((store, equipped, run, missing))
}

/// Begins the record of a run; its id.
pub(crate) async fn record(store: &Store, plan: &Plan) -> Result<String> {
    let record = RunRecord {
        commit: Some(crate::machine::COMMIT.to_owned()),
        machine: Some(crate::machine::describe()),
        tasks: Some(plan.tasks.digest),
        ..RunRecord::new(serde_json::to_value(plan)?, plan.pinned())
    };
    let run = record.id.clone();
    store.create_run(record).await?;
    Ok(run)
}

async fn resume(run: &str, flags: &args::Run, places: &Places, output: Output) -> Result<Prepared> {
    let store = Store::open(&places.store)?;
    let run = resolve_run(&store, run)?;
    let record = store.run(&run)?.record;
    let mut plan: Plan = serde_json::from_value(record.plan)
        .with_context(|| format!("the plan of run {run} cannot be read by this version"))?;
    if let Some(folder) = &plan.training {
        bail!(exit::Usage(format!(
            "run {run} is part of the training in {}\n  mend: go on with it by `fulgurite train \
             --resume` and its configuration",
            folder.display()
        )));
    }
    if let Some(concurrency) = flags.concurrency {
        plan.concurrency = concurrency;
    }
    let mut equipped = equip::equip_again(plan, places, output).await?;
    // Queued again in full: a run that was killed while it was being queued has only a part.
    store.queue_episodes(&run, &equip::episodes(&equipped)).await?;
    let resumed = store.resume_run(&run).await?;
    output.remark(format_args!(
        "resuming run {run}: {} recorded, {} missing",
        counted(resumed.recorded.len(), "episode is", "episodes are"),
        counted(resumed.missing.len(), "is", "are"),
    ));
    let missing = resumed.missing.iter().map(|QueuedEpisode { episode, .. }| *episode).collect();
    equipped.record_in(store.clone(), run.clone())?;
    Ok((store, equipped, run, missing))
}

/// Runs the episodes, shows progress, counts results and listens for Ctrl-C.
async fn watch(
    watched: Watched<'_>,
    plan: Arc<Plan>,
    equipment: fulgurite_episode::Equipment,
    missing: Vec<EpisodeRef>,
    output: Output,
) -> Result<(Summary, Option<String>, RunEnd)> {
    let Watched { store, run, mut tally, mut first } = watched;
    let (sender, mut results) = mpsc::channel(1024);
    let stop = Cancellation::new();
    let began = Instant::now();
    let progress = Progress::new(missing.len(), output);
    let how = format!("fulgurite run --resume {run}");
    let listening = tokio::spawn(listen(stop.clone(), how, output));
    let running =
        tokio::spawn(run_episodes(plan, Arc::new(equipment), missing.into_iter(), stop, sender));
    while let Some(result) = results.recv().await {
        if first.is_none() {
            first.clone_from(&result.reason);
        }
        tally.add(&result);
        progress.tell(&result, &tally);
    }
    progress.finish();
    listening.abort();
    let ended = running.await.context("the run ended unexpectedly")?;
    let status = match &ended {
        Ok(RunEnd::Complete) => RunStatus::Finished,
        _ => RunStatus::Interrupted,
    };
    let recorded = store.finish_run(run, status).await;
    let end = ended.with_context(|| format!("run {run} was stopped"))?;
    recorded?;
    Ok((tally.summary(began.elapsed(), cpu_time()), first, end))
}

/// The first Ctrl-C drains, the second one stops at once. `how` says how to go on later.
pub(crate) async fn listen(stop: Cancellation, how: String, output: Output) {
    let mut ends = Ends::listen();
    ends.told().await;
    stop.cancel();
    output.remark(format_args!(
        "\nstopping: running episodes are recorded as cancelled; again to stop at once\n  go on \
         later with: {how}"
    ));
    ends.told().await;
    // What was acknowledged is durable; the rest is what a crash would lose too.
    std::process::exit(130);
}

/// `last`, or the id of a run.
pub(crate) fn resolve_run(store: &Store, name: &str) -> Result<String> {
    if name != "last" {
        return Ok(store.run(name)?.record.id);
    }
    let runs = store.runs()?;
    match runs.last() {
        Some(run) => Ok(run.record.id.clone()),
        None => bail!("the store {} holds no run yet", store.path().display()),
    }
}

fn verdict(run: &str, summary: &Summary, first: Option<&str>, end: RunEnd) -> Result<()> {
    if end == RunEnd::Stopped {
        bail!(exit::Interrupted(format!(
            "the run was stopped; go on with: fulgurite run --resume {run}"
        )));
    }
    let lost = summary.dropped + summary.alarms;
    if lost == 0 {
        return Ok(());
    }
    let episodes = if lost == 1 { "episode does" } else { "episodes do" };
    let text = format!(
        "{lost} {episodes} not count: {} dropped (the infrastructure failed), {} broken (a reward, \
         or a harness before it reached the model)\n  the first reason: {}\n  mend: look at them \
         with: fulgurite trace list {run}",
        summary.dropped,
        summary.alarms,
        first.unwrap_or("none was recorded"),
    );
    let policy_failed = summary.kinds.get(FailureKind::PolicyError.name()).copied().unwrap_or(0);
    if policy_failed == summary.episodes {
        bail!(exit::Policy(text));
    }
    bail!(exit::Episodes(text))
}

/// CPU time of this process.
pub(crate) fn cpu_time() -> Duration {
    use nix::sys::resource::{UsageWho, getrusage};
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let microseconds = |time: nix::sys::time::TimeVal| {
        u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).unwrap_or(0)
    };
    Duration::from_micros(microseconds(usage.user_time()) + microseconds(usage.system_time()))
}
