//! Live progress of a run, on standard error.

use fulgurite_episode::summary::{EpisodeResult, Tally, Verdict};
use fulgurite_trace::escape::{Lines, escape};
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::Output;

/// A bar on a terminal; elsewhere a line now and then.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    total: usize,
    every: u64,
    output: Output,
}

impl Progress {
    pub(crate) fn new(episodes: usize, output: Output) -> Self {
        let bar = output.shows_progress().then(|| {
            let bar = ProgressBar::new(u64::try_from(episodes).unwrap_or(u64::MAX));
            let template = "{elapsed_precise} {wide_bar} {pos}/{len} episodes  {per_sec}  {msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.enable_steady_tick(std::time::Duration::from_millis(200));
            bar
        });
        let every = u64::try_from(episodes.div_ceil(10)).unwrap_or(u64::MAX).max(1);
        Self { bar, total: episodes, every, output }
    }

    pub(crate) fn tell(&self, result: &EpisodeResult, tally: &Tally) {
        let mean =
            tally.mean_reward().map_or(String::new(), |mean| format!("mean reward {mean:.3}"));
        let done = tally.episodes();
        match &self.bar {
            Some(bar) => {
                bar.inc(1);
                bar.set_message(mean);
                if let Some(remark) = remark(result) {
                    bar.println(remark);
                }
            }
            None => {
                if let Some(remark) = remark(result) {
                    self.output.remark(remark);
                }
                if done.is_multiple_of(self.every) {
                    self.output.remark(format_args!("{done}/{} episodes  {mean}", self.total));
                }
            }
        }
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// What deserves a line of its own.
fn remark(result: &EpisodeResult) -> Option<String> {
    let problem = match result.verdict {
        Verdict::Dropped => "was dropped",
        Verdict::Alarm => "needs your attention",
        _ => return None,
    };
    let EpisodeResult { episode, task_id, reason, .. } = result;
    let (task, sample) = (episode.task, episode.sample);
    let reason: String = reason.as_deref().unwrap_or_default().chars().take(400).collect();
    let text = format!("episode {task}.{sample} ({task_id}) {problem}: {reason}");
    Some(escape(&text, Lines::Escape).into_owned())
}
