//! The table at the end of a run.

use anyhow::Result;
use fulgurite_episode::{plan::Plan, summary::Summary};
use serde::Serialize;

use crate::{output::Output, place::Places, table};

#[derive(Serialize)]
struct Report<'a> {
    run: &'a str,
    harness: &'a str,
    policy: &'a str,
    store: std::path::PathBuf,
    #[serde(flatten)]
    summary: &'a Summary,
}

/// Shows what came of a run and what to do next; `--quiet` leaves the table out.
pub(crate) fn show(
    run: &str,
    plan: &Plan,
    summary: &Summary,
    places: &Places,
    output: Output,
) -> Result<()> {
    if output.is_quiet() && !output.is_json() {
        return Ok(());
    }
    let store = places.store.clone();
    let (harness, policy) = (&plan.harness.name, &plan.policy_name);
    output.result(&Report { run, harness, policy, store, summary }, text)
}

fn text(report: &Report<'_>) -> String {
    let Summary { mean_reward, pass_at_1, kinds, wall_s, cpu_s, .. } = report.summary;
    let summary = report.summary;
    let kinds: Vec<_> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let mut rows = vec![
        ["run".to_owned(), report.run.to_owned()],
        ["harness".to_owned(), report.harness.to_owned()],
        ["policy".to_owned(), report.policy.to_owned()],
        ["episodes".to_owned(), format!("{} ({})", summary.episodes, kinds.join(", "))],
    ];
    if let Some(mean) = mean_reward {
        rows.push(["mean reward".to_owned(), format!("{mean:.3}")]);
    }
    if let Some(pass) = pass_at_1 {
        let text =
            format!("{:.3}  (95 % interval {:.3} to {:.3})", pass.value, pass.low, pass.high);
        rows.push(["pass@1".to_owned(), text]);
    }
    for (name, count) in
        [("dropped", summary.dropped), ("alarms", summary.alarms), ("cancelled", summary.cancelled)]
    {
        if count > 0 {
            rows.push([name.to_owned(), count.to_string()]);
        }
    }
    rows.push(["turns".to_owned(), summary.turns.to_string()]);
    let (read, written) = (summary.prompt_tokens, summary.completion_tokens);
    rows.push(["tokens".to_owned(), format!("{read} read, {written} written")]);
    rows.push(["time".to_owned(), format!("{wall_s:.2} s wall, {cpu_s:.2} s CPU")]);
    rows.push(["traces".to_owned(), report.store.display().to_string()]);
    let table = table::pairs(rows);
    let run = report.run;
    format!(
        "{table}\nnext:\n  fulgurite trace show {run} 0\n  fulgurite trace list {run}\n  fulgurite \
         trace export {run} --output {run}.jsonl"
    )
}
