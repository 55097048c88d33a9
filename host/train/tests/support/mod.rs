//! A policy small enough to be trained in a test, and a task for it.
//!
//! The policy is a table: the logits of the next id given the one before it. Its gradients are
//! written out here, so that what is tested is the trainer and not a model.
#![allow(dead_code)]

use std::path::Path;

use fulgurite_model::{Packed, TokenGradient, TokenScore};
use fulgurite_trace::{
    Entry, EntryBody, EpisodeRef, FailureKind, FinishReason, Message, Role, SampleSettings,
    SampledTokens, Truncation, Turn, TurnValue, Usage, VersionSpan, entry::SegmentOrigin,
    samples::samples,
};
use fulgurite_train::{
    Grade, Group, GroupEpisode,
    learner::{Change, Learner, LearnerError, Loss},
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Ids: questions 0..4, answers 4..8, and one that the template puts between turns.
pub(crate) const VOCABULARY: usize = 9;
pub(crate) const QUESTIONS: u32 = 4;
pub(crate) const GLUE: u32 = 8;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Table {
    pub(crate) values: Vec<f32>,
    pub(crate) gradients: Vec<f32>,
    pub(crate) reference: Vec<f32>,
    pub(crate) version: u64,
    pub(crate) forget_gradient: bool,
}

impl Table {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let values: Vec<f32> =
            (0..VOCABULARY * VOCABULARY).map(|_| random.random_range(-0.1..0.1)).collect();
        let gradients = vec![0.0; values.len()];
        Self { reference: values.clone(), values, gradients, version: 0, forget_gradient: false }
    }

    pub(crate) fn save(&self, folder: &Path) -> Result<(), LearnerError> {
        let bytes: Vec<u8> = self.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Ok(std::fs::write(folder.join("table"), bytes)?)
    }

    pub(crate) fn load(&mut self, folder: &Path, version: u64) {
        let bytes = std::fs::read(folder.join("table")).unwrap();
        let parts = bytes.as_chunks::<4>().0;
        self.values = parts.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        self.version = version;
    }

    /// Log-probabilities of the next id.
    pub(crate) fn row(values: &[f32], before: u32, temperature: f32) -> Vec<f64> {
        let start = before as usize * VOCABULARY;
        let logits: Vec<f64> = values[start..start + VOCABULARY]
            .iter()
            .map(|logit| f64::from(*logit) / f64::from(temperature))
            .collect();
        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|logit| (logit - most).exp()).sum();
        logits.iter().map(|logit| logit - most - sum.ln()).collect()
    }

    fn score_with(values: &[f32], packed: &Packed) -> Vec<TokenScore> {
        let score = |(before, id): (u32, u32)| {
            let row = Self::row(values, before, packed.temperature);
            let entropy: f64 = row.iter().map(|log| -log.exp() * log).sum();
            TokenScore { log_probability: row[id as usize] as f32, entropy: entropy as f32 }
        };
        pairs(packed).map(score).collect()
    }

    pub(crate) fn sample(&self, before: u32, random: &mut ChaCha8Rng) -> (u32, f32) {
        let row = Self::row(&self.values, before, 1.0);
        let mut left: f64 = random.random();
        let mut chosen = VOCABULARY - 1;
        for (id, log) in row.iter().enumerate() {
            left -= log.exp();
            if left <= 0.0 {
                chosen = id;
                break;
            }
        }
        (chosen as u32, row[chosen] as f32)
    }

    /// Mean KL(policy ‖ reference) over the questions, exactly.
    pub(crate) fn divergence(&self) -> f64 {
        let of = |question| {
            let own = Self::row(&self.values, question, 1.0);
            let reference = Self::row(&self.reference, question, 1.0);
            own.iter().zip(reference).map(|(log, other)| log.exp() * (log - other)).sum::<f64>()
        };
        (0..QUESTIONS).map(of).sum::<f64>() / f64::from(QUESTIONS)
    }
}

fn pairs(packed: &Packed) -> impl Iterator<Item = (u32, u32)> {
    packed.targets.iter().map(|target| {
        let sequence = &packed.sequences[target.sequence as usize];
        let position = target.position as usize;
        (sequence[position - 1], sequence[position])
    })
}

impl Learner for Table {
    fn vocabulary(&self) -> usize {
        VOCABULARY
    }

    fn score(&self, packed: &Packed) -> Result<Vec<TokenScore>, LearnerError> {
        Ok(Self::score_with(&self.values, packed))
    }

    fn score_reference(&self, packed: &Packed) -> Result<Vec<TokenScore>, LearnerError> {
        Ok(Self::score_with(&self.reference, packed))
    }

    fn backward(&mut self, packed: &Packed, loss: &mut Loss<'_>) -> Result<(), LearnerError> {
        let gradients = loss(&Self::score_with(&self.values, packed))?;
        assert_eq!(gradients.len(), packed.targets.len());
        for ((before, id), TokenGradient { log_probability, entropy }) in
            pairs(packed).zip(gradients)
        {
            let row = Self::row(&self.values, before, packed.temperature);
            let own_entropy: f64 = row.iter().map(|log| -log.exp() * log).sum();
            for (other, log) in row.iter().enumerate() {
                let hit = f64::from(u8::from(other == id as usize));
                let by_log = (hit - log.exp()) * f64::from(log_probability);
                let by_entropy = -log.exp() * (log + own_entropy) * f64::from(entropy);
                let place = before as usize * VOCABULARY + other;
                self.gradients[place] +=
                    ((by_log + by_entropy) / f64::from(packed.temperature)) as f32;
            }
        }
        Ok(())
    }

    fn gradient_norm(&self) -> Result<f64, LearnerError> {
        if self.forget_gradient {
            return Err("parameter `table` has no gradient".into());
        }
        Ok(self.gradients.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt())
    }

    fn update(&mut self, version: u64, change: &mut Change<'_>) -> Result<(), LearnerError> {
        change("table", &mut self.values, &self.gradients, true)?;
        self.version = version;
        Ok(())
    }

    fn clear_gradients(&mut self) -> Result<(), LearnerError> {
        self.gradients.fill(0.0);
        Ok(())
    }
}

fn turn(index: u32, context: Vec<u32>, answer: u32, log_probability: f32, version: u64) -> Turn {
    Turn {
        index,
        conversation: 0,
        segment: 0,
        origin: SegmentOrigin::Opened,
        agent: String::new(),
        model_role: "policy".to_owned(),
        tools: Vec::new(),
        messages: Vec::new(),
        reply: Message::text(Role::Assistant, ""),
        finish: FinishReason::Stop,
        usage: Usage::default(),
        tokens: Some(SampledTokens {
            context,
            response: vec![answer],
            log_probabilities: vec![log_probability],
            versions: vec![VersionSpan { start: 0, version }],
            ..SampledTokens::default()
        }),
        temperature: 1.0,
        truncation: Truncation::default(),
        policy: "table".to_owned(),
        latency_ms: 0,
        retries: 0,
    }
}

/// Turns of an episode.
pub(crate) const TURNS: u32 = 4;

/// Plays an episode of a task: in each turn the policy is asked the task's question and says one
/// id. The reward is the share of right answers, and `bonus` of the task on top.
pub(crate) fn play(table: &Table, episode: EpisodeRef, bonus: f64, seed: u64) -> GroupEpisode {
    let question = episode.task % QUESTIONS;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(u64::from(episode.task) << 32 | u64::from(episode.sample));
    let mut entries = Vec::new();
    let mut right = 0.0;
    let mut turns = Vec::new();
    for index in 0..TURNS {
        let (answer, log_probability) = table.sample(question, &mut random);
        let context = if index == 0 { vec![question] } else { vec![GLUE, question] };
        let turn = turn(index, context, answer, log_probability, table.version);
        let body = EntryBody::Turn(Box::new(turn));
        entries.push(Entry { sequence: index, body });
        let value = f64::from(u8::from(answer == question + QUESTIONS));
        turns.push(TurnValue { turn: index, value });
        right += value;
    }
    GroupEpisode {
        samples: samples(episode, &entries, &SampleSettings::default()),
        kind: FailureKind::Completed,
        grade: Some(Grade { total: right / f64::from(TURNS) + bonus, turns }),
    }
}

/// Groups of all tasks.
pub(crate) fn groups(
    table: &Table,
    size: u32,
    seed: u64,
    bonus: impl Fn(u32) -> f64,
) -> Vec<Group> {
    (0..QUESTIONS)
        .map(|task| Group {
            task,
            episodes: (0..size)
                .map(|sample| play(table, EpisodeRef::first(task, sample), bonus(task), seed))
                .collect(),
        })
        .collect()
}

/// Mean share of right answers.
pub(crate) fn share_right(groups: &[Group]) -> f64 {
    let shares: Vec<f64> = groups
        .iter()
        .flat_map(|group| &group.episodes)
        .map(|episode| {
            let turns = &episode.grade.as_ref().unwrap().turns;
            turns.iter().map(|turn| turn.value).sum::<f64>() / f64::from(TURNS)
        })
        .collect();
    shares.iter().sum::<f64>() / shares.len() as f64
}
