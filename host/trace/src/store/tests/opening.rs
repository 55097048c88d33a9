//! Opening: permissions, other files, other versions, other processes, damage, full disks.

use std::{fs, os::unix::fs::PermissionsExt};

use super::*;
use crate::{EntryBody, State};

/// A store as version 1 wrote it.
const VERSION_1: &str = include_str!("../../../tests/fixtures/store-1.sql");

fn error_of(path: &Path) -> StoreError {
    Store::open(path).expect_err("must be refused")
}

#[tokio::test]
async fn new_files_are_for_the_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/traces.sqlite");
    let store = Store::open(&path).unwrap();
    begin_run(&store).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder.path().join("a")), 0o700);
    assert_eq!(mode(&folder.path().join("a/b")), 0o700);
    for suffix in ["", "-wal", "-shm", ".lock"] {
        assert_eq!(mode(&open::beside(&path, suffix)), 0o600, "{suffix}");
    }
}

#[tokio::test]
async fn a_store_of_version_1_is_migrated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("traces.sqlite");
    Connection::open(&path).unwrap().execute_batch(VERSION_1).unwrap();
    // Reading migrates as well.
    let store = Store::open_read_only(&path).unwrap();
    let run = store.run("20261101-080000-00ff").unwrap();
    assert_eq!(run.status, RunStatus::Interrupted);
    assert_eq!(run.record.plan["harness"], "coder");
    assert_eq!(run.record.pinned, serde_json::Value::Null);
    let episodes = store.episodes(&run.record.id).unwrap();
    let states: Vec<_> =
        episodes.iter().map(|e| (e.state, e.turns, e.prompt_tokens, e.completion_tokens)).collect();
    assert_eq!(
        states,
        [(State::Scored, 2, 30, 7), (State::Running, 1, 4, 1), (State::Queued, 0, 0, 0)]
    );
    let entries = store.entries(&run.record.id, episodes[0].episode).unwrap();
    assert_eq!(entries.len(), 3);
    let EntryBody::Turn(turn) = &entries[1].body else { panic!("{entries:?}") };
    let tokens = turn.tokens.as_ref().unwrap();
    assert_eq!((&*tokens.context, &*tokens.response), (&[1, 2, 513][..], &[70_000][..]));
    assert_eq!(tokens.log_probabilities, [-0.5]);
    assert_eq!(store.scores(&run.record.id, episodes[0].episode).unwrap().len(), 1);
    drop(store);
    let store = Store::open(&path).unwrap();
    let plan = store.resume_run(&run.record.id).await.unwrap();
    assert_eq!((plan.recorded.len(), plan.missing.len()), (1, 2));
    // What came with later versions works in it.
    let run = run.record.id;
    assert_eq!(store.content(&Digest::of("x")).unwrap(), None);
    assert_eq!(store.gradings(&run).unwrap(), []);
    let writer = store.start_attempt(&run, plan.missing[0].episode).await.unwrap();
    writer.keep([(Digest::of("x"), b"x".to_vec())]).await.unwrap();
    writer.commit().await.unwrap();
    assert_eq!(store.content(&Digest::of("x")).unwrap().unwrap(), b"x");
    assert_eq!(store.begin_grading(&run, &serde_json::json!({})).await.unwrap(), 1);
    drop(writer);
    store.check().unwrap();
}

#[tokio::test]
async fn a_store_of_version_2_is_migrated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("traces.sqlite");
    {
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(VERSION_1).unwrap();
        connection.execute_batch(schema::MIGRATIONS[1]).unwrap();
        connection.pragma_update(None, "user_version", 2).unwrap();
    }
    let store = Store::open_read_only(&path).unwrap();
    let run = store.runs().unwrap().remove(0).record.id;
    let episode = store.episodes(&run).unwrap()[0].episode;
    assert_eq!(store.scores(&run, episode).unwrap().len(), 1);
    let error = store.graded(&run, 1).unwrap_err().to_string();
    assert!(error.contains("no grading 1"), "{error}");
    store.check().unwrap();
}

#[test]
fn a_newer_store_is_refused_with_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("traces.sqlite");
    drop(Store::open(&path).unwrap());
    let connection = Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", schema::CURRENT + 5).unwrap();
    drop(connection);
    let before = fs::read(&path).unwrap();
    for error in [error_of(&path), Store::open_read_only(&path).unwrap_err()] {
        let (found, known) = (schema::CURRENT + 5, schema::CURRENT);
        assert_eq!(error, StoreError::Newer { path: path.clone(), found, known });
        let text = error.to_string();
        let told =
            text.contains(&format!("version {found}")) && text.contains(&format!("up to {known}"));
        assert!(told, "{text}");
    }
    assert_eq!(fs::read(&path).unwrap(), before, "a refused store is not touched");
}

#[test]
fn other_files_are_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.txt");
    fs::write(&text, "dear diary").unwrap();
    let database = folder.path().join("other.sqlite");
    Connection::open(&database).unwrap().execute_batch("CREATE TABLE birds (name)").unwrap();
    for path in [&text, &database, &folder.path().to_owned()] {
        let before = fs::read(path).ok();
        let error = error_of(path);
        assert!(matches!(error, StoreError::NotAStore { .. }), "{error:?}");
        assert_eq!(fs::read(path).ok(), before);
    }
    let missing = Store::open_read_only(folder.path().join("nothing")).unwrap_err();
    assert!(matches!(missing, StoreError::Missing { .. }));
}

#[test]
fn an_empty_file_becomes_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("traces.sqlite");
    fs::write(&path, "").unwrap();
    let store = Store::open(&path).unwrap();
    assert_eq!(store.runs().unwrap(), []);
}

#[tokio::test]
async fn one_process_writes_and_others_read() {
    let scene = Scene::new().await;
    let error = error_of(&scene.path());
    let holder = format!("another fulgurite process ({})", std::process::id());
    assert_eq!(error, StoreError::Locked { path: scene.path(), holder });
    let reader = Store::open_read_only(scene.path()).unwrap();
    assert_eq!(reader.run(&scene.run).unwrap().status, RunStatus::Running);
    let writer = scene.start(EpisodeRef::first(0, 0)).await;
    writer.push(EntryBody::Turn(Box::new(example::turn(0, "x"))));
    writer.commit().await.unwrap();
    let episodes = reader.episodes(&scene.run).unwrap();
    assert_eq!((episodes[0].state, episodes[0].turns), (State::Running, 1));
    let refused = reader.finish_run(&scene.run, RunStatus::Finished).await;
    assert!(matches!(refused, Err(StoreError::ReadOnly { .. })), "{refused:?}");
    drop(writer);
    drop(scene.store);
    drop(Store::open(scene.folder.path().join("traces.sqlite")).unwrap());
}

#[tokio::test]
async fn a_run_of_a_dead_process_is_interrupted_for_readers_too() {
    let scene = Scene::new().await;
    let reader = Store::open_read_only(scene.path()).unwrap();
    assert_eq!(reader.run(&scene.run).unwrap().status, RunStatus::Running);
    assert_eq!(reader.runs().unwrap()[0].status, RunStatus::Running);
    let path = scene.path();
    let (run, folder) = (scene.run, scene.folder);
    // Closing without finishing is what a kill leaves behind.
    drop(scene.store);
    assert_eq!(reader.run(&run).unwrap().status, RunStatus::Interrupted);
    assert_eq!(reader.runs().unwrap()[0].status, RunStatus::Interrupted);
    std::fs::remove_file(open::beside(&path, ".lock")).unwrap();
    assert_eq!(reader.run(&run).unwrap().status, RunStatus::Interrupted);
    drop(folder);
}

#[tokio::test]
async fn looking_for_a_writer_does_not_keep_one_out() {
    let scene = Scene::new().await;
    let path = scene.path();
    let folder = scene.folder;
    drop(scene.store);
    let looking = path.clone();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let until = Arc::clone(&stop);
    let looks = std::thread::spawn(move || {
        while !until.load(std::sync::atomic::Ordering::Relaxed) {
            open::has_writer(&looking);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    for _ in 0..20 {
        drop(Store::open(&path).unwrap());
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    looks.join().unwrap();
    drop(folder);
}

#[tokio::test]
async fn a_full_disk_stops_the_store_and_loses_nothing() {
    let mut options = StoreOptions::default();
    options.tuning.max_pages = Some(40);
    let scene = Scene::with(options).await;
    let writer = scene.start(EpisodeRef::first(0, 0)).await;
    let mut acknowledged = 0;
    let error = loop {
        let mut turn = example::turn(acknowledged, "x");
        turn.tokens.as_mut().unwrap().context =
            (0..3000).map(|id| id * 40_503 + acknowledged).collect();
        writer.push(EntryBody::Turn(Box::new(turn)));
        match writer.commit().await {
            Ok(()) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 1000, "the limit must bite");
    };
    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    assert!(error.to_string().contains("free space"), "{error}");
    // Nothing is written behind the hole.
    let later = writer.commit().await.unwrap_err();
    assert!(matches!(&later, StoreError::Stopped(cause) if **cause == error), "{later:?}");
    let other = scene.store.finish_run(&scene.run, RunStatus::Finished).await.unwrap_err();
    assert!(matches!(other, StoreError::Stopped(_)));
    drop(writer);
    let scene = scene.reopen();
    scene.store.check().unwrap();
    let entries = scene.store.entries(&scene.run, EpisodeRef::first(0, 0)).unwrap();
    assert_eq!(entries.len(), acknowledged as usize);
    assert!(acknowledged > 5);
}

#[tokio::test]
async fn damage_is_told_as_damage() {
    let scene = Scene::new().await;
    let writer = scene.start(EpisodeRef::first(0, 0)).await;
    for index in 0..50 {
        writer.push(EntryBody::Turn(Box::new(example::turn(index, &"w".repeat(900)))));
    }
    writer.commit().await.unwrap();
    let path = scene.path();
    drop(writer);
    let (run, folder) = (scene.run, scene.folder);
    drop(scene.store);
    let whole = fs::read(&path).unwrap();

    let mut broken = whole.clone();
    let middle = broken.len() / 2;
    broken[middle..].fill(0xa5);
    fs::write(&path, &broken).unwrap();
    let outcome = Store::open_read_only(&path)
        .and_then(|store| store.check().and_then(|()| store.episodes(&run)));
    let error = outcome.expect_err("half the file is garbage");
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    assert!(error.to_string().contains(".recover"), "{error}");

    let mut headless = whole;
    headless[20..100].fill(0);
    fs::write(&path, headless).unwrap();
    let error = error_of(&path);
    let told = matches!(error, StoreError::Corrupt { .. } | StoreError::NotAStore { .. });
    assert!(told, "{error:?}");
    drop(folder);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_names_the_store() {
    let scene = Scene::new().await;
    let writer = scene.start(EpisodeRef::first(0, 0)).await;
    writer.push(EntryBody::Turn(Box::new(example::turn(0, "x"))));
    writer.commit().await.unwrap();
    let other = Connection::open(scene.path()).unwrap();
    for damage in [
        "UPDATE entries SET packed = x'0102'",
        "UPDATE entries SET packed = NULL",
        "UPDATE entries SET body = x'01ffffffff00'",
        "UPDATE entries SET body = cast('{\"unheard-of\":1}' AS BLOB)",
    ] {
        assert_eq!(other.execute(damage, []), Ok(1));
        let error = scene.store.entries(&scene.run, EpisodeRef::first(0, 0)).unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{damage}: {error:?}");
    }
}
