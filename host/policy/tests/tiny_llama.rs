//! The policy on a tiny random checkpoint, against what transformers computes with
//! it (`host/model/tests/golden/make_llama.py`).
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic, in its helpers too"
)]

mod support;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use fulgurite_policy::{
    Chunk, EngineOptions, LocalModel, LocalPolicy, Policy, PolicyError, PolicyReply, Prompt,
    ReplyRequest, Sampling, Tokenizer, Weights,
};
use fulgurite_trace::FinishReason;
use tokio::sync::mpsc;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/golden").join(name)
}

#[derive(serde::Deserialize)]
struct Golden {
    ids: Vec<u32>,
    greedy: Vec<u32>,
}

fn expected() -> Golden {
    serde_json::from_slice(&std::fs::read(golden("tiny-llama.json")).unwrap()).unwrap()
}

fn policy(engine: EngineOptions) -> LocalPolicy {
    let model = LocalModel::gguf(&golden("tiny-llama.gguf"), Weights::default()).unwrap();
    LocalPolicy::new(model, engine).unwrap()
}

fn request(prompt: &[u32], maximum: u32, temperature: f32, seed: u64) -> ReplyRequest {
    let sampling = Sampling { max_tokens: maximum, temperature, seed, ..Default::default() };
    support::request(prompt, sampling)
}

fn response(reply: &PolicyReply) -> &[u32] {
    &reply.tokens.as_ref().unwrap().response
}

#[tokio::test]
async fn greedy_replies_are_those_of_transformers() {
    let policy = policy(EngineOptions { prefill: 3, ..Default::default() });
    assert!(policy.info().name.starts_with("gguf:tiny-llama@"), "{}", policy.info().name);
    assert_eq!(policy.info().context_length, Some(256));
    assert!(policy.chat_format().is_some());
    let expected = expected().greedy;
    let (prompt, continuation) = expected.split_at(8);
    let reply = policy.reply(request(prompt, 12, 0.0, 0), None).await.unwrap();
    let until_end = continuation.iter().position(|id| *id == 2).map_or(12, |end| end + 1);
    assert_eq!(response(&reply), &continuation[..until_end]);
    assert_eq!(reply.usage.prompt_tokens, 8);
    assert_eq!(reply.usage.completion_tokens, until_end as u64);
    assert_eq!(reply.tokens.unwrap().log_probabilities, vec![0.0; until_end]);
}

#[tokio::test]
async fn seeds_decide_and_kept_prefixes_change_nothing() {
    let kept = policy(EngineOptions::default());
    let fresh = policy(EngineOptions { prefix_cache: false, ..Default::default() });
    let prompt = expected().ids[..20].to_vec();
    let first = kept.reply(request(&prompt, 20, 1.0, 5), None).await.unwrap();
    assert_eq!(first.usage.cached_tokens, 0);
    let again = kept.reply(request(&prompt, 20, 1.0, 5), None).await.unwrap();
    assert_eq!(again.usage.cached_tokens, 19, "the prompt is read once");
    assert_eq!(response(&again), response(&first));
    let other = kept.reply(request(&prompt, 20, 1.0, 6), None).await.unwrap();
    assert_ne!(response(&other), response(&first));
    // The next turn reads only what is new: all but the last sampled token is known.
    let next = [&prompt[..], response(&first), &[40, 41, 42]].concat();
    let second = kept.reply(request(&next, 10, 1.0, 7), None).await.unwrap();
    let known = prompt.len() + response(&first).len() - 1;
    assert_eq!(second.usage.cached_tokens, known as u64);
    let alone = fresh.reply(request(&next, 10, 1.0, 7), None).await.unwrap();
    assert_eq!(alone.usage.cached_tokens, 0);
    assert_eq!(response(&second), response(&alone));
    let branch = [&prompt[..10], &[50, 51]].concat();
    let branched = kept.reply(request(&branch, 5, 1.0, 8), None).await.unwrap();
    assert_eq!(branched.usage.cached_tokens, 10);
    let alone = fresh.reply(request(&branch, 5, 1.0, 8), None).await.unwrap();
    assert_eq!(response(&branched), response(&alone));
}

#[tokio::test]
async fn stop_strings_end_the_text_but_stay_in_the_tokens() {
    let policy = policy(EngineOptions::default());
    let prompt = expected().ids[..8].to_vec();
    let free = policy.reply(request(&prompt, 30, 1.0, 3), None).await.unwrap();
    let text = free.message.plain_text();
    let characters: Vec<char> = text.chars().collect();
    assert!(characters.len() > 8, "{text:?}");
    let stop: String = characters[4..6].iter().collect();
    let mut stopping = request(&prompt, 30, 1.0, 3);
    stopping.sampling.stop = vec![stop.clone()];
    let (sender, mut receiver) = mpsc::channel(100);
    let stopped = policy.reply(stopping, Some(sender)).await.unwrap();
    assert_eq!(stopped.finish, FinishReason::Stop);
    assert_eq!(stopped.message.plain_text(), text[..text.find(&stop).unwrap()]);
    assert!(response(&free).starts_with(response(&stopped)));
    let tokenizer = Tokenizer::open(&golden("tiny-llama.gguf")).unwrap();
    assert!(tokenizer.decode(response(&stopped)).contains(&stop));
    let mut streamed = String::new();
    while let Some(Chunk::Text(chunk)) = receiver.recv().await {
        streamed.push_str(&chunk);
    }
    assert_eq!(streamed, stopped.message.plain_text());
}

#[tokio::test]
async fn the_context_is_a_limit_of_its_own() {
    let policy = policy(EngineOptions { context_length: Some(32), ..Default::default() });
    assert_eq!(policy.info().context_length, Some(32));
    let ids = vec![30; 32];
    let error = policy.reply(request(&ids, 4, 0.0, 0), None).await.unwrap_err();
    assert!(matches!(error, PolicyError::ContextLength(text) if text.contains("32")));
    let reply = policy.reply(request(&ids[..28], 400, 1.0, 4), None).await.unwrap();
    assert!(response(&reply).len() <= 4);
    assert!(reply.finish == FinishReason::Length || response(&reply).contains(&2));
}

#[tokio::test]
async fn wrong_requests_are_refused() {
    let policy = policy(EngineOptions::default());
    let mut messages = request(&[1], 1, 0.0, 0);
    messages.prompt = Prompt::Messages(Arc::from([]));
    let mut stop = request(&[1], 1, 0.0, 0);
    stop.sampling.stop = vec![String::new()];
    for bad in [
        request(&[], 1, 0.0, 0),
        request(&[1_000_000], 1, 0.0, 0),
        request(&[1], 0, 0.0, 0),
        request(&[1], 1, -1.0, 0),
        request(&[1], 1, f32::NAN, 0),
        messages,
        stop,
    ] {
        let error = policy.reply(bad, None).await.unwrap_err();
        assert!(matches!(error, PolicyError::Invalid(_)), "{error:?}");
    }
}
