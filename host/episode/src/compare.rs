//! Two runs side by side: what changed, task by task, and how sure one can be.
//!
//! Only tasks with scored episodes in both runs count, each with the same weight, however many
//! episodes it has. Intervals are percentile bootstraps over tasks (Efron 1979), with a fixed
//! seed: episodes of one task are not independent, tasks are.

use std::collections::BTreeMap;

use rand::RngExt as _;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng as _};
use serde::Serialize;

use crate::summary::Estimate;

/// Resamples behind an interval.
const RESAMPLES: usize = 4_000;
/// Any fixed number: the same two runs give the same intervals.
const SEED: u64 = 0x66_75_6c_67;

/// One scored episode of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The task's id.
    pub task_id: String,
    /// Position of the task in its run.
    pub task: u32,
    /// Position within the task's group.
    pub sample: u32,
    /// Its total score.
    pub total: f64,
    /// Whether it passed.
    pub passed: bool,
    /// Model calls.
    pub turns: u64,
    /// Tokens the model read.
    pub prompt_tokens: u64,
    /// Tokens the model wrote.
    pub completion_tokens: u64,
    /// Milliseconds between its start and its end.
    pub wall_ms: u64,
}

/// A quantity in both runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Paired {
    /// In the first run.
    pub before: f64,
    /// In the second run.
    pub after: f64,
    /// The second minus the first, paired by task; the interval is absent below two tasks.
    pub difference: f64,
    /// Its 95 % interval.
    pub interval: Option<Estimate>,
}

/// Pass@k: the chance that at least one of k episodes of a task passes, by the unbiased estimator
/// of Chen et al. 2021 (arXiv:2107.03374).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PassAt {
    /// Episodes drawn.
    pub k: u32,
    /// The estimates.
    #[serde(flatten)]
    pub share: Paired,
}

/// A task in both runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskDifference {
    /// The task's id.
    pub task_id: String,
    /// Mean total in the first run.
    pub before: f64,
    /// Mean total in the second run.
    pub after: f64,
    /// Passed and scored episodes in the first run.
    pub passed_before: [u32; 2],
    /// Passed and scored episodes in the second run.
    pub passed_after: [u32; 2],
}

/// An episode that passed in one run and not in the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Flip {
    /// The task's id.
    pub task_id: String,
    /// `TASK.SAMPLE` in the first run, as `trace show` takes it.
    pub before: String,
    /// `TASK.SAMPLE` in the second run.
    pub after: String,
    /// Whether it passes now.
    pub passes_now: bool,
}

/// What the scored episodes of a run took, a mean per episode.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Cost {
    /// Scored episodes of the compared tasks.
    pub episodes: u64,
    /// Model calls.
    pub turns: f64,
    /// Tokens the model read.
    pub prompt_tokens: f64,
    /// Tokens the model wrote.
    pub completion_tokens: f64,
    /// Seconds between start and end.
    pub seconds: f64,
}

/// Two runs side by side.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Tasks that were scored in both runs.
    pub tasks: usize,
    /// Tasks that only the first run scored.
    pub only_before: usize,
    /// Tasks that only the second run scored.
    pub only_after: usize,
    /// Mean total.
    pub reward: Option<Paired>,
    /// Pass@k for k = 1, 2, 4, … up to the smallest group of both runs.
    pub pass_at: Vec<PassAt>,
    /// Every task whose mean total differs, largest change first.
    pub changed: Vec<TaskDifference>,
    /// Episodes that flipped.
    pub flips: Vec<Flip>,
    /// What the first run took.
    pub cost_before: Cost,
    /// What the second run took.
    pub cost_after: Cost,
}

type Group<'a> = Vec<&'a Measured>;

/// Compares two runs by their scored episodes.
pub fn compare(before: &[Measured], after: &[Measured]) -> Comparison {
    let (before, after) = (groups(before), groups(after));
    let both: Vec<(&str, &Group<'_>, &Group<'_>)> = before
        .iter()
        .filter_map(|(id, group)| after.get(id).map(|other| (*id, group, other)))
        .collect();
    let smallest = both.iter().map(|(_, a, b)| a.len().min(b.len())).min().unwrap_or(0);
    let powers = std::iter::successors(Some(1_usize), |k| k.checked_mul(2));
    let pass_at = powers.take_while(|k| *k <= smallest).filter_map(|k| {
        let pairs: Vec<_> =
            both.iter().map(|(_, a, b)| (pass_at_k(a, k), pass_at_k(b, k))).collect();
        Some(PassAt { k: u32::try_from(k).ok()?, share: paired(&pairs)? })
    });
    let means: Vec<_> = both.iter().map(|(_, a, b)| (mean_total(a), mean_total(b))).collect();
    Comparison {
        tasks: both.len(),
        only_before: before.len() - both.len(),
        only_after: after.len() - both.len(),
        reward: paired(&means),
        pass_at: pass_at.collect(),
        changed: changed(&both),
        flips: both.iter().flat_map(|(id, a, b)| flips(id, a, b)).collect(),
        cost_before: cost(both.iter().flat_map(|(_, a, _)| a.iter().copied())),
        cost_after: cost(both.iter().flat_map(|(_, _, b)| b.iter().copied())),
    }
}

fn groups(episodes: &[Measured]) -> BTreeMap<&str, Group<'_>> {
    let mut groups: BTreeMap<&str, Group<'_>> = BTreeMap::new();
    for episode in episodes {
        groups.entry(&episode.task_id).or_default().push(episode);
    }
    for group in groups.values_mut() {
        group.sort_by_key(|episode| episode.sample);
    }
    groups
}

fn mean_total(group: &Group<'_>) -> f64 {
    mean(group.iter().map(|episode| episode.total))
}

fn passed(group: &Group<'_>) -> usize {
    group.iter().filter(|episode| episode.passed).count()
}

/// 1 − C(n − c, k) / C(n, k), as a product that cannot overflow.
fn pass_at_k(group: &Group<'_>, k: usize) -> f64 {
    let (n, c) = (group.len(), passed(group));
    if n - c < k {
        return 1.0;
    }
    1.0 - (n - c + 1..=n).map(|i| 1.0 - k as f64 / i as f64).product::<f64>()
}

fn paired(pairs: &[(f64, f64)]) -> Option<Paired> {
    if pairs.is_empty() {
        return None;
    }
    let before = mean(pairs.iter().map(|pair| pair.0));
    let after = mean(pairs.iter().map(|pair| pair.1));
    let differences: Vec<f64> = pairs.iter().map(|(before, after)| after - before).collect();
    let difference = mean(differences.iter().copied());
    Some(Paired { before, after, difference, interval: bootstrap(&differences, difference) })
}

/// The middle 95 % of means over tasks drawn with replacement.
fn bootstrap(values: &[f64], value: f64) -> Option<Estimate> {
    if values.len() < 2 {
        return None;
    }
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn = (0..values.len())
                .filter_map(|_| values.get(random.random_range(0..values.len())).copied());
            mean(drawn)
        })
        .collect();
    means.sort_by(f64::total_cmp);
    let at = |share: f64| means.get((share * (RESAMPLES - 1) as f64).round() as usize).copied();
    Some(Estimate { value, low: at(0.025)?, high: at(0.975)? })
}

fn changed(both: &[(&str, &Group<'_>, &Group<'_>)]) -> Vec<TaskDifference> {
    let counts = |group: &Group<'_>| {
        [passed(group), group.len()].map(|count| u32::try_from(count).unwrap_or(u32::MAX))
    };
    let mut changed: Vec<_> = both
        .iter()
        .map(|(id, before, after)| TaskDifference {
            task_id: (*id).to_owned(),
            before: mean_total(before),
            after: mean_total(after),
            passed_before: counts(before),
            passed_after: counts(after),
        })
        .filter(|task| task.before != task.after)
        .collect();
    changed.sort_by(|a, b| {
        let size = |task: &TaskDifference| (task.after - task.before).abs();
        size(b).total_cmp(&size(a))
    });
    changed
}

fn flips(id: &str, before: &Group<'_>, after: &Group<'_>) -> Vec<Flip> {
    let place = |episode: &Measured| format!("{}.{}", episode.task, episode.sample);
    let same_sample = before.iter().filter_map(|old| {
        let new = after.iter().find(|new| new.sample == old.sample)?;
        (old.passed != new.passed).then(|| Flip {
            task_id: id.to_owned(),
            before: place(old),
            after: place(new),
            passes_now: new.passed,
        })
    });
    same_sample.collect()
}

fn cost<'a>(episodes: impl Iterator<Item = &'a Measured> + Clone) -> Cost {
    let of = |quantity: fn(&Measured) -> u64| {
        mean(episodes.clone().map(|episode| quantity(episode) as f64))
    };
    Cost {
        episodes: episodes.clone().count() as u64,
        turns: of(|episode| episode.turns),
        prompt_tokens: of(|episode| episode.prompt_tokens),
        completion_tokens: of(|episode| episode.completion_tokens),
        seconds: of(|episode| episode.wall_ms) / 1000.0,
    }
}

/// 0 of nothing.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_u64), |(sum, count), value| (sum + value, count + 1));
    if count == 0 { 0.0 } else { sum / count as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn episode(task: u32, sample: u32, passed: bool) -> Measured {
        Measured {
            task_id: format!("t{task}"),
            task,
            sample,
            total: f64::from(u8::from(passed)),
            passed,
            turns: 2,
            prompt_tokens: 10,
            completion_tokens: 5,
            wall_ms: 1500,
        }
    }

    fn run(groups: &[&[bool]]) -> Vec<Measured> {
        let number = |number: usize| u32::try_from(number).unwrap();
        let task = |(task, group): (usize, &&[bool])| -> Vec<Measured> {
            let of =
                |(sample, passed): (usize, &bool)| episode(number(task), number(sample), *passed);
            group.iter().enumerate().map(of).collect()
        };
        groups.iter().enumerate().flat_map(task).collect()
    }

    #[test]
    fn pass_at_k_is_the_share_of_subsets_with_a_pass() {
        // Of the 10 pairs among 5 episodes with 2 passes, 3 hold no pass.
        let episodes = run(&[&[true, false, true, false, false]]);
        let group: Group<'_> = episodes.iter().collect();
        assert!((pass_at_k(&group, 1) - 0.4).abs() < 1e-12);
        assert!((pass_at_k(&group, 2) - 0.7).abs() < 1e-12);
        assert_eq!(pass_at_k(&group, 4), 1.0);
    }

    #[test]
    fn differences_are_paired_by_task_and_flips_named() {
        let before = run(&[&[false, false], &[true, true], &[true, false]]);
        let after = run(&[&[true, false], &[true, true], &[true, false]]);
        let comparison = compare(&before, &after);
        assert_eq!(comparison.tasks, 3);
        let reward = comparison.reward.unwrap();
        assert!((reward.difference - 0.5 / 3.0).abs() < 1e-12);
        assert_eq!(comparison.pass_at.iter().map(|pass| pass.k).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(comparison.changed.len(), 1);
        let flip = Flip {
            task_id: "t0".to_owned(),
            before: "0.0".to_owned(),
            after: "0.0".to_owned(),
            passes_now: true,
        };
        assert_eq!(comparison.flips, [flip]);
        assert_eq!((comparison.cost_after.episodes, comparison.cost_after.seconds), (6, 1.5));
    }

    #[test]
    fn tasks_of_one_run_only_are_counted_apart() {
        let comparison = compare(&run(&[&[true], &[true]]), &run(&[&[true]]));
        assert_eq!((comparison.tasks, comparison.only_before, comparison.only_after), (1, 1, 0));
        assert_eq!(comparison.reward.unwrap().interval, None);
    }

    #[test]
    fn a_clear_gain_has_an_interval_above_zero_and_no_gain_has_one_around_it() {
        let none: Vec<&[bool]> = vec![&[false, false]; 20];
        let half: Vec<&[bool]> = vec![&[true, false]; 20];
        let gain = compare(&run(&none), &run(&half)).reward.unwrap().interval.unwrap();
        assert_eq!((gain.low, gain.high), (0.5, 0.5));
        let mixed: Vec<&[bool]> = (0..20)
            .map(|i| if i % 2 == 0 { &[true, false][..] } else { &[false, false] })
            .collect();
        let swapped: Vec<&[bool]> = (0..20)
            .map(|i| if i % 2 == 1 { &[true, false][..] } else { &[false, false] })
            .collect();
        let even = compare(&run(&mixed), &run(&swapped)).reward.unwrap().interval.unwrap();
        assert!(even.low < 0.0 && even.high > 0.0, "{even:?}");
    }

    #[test]
    fn nothing_in_common_gives_no_numbers() {
        let comparison = compare(&[], &run(&[&[true]]));
        assert_eq!((comparison.reward, comparison.pass_at.len()), (None, 0));
    }
}
