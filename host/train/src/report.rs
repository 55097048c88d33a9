//! The metrics of a step. Names are `subject/what`.

use fulgurite_trace::samples::Skipped;

use crate::{
    advantage::as_f64,
    group::{Chosen, Drops},
    metrics::Metrics,
    over_long::LengthByReward,
    step::age,
    update::Totals,
};

fn put(metrics: &mut Metrics, name: &str, value: f64) {
    metrics.insert(name.to_owned(), value);
}

/// Mean, deviation (n − 1), least and most.
fn spread(metrics: &mut Metrics, subject: &str, values: &[f64]) {
    let count = as_f64(values.len());
    if values.is_empty() {
        return;
    }
    let mean = values.iter().sum::<f64>() / count;
    put(metrics, &format!("{subject}/mean"), mean);
    put(metrics, &format!("{subject}/min"), values.iter().copied().fold(f64::INFINITY, f64::min));
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    put(metrics, &format!("{subject}/max"), most);
    if values.len() > 1 {
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        put(metrics, &format!("{subject}/deviation"), (squares / (count - 1.0)).sqrt());
    }
}

/// Dropped episodes by reason.
pub(crate) fn of_drops(metrics: &mut Metrics, drops: &Drops) {
    for (reason, count) in drops {
        put(metrics, &format!("dropped/{}", reason.name()), as_f64(count_of(*count)));
    }
}

/// Rewards, lengths, ages and drops.
pub(crate) fn of_episodes(groups: &[Vec<Chosen>], drops: &Drops, version: u64) -> Metrics {
    let mut metrics = Metrics::new();
    let chosen = || groups.iter().flatten();
    let rewards: Vec<f64> = chosen().map(|chosen| chosen.grade.total).collect();
    spread(&mut metrics, "reward", &rewards);
    let lengths = chosen().map(|chosen| (chosen.samples.sampled_tokens, chosen.grade.total));
    let lengths: Vec<(u64, f64)> = lengths.collect();
    let tokens: Vec<f64> = lengths.iter().map(|(length, _)| as_f64(count_of(*length))).collect();
    spread(&mut metrics, "length", &tokens);
    let LengthByReward { above, below, correlation } = LengthByReward::of(&lengths);
    for (name, value) in [
        ("length/above-mean-reward", above),
        ("length/other", below),
        ("length/reward-correlation", correlation),
    ] {
        if let Some(value) = value {
            put(&mut metrics, name, value);
        }
    }
    let ages: Vec<f64> =
        chosen().map(|chosen| as_f64(count_of(age(&chosen.samples, version)))).collect();
    spread(&mut metrics, "age", &ages);
    put(&mut metrics, "episodes/groups", as_f64(groups.len()));
    put(&mut metrics, "episodes/trained", as_f64(rewards.len()));
    let masked = chosen().filter(|chosen| chosen.masked).count();
    put(&mut metrics, "episodes/masked", as_f64(masked));
    let cut = chosen().map(|chosen| chosen.samples.skipped.cut_tokens).sum::<u64>();
    put(&mut metrics, "tokens/cut", as_f64(count_of(cut)));
    let long = chosen().map(|chosen| chosen.samples.skipped.long_prompts).sum::<u32>();
    put(&mut metrics, "rows/long-prompts", f64::from(long));
    // What the trace cannot say about tokens is missing in the rows; none of it goes unnoticed.
    let skipped = |of: fn(&Skipped) -> u32| -> f64 {
        chosen().map(|chosen| f64::from(of(&chosen.samples.skipped))).sum()
    };
    put(&mut metrics, "rows/untrained", skipped(|skipped| skipped.untrained_rows));
    put(&mut metrics, "turns/without-tokens", skipped(|skipped| skipped.turns_without_tokens));
    put(&mut metrics, "turns/broken", skipped(|skipped| skipped.broken_turns));
    of_drops(&mut metrics, drops);
    metrics
}

/// Advantages of all episodes.
pub(crate) fn of_advantages(metrics: &mut Metrics, advantages: &[Vec<f64>]) {
    spread(metrics, "advantage", &advantages.concat());
}

/// Loss and gradients.
pub(crate) fn of_updates(metrics: &mut Metrics, totals: &Totals, rate: f64) {
    put(metrics, "optimizer/learning-rate", rate);
    put(metrics, "optimizer/updates", as_f64(count_of(totals.updates)));
    let sums = &totals.sums;
    if totals.updates == 0 || sums.tokens == 0.0 {
        return;
    }
    let updates = as_f64(count_of(totals.updates));
    put(metrics, "loss/total", totals.loss / updates);
    put(metrics, "loss/policy", sums.policy_loss / updates);
    put(metrics, "gradient/norm", totals.norm / updates);
    put(metrics, "gradient/norm-max", totals.norm_max);
    put(metrics, "gradient/clipped", as_f64(count_of(totals.clipped)) / updates);
    put(metrics, "policy/entropy", sums.entropy / sums.tokens);
    put(metrics, "policy/log-probability", sums.log_probability / sums.tokens);
}

/// How the policy stands to the old one that its episodes are from, and to the reference where
/// there is one.
pub(crate) fn of_policy(metrics: &mut Metrics, totals: &Totals, has_reference: bool) {
    let sums = &totals.sums;
    if totals.updates == 0 || sums.tokens == 0.0 {
        return;
    }
    let clipped = sums.clipped_low + sums.clipped_high + sums.clipped_dual;
    put(metrics, "policy/clip-fraction", clipped / sums.tokens);
    put(metrics, "policy/clip-fraction-low", sums.clipped_low / sums.tokens);
    put(metrics, "policy/clip-fraction-high", sums.clipped_high / sums.tokens);
    put(metrics, "policy/clip-fraction-dual", sums.clipped_dual / sums.tokens);
    put(metrics, "policy/ratio", sums.ratio / sums.tokens);
    put(metrics, "policy/ratio-max", sums.ratio_max);
    put(metrics, "policy/kl-old", sums.drift / sums.tokens);
    put(metrics, "policy/correction", sums.correction / sums.tokens);
    if has_reference {
        put(metrics, "loss/kl", sums.kl_loss / as_f64(count_of(totals.updates)));
        put(metrics, "policy/kl-reference", sums.reference_kl / sums.tokens);
    }
}

/// How far sampling and training kernels are apart on tokens of the current version.
#[derive(Debug, Default)]
pub(crate) struct Mismatch {
    tokens: usize,
    sum: f64,
    most: f64,
    /// Trained tokens without recorded log-probabilities.
    pub(crate) unknown: usize,
}

impl Mismatch {
    pub(crate) fn add(&mut self, difference: f64) {
        self.tokens = self.tokens.saturating_add(1);
        self.sum += difference.abs();
        self.most = self.most.max(difference.abs());
    }

    pub(crate) fn report(&self, metrics: &mut Metrics) {
        put(metrics, "tokens/without-log-probability", as_f64(self.unknown));
        if self.tokens > 0 {
            put(metrics, "mismatch/mean", self.sum / as_f64(self.tokens));
            put(metrics, "mismatch/max", self.most);
        }
    }
}

fn count_of(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
