//! From queued to scored, and what resuming sees.

use proptest::prelude::*;

use super::*;
use crate::{Digest, Ending, EntryBody, Message, Role, State, Timestamp, lifecycle::Step};

#[tokio::test]
async fn a_whole_episode_comes_back_as_it_was_recorded() {
    let scene = Scene::new().await;
    let episode = EpisodeRef::first(1, 0);
    let writer = scene.start(episode).await;
    let bodies = example::every_entry();
    for body in &bodies {
        writer.push(body.clone());
    }
    writer.commit().await.unwrap();
    let ending = example::ending(FailureKind::Completed);
    let tree = Digest::of(b"tree");
    writer.end(ending.clone(), Some(tree), b"{\"changes\":[]}".to_vec()).await.unwrap();
    let scores = vec![example::score("tests-pass", 1.0 / 3.0), example::score("length", -0.1)];
    writer.score(scores.clone(), 0.1 + 0.2).await.unwrap();
    drop(writer);

    let scene = scene.reopen();
    let entries = scene.store.entries(&scene.run, episode).unwrap();
    let sequences: Vec<u32> = entries.iter().map(|entry| entry.sequence).collect();
    assert_eq!(sequences, (0..10).collect::<Vec<_>>());
    assert_eq!(entries.into_iter().map(|entry| entry.body).collect::<Vec<_>>(), bodies);
    let sealed = scene.store.ending(&scene.run, episode).unwrap().unwrap();
    assert_eq!((sealed.ending, sealed.tree), (ending, Some(tree)));
    assert_eq!(sealed.changes, b"{\"changes\":[]}");
    assert_eq!(scene.store.scores(&scene.run, episode).unwrap(), scores);
    let summary = scene.store.episode(&scene.run, episode).unwrap();
    assert_eq!((summary.state, summary.kind), (State::Scored, Some(FailureKind::Completed)));
    assert_eq!(summary.total, Some(0.1 + 0.2));
    assert_eq!((summary.turns, summary.prompt_tokens, summary.completion_tokens), (3, 30, 15));
    assert!(summary.wall_ms.is_some());
    scene.store.check().unwrap();
}

#[tokio::test]
async fn long_text_is_compressed_and_comes_back() {
    let scene = Scene::new().await;
    let writer = scene.start(EpisodeRef::first(0, 0)).await;
    let mut turn = example::turn(0, &"the same words again and again ".repeat(10_000));
    turn.reply = Message::text(Role::Assistant, "\0\u{1b}ä".repeat(5000));
    writer.push(EntryBody::Turn(Box::new(turn.clone())));
    writer.commit().await.unwrap();
    let entries = scene.store.entries(&scene.run, EpisodeRef::first(0, 0)).unwrap();
    assert_eq!(entries[0].body, EntryBody::Turn(Box::new(turn)));
    drop(writer);
    let path = scene.path();
    let _scene = scene.reopen();
    assert!(std::fs::metadata(path).unwrap().len() < 300_000);
}

#[tokio::test]
async fn illegal_steps_are_refused_and_hurt_nobody_else() {
    let scene = Scene::new().await;
    let good = scene.start(EpisodeRef::first(0, 0)).await;
    let twice = scene.start(EpisodeRef::first(0, 0)).await;
    let missing = scene.start(EpisodeRef::first(9, 0)).await;
    twice.push(EntryBody::Turn(Box::new(example::turn(0, "x"))));
    let (twice, missing, good_result) =
        tokio::join!(twice.commit(), missing.commit(), good.commit());
    assert!(matches!(twice, Err(StoreError::Illegal { .. })), "{twice:?}");
    assert!(matches!(missing, Err(StoreError::UnknownEpisode { .. })), "{missing:?}");
    good_result.unwrap();
    let early = good.score(Vec::new(), 1.0).await;
    assert!(matches!(early, Err(StoreError::Illegal { .. })), "{early:?}");
    let episodes = scene.store.episodes(&scene.run).unwrap();
    assert_eq!(episodes[0].state, State::Running);
}

#[tokio::test]
async fn scores_that_are_no_numbers_are_refused() {
    let scene = Scene::new().await;
    let writer = scene.start(EpisodeRef::first(0, 0)).await;
    writer.end(example::ending(FailureKind::Completed), None, Vec::new()).await.unwrap();
    let mut part = example::score("r", 1.0);
    part.components[0].value = f64::NEG_INFINITY;
    for (scores, total) in
        [(vec![], f64::NAN), (vec![example::score("r", f64::INFINITY)], 1.0), (vec![part], 1.0)]
    {
        let refused = writer.score(scores, total).await;
        assert!(matches!(refused, Err(StoreError::NotFinite { .. })), "{refused:?}");
    }
    writer.score(vec![example::score("r", 1.0)], 1.0).await.unwrap();
}

#[tokio::test]
async fn resuming_does_what_is_missing_and_nothing_twice() {
    let scene = Scene::new().await;
    let end = |kind| (example::ending(kind), None, Vec::new());
    // 0/0 is scored; 0/1 ended without scores; 1/0 was retried and runs; 1/1 waits.
    let scored = scene.start(EpisodeRef::first(0, 0)).await;
    let (ending, tree, changes): (Ending, _, _) = end(FailureKind::Completed);
    scored.end(ending, tree, changes).await.unwrap();
    scored.score(vec![], 1.0).await.unwrap();
    let ended = scene.start(EpisodeRef::first(0, 1)).await;
    let (ending, tree, changes) = end(FailureKind::Budget);
    ended.end(ending, tree, changes).await.unwrap();
    let failed = scene.start(EpisodeRef::first(1, 0)).await;
    let (ending, tree, changes) = end(FailureKind::PolicyError);
    failed.end(ending, tree, changes).await.unwrap();
    let next = failed.retry("502").await.unwrap();
    assert_eq!(next, EpisodeRef { task: 1, sample: 0, attempt: 1 });
    let again = scene.start(next).await;
    again.push(EntryBody::Turn(Box::new(example::turn(0, "x"))));
    again.commit().await.unwrap();
    drop((scored, ended, failed, again));

    let scene = scene.reopen();
    assert_eq!(scene.store.run(&scene.run).unwrap().status, RunStatus::Interrupted);
    let seen = scene.store.resume_plan(&scene.run).unwrap();
    scene.store.queue_episodes(&scene.run, &episodes(2, 2)).await.unwrap();
    let plan = scene.store.resume_run(&scene.run).await.unwrap();
    assert_eq!(plan, seen, "looking first and resuming agree");
    assert_eq!(
        plan.recorded.iter().map(|e| e.episode).collect::<Vec<_>>(),
        [EpisodeRef::first(0, 0)]
    );
    let missing: Vec<EpisodeRef> = plan.missing.iter().map(|queued| queued.episode).collect();
    let at = |task, sample, attempt| EpisodeRef { task, sample, attempt };
    assert_eq!(missing, [at(0, 1, 1), at(1, 0, 2), at(1, 1, 0)]);

    let states: Vec<_> = scene
        .store
        .episodes(&scene.run)
        .unwrap()
        .iter()
        .map(|summary| (summary.episode, summary.state))
        .collect();
    assert_eq!(
        states,
        [
            (at(0, 0, 0), State::Scored),
            (at(0, 1, 0), State::Cancelled),
            (at(0, 1, 1), State::Queued),
            (at(1, 0, 0), State::Failed),
            (at(1, 0, 1), State::Cancelled),
            (at(1, 0, 2), State::Queued),
            (at(1, 1, 0), State::Queued),
        ]
    );
    for episode in missing {
        let writer = scene.start(episode).await;
        writer.end(example::ending(FailureKind::Completed), None, Vec::new()).await.unwrap();
        writer.score(vec![], 0.0).await.unwrap();
    }
    scene.store.finish_run(&scene.run, RunStatus::Finished).await.unwrap();
    let plan = scene.store.resume_plan(&scene.run).unwrap();
    assert_eq!((plan.recorded.len(), plan.missing.len()), (4, 0));
    assert!(scene.store.run(&scene.run).unwrap().finished_at.is_some());
}

#[tokio::test]
async fn cancelled_and_abandoned_episodes_are_told_apart() {
    let scene = Scene::new().await;
    let cancelled = scene.start(EpisodeRef::first(0, 0)).await;
    cancelled.cancel().await.unwrap();
    cancelled.cancel().await.unwrap();
    let abandoned = scene.start(EpisodeRef::first(0, 1)).await;
    abandoned.end(example::ending(FailureKind::SandboxError), None, Vec::new()).await.unwrap();
    abandoned.abandon("three times").await.unwrap();
    abandoned.cancel().await.unwrap();
    let alarm = scene.start(EpisodeRef::first(1, 0)).await;
    alarm.end(example::ending(FailureKind::Completed), None, Vec::new()).await.unwrap();
    alarm.fail("the reward trapped").await.unwrap();
    let plan = scene.store.resume_plan(&scene.run).unwrap();
    let states: Vec<_> =
        plan.recorded.iter().map(|summary| (summary.state, summary.reason.clone())).collect();
    assert_eq!(
        states,
        [
            (State::Dropped, Some("three times".to_owned())),
            (State::Failed, Some("the reward trapped".to_owned())),
        ]
    );
    assert_eq!(plan.missing[0].episode, EpisodeRef { task: 0, sample: 0, attempt: 1 });
}

#[tokio::test]
async fn runs_are_created_once_and_listed_by_age() {
    let scene = Scene::new().await;
    let mut record = RunRecord::new(serde_json::json!({"b": 1, "a": 2}), serde_json::Value::Null);
    record.started_at = Timestamp(5);
    record.commit = Some("abc".into());
    record.machine = Some("2 cores".into());
    record.tasks = Some(Digest::of(b"tasks"));
    scene.store.create_run(record.clone()).await.unwrap();
    scene.store.create_run(record.clone()).await.unwrap();
    let runs = scene.store.runs().unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[0].record, record);
    record.machine = None;
    let other = scene.store.create_run(record.clone()).await;
    assert_eq!(other, Err(StoreError::RunExists(record.id)));
    let unknown = scene.store.episodes("nothing").unwrap_err();
    assert_eq!(unknown, StoreError::UnknownRun("nothing".into()));
}

#[tokio::test]
async fn a_changed_task_list_is_noticed() {
    let scene = Scene::new().await;
    let mut list = episodes(3, 1);
    list[1].task_id = "other".into();
    let refused = scene.store.queue_episodes(&scene.run, &list).await;
    assert!(matches!(refused, Err(StoreError::OtherTask { .. })), "{refused:?}");
    assert_eq!(scene.store.episodes(&scene.run).unwrap().len(), 4, "all or nothing");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The store follows the transition table, whatever is asked of it, and a refused step leaves
    /// no trace.
    #[test]
    fn the_store_follows_the_table(steps in proptest::collection::vec(0..6_usize, 1..12)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let scene = Scene::new().await;
            let episode = EpisodeRef::first(0, 0);
            let writer = scene.start(episode).await;
            let mut state = State::Running;
            let mut closed = false;
            let mut turns = 0;
            for step in steps {
                let step = Step::ALL[step];
                let expected = state.after(step);
                let result = match step {
                    // Stands for a turn here: an attempt is started by making its writer.
                    Step::Start => {
                        writer.push(EntryBody::Turn(Box::new(example::turn(turns, "x"))));
                        let result = writer.commit().await;
                        prop_assert_eq!(result.is_err(), closed);
                        turns += u32::from(!closed);
                        continue;
                    }
                    Step::End => {
                        let ending = example::ending(FailureKind::Budget);
                        writer.end(ending, None, Vec::new()).await
                    }
                    Step::Score => writer.score(vec![example::score("r", 1.0)], 1.0).await,
                    Step::Fail => writer.fail("alarm").await,
                    Step::Drop => writer.abandon("retries").await,
                    Step::Cancel => writer.cancel().await,
                };
                closed = true;
                match expected {
                    Ok(next) => {
                        prop_assert_eq!(result, Ok(()));
                        state = next;
                    }
                    Err(source) => {
                        let run = scene.run.clone();
                        prop_assert_eq!(result, Err(StoreError::Illegal { run, episode, source }));
                    }
                }
            }
            writer.commit().await.ok();
            let summary = scene.store.episode(&scene.run, episode).unwrap();
            prop_assert_eq!((summary.state, summary.turns), (state, u64::from(turns)));
            prop_assert_eq!(summary.total.is_some(), state == State::Scored);
            let entries = scene.store.entries(&scene.run, episode).unwrap();
            prop_assert_eq!(entries.len(), turns as usize);
            Ok(())
        })?;
    }
}
