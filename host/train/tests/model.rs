//! The trainer over a real, tiny transformer: it learns, and stands by its promises there too.

// Clippy sees tests only inside `#[test]` functions.
#![allow(clippy::indexing_slicing, clippy::unwrap_used)]

use fulgurite_model::{Architecture, Batch, KvSlots, LoraConfig, Model, ModelConfig, Rope, Row};
use fulgurite_trace::{
    Entry, EntryBody, EpisodeRef, FailureKind, FinishReason, Message, Role, SampleSettings,
    SampledTokens, Truncation, Turn, Usage, VersionSpan, entry::SegmentOrigin, samples::samples,
};
use fulgurite_train::{
    Aggregation, Grade, Group, GroupEpisode, KlEstimator, KlPenalty, KlPlace, Learner,
    TrainSettings, Trainer,
    checkpoint::Checkpoints,
    learner::LearnerError,
    model::{Alone, ModelLearner, Reference},
    order::TaskOrder,
    schedule::Schedule,
    settings::OldLogProbabilities,
    step::StepError,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const VOCABULARY: usize = 16;
/// What the policy is to say.
const WANTED: u32 = 5;
const LENGTH: usize = 8;

fn config() -> ModelConfig {
    ModelConfig {
        architecture: Architecture::Qwen3,
        vocabulary: VOCABULARY,
        hidden: 16,
        feed_forward: 32,
        layers: 2,
        heads: 2,
        key_value_heads: 1,
        head: 8,
        epsilon: 1e-6,
        rope: Rope { base: 10_000.0, scaling: None, interleaved: false },
        context: 64,
        tied: true,
    }
}

/// Samples a response token by token, with the cache that serving uses.
fn sample(model: &Model, prompt: &[u32], random: &mut ChaCha8Rng) -> (Vec<u32>, Vec<f32>) {
    let mut slots = KvSlots::new(model.config(), 1, 64).unwrap();
    let (mut response, mut log_probabilities) = (Vec::new(), Vec::new());
    let mut next = prompt.to_vec();
    for _ in 0..LENGTH {
        let begin = slots.length(0);
        let rows =
            (0..next.len()).map(|at| Row { slot: 0, position: (begin + at) as u32 }).collect();
        let batch = Batch { tokens: next.clone(), rows };
        let hidden = model.forward(&batch, &mut slots).unwrap();
        let last = hidden.narrow(0, next.len() - 1, 1).unwrap();
        let logits = model.logits(&last).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = logits.iter().map(|logit| (logit - most).exp()).sum();
        let mut left: f32 = random.random();
        let mut chosen = VOCABULARY - 1;
        for (id, logit) in logits.iter().enumerate() {
            left -= (logit - most).exp() / sum;
            if left <= 0.0 {
                chosen = id;
                break;
            }
        }
        response.push(chosen as u32);
        log_probabilities.push(logits[chosen] - most - sum.ln());
        next = vec![chosen as u32];
    }
    (response, log_probabilities)
}

fn play(model: &Model, episode: EpisodeRef, version: u64, seed: u64) -> GroupEpisode {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(u64::from(episode.task) << 32 | u64::from(episode.sample));
    let prompt = vec![1, episode.task + 8];
    let (response, log_probabilities) = sample(model, &prompt, &mut random);
    let right = response.iter().filter(|id| **id == WANTED).count();
    let turn = Turn {
        index: 0,
        conversation: 0,
        segment: 0,
        origin: SegmentOrigin::Opened,
        agent: String::new(),
        model_role: "policy".to_owned(),
        tools: Vec::new(),
        messages: Vec::new(),
        reply: Message::text(Role::Assistant, ""),
        finish: FinishReason::Length,
        usage: Usage::default(),
        tokens: Some(SampledTokens {
            context: prompt,
            response,
            log_probabilities,
            versions: vec![VersionSpan { start: 0, version }],
            ..SampledTokens::default()
        }),
        temperature: 1.0,
        truncation: Truncation::default(),
        policy: "tiny".to_owned(),
        latency_ms: 0,
        retries: 0,
    };
    let entries = [Entry { sequence: 0, body: EntryBody::Turn(Box::new(turn)) }];
    GroupEpisode {
        samples: samples(episode, &entries, &SampleSettings::default()),
        kind: FailureKind::Completed,
        grade: Some(Grade { total: right as f64 / LENGTH as f64, turns: Vec::new() }),
    }
}

fn groups(model: &Model, version: u64, seed: u64) -> Vec<Group> {
    (0..2)
        .map(|task| Group {
            task,
            episodes: (0..8)
                .map(|sample| play(model, EpisodeRef::first(task, sample), version, seed))
                .collect(),
        })
        .collect()
}

fn share(groups: &[Group]) -> f64 {
    let totals: Vec<f64> = groups
        .iter()
        .flat_map(|group| &group.episodes)
        .map(|episode| episode.grade.as_ref().unwrap().total)
        .collect();
    totals.iter().sum::<f64>() / totals.len() as f64
}

fn settings(rate: f64) -> TrainSettings {
    TrainSettings::new(Schedule::constant(rate))
}

fn trainer(settings: TrainSettings) -> Trainer {
    Trainer::new(settings, 0, std::env::temp_dir()).unwrap()
}

fn train(model: Model, reference: Option<Reference>, settings: TrainSettings, steps: u64) -> f64 {
    let mut learner = ModelLearner::new(model.clone(), reference, Alone).unwrap();
    let mut trainer = trainer(settings);
    for step in 0..steps {
        let groups = groups(&model, trainer.version(), step);
        let report = trainer.step(&mut learner, groups).unwrap();
        // Sampling with a cache and training agree.
        assert!(report.metrics.get("mismatch/max").is_none_or(|most| *most < 1e-5));
    }
    share(&groups(&model, trainer.version(), 999))
}

#[test]
fn a_transformer_learns_with_all_of_its_weights() {
    let model = Model::random(&config(), 1).unwrap();
    let before = share(&groups(&model, 0, 999));
    let settings = TrainSettings { old: OldLogProbabilities::Recompute, ..settings(0.02) };
    let after = train(model, None, settings, 40);
    assert!(before < 0.2 && after > 0.8, "{before} → {after}");
}

#[test]
fn a_transformer_learns_with_adapters_alone() {
    let mut model = Model::random(&config(), 1).unwrap();
    // Adapters leave the embedding as it is, and one of chance says next to nothing.
    let name = "model.embed_tokens.weight";
    let (_, embedding) = model.trainable().find(|(other, _)| *other == name).unwrap();
    let embedding = embedding.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let louder: Vec<f32> = embedding.iter().map(|value| value * 20.0).collect();
    model.write_parameter(name, &louder).unwrap();
    let targets = LoraConfig::all_targets();
    model.add_lora(&LoraConfig { rank: 4, alpha: 8.0, targets, seed: 3 }).unwrap();
    let before = share(&groups(&model, 0, 999));
    let kl =
        Some(KlPenalty { estimator: KlEstimator::K3, place: KlPlace::Loss, coefficient: 0.001 });
    let settings = TrainSettings { kl, ..settings(0.02) };
    let after = train(model, Some(Reference::Base), settings, 40);
    assert!(before < 0.2 && after > before + 0.3, "{before} → {after}");
}

#[test]
fn packs_and_rows_give_the_same_update_of_a_transformer() {
    let updated = |pack_tokens| {
        let model = Model::random(&config(), 1).unwrap();
        let groups = groups(&model, 0, 0);
        let mut learner = ModelLearner::new(model.clone(), None, Alone).unwrap();
        let settings =
            TrainSettings { pack_tokens, aggregation: Aggregation::TokenMean, ..settings(0.01) };
        trainer(settings).step(&mut learner, groups).unwrap();
        let values: Vec<f32> = model
            .trainable()
            .flat_map(|(_, tensor)| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap())
            .collect();
        values
    };
    let (large, small) = (updated(8192), updated(1));
    // Adam's first step is as long for a gradient of rounding errors as for any other.
    let far = large.iter().zip(&small).filter(|(one, other)| (*one - *other).abs() > 1e-4).count();
    assert!(far * 100 < large.len(), "{far} of {}", large.len());
}

/// Every trained number, to the bit.
fn bits(model: &Model) -> Vec<u32> {
    model
        .trainable()
        .flat_map(|(_, tensor)| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap())
        .map(f32::to_bits)
        .collect()
}

#[test]
fn a_resumed_transformer_makes_the_same_next_step_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::open(folder.path(), 1).unwrap();
    let model = Model::random(&config(), 1).unwrap();
    let mut learner = ModelLearner::new(model.clone(), None, Alone).unwrap();
    let mut uninterrupted = trainer(settings(0.02));
    for step in 0..3 {
        let groups = groups(&model, uninterrupted.version(), step);
        uninterrupted.step(&mut learner, groups).unwrap();
    }
    let state = uninterrupted.state(TaskOrder::new(0, 2), serde_json::Value::Null);
    let save = |folder: &std::path::Path| {
        let folder = folder.join("model");
        std::fs::create_dir(&folder)?;
        Ok(model.save(&folder)?)
    };
    checkpoints.save(&state, uninterrupted.optimizer(), save).unwrap();

    let checkpoint = checkpoints.latest().unwrap().unwrap();
    let loaded = Model::open_folder(&checkpoint.folder.join("model")).unwrap();
    assert_eq!(bits(&loaded), bits(&model));
    let mut resumed = Trainer::resume(settings(0.02), &checkpoint, std::env::temp_dir()).unwrap();
    let mut other = ModelLearner::new(loaded.clone(), None, Alone).unwrap();
    let expected = uninterrupted.step(&mut learner, groups(&model, 3, 3)).unwrap();
    let found = resumed.step(&mut other, groups(&loaded, 3, 3)).unwrap();
    assert_eq!(found, expected);
    assert_eq!(bits(&loaded), bits(&model));
}

#[test]
fn weights_that_are_no_numbers_stop_the_training() {
    let model = Model::random(&config(), 1).unwrap();
    let groups = groups(&model, 0, 0);
    let mut learner = ModelLearner::new(model.clone(), None, Alone).unwrap();
    let (name, count) = {
        let (name, tensor) = model.trainable().last().unwrap();
        (name.to_owned(), tensor.elem_count())
    };
    model.write_parameter(&name, &vec![f32::NAN; count]).unwrap();
    let error = trainer(settings(0.01)).step(&mut learner, groups).unwrap_err();
    assert!(matches!(error, StepError::NotFinite { .. }), "{error}");
}

#[test]
fn a_reference_that_is_not_there_is_an_error() {
    let model = Model::random(&config(), 1).unwrap();
    assert!(ModelLearner::new(model.clone(), Some(Reference::Base), Alone).is_err());
    let learner = ModelLearner::new(model, None, Alone).unwrap();
    let packed =
        fulgurite_model::Packed { sequences: Vec::new(), targets: Vec::new(), temperature: 1.0 };
    let error: LearnerError = learner.score_reference(&packed).unwrap_err();
    assert!(error.to_string().contains("needs a reference"));
}
