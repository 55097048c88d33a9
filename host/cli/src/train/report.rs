//! What came of a training: the curve, the bill, and what to do next.

use anyhow::Result;
use fulgurite_train::{
    metrics::{self, MetricsLine},
    run::{End, Ended},
};
use rasciigraph::{Config, plot};
use serde::Serialize;

use super::{config::TrainConfig, trainee::Exported};
use crate::{machine, output::Output, table};

/// What the report is about.
pub(super) struct Told<'a> {
    pub(super) run: &'a str,
    pub(super) config: &'a TrainConfig,
    pub(super) exported: &'a Exported,
}

#[derive(Serialize)]
struct Report<'a> {
    run: &'a str,
    end: End,
    steps: u64,
    /// Held-out reward before the first step.
    validation_before: Option<f64>,
    /// The same after the last.
    validation_after: Option<f64>,
    /// The same for the share that passed.
    pass_before: Option<f64>,
    pass_after: Option<f64>,
    /// Each validation: steps made, mean reward.
    validation: Vec<(u64, f64)>,
    /// The runs that the first and the last of them are recorded as.
    validation_runs: Option<[&'a str; 2]>,
    /// Each step: its number, mean reward of its episodes.
    training: Vec<(u64, f64)>,
    wall_s: f64,
    cpu_core_hours: f64,
    episodes: u64,
    turns: u64,
    tokens_sampled: u64,
    tokens_trained: u64,
    commit: &'static str,
    machine: String,
    model: &'a std::path::Path,
    /// Flags of `fulgurite run` that take what was trained.
    flags: &'a str,
    output: &'a std::path::Path,
}

/// Shows it; `--quiet` leaves it out.
pub(super) fn show<L>(told: &Told<'_>, ended: &Ended<L>, output: Output) -> Result<()> {
    if output.is_quiet() && !output.is_json() {
        return Ok(());
    }
    let lines = metrics::read(&told.config.output)?;
    let validation = series(&lines, "validation/reward");
    let passes = series(&lines, "validation/pass");
    let value = |point: Option<&(u64, f64)>| point.map(|(_, value)| *value);
    let spent = &ended.spent;
    let report = Report {
        run: told.run,
        end: ended.end,
        steps: ended.step,
        validation_before: value(validation.first()),
        validation_after: value(validation.last()),
        pass_before: value(passes.first()),
        pass_after: value(passes.last()),
        validation,
        validation_runs: ended.validations.as_ref().map(|(a, b)| [&*a.run, &*b.run]),
        training: series(&lines, "train/reward"),
        wall_s: spent.wall().as_secs_f64(),
        cpu_core_hours: spent.cpu().as_secs_f64() / 3600.0,
        episodes: spent.episodes,
        turns: spent.turns,
        tokens_sampled: spent.sampled_tokens,
        tokens_trained: spent.trained_tokens,
        commit: machine::COMMIT,
        machine: machine::describe(),
        model: &told.exported.folder,
        flags: &told.exported.flags,
        output: &told.config.output,
    };
    output.result(&report, text)
}

fn series(lines: &[MetricsLine], name: &str) -> Vec<(u64, f64)> {
    let points = lines.iter().filter_map(|line| Some((line.step, *line.metrics.get(name)?)));
    let mut series: Vec<(u64, f64)> = points.collect();
    // A validation that was made twice counts once.
    series.dedup_by_key(|(step, _)| *step);
    series
}

fn text(report: &Report<'_>) -> String {
    let mut rows = vec![
        ["run".to_owned(), report.run.to_owned()],
        ["steps".to_owned(), format!("{} ({})", report.steps, why(report.end))],
    ];
    let mut change = |name: &str, before: Option<f64>, after: Option<f64>| {
        if let (Some(before), Some(after)) = (before, after) {
            rows.push([name.to_owned(), format!("{before:.3} → {after:.3}")]);
        }
    };
    if report.validation.len() > 1 {
        change("held-out reward", report.validation_before, report.validation_after);
        change("held-out passed", report.pass_before, report.pass_after);
    }
    let (wall, hours) = (report.wall_s, report.cpu_core_hours);
    rows.extend([
        ["time".to_owned(), format!("{wall:.1} s wall, {hours:.3} core-hours")],
        ["episodes".to_owned(), format!("{}, with {} turns", report.episodes, report.turns)],
        [
            "tokens".to_owned(),
            format!("{} sampled, {} trained", report.tokens_sampled, report.tokens_trained),
        ],
        ["commit".to_owned(), report.commit.to_owned()],
        ["machine".to_owned(), report.machine.clone()],
        ["model".to_owned(), report.model.display().to_string()],
        ["metrics".to_owned(), report.output.join(metrics::LINES).display().to_string()],
    ]);
    let curve = curve(report).unwrap_or_default();
    let mut text = format!("{curve}{}\nnext:\n", table::pairs(rows));
    if let Some([before, after]) = report.validation_runs {
        text += &format!("  fulgurite compare {before} {after}\n");
    }
    text += &format!(
        "  fulgurite run {} …\n  fulgurite trace list {}\n  tensorboard --logdir {}",
        report.flags,
        report.run,
        report.output.display(),
    );
    text
}

const fn why(end: End) -> &'static str {
    match end {
        End::Budget => "the budget ended",
        End::Reward => "the wanted reward was reached",
        End::Nothing => "there was nothing to learn from any more",
        End::Stopped => "stopped",
    }
}

/// The reward by step: of the held-out tasks, or of the episodes trained on where there are none.
fn curve(report: &Report<'_>) -> Option<String> {
    let (name, series) = if report.validation.len() > 1 {
        ("held-out reward by step", &report.validation)
    } else {
        ("reward by step", &report.training)
    };
    if series.len() < 2 {
        return None;
    }
    let values = series.iter().map(|(_, value)| *value).collect();
    let config = Config::default().with_height(10).with_width(60);
    Some(format!("{name}\n{}\n", plot(values, config)))
}
