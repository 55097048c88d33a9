//! Chunks, before and after failures.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use fulgurite_policy::{Policy, PolicyError, PolicyInfo, ReplyRequest};
use tokio::sync::{Notify, mpsc};

use super::support::*;
use crate::{Chunk, ReplyOptions, Settings};

/// Streams two chunks, then waits for a nod; the first attempt breaks off, the second succeeds.
struct Streams {
    info: PolicyInfo,
    attempts: AtomicUsize,
    nod: Notify,
}

impl Streams {
    fn new() -> Arc<Self> {
        let name = "streams".to_owned();
        let info = PolicyInfo { name, context_length: None, native_tools: true };
        Arc::new(Self { info, attempts: AtomicUsize::new(0), nod: Notify::new() })
    }
}

#[async_trait]
impl Policy for Streams {
    fn info(&self) -> &PolicyInfo {
        &self.info
    }

    async fn reply(&self, _: ReplyRequest, chunks: Option<mpsc::Sender<Chunk>>) -> Answer {
        let chunks = chunks.expect("asked to stream");
        let attempt = self.attempts.fetch_add(1, Ordering::SeqCst);
        chunks.send(Chunk::Thinking(format!("{attempt}"))).await.unwrap();
        chunks.send(Chunk::Text("a".to_owned())).await.unwrap();
        chunks.send(Chunk::Text("b".to_owned())).await.unwrap();
        self.nod.notified().await;
        if attempt == 0 {
            return Err(PolicyError::Unavailable("cut off".to_owned()));
        }
        Ok(reply("ab", 1))
    }
}

fn streaming() -> ReplyOptions {
    let metadata = vec![("stream".to_owned(), "true".to_owned())];
    ReplyOptions { metadata, ..Default::default() }
}

#[tokio::test(start_paused = true)]
async fn chunks_come_while_the_reply_is_written() {
    let policy = Streams::new();
    policy.attempts.store(1, Ordering::SeqCst);
    let (session, _) = session(Settings::default(), policy.clone());
    let conversation = session.open(plain()).unwrap();
    let mut pending = conversation.start(user("a"), streaming()).unwrap();
    let mut other = session.open(plain()).unwrap().start(user("a"), streaming()).unwrap();
    pending.ready().await;
    assert_eq!(pending.next_chunk().await, Ok(Some(Chunk::Thinking("1".to_owned()))));
    assert_eq!(pending.next_chunk().await, Ok(Some(Chunk::Text("ab".to_owned()))));
    policy.nod.notify_waiters();
    assert_eq!(pending.next_chunk().await, Ok(None));
    assert_eq!(pending.finish().await.unwrap().message.plain_text(), "ab");
    assert_eq!(pending.next_chunk().await, Ok(None));
    other.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn after_a_retry_no_chunk_contradicts_those_delivered() {
    let policy = Streams::new();
    let (session, _) = session(Settings::default(), policy.clone());
    let conversation = session.open(plain()).unwrap();
    let mut pending = conversation.start(user("a"), streaming()).unwrap();
    assert_eq!(pending.next_chunk().await, Ok(Some(Chunk::Thinking("0".to_owned()))));
    policy.nod.notify_one();
    while policy.attempts.load(Ordering::SeqCst) < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    policy.nod.notify_one();
    assert_eq!(pending.next_chunk().await, Ok(None), "the second attempt is only in `finish`");
    assert_eq!(pending.finish().await.unwrap().message.plain_text(), "ab");
}

#[tokio::test(start_paused = true)]
async fn a_retry_before_any_chunk_was_delivered_streams_from_the_start() {
    let policy = Streams::new();
    let (session, _) = session(Settings::default(), policy.clone());
    let conversation = session.open(plain()).unwrap();
    let mut pending = conversation.start(user("a"), streaming()).unwrap();
    policy.nod.notify_one();
    while policy.attempts.load(Ordering::SeqCst) < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    tokio::task::yield_now().await;
    assert_eq!(pending.next_chunk().await, Ok(Some(Chunk::Thinking("1".to_owned()))));
    policy.nod.notify_one();
    pending.finish().await.unwrap();
}
