//! `fulgurite grade`: a recorded run, scored again by other rewards.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context as _, Result, bail};
use fulgurite_episode::{
    again::{Regrading, grade_again, is_graded},
    plan::{Plan, RewardPlan},
};
use fulgurite_registry::Kind;
use fulgurite_runtime::clock::Cancellation;
use fulgurite_trace::{EpisodeSummary, Graded, Store};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::{
    args::Grade,
    config, exit,
    host::Host,
    output::{Output, counted},
    place::Places,
    run::{
        equip::{load_rewards, tasks_again},
        resolve_run,
    },
    table,
};

#[derive(Serialize)]
struct Report {
    run: String,
    /// Number of this grading within the run, from 1.
    grading: u32,
    rewards: Vec<String>,
    /// Episodes that have a total now.
    graded: usize,
    /// Episodes that could not be graded.
    failed: usize,
    /// Episodes that are no result of the run: cancelled, dropped, or never ended.
    left_out: usize,
    mean_reward: Option<f64>,
    /// Mean of the run's own totals of the same episodes.
    mean_before: Option<f64>,
    episodes: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    episode: String,
    task: String,
    /// The run's own total.
    before: Option<f64>,
    total: Option<f64>,
    reason: Option<String>,
}

pub(crate) async fn run(grade: &Grade, places: &Places, output: Output) -> Result<()> {
    let wrong = || exit::Usage("the grading is not fully described".to_owned());
    let rewards = config::rewards(&grade.rewards, &grade.reward_configs)
        .map_err(|error| error.context(wrong()))?;
    if grade.concurrency == Some(0) {
        bail!(exit::Usage("`concurrency` is 0; it must be at least 1".to_owned()));
    }
    // Grading writes, but a store that is not there is not made.
    drop(Store::open_read_only(&places.store)?);
    let store = Store::open(&places.store)?;
    let run = resolve_run(&store, &grade.run)?;
    let plan: Plan = serde_json::from_value(store.run(&run)?.record.plan)
        .with_context(|| format!("the plan of run {run} cannot be read by this version"))?;
    let tasks = tasks_again(&plan)?.tasks.into_iter().map(Arc::new).collect();
    let concurrency = grade.concurrency.unwrap_or(plan.concurrency);
    let host = Host::start(places, concurrency)?;
    let (mut found, mut plans) = (Vec::new(), Vec::new());
    for config::RewardConfig { plugin, weight, config } in rewards {
        let reward = host.find(&plugin, Kind::Reward)?;
        plans.push(RewardPlan { plugin: reward.pin.clone(), weight, config });
        found.push(reward);
    }
    let loaded = load_rewards(&host, &found, &plans).await?;
    let (_, programs) = host.programs(Some(&plan.programs)).await?;
    host.keep(found.iter(), found.iter().map(|found| &found.pin), output)?;

    let recorded = store.resume_plan(&run)?.recorded;
    let all = store.episodes(&run)?;
    let episodes: std::collections::BTreeSet<_> =
        all.iter().map(|one| (one.episode.task, one.episode.sample)).collect();
    let (attempts, _): (Vec<_>, Vec<_>) = recorded.into_iter().partition(is_graded);
    if attempts.is_empty() {
        bail!(
            "run {run} has no episode that can be graded\n  mend: complete it with: fulgurite run \
             --resume {run}"
        );
    }
    let left_out = episodes.len().saturating_sub(attempts.len());
    let names = plans.iter().map(|plan| plan.plugin.name.clone()).collect();
    let described = serde_json::json!({ "rewards": plans });
    let grading = store.begin_grading(&run, &described).await?;
    let regrading = Arc::new(Regrading {
        record: (store, run.clone(), grading),
        plan,
        rewards: (plans, loaded),
        runtime: host.runtime.clone(),
        programs,
        tasks,
    });
    let (graded, stopped) = watch(regrading, &attempts, concurrency, output).await?;
    let report = report(run, grading, names, left_out, attempts, graded);
    output.result(&report, text)?;
    if stopped {
        bail!(exit::Interrupted("stopped; what was graded is recorded".to_owned()));
    }
    if report.failed > 0 {
        let failed = counted(report.failed, "episode", "episodes");
        bail!(exit::Episodes(format!("{failed} could not be graded; the table says why")));
    }
    Ok(())
}

/// Grades until all is done, or until Ctrl-C.
async fn watch(
    regrading: Arc<Regrading>,
    attempts: &[EpisodeSummary],
    concurrency: u32,
    output: Output,
) -> Result<(Vec<Graded>, bool)> {
    let stop = Cancellation::new();
    let (sender, mut results) = mpsc::channel(1024);
    let listening = tokio::spawn({
        let stop = stop.clone();
        async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                stop.cancel();
            }
        }
    });
    let working =
        tokio::spawn(grade_again(regrading, attempts.to_vec(), concurrency, stop.clone(), sender));
    let mut graded = Vec::new();
    while let Some(result) = results.recv().await {
        graded.push(result);
        if graded.len().is_multiple_of(1000) {
            output.remark(format_args!("{}/{} episodes", graded.len(), attempts.len()));
        }
    }
    listening.abort();
    working.await.context("the grading ended unexpectedly")??;
    Ok((graded, stop.is_cancelled()))
}

fn report(
    run: String,
    grading: u32,
    rewards: Vec<String>,
    left_out: usize,
    attempts: Vec<EpisodeSummary>,
    graded: Vec<Graded>,
) -> Report {
    let mut by_episode: BTreeMap<_, _> = graded.into_iter().map(|one| (one.episode, one)).collect();
    let mut episodes = Vec::new();
    for EpisodeSummary { episode, task_id, total: before, .. } in attempts {
        // Those that were stopped have no row.
        if let Some(Graded { total, reason, .. }) = by_episode.remove(&episode) {
            let place = format!("{}.{}", episode.task, episode.sample);
            episodes.push(Row { episode: place, task: task_id, before, total, reason });
        }
    }
    let done = episodes.iter().filter(|row| row.total.is_some()).count();
    Report {
        run,
        grading,
        rewards,
        graded: done,
        failed: episodes.len() - done,
        left_out,
        mean_reward: mean(episodes.iter().filter_map(|row| row.total)),
        mean_before: mean(
            episodes.iter().filter(|row| row.total.is_some()).filter_map(|row| row.before),
        ),
        episodes,
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

fn text(report: &Report) -> String {
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.3}"));
    let rows = report.episodes.iter().map(|row| {
        let reason = row.reason.clone().unwrap_or_default();
        [row.episode.clone(), row.task.clone(), number(row.before), number(row.total), reason]
    });
    let episodes = table::text(["episode", "task", "before", "now", "why not"], rows);
    let summary = table::pairs([
        ["run".to_owned(), format!("{} (grading {})", report.run, report.grading)],
        ["rewards".to_owned(), report.rewards.join(", ")],
        ["graded".to_owned(), report.graded.to_string()],
        ["not graded".to_owned(), (report.failed + report.left_out).to_string()],
        ["mean before".to_owned(), number(report.mean_before)],
        ["mean now".to_owned(), number(report.mean_reward)],
    ]);
    format!("{episodes}\n{summary}")
}
