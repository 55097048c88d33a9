//! Durable before release.

use std::{sync::Arc, time::Duration};

use fulgurite_policy::{Constant, FixedReply};
use fulgurite_trace::{EntryBody, FailureKind, QueuedEpisode, RunRecord, Store};
use tokio::time::timeout;

use super::support::*;
use crate::{LlmError, ReplyOptions, SessionConfig, Settings};

fn constant() -> Arc<Constant> {
    Arc::new(Constant::new("constant", FixedReply::text("yes")))
}

#[tokio::test(start_paused = true)]
async fn a_reply_is_released_only_once_its_turn_is_durable() {
    let (session, notes) = session(Settings::default(), constant());
    notes.hold();
    let conversation = session.open(plain()).unwrap();
    let mut pending = conversation.start(user("a"), ReplyOptions::default()).unwrap();
    pending.ready().await;
    let chunk = pending.next_chunk().await.unwrap();
    assert_eq!(chunk, Some(crate::Chunk::Text("yes".to_owned())), "chunks are provisional");
    assert!(notes.turns().is_empty(), "not before it is taken");
    assert!(timeout(Duration::from_secs(9), pending.finish()).await.is_err());
    assert_eq!(notes.lines(), ["turn 0 of 0"], "written, but not yet durable");
    let busy = conversation.start(user("b"), ReplyOptions::default());
    assert!(matches!(busy, Err(LlmError::Busy)));
    // The future was dropped, and lost nothing; nor does giving up undo what is written.
    pending.cancel();
    notes.release();
    assert_eq!(pending.finish().await.unwrap().message.plain_text(), "yes");
    conversation.send(user("b"), ReplyOptions::default()).await.unwrap();
    assert_eq!(notes.lines(), ["turn 0 of 0", "turn 1 of 0"]);
}

#[tokio::test]
async fn a_reply_that_cannot_be_made_durable_is_never_released() {
    let (session, notes) = session(Settings::default(), constant());
    notes.broken.send_replace(true);
    let conversation = session.open(plain()).unwrap();
    let mut pending = conversation.start(user("a"), ReplyOptions::default()).unwrap();
    for _ in 0..2 {
        let Err(LlmError::Other(LlmError::NOT_RECORDED, text)) = pending.finish().await else {
            panic!("released")
        };
        assert!(!text.contains("disk full"));
    }
    assert_eq!(session.verdict(), Some(FailureKind::SandboxError));
}

#[tokio::test]
async fn a_released_turn_is_in_the_store_when_another_opens_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("traces.sqlite")).unwrap();
    let record = RunRecord::new(serde_json::json!({}), serde_json::json!({}));
    let run = record.id.clone();
    store.create_run(record).await.unwrap();
    let queued = QueuedEpisode { episode: EPISODE, task_id: "task".to_owned() };
    store.queue_episodes(&run, &[queued]).await.unwrap();
    let writer = store.start_attempt(&run, EPISODE).await.unwrap();
    let session = gateway(Settings::default(), constant()).session(SessionConfig {
        task: "task".to_owned(),
        harness: "harness".to_owned(),
        episode: EPISODE,
        writer,
    });
    let conversation = session.open(plain()).unwrap();
    let reply = conversation.send(user("a"), ReplyOptions::default()).await.unwrap();
    let other = Store::open_read_only(store.path()).unwrap();
    let entries = other.entries(&run, EPISODE).unwrap();
    let [entry] = &*entries else { panic!("{entries:?}") };
    let EntryBody::Turn(turn) = &entry.body else { panic!("{entry:?}") };
    assert_eq!((turn.index, &turn.reply), (reply.turn, &reply.message));
}
