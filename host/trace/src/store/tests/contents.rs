//! Contents of sealed workspaces, and gradings beside a run's own scores.

use super::*;
use crate::{ScoreComponent, TurnValue};

fn rows(scene: &Scene) -> (i64, i64) {
    let connection = Connection::open(scene.path()).unwrap();
    let text = "SELECT count(*), coalesce(sum(length(form)), 0) FROM contents";
    connection.query_row(text, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
}

fn pairs(contents: &[Vec<u8>]) -> Vec<(Digest, Vec<u8>)> {
    contents.iter().map(|bytes| (Digest::of(bytes), bytes.clone())).collect()
}

#[tokio::test]
async fn contents_come_back_are_compressed_and_kept_once() {
    let scene = Scene::new().await;
    let large = "a line that comes again\n".repeat(100_000).into_bytes();
    let contents = [Vec::new(), b"small".to_vec(), large];
    for sample in 0..2 {
        let writer = scene.start(EpisodeRef::first(0, sample)).await;
        writer.keep(pairs(&contents)).await.unwrap();
        writer.commit().await.unwrap();
    }
    for bytes in &contents {
        assert_eq!(scene.store.content(&Digest::of(bytes)).unwrap().as_ref(), Some(bytes));
    }
    assert_eq!(scene.store.content(&Digest::of("other")).unwrap(), None);
    let (count, bytes) = rows(&scene);
    assert_eq!(count, 3, "the same content of two episodes is one row");
    assert!(bytes < 20_000, "{bytes}");
    // A writer that discards keeps nothing and does not fail.
    EpisodeWriter::discarding().keep(pairs(&contents)).await.unwrap();
}

#[tokio::test]
async fn many_large_contents_are_written_in_pieces() {
    let scene = Scene::new().await;
    let mut state = 7_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    let contents: Vec<Vec<u8>> =
        (0..8).map(|_| std::iter::repeat_with(&mut random).take(200_000).collect()).collect();
    let writer = scene.start(EpisodeRef::first(0, 0)).await;
    writer.keep(pairs(&contents)).await.unwrap();
    writer.commit().await.unwrap();
    let scene = {
        drop(writer);
        scene.reopen()
    };
    for bytes in &contents {
        assert_eq!(scene.store.content(&Digest::of(bytes)).unwrap().as_ref(), Some(bytes));
    }
}

#[tokio::test]
async fn a_content_that_was_changed_is_damage() {
    let scene = Scene::new().await;
    let writer = scene.start(EpisodeRef::first(0, 0)).await;
    writer.keep(pairs(&[b"content".to_vec()])).await.unwrap();
    writer.commit().await.unwrap();
    let other = Connection::open(scene.path()).unwrap();
    for damage in ["x'00ffff'", "x'01ffffffff00'", "x''", "x'09'"] {
        other.execute(&format!("UPDATE contents SET form = {damage}"), []).unwrap();
        let error = scene.store.content(&Digest::of("content")).unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{damage}: {error:?}");
    }
}

fn score(reward: &str, total: f64) -> Score {
    Score {
        reward: reward.to_owned(),
        weight: 0.1 + 0.2,
        total,
        components: vec![ScoreComponent { name: "part".to_owned(), value: 1.0 / 3.0 }],
        turns: vec![TurnValue { turn: 0, value: -0.0 }],
        notes: vec![("why".to_owned(), "because".to_owned())],
    }
}

#[tokio::test]
async fn a_grading_stands_beside_the_scores_of_the_run() {
    let scene = Scene::new().await;
    let episode = EpisodeRef::first(0, 0);
    let writer = scene.start(episode).await;
    writer.end(example::ending(crate::FailureKind::Completed), None, Vec::new()).await.unwrap();
    writer.score(vec![score("own", 1.0)], 1.0).await.unwrap();
    let plan = serde_json::json!({ "rewards": ["other"] });
    for (position, total) in [(1, 0.25), (2, 0.75)] {
        assert_eq!(scene.store.begin_grading(&scene.run, &plan).await.unwrap(), position);
        let graded = Graded {
            episode,
            total: Some(total),
            reason: None,
            scores: vec![score("other", total), score("third", 0.0)],
        };
        // Twice is once.
        for _ in 0..2 {
            scene.store.grade(&scene.run, position, graded.clone()).await.unwrap();
        }
        assert_eq!(scene.store.graded(&scene.run, position).unwrap(), [graded]);
    }
    let failed = EpisodeRef::first(0, 1);
    let reason = Some("no".to_owned());
    let graded = Graded { episode: failed, total: None, reason, scores: Vec::new() };
    scene.store.grade(&scene.run, 2, graded.clone()).await.unwrap();
    assert_eq!(scene.store.graded(&scene.run, 2).unwrap()[1], graded);
    let gradings = scene.store.gradings(&scene.run).unwrap();
    let seen: Vec<_> = gradings.iter().map(|one| (one.position, one.graded, one.mean)).collect();
    assert_eq!(seen, [(1, 1, Some(0.25)), (2, 1, Some(0.75))]);
    assert_eq!(gradings[0].plan, plan);
    assert_eq!(scene.store.scores(&scene.run, episode).unwrap(), [score("own", 1.0)]);
    assert_eq!(scene.store.episode(&scene.run, episode).unwrap().total, Some(1.0));

    let infinite = Graded { episode, total: Some(f64::NAN), reason: None, scores: Vec::new() };
    let refused = scene.store.grade(&scene.run, 1, infinite).await;
    assert!(matches!(refused, Err(StoreError::NotFinite { .. })), "{refused:?}");
    let refused = scene.store.grade(&scene.run, 9, graded).await;
    assert!(matches!(refused, Err(StoreError::UnknownGrading { .. })), "{refused:?}");
}
