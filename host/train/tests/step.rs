//! What a step promises besides learning.

// Clippy sees tests only inside `#[test]` functions.
#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

mod support;

use fulgurite_trace::{EpisodeSamples, Stretch};
use fulgurite_train::{
    Aggregation, Credit, Group, GroupEpisode, TrainSettings, Trainer,
    checkpoint::Checkpoints,
    group::DropReason,
    learner::Learner,
    order::TaskOrder,
    over_long::OverLong,
    schedule::{Decay, Schedule},
    settings::OldLogProbabilities,
    step::StepError,
};
use support::{Table, VOCABULARY, groups};

fn settings() -> TrainSettings {
    TrainSettings::new(Schedule::constant(0.1))
}

fn trainer(settings: TrainSettings) -> Trainer {
    Trainer::new(settings, 0, std::env::temp_dir()).unwrap()
}

fn after_one_step(settings: TrainSettings, groups: Vec<Group>) -> Vec<f32> {
    let mut table = Table::new(1);
    trainer(settings).step(&mut table, groups).unwrap();
    table.values
}

#[track_caller]
fn nearly_equal(one: &[f32], other: &[f32]) {
    let most = one.iter().zip(other).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max);
    assert!(most < 1e-6, "{most}");
}

/// As if the harness had compacted its history before each turn: a row for every turn.
fn split(samples: &mut EpisodeSamples) {
    let mut rows = Vec::new();
    for sample in samples.samples.drain(..) {
        let mut values = sample.log_probabilities.iter().flatten().copied();
        for stretch in &sample.stretches {
            let mut row = sample.clone();
            row.prompt.extend(&sample.response[..stretch.start]);
            row.response = sample.response[stretch.start..stretch.end].to_vec();
            row.stretches = vec![Stretch { start: 0, end: stretch.len(), ..*stretch }];
            row.log_probabilities = Some(values.by_ref().take(stretch.len()).collect());
            rows.push(row);
        }
    }
    samples.samples = rows;
}

#[test]
fn into_how_many_rows_an_episode_falls_changes_no_update() {
    let whole = groups(&Table::new(1), 4, 0, |_| 0.0);
    let mut rows = whole.clone();
    // Of one task only: were rows counted, its episodes would weigh more or less than others.
    rows[0].episodes.iter_mut().for_each(|episode| split(&mut episode.samples));
    for aggregation in [
        Aggregation::TokenMean,
        Aggregation::SequenceMean,
        Aggregation::EpisodeMean,
        Aggregation::Constant { tokens: 4 },
    ] {
        let settings = || TrainSettings { aggregation, ..settings() };
        nearly_equal(
            &after_one_step(settings(), whole.clone()),
            &after_one_step(settings(), rows.clone()),
        );
    }
}

#[test]
fn packs_of_any_size_give_the_same_update() {
    let groups = groups(&Table::new(1), 4, 0, |_| 0.0);
    let large = after_one_step(settings(), groups.clone());
    for pack_tokens in [1, 12, 30] {
        let small = after_one_step(TrainSettings { pack_tokens, ..settings() }, groups.clone());
        nearly_equal(&large, &small);
    }
}

#[test]
fn log_probabilities_of_other_versions_and_missing_ones_are_computed() {
    let mut table = Table::new(1);
    let groups = groups(&table, 4, 0, |_| 0.0);
    let expected = after_one_step(settings(), groups.clone());
    let wrong = |version: u64, old: OldLogProbabilities, missing: bool| {
        let mut groups = groups.clone();
        for episode in groups.iter_mut().flat_map(|group| &mut group.episodes) {
            for sample in &mut episode.samples.samples {
                let values = sample.log_probabilities.as_mut().unwrap();
                values.iter_mut().for_each(|value| *value -= 1.0);
                if missing {
                    sample.log_probabilities = None;
                }
                sample.stretches.iter_mut().for_each(|stretch| stretch.version = version);
            }
        }
        after_one_step(TrainSettings { old, ..settings() }, groups)
    };
    nearly_equal(&expected, &wrong(7, OldLogProbabilities::WhereRecorded, false));
    nearly_equal(&expected, &wrong(0, OldLogProbabilities::Recompute, false));
    nearly_equal(&expected, &wrong(0, OldLogProbabilities::WhereRecorded, true));
    // The check has teeth: recorded ones of this version are believed.
    assert_ne!(expected, wrong(0, OldLogProbabilities::WhereRecorded, false));
    let report = trainer(settings()).step(&mut table, groups.clone()).unwrap();
    assert!(!report.metrics.contains_key("mismatch/max"), "nothing was computed to compare with");
    assert!(report.metrics["policy/ratio-max"] < 1.0 + 1e-6);
}

#[test]
fn what_was_sampled_otherwise_is_corrected_up_to_the_threshold() {
    let mut groups = groups(&Table::new(1), 4, 0, |_| 0.0);
    for episode in groups.iter_mut().flat_map(|group| &mut group.episodes) {
        for sample in &mut episode.samples.samples {
            // Sampled from a cut distribution, under which it was twice as likely.
            sample.untruncated.clone_from(&sample.log_probabilities);
            let values = sample.log_probabilities.as_mut().unwrap();
            values.iter_mut().for_each(|value| *value += 2.0_f32.ln());
        }
    }
    let correction = |threshold| {
        let settings = TrainSettings { importance_threshold: threshold, ..settings() };
        let mut table = Table::new(1);
        let report = trainer(settings).step(&mut table, groups.clone()).unwrap();
        assert!(report.metrics["mismatch/max"] < 1e-6, "the whole distribution is compared");
        report.metrics["policy/correction"]
    };
    assert!((correction(None) - 1.0).abs() < 1e-6);
    assert!((correction(Some(2.0)) - 0.5).abs() < 1e-6);
    assert!((correction(Some(0.25)) - 0.25).abs() < 1e-6);
}

#[test]
fn what_is_stale_broken_or_without_values_is_dropped_and_counted() {
    let dropped = |settings: TrainSettings, change: &dyn Fn(&mut Vec<Group>)| {
        let mut table = Table::new(1);
        let mut groups = groups(&table, 4, 0, |_| 0.0);
        change(&mut groups);
        let mut trainer = Trainer::new(settings, 5, std::env::temp_dir()).unwrap();
        trainer.step(&mut table, groups).unwrap().drops
    };
    let stale = TrainSettings { max_staleness: Some(4), ..settings() };
    assert_eq!(dropped(stale, &|_| {})[&DropReason::Stale], 16);
    let fresh = TrainSettings { max_staleness: Some(5), ..settings() };
    assert!(!dropped(fresh, &|_| {}).contains_key(&DropReason::Stale));
    let broken = dropped(settings(), &|groups| {
        let id = u32::try_from(VOCABULARY).unwrap();
        groups[0].episodes[0].samples.samples[0].prompt[0] = id;
        groups[1].episodes[0].samples.samples[0].stretches[0].end = 99;
    });
    assert_eq!(broken[&DropReason::BrokenSample], 2);
    let credit = Credit::Turns { discount: 1.0, total: true };
    let without = dropped(TrainSettings { credit, ..settings() }, &|groups| {
        groups[2].episodes[1].grade.as_mut().unwrap().turns.clear();
    });
    assert_eq!(without[&DropReason::NoTurnValues], 1);
}

#[test]
fn nothing_to_train_on_changes_nothing() {
    let mut table = Table::new(1);
    let report = trainer(settings()).step(&mut table, Vec::new()).unwrap();
    assert_eq!((report.updates, report.version, report.step), (0, 0, 0));
    assert_eq!(table, Table::new(1));
}

#[test]
fn masked_episodes_count_in_their_group_and_not_in_the_loss() {
    let whole = groups(&Table::new(1), 4, 0, |_| 0.0);
    let mut long = whole.clone();
    let best = long[0].episodes.iter_mut().max_by(|one, other| {
        let total = |episode: &GroupEpisode| episode.grade.as_ref().unwrap().total;
        total(one).total_cmp(&total(other))
    });
    best.unwrap().samples.stopped_by_length = true;
    let step = |groups: &[Group], over_long| {
        let mut settings = settings();
        settings.groups.over_long = over_long;
        let mut table = Table::new(1);
        let report = trainer(settings).step(&mut table, groups.to_vec()).unwrap();
        (report, table.values)
    };
    let (graded, usual) = step(&long, OverLong::Grade);
    let (masked, without) = step(&long, OverLong::Mask);
    assert_eq!(usual, step(&whole, OverLong::Mask).1, "what is not over-long stays");
    assert_ne!(usual, without);
    assert_eq!(graded.trained_tokens - masked.trained_tokens, 4);
    assert_eq!(masked.metrics["episodes/masked"], 1.0);
    for name in ["reward/mean", "advantage/max", "advantage/deviation"] {
        assert_eq!(masked.metrics[name], graded.metrics[name], "{name}");
    }
    let penalise = OverLong::Penalise { limit: 4, buffer: 0, penalty: 0.5 };
    assert_eq!(step(&whole, penalise).0.metrics["reward/mean"], graded.metrics["reward/mean"]);
    let penalise = OverLong::Penalise { limit: 4, buffer: 2, penalty: 0.5 };
    let (penalised, _) = step(&whole, penalise);
    assert!((graded.metrics["reward/mean"] - penalised.metrics["reward/mean"] - 0.5).abs() < 1e-9);
}

#[test]
fn greedy_tokens_and_wrong_settings_are_refused() {
    let mut table = Table::new(1);
    let mut groups = groups(&table, 4, 0, |_| 0.0);
    groups[0].episodes[0].samples.samples[0].temperature = 0.0;
    let error = trainer(settings()).step(&mut table, groups).unwrap_err();
    assert!(matches!(error, StepError::Greedy(_)), "{error}");
    let wrong = TrainSettings { passes: 0, ..settings() };
    assert!(Trainer::new(wrong, 0, std::env::temp_dir()).is_err());
}

#[test]
fn what_is_not_finite_stops_before_the_weights_and_saves_the_batch() {
    for (value, recorded) in [(f32::NAN, true), (f32::NAN, false), (f32::INFINITY, true)] {
        let folder = tempfile::tempdir().unwrap();
        let mut table = Table::new(1);
        let groups = groups(&table, 4, 0, |_| 0.0);
        table.values[3] = value;
        let before = table.values.clone();
        let old = if recorded {
            OldLogProbabilities::WhereRecorded
        } else {
            OldLogProbabilities::Recompute
        };
        let settings = TrainSettings { old, ..settings() };
        let mut trainer = Trainer::new(settings, 0, folder.path().to_owned()).unwrap();
        let error = trainer.step(&mut table, groups).unwrap_err();
        let StepError::NotFinite { batch: Some(batch), .. } = &error else { panic!("{error}") };
        assert!(batch.join("batch.json").exists() && batch.join("tokens.safetensors").exists());
        assert!(error.to_string().contains(batch.to_str().unwrap()), "{error}");
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&table.values), bits(&before));
        assert_eq!((trainer.version(), trainer.steps()), (0, 0));
        assert!(table.gradients.iter().all(|gradient| *gradient == 0.0));
    }
}

#[test]
fn a_parameter_without_gradient_is_an_error() {
    let mut table = Table::new(1);
    let groups = groups(&table, 4, 0, |_| 0.0);
    table.forget_gradient = true;
    let error = trainer(settings()).step(&mut table, groups).unwrap_err();
    assert!(matches!(&error, StepError::Learner(inner) if inner.to_string().contains("`table`")));
}

fn long_settings() -> TrainSettings {
    let schedule = Schedule {
        warm_up: 2,
        decay: Decay::Cosine,
        steps: 8,
        floor: 0.1,
        ..Schedule::constant(0.1)
    };
    TrainSettings { schedule, parts: 2, ..TrainSettings::new(schedule) }
}

#[test]
fn a_resumed_run_makes_the_same_steps_to_the_bit() {
    let step = |trainer: &mut Trainer, table: &mut Table, order: &mut TaskOrder| {
        let tasks = order.take(2);
        let mut groups = groups(table, 4, trainer.steps(), |_| 0.0);
        groups.retain(|group| tasks.contains(&group.task));
        trainer.step(table, groups).unwrap()
    };
    let mut whole = Table::new(1);
    let mut order = TaskOrder::new(3, 4);
    let mut uninterrupted = trainer(long_settings());
    let reports: Vec<_> =
        (0..8).map(|_| step(&mut uninterrupted, &mut whole, &mut order)).collect();

    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path(), 1).unwrap();
    let mut table = Table::new(1);
    let mut order = TaskOrder::new(3, 4);
    let mut trainer = trainer(long_settings());
    for expected in &reports {
        assert_eq!(step(&mut trainer, &mut table, &mut order), *expected);
        let state = trainer.state(order, serde_json::Value::Null);
        checkpoints.save(&state, trainer.optimizer(), |folder| table.save(folder)).unwrap();
        // Everything that was in memory is gone.
        table = Table::new(2);
        table.reference = Table::new(1).reference;
        let checkpoint = checkpoints.latest().unwrap().unwrap();
        trainer = Trainer::resume(long_settings(), &checkpoint, std::env::temp_dir()).unwrap();
        table.load(&checkpoint.folder, checkpoint.state.version);
        order = checkpoint.state.order;
    }
    assert_eq!(table.values, whole.values);
    assert_eq!(trainer.optimizer(), uninterrupted.optimizer());
    assert_eq!(trainer.version(), 16);
    assert_eq!(table.vocabulary(), VOCABULARY);
}
