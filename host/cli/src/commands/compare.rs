//! `fulgurite compare`: two runs side by side.

use anyhow::{Result, bail};
use fulgurite_episode::{
    compare::{Comparison, Cost, Measured, Paired, compare},
    summary::Estimate,
};
use fulgurite_trace::{State, Store, passed};
use serde::Serialize;

use crate::{args, exit, output::Output, place::Places, run::resolve_run, table};

/// Rows of a list before it is cut; `--json` has all.
const SHOWN: usize = 20;

#[derive(Serialize)]
struct Compared {
    before: String,
    after: String,
    #[serde(flatten)]
    comparison: Comparison,
}

pub(crate) fn run(compare: &args::Compare, places: &Places, output: Output) -> Result<()> {
    let store = Store::open_read_only(&places.store)?;
    let before = resolve_run(&store, &compare.before)?;
    let after = resolve_run(&store, &compare.after)?;
    let comparison = compare_runs(&store, &before, &after)?;
    if comparison.tasks == 0 {
        bail!(exit::Usage(format!(
            "the runs {before} and {after} have no scored task in common\n  mend: compare runs of \
             the same task file; `fulgurite trace list RUN` shows what a run scored"
        )));
    }
    output.result(&Compared { before, after, comparison }, text)
}

fn compare_runs(store: &Store, before: &str, after: &str) -> Result<Comparison> {
    Ok(compare(&measured(store, before)?, &measured(store, after)?))
}

/// The scored episodes of a run.
fn measured(store: &Store, run: &str) -> Result<Vec<Measured>> {
    let mut measured = Vec::new();
    for summary in store.episodes(run)? {
        let (State::Scored, Some(total)) = (summary.state, summary.total) else { continue };
        let scores = store.scores(run, summary.episode)?;
        measured.push(Measured {
            task_id: summary.task_id,
            task: summary.episode.task,
            sample: summary.episode.sample,
            total,
            passed: passed(summary.kind, &scores),
            turns: summary.turns,
            prompt_tokens: summary.prompt_tokens,
            completion_tokens: summary.completion_tokens,
            wall_ms: summary.wall_ms.unwrap_or_default(),
        });
    }
    Ok(measured)
}

fn text(compared: &Compared) -> String {
    let Compared { before, after, comparison } = compared;
    let mut parts = vec![numbers(before, after, comparison)];
    let Comparison { tasks, only_before, only_after, changed, flips, .. } = comparison;
    parts.push(format!(
        "{tasks} tasks in both runs; only in the first: {only_before}, only in the second: \
         {only_after}. Differences are paired by task; intervals are 95 %, over tasks."
    ));
    if !changed.is_empty() {
        let rows = changed.iter().take(SHOWN).map(|task| {
            let [passed_before, of_before] = task.passed_before;
            let [passed_after, of_after] = task.passed_after;
            [
                task.task_id.clone(),
                format!("{:.3}", task.before),
                format!("{:.3}", task.after),
                format!("{:+.3}", task.after - task.before),
                format!("{passed_before}/{of_before} → {passed_after}/{of_after}"),
            ]
        });
        parts.push(table::text(["task", "before", "after", "difference", "passed"], rows));
        parts.extend(more(changed.len(), "tasks differ"));
    }
    if !flips.is_empty() {
        let rows = flips.iter().take(SHOWN).map(|flip| {
            [
                flip.task_id.clone(),
                if flip.passes_now { "passes now" } else { "fails now" }.to_owned(),
                format!("fulgurite trace show {before} {}", flip.before),
                format!("fulgurite trace show {after} {}", flip.after),
            ]
        });
        parts.push(table::text(["flipped", "", "look at it before", "and after"], rows));
        parts.extend(more(flips.len(), "episodes flipped"));
    }
    parts.join("\n")
}

fn more(count: usize, what: &str) -> Option<String> {
    (count > SHOWN).then(|| format!("{count} {what}; the first {SHOWN} are shown, --json has all"))
}

fn numbers(before: &str, after: &str, comparison: &Comparison) -> String {
    let mut rows = Vec::new();
    let mut share = |name: String, paired: &Paired| {
        rows.push([
            name,
            format!("{:.3}", paired.before),
            format!("{:.3}", paired.after),
            format!("{:+.3}", paired.difference),
            paired.interval.map(interval).unwrap_or_default(),
        ]);
    };
    if let Some(reward) = &comparison.reward {
        share("mean reward".to_owned(), reward);
    }
    for pass in &comparison.pass_at {
        share(format!("pass@{}", pass.k), &pass.share);
    }
    type Quantity = fn(&Cost) -> f64;
    let costs: [(&str, Quantity); 4] = [
        ("turns an episode", |cost| cost.turns),
        ("tokens read an episode", |cost| cost.prompt_tokens),
        ("tokens written an episode", |cost| cost.completion_tokens),
        ("seconds an episode", |cost| cost.seconds),
    ];
    for (name, of) in costs {
        let (old, new) = (of(&comparison.cost_before), of(&comparison.cost_after));
        rows.push([
            name.to_owned(),
            format!("{old:.1}"),
            format!("{new:.1}"),
            format!("{:+.1}", new - old),
            String::new(),
        ]);
    }
    table::text(["", before, after, "difference", "95 % interval"], rows)
}

fn interval(estimate: Estimate) -> String {
    format!("{:+.3} to {:+.3}", estimate.low, estimate.high)
}
