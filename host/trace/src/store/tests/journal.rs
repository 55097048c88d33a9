//! The writer: numbers, limits, many at once.

use proptest::prelude::*;

use super::*;
use crate::{EntryBody, JournalLimits};

fn is_limited(body: &EntryBody) -> bool {
    matches!(
        body,
        EntryBody::Event { .. }
            | EntryBody::Metric { .. }
            | EntryBody::Denied { .. }
            | EntryBody::Output { .. }
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn numbers_have_no_gaps_and_only_what_may_be_dropped_is(
        bodies in proptest::collection::vec((example::any_entry(), any::<bool>()), 0..40),
        most in 0..12_u64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let journal = JournalLimits { entries: most, bytes: u64::MAX };
        let options = StoreOptions { journal, ..StoreOptions::default() };
        runtime.block_on(async {
            let scene = Scene::with(options).await;
            let episode = EpisodeRef::first(0, 0);
            let writer = scene.start(episode).await;
            let mut expected = Vec::new();
            let (mut limited, mut dropped) = (0, 0);
            for (body, commit) in bodies {
                let next = writer.push(body.clone());
                prop_assert_eq!(next as usize, expected.len());
                if is_limited(&body) && limited == most {
                    dropped += 1;
                } else {
                    limited += u64::from(is_limited(&body));
                    expected.push(body);
                }
                if commit {
                    writer.commit().await.unwrap();
                    let entries = scene.store.entries(&scene.run, episode).unwrap();
                    prop_assert_eq!(entries.len(), expected.len());
                }
            }
            writer.end(example::ending(FailureKind::Completed), None, Vec::new()).await.unwrap();
            if dropped > 0 {
                expected.push(EntryBody::Truncated { dropped });
            }
            let entries = scene.store.entries(&scene.run, episode).unwrap();
            prop_assert_eq!(
                entries.iter().map(|entry| entry.sequence as usize).collect::<Vec<_>>(),
                (0..expected.len()).collect::<Vec<_>>()
            );
            let read: Vec<EntryBody> = entries.into_iter().map(|entry| entry.body).collect();
            prop_assert_eq!(read, expected);
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn bytes_are_limited_too() {
    let journal = JournalLimits { entries: u64::MAX, bytes: 1000 };
    let scene = Scene::with(StoreOptions { journal, ..StoreOptions::default() }).await;
    let writer = scene.start(EpisodeRef::first(0, 0)).await;
    let denied = |length| EntryBody::Denied { import: "x".repeat(length) };
    assert_eq!(writer.push(denied(2000)), 0);
    assert_eq!(writer.push(denied(500)), 0);
    assert_eq!(writer.push(denied(500)), 1);
    assert_eq!(writer.push(EntryBody::Turn(Box::new(example::turn(0, &"y".repeat(5000))))), 1);
    writer.cancel().await.unwrap();
    let entries = scene.store.entries(&scene.run, EpisodeRef::first(0, 0)).unwrap();
    assert_eq!(entries.len(), 3);
    assert_eq!(entries[2].body, EntryBody::Truncated { dropped: 2 });
    assert_eq!(writer.counts().dropped, 2);
}

#[tokio::test]
async fn numbers_that_json_cannot_say_do_not_break_the_journal() {
    let scene = Scene::new().await;
    let writer = scene.start(EpisodeRef::first(0, 0)).await;
    writer.push(EntryBody::Metric { name: "loss".into(), value: f64::NAN });
    let mut turn = example::turn(0, "x");
    turn.temperature = f32::INFINITY;
    let tokens = turn.tokens.as_mut().unwrap();
    tokens.log_probabilities = vec![f32::NEG_INFINITY, -0.0, f32::MIN_POSITIVE];
    writer.push(EntryBody::Turn(Box::new(turn)));
    writer.commit().await.unwrap();
    let entries = scene.store.entries(&scene.run, EpisodeRef::first(0, 0)).unwrap();
    let fields = vec![("loss".to_owned(), "NaN".to_owned())];
    assert_eq!(entries[0].body, EntryBody::Event { name: "metric-not-finite".into(), fields });
    let EntryBody::Turn(turn) = &entries[1].body else { panic!("{entries:?}") };
    let bits: Vec<u32> =
        turn.tokens.iter().flat_map(|t| &t.log_probabilities).map(|n| n.to_bits()).collect();
    assert_eq!(bits, [f32::NEG_INFINITY, -0.0, f32::MIN_POSITIVE].map(f32::to_bits));
}

#[tokio::test]
async fn what_comes_after_the_end_is_not_acknowledged() {
    let scene = Scene::new().await;
    let writer = scene.start(EpisodeRef::first(0, 0)).await;
    writer.push(EntryBody::Turn(Box::new(example::turn(0, "x"))));
    let late = writer.clone();
    writer.end(example::ending(FailureKind::Timeout), None, Vec::new()).await.unwrap();
    assert_eq!(late.push(EntryBody::Turn(Box::new(example::turn(1, "late")))), 1);
    let refused = late.commit().await;
    assert!(matches!(refused, Err(StoreError::JournalClosed { .. })), "{refused:?}");
    assert_eq!(scene.store.entries(&scene.run, EpisodeRef::first(0, 0)).unwrap().len(), 1);
}

#[tokio::test]
async fn a_discarding_writer_counts_and_succeeds() {
    let writer = EpisodeWriter::discarding();
    for (sequence, body) in (0..).zip(example::every_entry()) {
        assert_eq!(writer.push(body), sequence);
    }
    writer.commit().await.unwrap();
    writer.end(example::ending(FailureKind::Completed), None, Vec::new()).await.unwrap();
    writer.score(vec![], f64::NAN).await.unwrap();
    let counts = writer.counts();
    assert_eq!((counts.entries, counts.turns, counts.commands), (10, 3, 2));
    assert_eq!(counts.prompt_tokens, 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_writers_at_once_keep_their_journals_apart() {
    const EPISODES: u32 = 64;
    const TURNS: u32 = 20;
    // A queue far shorter than the number of writers makes them wait for places.
    let scene = Scene::with(StoreOptions { queue: 8, ..StoreOptions::default() }).await;
    scene.store.queue_episodes(&scene.run, &episodes(EPISODES, 1)).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..EPISODES {
        let writer = scene.start(EpisodeRef::first(task, 0)).await;
        let store = scene.store.clone();
        let run = scene.run.clone();
        tasks.spawn(async move {
            // Two sub-agents share the journal.
            let half = |offset: u32| {
                let writer = writer.clone();
                async move {
                    for index in 0..TURNS / 2 {
                        let turn = example::turn(2 * index + offset, &format!("of {task}"));
                        writer.push(EntryBody::Turn(Box::new(turn)));
                        writer.commit().await.unwrap();
                    }
                }
            };
            let (left, right) = (tokio::spawn(half(0)), tokio::spawn(half(1)));
            left.await.unwrap();
            right.await.unwrap();
            let entries = store.entries(&run, EpisodeRef::first(task, 0)).unwrap();
            assert_eq!(entries.len(), TURNS as usize, "committed is readable");
            writer.end(example::ending(FailureKind::Completed), None, Vec::new()).await.unwrap();
            writer.score(vec![], f64::from(task)).await.unwrap();
        });
    }
    tasks.join_all().await;
    for task in 0..EPISODES {
        let entries = scene.store.entries(&scene.run, EpisodeRef::first(task, 0)).unwrap();
        let mut indices = Vec::new();
        for (expected, entry) in (0..).zip(&entries) {
            assert_eq!(entry.sequence, expected);
            let EntryBody::Turn(turn) = &entry.body else { panic!("{entry:?}") };
            assert_eq!(turn.messages[0].plain_text(), format!("of {task}"));
            indices.push(turn.index);
        }
        indices.sort_unstable();
        assert_eq!(indices, (0..TURNS).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_flood_without_commits_is_handed_over_in_order() {
    let scene = Scene::new().await;
    let writer = scene.start(EpisodeRef::first(0, 0)).await;
    for index in 0..200 {
        let mut turn = example::turn(index, "x");
        turn.tokens.as_mut().unwrap().context = (0..5000).map(|id| id * 7919 + index).collect();
        writer.push(EntryBody::Turn(Box::new(turn)));
    }
    writer.commit().await.unwrap();
    let entries = scene.store.entries(&scene.run, EpisodeRef::first(0, 0)).unwrap();
    assert_eq!(entries.len(), 200);
    for (index, entry) in (0..).zip(entries) {
        let EntryBody::Turn(turn) = entry.body else { panic!("not a turn") };
        assert_eq!((entry.sequence, turn.index), (index, index));
        assert_eq!(turn.tokens.unwrap().context[1], 7919 + index);
    }
}
