//! The engine over a small random model: what is computed once, what is the same twice, and what
//! an update of the weights does. Promises of cost are checked by counting, not by time.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may panic, in its helpers too"
)]

mod support;

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use fulgurite_policy::{
    Chunk, EngineError, EngineOptions, Interrupted, LocalPolicy, Paused, Policy, PolicyReply,
    SampledReply, Sampling,
};
use fulgurite_trace::{FinishReason, Truncation};
use proptest::prelude::*;
use support::{ask, log_probabilities, model, policy, prompt, request, tokens};
use tokio::{sync::mpsc, task::JoinSet};

/// The same for all: long enough that it is cut into chunks.
fn options() -> EngineOptions {
    EngineOptions { prefill: 7, slots: 8, batch_invariant: true, ..Default::default() }
}

fn sampling(seed: u64, max_tokens: u32) -> Sampling {
    Sampling { seed, max_tokens, ..Default::default() }
}

async fn together(
    policy: &Arc<LocalPolicy>,
    calls: impl IntoIterator<Item = (Vec<u32>, Sampling)>,
) -> Vec<PolicyReply> {
    let mut running = JoinSet::new();
    for (number, (prompt, sampling)) in calls.into_iter().enumerate() {
        let policy = policy.clone();
        running.spawn(async move { (number, ask(&policy, &prompt, sampling).await) });
    }
    let mut replies = running.join_all().await;
    replies.sort_by_key(|(number, _)| *number);
    replies.into_iter().map(|(_, reply)| reply).collect()
}

#[tokio::test]
async fn a_group_computes_its_prompt_once_however_its_calls_arrive() {
    let prompt = prompt(1, 60);
    // At once: the first computes, the others wait for it.
    let policy = policy(options());
    together(&policy, (0..8).map(|seed| (prompt.clone(), sampling(seed, 12)))).await;
    let statistics = policy.statistics();
    assert_eq!(statistics.prefilled_tokens, 60 + 7, "each call computes its last token itself");
    assert_eq!(statistics.cached_tokens, 7 * 59);
    assert!(statistics.most_active > 1, "they are written together");
    // One after the other, and more of them than slots.
    let policy = support::policy(EngineOptions { slots: 3, ..options() });
    for seed in 0..8 {
        ask(&policy, &prompt, sampling(seed, 5)).await;
    }
    assert_eq!(policy.statistics().prefilled_tokens, 60 + 7);
}

#[tokio::test]
async fn a_group_of_many_turns_computes_every_token_once() {
    let policy = policy(options());
    let mut histories = vec![prompt(2, 30); 8];
    let mut expected = 30 + 7;
    for turn in 0..4u32 {
        let calls = histories.iter().enumerate().map(|(number, history)| {
            (history.clone(), sampling(u64::from(turn) * 100 + number as u64, 9))
        });
        let replies = together(&policy, calls.collect::<Vec<_>>()).await;
        for (number, (history, reply)) in histories.iter_mut().zip(&replies).enumerate() {
            history.extend(&tokens(reply).response);
            history.extend(prompt(u64::from(turn) * 100 + number as u64 + 50, 5));
            if turn > 0 {
                // What is new: the last token of the last reply, and the message.
                expected += 1 + 5;
            }
        }
        assert_eq!(policy.statistics().prefilled_tokens, expected, "turn {turn}");
    }
    assert_eq!(policy.statistics().evicted, 0);
}

#[tokio::test]
async fn parked_slots_are_used_again_the_oldest_first() {
    let policy = policy(EngineOptions { slots: 2, ..options() });
    let [first, second, third] = [1, 2, 3].map(|seed| prompt(seed, 20));
    for prompt in [&first, &second, &third] {
        assert_eq!(ask(&policy, prompt, sampling(0, 1)).await.usage.cached_tokens, 0);
    }
    let statistics = policy.statistics();
    assert_eq!((statistics.slots, statistics.evicted), (2, 1));
    let next = [&second[..], &prompt(9, 3)].concat();
    assert_eq!(ask(&policy, &next, sampling(0, 1)).await.usage.cached_tokens, 20);
    assert_eq!(ask(&policy, &first, sampling(0, 1)).await.usage.cached_tokens, 0);
    // The third was the oldest, and made room for the first.
    assert_eq!(ask(&policy, &third, sampling(0, 1)).await.usage.cached_tokens, 0);
}

#[tokio::test]
async fn without_the_prefix_cache_everything_is_computed() {
    let policy = policy(EngineOptions { prefix_cache: false, ..options() });
    let prompt = prompt(1, 20);
    together(&policy, (0..4).map(|seed| (prompt.clone(), sampling(seed, 4)))).await;
    let statistics = policy.statistics();
    assert_eq!((statistics.prefilled_tokens, statistics.cached_tokens), (80, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]

    /// Prompt, seed and version decide in the batch-invariant mode: calls made alone on an engine
    /// without cache, and the same calls together in random order, give the same bits.
    #[test]
    fn what_else_is_in_the_batch_changes_nothing(
        calls in proptest::collection::vec(
            (0u64..3, 1usize..40, 0u64..1000, 1u32..20, 0u8..4), 1..14),
        slots in 1usize..6, prefill in 1usize..40, workers in 1usize..3,
    ) {
        let calls: Vec<(Vec<u32>, Sampling)> = calls.into_iter()
            .map(|(family, length, seed, max_tokens, kind)| {
                let truncation = Truncation {
                    top_k: NonZeroU32::new(20).filter(|_| kind == 1),
                    top_p: Some(0.8).filter(|_| kind == 2),
                    min_p: None,
                };
                let temperature = if kind == 3 { 0.0 } else { 0.9 };
                let sampling =
                    Sampling { temperature, truncation, ..sampling(seed, max_tokens) };
                (prompt(family, length), sampling)
            })
            .collect();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers).enable_all().build().unwrap();
        runtime.block_on(async {
            let alone = policy(EngineOptions {
                prefix_cache: false, slots: 1, prefill: 1000, ..options()
            });
            let mixed = policy(EngineOptions { slots, prefill, ..options() });
            let got = together(&mixed, calls.clone()).await;
            for ((prompt, sampling), got) in calls.into_iter().zip(got) {
                let expected = ask(&alone, &prompt, sampling).await;
                let (got, expected) = (tokens(&got), tokens(&expected));
                prop_assert_eq!(&got.response, &expected.response);
                prop_assert_eq!(&got.log_probabilities, &expected.log_probabilities);
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn sampled_log_probabilities_are_those_of_a_forward_pass() {
    let policy = policy(EngineOptions { batch_invariant: false, ..options() });
    let temperature = 0.7;
    let calls =
        (0..6).map(|seed| (prompt(seed / 2, 15), Sampling { temperature, ..sampling(seed, 40) }));
    let calls: Vec<_> = calls.collect();
    let replies = together(&policy, calls.clone()).await;
    for ((prompt, _), reply) in calls.iter().zip(&replies) {
        let SampledReply { response, log_probabilities: sampled, untruncated, .. } = tokens(reply);
        let scored = log_probabilities(&model(0), prompt, &response, temperature);
        assert!(untruncated.is_empty(), "the whole distribution is the default");
        for (sampled, scored) in sampled.iter().zip(&scored) {
            assert!((sampled - scored).abs() <= 1e-5, "{sampled} {scored}");
        }
    }
}

#[tokio::test]
async fn of_a_cut_distribution_both_log_probabilities_are_kept() {
    let policy = policy(options());
    let prompt = prompt(4, 12);
    let truncation = Truncation { top_k: NonZeroU32::new(5), ..Default::default() };
    let sampling = Sampling { truncation, ..sampling(3, 40) };
    let reply = ask(&policy, &prompt, sampling).await;
    let SampledReply { response, log_probabilities: sampled, untruncated, .. } = tokens(&reply);
    let scored = log_probabilities(&model(0), &prompt, &response, 1.0);
    assert_eq!((sampled.len(), untruncated.len()), (response.len(), response.len()));
    for ((sampled, untruncated), scored) in sampled.iter().zip(&untruncated).zip(&scored) {
        assert!((untruncated - scored).abs() <= 1e-5, "{untruncated} {scored}");
        assert!(sampled > untruncated, "of five tokens, each is likelier");
    }
}

/// Starts a long reply, and stops the engine once a few tokens of it were written. A reply that
/// had ended by then is asked for once more: who is quicker is up to the machine.
async fn under_way(
    policy: &Arc<LocalPolicy>,
    prompt: &[u32],
    sampling: Sampling,
) -> (tokio::task::JoinHandle<PolicyReply>, Paused) {
    for _ in 0..1000 {
        let (sender, mut receiver) = mpsc::channel(1);
        let call = tokio::spawn({
            let (policy, request) = (policy.clone(), request(prompt, sampling.clone()));
            async move { policy.reply(request, Some(sender)).await.unwrap() }
        });
        let first = receiver.recv().await;
        assert!(matches!(first, Some(Chunk::Text(_))), "{first:?}");
        let paused = policy.pause().await;
        if policy.statistics().active == 1 {
            return (call, paused);
        }
        drop(paused);
        call.await.unwrap();
    }
    panic!("the reply always ended first");
}

/// The stretches of a reply, with their versions.
fn stretches(tokens: &SampledReply) -> Vec<(u64, std::ops::Range<usize>)> {
    let ends = tokens.versions.iter().skip(1).map(|span| span.start as usize);
    let ends = ends.chain([tokens.response.len()]);
    tokens
        .versions
        .iter()
        .zip(ends)
        .map(|(span, end)| (span.version, span.start as usize..end))
        .collect()
}

#[tokio::test]
async fn a_reply_that_an_update_splits_goes_on_and_each_token_is_its_versions() {
    let policy = policy(options());
    let prompt = prompt(5, 20);
    let (call, paused) = under_way(&policy, &prompt, endless(&prompt).await).await;
    let (version, ()) = policy.update(|weights| *weights = model(1)).unwrap();
    drop(paused);
    assert_eq!((version, policy.version()), (1, 1));
    let reply = call.await.unwrap();
    let tokens = tokens(&reply);
    let stretches = stretches(&tokens);
    assert_eq!(stretches.len(), 2, "{stretches:?}");
    for (version, range) in stretches {
        assert!(!range.is_empty());
        let scored = log_probabilities(&model(version), &prompt, &tokens.response, HOT);
        for index in range {
            let difference = (tokens.log_probabilities[index] - scored[index]).abs();
            assert!(difference <= 1e-5, "version {version}, token {index}: {difference}");
        }
    }
    assert!(policy.statistics().recomputed_tokens > 0);
}

#[tokio::test]
async fn a_reply_that_an_update_splits_is_sampled_anew_where_that_is_wanted() {
    let policy = policy(EngineOptions { interrupted: Interrupted::Resample, ..options() });
    let prompt = prompt(5, 20);
    let sampling = endless(&prompt).await;
    let (call, paused) = under_way(&policy, &prompt, sampling.clone()).await;
    policy.update(|weights| *weights = model(1)).unwrap();
    drop(paused);
    let split = tokens(&call.await.unwrap());
    assert_eq!(stretches(&split), [(1, 0..split.response.len())]);
    let anew = tokens(&ask(&policy, &prompt, sampling).await);
    assert_eq!(split, anew, "as if it had begun after the update");
}

/// A seed with which only its length ends the reply to this prompt.
async fn endless(prompt: &[u32]) -> Sampling {
    let policy = policy(options());
    for seed in 0..500 {
        let sampling = hot(seed);
        let reply = ask(&policy, prompt, sampling.clone()).await;
        if reply.finish == FinishReason::Length {
            return sampling;
        }
    }
    unreachable!("every reply ends by itself")
}

/// The temperature of [`hot`].
const HOT: f32 = 2.0;

fn hot(seed: u64) -> Sampling {
    Sampling { temperature: HOT, ..sampling(seed, 150) }
}

#[tokio::test]
async fn weights_never_change_inside_a_token() {
    // Whether updates come while replies are written is up to the machine.
    for _ in 0..200 {
        if split_by_updates().await > 3 {
            return;
        }
    }
    panic!("no reply was ever split, and this shows nothing");
}

/// Samples three replies while the weights change six times, and scores each stretch by its own
/// version; the number of stretches.
async fn split_by_updates() -> usize {
    let policy = policy(options());
    let prompts: Vec<Vec<u32>> = (0..3).map(|seed| prompt(seed, 10)).collect();
    let calls = prompts.iter().map(|prompt| (prompt.clone(), sampling(7, 150)));
    let updates = tokio::task::spawn_blocking({
        let policy = policy.clone();
        move || {
            while policy.statistics().sampled_tokens == 0 {
                std::thread::yield_now();
            }
            for version in 1..=6 {
                policy.update(|weights| *weights = model(version)).unwrap();
                std::thread::sleep(Duration::from_millis(3));
            }
        }
    });
    let replies = together(&policy, calls.collect::<Vec<_>>()).await;
    updates.await.unwrap();
    let mut split = 0;
    for (prompt, reply) in prompts.iter().zip(&replies) {
        let tokens = tokens(reply);
        for (version, range) in stretches(&tokens) {
            let scored = log_probabilities(&model(version), prompt, &tokens.response, 1.0);
            for index in range {
                let difference = (tokens.log_probabilities[index] - scored[index]).abs();
                assert!(difference <= 1e-5, "version {version}, token {index}: {difference}");
            }
            split += 1;
        }
    }
    split
}

#[tokio::test]
async fn after_an_update_nothing_older_is_used() {
    let policy = policy(options());
    let prompt = prompt(6, 25);
    ask(&policy, &prompt, sampling(1, 10)).await;
    assert_eq!(ask(&policy, &prompt, sampling(1, 10)).await.usage.cached_tokens, 24);
    policy.update(|weights| *weights = model(1)).unwrap();
    let after = ask(&policy, &prompt, sampling(1, 10)).await;
    assert_eq!(after.usage.cached_tokens, 0);
    let other = support::policy_of(model(1), options());
    let expected = tokens(&ask(&other, &prompt, sampling(1, 10)).await);
    let after = tokens(&after);
    assert_eq!(after.response, expected.response);
    assert_eq!(after.log_probabilities, expected.log_probabilities);
    assert_eq!(ask(&policy, &prompt, sampling(1, 10)).await.usage.cached_tokens, 24);
}

#[tokio::test]
async fn an_update_that_panics_ends_sampling_instead_of_using_half_of_it() {
    let policy = policy(options());
    let update = tokio::task::spawn_blocking({
        let policy = policy.clone();
        move || policy.update(|_| assert_eq!(1, 2, "while the weights are half written"))
    });
    assert!(update.await.unwrap_err().is_panic());
    let error = policy.reply(request(&[1, 2], sampling(0, 3)), None).await.unwrap_err();
    assert!(error.to_string().contains("half written"), "{error}");
    assert!(policy.read(|_| ()).is_err());
}

#[tokio::test]
async fn a_caller_that_goes_away_frees_its_slot() {
    let policy = policy(EngineOptions { slots: 1, queue: 1, ..options() });
    let prompt = prompt(3, 9);
    let long = endless(&prompt).await;
    for number in 0..20 {
        let admitted = policy.statistics().admitted;
        let call = tokio::spawn({
            let (policy, request) = (policy.clone(), request(&prompt, long.clone()));
            async move { policy.reply(request, None).await }
        });
        // Some are dropped while they are written, some while they wait.
        if number % 2 == 0 {
            while policy.statistics().admitted == admitted && !call.is_finished() {
                tokio::task::yield_now().await;
            }
        } else {
            tokio::task::yield_now().await;
        }
        call.abort();
        let _ = call.await;
    }
    ask(&policy, &[1, 2, 3], sampling(0, 3)).await;
    let statistics = policy.statistics();
    assert!(statistics.cancelled >= 10, "{statistics:?}");
    assert_eq!((statistics.active, statistics.waiting), (0, 0));
}

#[tokio::test]
async fn many_callers_over_a_short_queue_are_all_answered() {
    let policy = policy(EngineOptions { slots: 3, queue: 2, ..options() });
    let calls = (0..60).map(|number| (prompt(number % 7, 12), sampling(number % 5, 8)));
    let replies = together(&policy, calls.collect::<Vec<_>>()).await;
    assert_eq!(replies.len(), 60);
    assert_eq!(tokens(&replies[0]).response, tokens(&replies[35]).response);
    let statistics = policy.statistics();
    assert!(statistics.most_active <= 3);
    assert_eq!(statistics.admitted, 60);
}

#[tokio::test]
async fn a_pause_stops_between_two_steps_and_a_drain_after_the_calls() {
    let policy = policy(EngineOptions { slots: 2, ..options() });
    let prompt = prompt(1, 9);
    let long = endless(&prompt).await;
    let (call, paused) = under_way(&policy, &prompt, long.clone()).await;
    let steps = policy.statistics().steps;
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert_eq!(policy.statistics().steps, steps);
    assert!(!call.is_finished());
    drop(paused);
    call.await.unwrap();

    let (call, paused) = under_way(&policy, &prompt, long).await;
    drop(paused);
    let draining = tokio::spawn({
        let policy = policy.clone();
        async move { policy.drain().await }
    });
    let drained = draining.await.unwrap();
    assert_eq!(policy.statistics().active, 0);
    call.await.unwrap();
    let late = tokio::spawn({
        let policy = policy.clone();
        async move { ask(&policy, &[1, 2], sampling(0, 2)).await }
    });
    tokio::time::sleep(Duration::from_millis(30)).await;
    assert!(!late.is_finished(), "nobody is admitted while it is drained");
    drop(drained);
    late.await.unwrap();
}

#[tokio::test]
async fn stop_tokens_and_end_tokens_stay_in_the_ids_and_a_length_stop_has_none() {
    let policy = policy(options());
    let prompt = prompt(8, 10);
    let format = policy.chat_format().unwrap();
    let long = Sampling { max_tokens: 40, ..endless(&prompt).await };
    let free = tokens(&ask(&policy, &prompt, long.clone()).await).response;
    // A token that stops, as a request may ask for.
    let stop = free[5];
    let first = free.iter().position(|id| *id == stop).unwrap();
    let stop_tokens = vec![stop];
    let reply = ask(&policy, &prompt, Sampling { stop_tokens, ..long.clone() }).await;
    assert_eq!(tokens(&reply).response, free[..=first], "with the stop token");
    assert_eq!(reply.finish, FinishReason::Stop);
    assert_eq!(reply.message, format.parse(&free[..first]), "but not in the text");
    assert!(!format.is_end(stop));
    // The length.
    let reply = ask(&policy, &prompt, Sampling { max_tokens: 3, ..long }).await;
    assert_eq!(reply.finish, FinishReason::Length);
    assert_eq!(tokens(&reply).response, free[..3]);
    assert!(!tokens(&reply).response.iter().any(|id| format.is_end(*id)));
    // The end token that the policy chooses: sampled hot, it comes sooner or later.
    for seed in 0.. {
        let reply = ask(&policy, &prompt, hot(seed)).await;
        let response = tokens(&reply).response;
        let ends = response.iter().filter(|id| format.is_end(**id)).count();
        assert_eq!(ends, usize::from(reply.finish != FinishReason::Length));
        if ends == 1 {
            assert!(format.is_end(*response.last().unwrap()));
            assert_eq!(tokens(&reply).log_probabilities.len(), response.len());
            break;
        }
        assert!(seed < 500);
    }
}

#[tokio::test]
async fn a_length_stop_at_the_end_of_the_context_is_a_length_stop() {
    let policy = policy(EngineOptions { context_length: Some(32), ..options() });
    let reply =
        ask(&policy, &prompt(1, 28), Sampling { temperature: 0.0, ..sampling(0, 99) }).await;
    assert_eq!(tokens(&reply).response.len(), 4);
    assert_eq!(reply.finish, FinishReason::Length);
}

#[test]
fn memory_that_holds_no_sequence_is_an_error() {
    let small = EngineOptions {
        key_value_bytes: 4096,
        context_length: Some(256),
        ..EngineOptions::default()
    };
    let error = support::try_policy(model(0), small).unwrap_err();
    assert!(matches!(error, EngineError::Memory { context: 256, .. }), "{error}");
    assert!(error.to_string().contains("mend:"), "{error}");
    // Where no length is asked for, what fits is taken; and as many slots as fit.
    let fitted = EngineOptions { key_value_bytes: 64 << 10, ..EngineOptions::default() };
    let policy = support::try_policy(model(0), fitted).unwrap();
    let statistics = policy.statistics();
    assert!(statistics.key_value_bytes <= 64 << 10 && statistics.slots >= 1, "{statistics:?}");
    assert_eq!(policy.info().context_length, Some(statistics.context as u32));
}
