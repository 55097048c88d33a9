//! `fulgurite bench policy`: how fast a model samples on this machine, and how exactly.

use std::{sync::Arc, time::Instant};

use anyhow::{Context as _, Result, bail};
use fulgurite_model::{Packed, Target};
use fulgurite_policy::{
    CallKey, EngineOptions, LocalPolicy, Policy, PolicyReply, Prompt, ReplyRequest, Sampling,
};
use serde::Serialize;
use tokio::task::JoinSet;

use super::bench_model;
use crate::{args::BenchPolicy, output::Output};

/// Tokens of the prompt whose reading is timed.
const PREFILL: u32 = 512;
/// Tokens of the prompt where writing is timed.
const SHORT: u32 = 16;
/// The conversations whose log-probabilities are compared: their number, turns, and tokens of a
/// reply and of a message between two.
const CONVERSATIONS: u32 = 8;
const TURNS: u32 = 4;
const REPLY: u32 = 128;
const MESSAGE: u32 = 24;
/// How hot the comparison samples: above 1, so that unlikely tokens are among them.
const TEMPERATURE: f32 = 1.2;

/// Measured by `fulgurite bench policy`.
#[derive(Debug, Serialize)]
struct Figures {
    /// What was measured.
    model: String,
    /// Its parameters.
    parameters: usize,
    /// Threads of the kernels.
    threads: usize,
    /// Tokens a second of one reply.
    sample_tokens_per_s: f64,
    /// Tokens a second of eight replies at once.
    sample_tokens_per_s_batch_8: f64,
    /// Tokens of a prompt read in a second.
    prefill_tokens_per_s: f64,
    /// The same three where what else is in the batch changes nothing.
    invariant_sample_tokens_per_s: f64,
    invariant_sample_tokens_per_s_batch_8: f64,
    invariant_prefill_tokens_per_s: f64,
    /// The largest difference between a sampled token's log-probability and the one that scoring
    /// (what training does) gives; several conversations of several turns at once, with cache.
    max_logprob_difference: f64,
    /// How many tokens were compared.
    compared_tokens: usize,
    /// Tokens of the prompt that a group of eight computes, as a share of one prompt.
    group_of_8_prefill: f64,
    /// Tokens that a second turn computes, as a share of what is new in it.
    second_turn_prefill: f64,
    /// Bytes reserved for keys and values, in MiB.
    key_value_mib: f64,
    /// The most memory that this process had, in MiB.
    peak_mib: f64,
}

pub(crate) async fn run(asked: &BenchPolicy, output: Output) -> Result<()> {
    bench_model::threads(asked.model.threads)?;
    let options = EngineOptions {
        context_length: Some(2048),
        slots: 8,
        prefill: PREFILL as usize,
        ..EngineOptions::default()
    };
    let (name, parameters, policy) = open(&asked.model.model, options.clone()).await?;
    let policy = Bench::new(policy)?;
    output.remark(format_args!("measuring {name}: writing …"));
    let usual = policy.speeds(asked.tokens).await?;
    output.remark("comparing log-probabilities …");
    let (max_logprob_difference, compared_tokens) = policy.compare().await?;
    let group_of_8_prefill = policy.group().await?;
    let second_turn_prefill = policy.second_turn().await?;
    let key_value_mib = policy.policy.statistics().key_value_bytes as f64 / f64::from(1 << 20);
    drop(policy);
    output.remark("measuring the batch-invariant mode …");
    let options = EngineOptions { batch_invariant: true, ..options };
    let (_, _, policy) = open(&asked.model.model, options).await?;
    let invariant = Bench::new(policy)?.speeds(asked.tokens).await?;
    let figures = Figures {
        model: name,
        parameters,
        threads: rayon::current_num_threads(),
        sample_tokens_per_s: usual.alone,
        sample_tokens_per_s_batch_8: usual.together,
        prefill_tokens_per_s: usual.prefill,
        invariant_sample_tokens_per_s: invariant.alone,
        invariant_sample_tokens_per_s_batch_8: invariant.together,
        invariant_prefill_tokens_per_s: invariant.prefill,
        max_logprob_difference,
        compared_tokens,
        group_of_8_prefill,
        second_turn_prefill,
        key_value_mib,
        peak_mib: super::bench::memory_mib("VmHWM")?,
    };
    output.result(&figures, super::bench::flat)
}

struct Speeds {
    alone: f64,
    together: f64,
    prefill: f64,
}

struct Bench {
    policy: Arc<LocalPolicy>,
    vocabulary: u32,
}

impl Bench {
    fn new(policy: Arc<LocalPolicy>) -> Result<Self> {
        let vocabulary = policy.read(|model| model.config().vocabulary)?;
        Ok(Self { policy, vocabulary: u32::try_from(vocabulary)?.max(1) })
    }

    async fn speeds(&self, tokens: u32) -> Result<Speeds> {
        // The first call pays for pages and threads.
        self.write(1, 4, 1).await?;
        Ok(Speeds {
            alone: self.write(1, tokens, 2).await?,
            together: self.write(8, tokens, 3).await?,
            prefill: self.prefill().await?,
        })
    }

    /// Tokens a second of so many replies at once.
    async fn write(&self, calls: u32, tokens: u32, seed: u32) -> Result<f64> {
        let mut running = JoinSet::new();
        let began = Instant::now();
        for call in 0..calls {
            let policy = self.policy.clone();
            let prompt = self.prompt(seed * 100 + call, SHORT);
            running.spawn(async move { ask(&policy, prompt, tokens, call).await });
        }
        let mut written = 0;
        while let Some(reply) = running.join_next().await {
            written += reply.context("a measured call ended")??.usage.completion_tokens;
        }
        Ok(written as f64 / began.elapsed().as_secs_f64())
    }

    async fn prefill(&self) -> Result<f64> {
        let prompt = self.prompt(9, PREFILL);
        let began = Instant::now();
        ask(&self.policy, prompt, 1, 0).await?;
        Ok(f64::from(PREFILL) / began.elapsed().as_secs_f64())
    }

    /// Tokens that no two prompts of different seeds begin with together.
    fn prompt(&self, seed: u32, length: u32) -> Vec<u32> {
        let start = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9);
        let mix = |at: u32| start.wrapping_add(at).wrapping_mul(0x85eb_ca6b) >> 7;
        (0..length).map(|at| mix(at) % self.vocabulary).collect()
    }

    /// The largest difference to what scoring gives, and of how many tokens.
    async fn compare(&self) -> Result<(f64, usize)> {
        let mut running = JoinSet::new();
        for conversation in 0..CONVERSATIONS {
            let policy = self.policy.clone();
            let messages: Vec<Vec<u32>> = (0..TURNS)
                .map(|turn| self.prompt(1000 + conversation / 2 + turn * 100, MESSAGE))
                .collect();
            running.spawn(async move {
                let (mut history, mut sampled) = (Vec::new(), Vec::new());
                for (turn, message) in (0..).zip(messages) {
                    history.extend(message);
                    let reply =
                        ask(&policy, history.clone(), REPLY, conversation * TURNS + turn).await?;
                    let tokens = reply.tokens.context("a local policy gives tokens")?;
                    for (id, value) in tokens.response.iter().zip(&tokens.log_probabilities) {
                        sampled.push((history.len(), *value));
                        history.push(*id);
                    }
                }
                anyhow::Ok((history, sampled))
            });
        }
        let (mut packed, mut sampled) = (
            Packed { sequences: Vec::new(), targets: Vec::new(), temperature: TEMPERATURE },
            Vec::new(),
        );
        while let Some(conversation) = running.join_next().await {
            let (history, written) = conversation.context("a measured call ended")??;
            let sequence = u32::try_from(packed.sequences.len())?;
            for (position, value) in written {
                packed.targets.push(Target { sequence, position: u32::try_from(position)? });
                sampled.push(value);
            }
            packed.sequences.push(history);
        }
        let policy = self.policy.clone();
        let scores = tokio::task::spawn_blocking(move || policy.read(|model| model.score(&packed)))
            .await
            .context("scoring ended")???;
        if scores.len() != sampled.len() {
            bail!("{} of {} tokens were scored", scores.len(), sampled.len());
        }
        let differences = scores.iter().zip(&sampled);
        let differences =
            differences.map(|(score, sampled)| f64::from((score.log_probability - sampled).abs()));
        Ok((differences.fold(0.0, f64::max), sampled.len()))
    }

    /// What a group of eight computes of its prompt.
    async fn group(&self) -> Result<f64> {
        let before = self.policy.statistics().prefilled_tokens;
        let prompt = self.prompt(5000, PREFILL);
        let mut running = JoinSet::new();
        for seed in 0..8 {
            let (policy, prompt) = (self.policy.clone(), prompt.clone());
            running.spawn(async move { ask(&policy, prompt, 4, seed).await });
        }
        while let Some(reply) = running.join_next().await {
            reply.context("a measured call ended")??;
        }
        let computed = self.policy.statistics().prefilled_tokens - before;
        Ok(computed as f64 / f64::from(PREFILL))
    }

    /// What a second turn computes of its prompt.
    async fn second_turn(&self) -> Result<f64> {
        let mut history = self.prompt(6000, PREFILL);
        let reply = ask(&self.policy, history.clone(), 32, 0).await?;
        history.extend(reply.tokens.context("a local policy gives tokens")?.response);
        history.extend(self.prompt(6001, MESSAGE));
        let before = self.policy.statistics().prefilled_tokens;
        ask(&self.policy, history, 1, 0).await?;
        let computed = self.policy.statistics().prefilled_tokens - before;
        Ok(computed as f64 / f64::from(MESSAGE))
    }
}

async fn ask(
    policy: &LocalPolicy,
    prompt: Vec<u32>,
    tokens: u32,
    seed: u32,
) -> Result<PolicyReply> {
    let request = ReplyRequest {
        key: CallKey {
            task: String::new(),
            harness: "bench".to_owned(),
            agent: String::new(),
            tool_format: "text",
            conversation: 0,
            turn: 0,
        },
        prompt: Prompt::Tokens(prompt.into()),
        tools: Arc::from([]),
        sampling: Sampling {
            max_tokens: tokens,
            temperature: TEMPERATURE,
            seed: u64::from(seed),
            ..Sampling::default()
        },
    };
    Ok(policy.reply(request, None).await?)
}

/// The model behind an engine, its name and the number of its parameters.
async fn open(model: &str, options: EngineOptions) -> Result<(String, usize, Arc<LocalPolicy>)> {
    let asked = model.to_owned();
    let opened = tokio::task::spawn_blocking(move || {
        let local = bench_model::open(&asked)?;
        let (name, parameters) = (local.name.clone(), local.model.config().parameters());
        anyhow::Ok((name, parameters, Arc::new(LocalPolicy::new(local, options)?)))
    });
    opened.await.context("the model could not be opened")?
}
