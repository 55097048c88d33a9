//! `fulgurite run`: from settings to a plan, from a plan to recorded episodes and a table.

mod equip;
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
    summary::{Summary, Tally},
};
use fulgurite_runtime::clock::Cancellation;
use fulgurite_trace::{EpisodeRef, QueuedEpisode, RunRecord, RunStatus, Store};
use tokio::sync::mpsc;

use crate::{args, config::Settings, exit, output::Output, place::Places};
use equip::Equipped;
use progress::Progress;

/// Runs what the flags and the configuration ask for, or what is missing of an earlier run.
pub(crate) async fn run(flags: &args::Run, places: &Places, output: Output) -> Result<()> {
    let (store, equipped, run, missing) = match &flags.resume {
        Some(run) => resume(run, flags, places, output).await?,
        None => begin(flags, places, output).await?,
    };
    let plan = Arc::new(equipped.plan);
    let (summary, end) =
        watch(&store, &run, Arc::clone(&plan), equipped.equipment, missing, output).await?;
    report::show(&run, &plan, &summary, places, output)?;
    verdict(&run, &summary, end)
}

type Prepared = (Store, Equipped, String, Vec<EpisodeRef>);

async fn begin(flags: &args::Run, places: &Places, output: Output) -> Result<Prepared> {
    let settings = Settings::resolve(flags)
        .map_err(|error| error.context(exit::Usage("the run is not fully described".to_owned())))?;
    let store = Store::open(&places.store)?;
    let mut equipped = equip::equip(settings, places, output).await?;
    let record = RunRecord {
        commit: option_env!("FULGURITE_COMMIT").map(str::to_owned),
        machine: Some(machine()),
        tasks: Some(equipped.plan.tasks.digest),
        ..RunRecord::new(serde_json::to_value(&equipped.plan)?, equipped.plan.pinned())
    };
    let run = record.id.clone();
    store.create_run(record).await?;
    let episodes = equip::episodes(&equipped);
    store.queue_episodes(&run, &episodes).await?;
    let missing = episodes.into_iter().map(|queued| queued.episode).collect();
    equipped.record_in(store.clone(), run.clone())?;
    Ok((store, equipped, run, missing))
}

async fn resume(run: &str, flags: &args::Run, places: &Places, output: Output) -> Result<Prepared> {
    let store = Store::open(&places.store)?;
    let run = resolve_run(&store, run)?;
    let record = store.run(&run)?.record;
    let mut plan: Plan = serde_json::from_value(record.plan)
        .with_context(|| format!("the plan of run {run} cannot be read by this version"))?;
    if let Some(concurrency) = flags.concurrency {
        plan.concurrency = concurrency;
    }
    let mut equipped = equip::equip_again(plan, places, output).await?;
    // Queued again in full: a run that was killed while it was being queued has only a part.
    store.queue_episodes(&run, &equip::episodes(&equipped)).await?;
    let resumed = store.resume_run(&run).await?;
    output.remark(format_args!(
        "resuming run {run}: {} episodes are recorded, {} are missing",
        resumed.recorded.len(),
        resumed.missing.len()
    ));
    let missing = resumed.missing.iter().map(|QueuedEpisode { episode, .. }| *episode).collect();
    equipped.record_in(store.clone(), run.clone())?;
    Ok((store, equipped, run, missing))
}

/// Runs the episodes, shows progress, counts results and listens for Ctrl-C.
async fn watch(
    store: &Store,
    run: &str,
    plan: Arc<Plan>,
    equipment: fulgurite_episode::Equipment,
    missing: Vec<EpisodeRef>,
    output: Output,
) -> Result<(Summary, RunEnd)> {
    let (sender, mut results) = mpsc::channel(1024);
    let stop = Cancellation::new();
    let began = Instant::now();
    let progress = Progress::new(missing.len(), output);
    let listening = tokio::spawn(listen(stop.clone(), run.to_owned(), output));
    let running =
        tokio::spawn(run_episodes(plan, Arc::new(equipment), missing.into_iter(), stop, sender));
    let mut tally = Tally::default();
    while let Some(result) = results.recv().await {
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
    Ok((tally.summary(began.elapsed(), cpu_time()), end))
}

/// The first Ctrl-C drains, the second one stops at once.
async fn listen(stop: Cancellation, run: String, output: Output) {
    let mut terminate =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).ok();
    let mut asked = async || match &mut terminate {
        Some(terminate) => {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
        }
        None => {
            let _ = tokio::signal::ctrl_c().await;
        }
    };
    asked().await;
    stop.cancel();
    output.remark(format_args!(
        "\nstopping: running episodes are recorded as cancelled; again to stop at once\n  go on \
         later with: fulgurite run --resume {run}"
    ));
    asked().await;
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

fn verdict(run: &str, summary: &Summary, end: RunEnd) -> Result<()> {
    if end == RunEnd::Stopped {
        bail!(exit::Interrupted(format!(
            "the run was stopped; go on with: fulgurite run --resume {run}"
        )));
    }
    if summary.dropped + summary.alarms > 0 {
        bail!(exit::Episodes(format!(
            "{} episodes were dropped and {} need their owner\n  mend: look at them with: \
             fulgurite trace list {run}",
            summary.dropped, summary.alarms
        )));
    }
    Ok(())
}

fn cpu_time() -> Duration {
    use nix::sys::resource::{UsageWho, getrusage};
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let microseconds = |time: nix::sys::time::TimeVal| {
        u64::try_from(time.tv_sec() * 1_000_000 + time.tv_usec()).unwrap_or(0)
    };
    Duration::from_micros(microseconds(usage.user_time()) + microseconds(usage.system_time()))
}

/// The machine, for the record.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores, {model}, {}", std::env::consts::OS)
}
