//! A small random model behind an engine, and how a policy is asked.
// Every test file uses a part.
#![allow(dead_code)]

use std::{path::Path, sync::Arc};

use fulgurite_model::{Architecture, Batch, KvSlots, Model, ModelConfig, Rope, Row};
use fulgurite_policy::{
    CallKey, EngineError, EngineOptions, LocalModel, LocalPolicy, Policy, PolicyReply, Prompt,
    ReplyRequest, SampledReply, Sampling, TemplateFormat, Tokenizer,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn file() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/golden/tiny-llama.gguf")
}

fn tokenizer() -> Arc<Tokenizer> {
    Arc::new(Tokenizer::open(&file()).unwrap())
}

/// Other weights for each seed; equal ones for equal seeds.
pub(crate) fn model(seed: u64) -> Model {
    let config = ModelConfig {
        architecture: Architecture::Qwen3,
        vocabulary: tokenizer().len(),
        hidden: 32,
        feed_forward: 64,
        layers: 2,
        heads: 4,
        key_value_heads: 2,
        head: 8,
        epsilon: 1e-6,
        rope: Rope { base: 10_000.0, scaling: None, interleaved: false },
        context: 256,
        tied: false,
    };
    Model::random(&config, seed).unwrap()
}

pub(crate) fn try_policy(model: Model, options: EngineOptions) -> Result<LocalPolicy, EngineError> {
    let tokenizer = tokenizer();
    let format = Arc::new(TemplateFormat::new(tokenizer.clone(), None).unwrap());
    let name = "tiny".to_owned();
    LocalPolicy::new(LocalModel { name, model, tokenizer, format, version: 0 }, options)
}

pub(crate) fn policy_of(model: Model, options: EngineOptions) -> Arc<LocalPolicy> {
    Arc::new(try_policy(model, options).unwrap())
}

pub(crate) fn policy(options: EngineOptions) -> Arc<LocalPolicy> {
    policy_of(model(0), options)
}

/// The beginning of the endless prompt of this seed; no special tokens.
pub(crate) fn prompt(seed: u64, length: usize) -> Vec<u32> {
    let tokenizer = tokenizer();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let plain = std::iter::repeat_with(|| random.random_range(0..tokenizer.len() as u32))
        .filter(|id| !tokenizer.is_special(*id));
    plain.take(length).collect()
}

pub(crate) fn request(prompt: &[u32], sampling: Sampling) -> ReplyRequest {
    ReplyRequest {
        key: CallKey {
            task: "t".to_owned(),
            harness: "h".to_owned(),
            agent: String::new(),
            tool_format: "text",
            conversation: 0,
            turn: 0,
        },
        prompt: Prompt::Tokens(Arc::from(prompt)),
        tools: Arc::from([]),
        sampling,
    }
}

pub(crate) async fn ask(policy: &LocalPolicy, prompt: &[u32], sampling: Sampling) -> PolicyReply {
    policy.reply(request(prompt, sampling), None).await.unwrap()
}

pub(crate) fn tokens(reply: &PolicyReply) -> SampledReply {
    reply.tokens.clone().unwrap()
}

/// Of each response token, as one forward pass over the whole sequence gives it.
pub(crate) fn log_probabilities(
    model: &Model,
    prompt: &[u32],
    response: &[u32],
    temperature: f32,
) -> Vec<f32> {
    let tokens = [prompt, response].concat();
    let mut slots = KvSlots::new(model.config(), 1, tokens.len()).unwrap();
    let rows = (0..tokens.len() as u32).map(|position| Row { slot: 0, position }).collect();
    let batch = Batch { tokens: tokens.clone(), rows };
    let hidden = model.forward(&batch, &mut slots).unwrap();
    let logits = model.logits(&hidden).unwrap().to_vec2::<f32>().unwrap();
    let of = |position: usize| {
        let row = logits[position - 1].iter().map(|logit| f64::from(logit / temperature));
        let row: Vec<f64> = row.collect();
        let sum: f64 = row.iter().map(|logit| logit.exp()).sum();
        (row[tokens[position] as usize] - sum.ln()) as f32
    };
    (prompt.len()..tokens.len()).map(of).collect()
}
