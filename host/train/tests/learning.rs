//! A policy learns its task, with every algorithm; and does not when what the trainer is given is
//! wrong in one of the ways that are easily got wrong.

// Clippy sees tests only inside `#[test]` functions.
#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

mod support;

use fulgurite_train::{
    Aggregation, Credit, Estimator, Group, KlEstimator, KlPenalty, KlPlace, TrainSettings, Trainer,
    group::NoVariance,
    loss::{Clip, PolicyLoss},
    schedule::Schedule,
    step::best_of,
};
use support::{QUESTIONS, Table, groups, share_right};

const STEPS: u64 = 60;

fn settings() -> TrainSettings {
    TrainSettings { max_gradient_norm: None, ..TrainSettings::new(Schedule::constant(0.1)) }
}

/// Trains with what `change` makes of each step's groups; the share of right answers before and
/// after, and the table.
fn train(
    settings: TrainSettings,
    bonus: impl Fn(u32) -> f64 + Copy,
    mut change: impl FnMut(&mut Vec<Group>),
) -> (f64, f64, Table) {
    let mut table = Table::new(1);
    let folder = tempfile::tempdir().unwrap();
    let mut trainer = Trainer::new(settings, 0, folder.path().to_owned()).unwrap();
    let measure = |table: &Table| share_right(&groups(table, 64, 999, |_| 0.0));
    let before = measure(&table);
    for step in 0..STEPS {
        let mut groups = groups(&table, 8, step, bonus);
        change(&mut groups);
        trainer.step(&mut table, groups).unwrap();
    }
    (before, measure(&table), table)
}

fn learns(settings: TrainSettings) {
    let (before, after, _) = train(settings.clone(), |_| 0.0, |_| {});
    assert!(before < 0.2 && after > 0.9, "{before} → {after} with {settings:?}");
}

#[test]
fn every_estimator_learns() {
    for estimator in [Estimator::Grpo, Estimator::DrGrpo, Estimator::Rloo, Estimator::Batch] {
        learns(TrainSettings { estimator, ..settings() });
    }
}

#[test]
fn every_loss_and_denominator_learns() {
    for policy in [PolicyLoss::Reinforce, PolicyLoss::Ppo(Clip { high: 0.28, ..Clip::default() })] {
        for aggregation in [
            Aggregation::TokenMean,
            Aggregation::SequenceMean,
            Aggregation::EpisodeMean,
            Aggregation::Constant { tokens: 4 },
        ] {
            learns(TrainSettings { policy, aggregation, ..settings() });
        }
    }
}

#[test]
fn several_updates_a_step_learn_and_values_of_turns_do() {
    learns(TrainSettings { parts: 2, passes: 2, ..settings() });
    let credit = Credit::Turns { discount: 0.5, total: false };
    learns(TrainSettings { credit, ..settings() });
}

#[test]
fn the_best_of_what_was_sampled_can_be_imitated() {
    let mut table = Table::new(1);
    let folder = tempfile::tempdir().unwrap();
    let mut trainer = Trainer::new(settings(), 0, folder.path().to_owned()).unwrap();
    for step in 0..STEPS {
        let best = best_of(groups(&table, 8, step, |_| 0.0), 1, 0.2);
        trainer.imitate(&mut table, best, None).unwrap();
    }
    let after = share_right(&groups(&table, 64, 999, |_| 0.0));
    assert!(after > 0.9, "{after}");
}

#[test]
fn advantages_of_the_wrong_sign_teach_the_opposite() {
    let (before, after, _) = train(
        settings(),
        |_| 0.0,
        |groups| {
            for episode in groups.iter_mut().flat_map(|group| &mut group.episodes) {
                let grade = episode.grade.as_mut().unwrap();
                grade.total = -grade.total;
            }
        },
    );
    assert!(after < before / 2.0, "{before} → {after}");
}

#[test]
fn a_mask_that_is_one_off_teaches_nothing() {
    let (before, after, _) = train(
        settings(),
        |_| 0.0,
        |groups| {
            for episode in groups.iter_mut().flat_map(|group| &mut group.episodes) {
                for sample in &mut episode.samples.samples {
                    sample.response.push(support::GLUE);
                    for stretch in &mut sample.stretches {
                        stretch.start += 1;
                        stretch.end += 1;
                    }
                }
            }
        },
    );
    assert!(after < before + 0.1, "{before} → {after}");
}

#[test]
fn stale_log_probabilities_hold_the_policy_where_it_was() {
    let start = Table::new(1);
    let (before, after, _) = train(
        settings(),
        |_| 0.0,
        |groups| {
            for episode in groups.iter_mut().flat_map(|group| &mut group.episodes) {
                for sample in &mut episode.samples.samples {
                    let ids = [&sample.prompt[..], &sample.response[..]].concat();
                    let stale = sample.targets().map(|(at, _)| {
                        let at = sample.prompt.len() + at;
                        Table::row(&start.values, ids[at - 1], 1.0)[ids[at] as usize] as f32
                    });
                    sample.log_probabilities = Some(stale.collect());
                }
            }
        },
    );
    assert!(after < before + 0.15, "{before} → {after}");
}

/// Some tasks pay more than others, which says nothing about answers.
fn uneven(task: u32) -> f64 {
    f64::from(task) * 10.0
}

#[test]
fn what_tasks_pay_does_not_matter_within_groups_and_ruins_mixed_ones() {
    let (before, after, _) = train(settings(), uneven, |_| {});
    assert!(before < 0.2 && after > 0.9, "{before} → {after}");
    let (before, after, _) = train(settings(), uneven, |groups| {
        let mut episodes: Vec<Vec<_>> =
            groups.iter_mut().map(|group| std::mem::take(&mut group.episodes)).collect();
        for at in 0..8 {
            for (task, from) in episodes.iter_mut().enumerate() {
                groups[(task + at) % QUESTIONS as usize].episodes.push(from.remove(0));
            }
        }
    });
    assert!(after < 0.6, "{before} → {after}");
}

#[test]
fn the_penalty_holds_the_policy_near_its_reference() {
    let (_, free_share, free) = train(settings(), |_| 0.0, |_| {});
    let far = free.divergence();
    assert!(far > 1.0 && free_share > 0.9, "without a penalty it leaves: {far}");
    for (estimator, place) in [
        (KlEstimator::K2, KlPlace::Loss),
        (KlEstimator::K3, KlPlace::Loss),
        (KlEstimator::K1, KlPlace::Reward),
    ] {
        let kl = Some(KlPenalty { estimator, place, coefficient: 0.5 });
        let mut settings = TrainSettings { kl, estimator: Estimator::DrGrpo, ..settings() };
        settings.groups.no_variance = NoVariance::Keep;
        let (_, _, held) = train(settings.clone(), |_| 0.0, |_| {});
        let near = held.divergence();
        assert!(near < far / 3.0, "{near} instead of {far} with {:?}", settings.kl);
        let dropped = TrainSettings { kl: None, ..settings };
        let (_, _, left) = train(dropped, |_| 0.0, |_| {});
        assert!(left.divergence() > far / 2.0, "{}", left.divergence());
    }
}

#[test]
fn entropy_that_is_rewarded_stays() {
    let entropy = |table: &Table| -> f64 {
        Table::row(&table.values, 0, 1.0).iter().map(|log| -log.exp() * log).sum()
    };
    let (_, _, plain) = train(settings(), |_| 0.0, |_| {});
    let (_, _, bonus) = train(TrainSettings { entropy: 0.5, ..settings() }, |_| 0.0, |_| {});
    assert!(entropy(&bonus) > entropy(&plain) + 0.3, "{} {}", entropy(&bonus), entropy(&plain));
}
