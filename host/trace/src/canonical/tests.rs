//! The canonical form: equal for equal runs, and documented.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::*;
use crate::{
    Digest, EpisodeRef, FailureKind, QueuedEpisode, RunRecord, SampledTokens, Timestamp, example,
};

const DOCUMENT: &str = include_str!("../../TRACE.md");

fn body(task: u32, sample: u32, index: u32, other: u64) -> EntryBody {
    let mut turn = example::turn(index, &format!("{task}/{sample}"));
    // What must not matter.
    turn.latency_ms = other;
    turn.retries = u32::try_from(other % 3).unwrap();
    turn.usage.cached_tokens = other;
    EntryBody::Turn(Box::new(turn))
}

/// The same run, recorded in the order and with the accidents that `other` says.
async fn recorded(other: u64) -> String {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("traces.sqlite")).unwrap();
    let mut record = RunRecord::new(
        serde_json::json!({ "concurrency": other }),
        if other == 0 {
            serde_json::json!({ "b": { "y": 1, "x": [2, 3] }, "a": "sha256:00" })
        } else {
            serde_json::json!({ "a": "sha256:00", "b": { "x": [2, 3], "y": 1 } })
        },
    );
    record.started_at = Timestamp(other);
    record.machine = Some(format!("machine {other}"));
    record.tasks = Some(Digest::of(b"tasks"));
    let run = record.id.clone();
    store.create_run(record).await.unwrap();
    let mut places: Vec<(u32, u32)> =
        (0..3).flat_map(|task| (0..2).map(move |sample| (task, sample))).collect();
    if other > 0 {
        places.reverse();
    }
    let queued: Vec<_> = places
        .iter()
        .map(|(task, sample)| QueuedEpisode {
            episode: EpisodeRef::first(*task, *sample),
            task_id: format!("task/{task}"),
        })
        .collect();
    store.queue_episodes(&run, &queued).await.unwrap();
    let mut writers = Vec::new();
    for (task, sample) in places {
        let mut episode = EpisodeRef::first(task, sample);
        if other % 2 == 1 && task == 1 {
            // An upstream failed once; nobody should see it afterwards.
            let writer = store.start_attempt(&run, episode).await.unwrap();
            writer.push(body(task, sample, 0, 5));
            writer.end(example::ending(FailureKind::PolicyError), None, vec![]).await.unwrap();
            episode = writer.retry("502").await.unwrap();
        }
        writers.push((task, sample, store.start_attempt(&run, episode).await.unwrap()));
    }
    for (task, sample, writer) in &writers {
        // Two replies that were waited for at the same time came in either order.
        let order = if other == 0 { [0, 1, 2] } else { [1, 0, 2] };
        for index in order {
            writer.push(body(*task, *sample, index, other));
            writer.commit().await.unwrap();
        }
        writer.push(EntryBody::Event { name: "done".into(), fields: vec![] });
    }
    for (task, _, writer) in &writers {
        writer
            .end(example::ending(FailureKind::Completed), Some(Digest::of(b"t")), vec![])
            .await
            .unwrap();
        writer.score(vec![example::score("r", 1.0)], f64::from(*task)).await.unwrap();
    }
    exported(&store, &run)
}

fn exported(store: &Store, run: &str) -> String {
    let mut output = Vec::new();
    export(store, run, &mut output).unwrap();
    String::from_utf8(output).unwrap()
}

#[tokio::test]
async fn equal_runs_are_equal_byte_by_byte() {
    let first = recorded(0).await;
    for other in [1, 2, 64] {
        assert_eq!(first, recorded(other).await);
    }
    let kinds: Vec<String> = first
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["record"].to_string())
        .collect();
    assert_eq!(kinds.len(), 1 + 6 * (1 + 3 + 1 + 1 + 1));
    assert_eq!(
        kinds[..8],
        ["run", "episode", "turn", "turn", "turn", "event", "ending", "score"]
            .map(|kind| format!("{kind:?}"))
    );
}

/// Every field of every record of an export in which every field occurs.
async fn fields_of_a_full_export() -> BTreeMap<String, BTreeSet<String>> {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("traces.sqlite")).unwrap();
    let mut record = RunRecord::new(Value::Null, serde_json::json!({ "harness": "sha256:00" }));
    record.tasks = Some(Digest::of(b"tasks"));
    let run = record.id.clone();
    store.create_run(record).await.unwrap();
    let queued: Vec<_> = (0..2)
        .map(|task| QueuedEpisode {
            episode: EpisodeRef::first(task, 0),
            task_id: format!("{task}"),
        })
        .collect();
    store.queue_episodes(&run, &queued).await.unwrap();
    for task in 0..2 {
        let writer = store.start_attempt(&run, EpisodeRef::first(task, 0)).await.unwrap();
        for entry in example::every_entry() {
            writer.push(entry);
        }
        writer.push(EntryBody::Truncated { dropped: 3 });
        let mut ending = if task == 0 {
            example::ending(FailureKind::Completed)
        } else {
            example::ending(FailureKind::Trap)
        };
        ending.backtrace = vec!["main".into()];
        let changes = br#"{"changes":[{"path":"a","kind":"added","entry":"file","size":1,"digest":"sha256:00"}]}"#;
        writer.end(ending, Some(Digest::of(b"t")), changes.to_vec()).await.unwrap();
        writer.score(vec![example::score("r", 1.0)], 1.0).await.unwrap();
    }
    let mut fields: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in exported(&store, &run).lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        let record = value["record"].as_str().unwrap().to_owned();
        let found = fields.entry(record).or_default();
        collect("", &value, found);
    }
    fields
}

fn collect(path: &str, value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                found.insert(path.clone());
                // What the plan pins is the program's, not the form's.
                if path != "pinned" {
                    collect(&path, member, found);
                }
            }
        }
        Value::Array(items) => {
            items.iter().for_each(|item| collect(&format!("{path}[]"), item, found));
        }
        _ => {}
    }
}

/// The fields that the document's tables list, by record.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let mut fields: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut record = None;
    for line in DOCUMENT.lines() {
        if line.starts_with('#') {
            record = line.strip_prefix("### `").and_then(|rest| rest.strip_suffix('`'));
        } else if let (Some(record), Some(row)) = (record, line.strip_prefix("| `")) {
            let name = row.split('`').next().unwrap();
            let names = fields.entry(record.to_owned()).or_default();
            assert!(names.insert(name.to_owned()), "{record}: `{name}` is documented twice");
        }
    }
    fields
}

#[tokio::test]
async fn every_field_is_documented_and_every_documented_field_exists() {
    assert_eq!(documented(), fields_of_a_full_export().await);
}

#[tokio::test]
async fn log_probabilities_that_json_cannot_say_are_null() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("traces.sqlite")).unwrap();
    let record = RunRecord::new(Value::Null, Value::Null);
    let run = record.id.clone();
    store.create_run(record).await.unwrap();
    let episode = EpisodeRef::first(0, 0);
    let queued = [QueuedEpisode { episode, task_id: "t".into() }];
    store.queue_episodes(&run, &queued).await.unwrap();
    let writer = store.start_attempt(&run, episode).await.unwrap();
    let mut turn = example::turn(0, "x");
    turn.tokens = Some(SampledTokens {
        log_probabilities: vec![f32::NEG_INFINITY, -0.25],
        ..SampledTokens::default()
    });
    writer.push(EntryBody::Turn(Box::new(turn)));
    writer.commit().await.unwrap();
    assert!(exported(&store, &run).contains(r#""log_probabilities":[null,-0.25]"#));
}
