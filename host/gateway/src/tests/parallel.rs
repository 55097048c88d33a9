//! Several replies at once: places, pauses, cancellation.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use fulgurite_policy::{Constant, FixedReply, Gate};
use fulgurite_trace::FailureKind;
use tokio::time::{Instant, timeout};

use super::support::*;
use crate::{Drained, LlmError, PendingReply, ReplyOptions, Session, Settings};

fn slow(seconds: u64) -> Arc<Constant> {
    let reply = FixedReply::text("yes").after(Duration::from_secs(seconds));
    Arc::new(Constant::new("slow", reply))
}

fn start(session: &Session) -> PendingReply {
    let conversation = session.open(plain()).unwrap();
    conversation.start(user("a"), ReplyOptions::default()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn pending_replies_run_in_parallel_and_their_waits_count_once() {
    let (session, _) = session(Settings::default(), slow(10));
    let started = Instant::now();
    let (mut first, mut second) = (start(&session), start(&session));
    let (one, two) = tokio::join!(first.finish(), second.finish());
    assert_eq!((one.unwrap().turn, two.unwrap().turn), (0, 1));
    assert_eq!(started.elapsed(), Duration::from_secs(10));
    tokio::time::advance(Duration::from_secs(5)).await;
    assert_eq!(session.waited(), Duration::from_secs(10));
}

#[tokio::test]
async fn one_conversation_has_one_pending_reply() {
    let (session, _) = session(Settings::default(), Silent::new());
    let conversation = session.open(plain()).unwrap();
    let pending = conversation.start(user("a"), ReplyOptions::default()).unwrap();
    let second = conversation.start(user("a"), ReplyOptions::default());
    assert!(matches!(second, Err(LlmError::Busy)));
    assert_eq!(conversation.restart(user("a"), String::new()), Err(LlmError::Busy));
    drop(pending);
    conversation.restart(user("a"), String::new()).unwrap();
    conversation.start(vec![], ReplyOptions::default()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_policy_serves_no_more_calls_at_once_than_it_may() {
    let gate = Arc::new(Gate::new(slow(1)));
    let concurrency = NonZeroU32::new(3).unwrap();
    let gateway = gateway(Settings { concurrency, ..Settings::default() }, gate.clone());
    let sessions: Vec<_> = (0..10).map(|_| session_of(&gateway, &Notes::new())).collect();
    let mut pending: Vec<_> = sessions.iter().map(start).collect();
    gate.until_waiting(3).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((gate.most_waiting(), gateway.running_calls()), (3, 3));
    gate.release();
    for reply in &mut pending {
        reply.finish().await.unwrap();
    }
    assert_eq!(gate.most_waiting(), 3);
}

#[tokio::test(start_paused = true)]
async fn while_paused_calls_wait_and_none_fails() {
    let gateway = gateway(Settings::default(), slow(2));
    let session = session_of(&gateway, &Notes::new());
    let mut running = start(&session);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let pause = gateway.pause();
    assert_eq!(pause.drain(Duration::from_millis(500)).await, Drained::StillRunning(1));
    assert_eq!(pause.drain(Duration::from_secs(9)).await, Drained::Idle);
    let mut held = start(&session);
    running.finish().await.unwrap();
    assert!(timeout(Duration::from_secs(3600), held.finish()).await.is_err());
    assert_eq!(gateway.running_calls(), 0);
    assert_eq!(pause.drain(Duration::ZERO).await, Drained::Idle);
    pause.resume();
    held.finish().await.unwrap();
    assert!(session.waited() >= Duration::from_secs(3602));
}

#[tokio::test]
async fn a_cancelled_session_answers_cancelled_to_everything() {
    let gate = Arc::new(Gate::new(slow(0)));
    let (session, notes) = session(Settings::default(), gate.clone());
    let conversation = session.open(plain()).unwrap();
    let (mut first, mut second) = (start(&session), start(&session));
    gate.until_waiting(2).await;
    let waiting = tokio::spawn(async move { first.finish().await });
    session.cancel();
    assert_eq!(waiting.await.unwrap(), Err(LlmError::Cancelled));
    second.ready().await;
    assert_eq!(second.next_chunk().await, Err(LlmError::Cancelled));
    assert_eq!(second.finish().await, Err(LlmError::Cancelled));
    let cancelled = Err(LlmError::Cancelled);
    assert_eq!(conversation.send(user("a"), ReplyOptions::default()).await, cancelled);
    assert_eq!(session.chat(plain(), user("a"), ReplyOptions::default()).await, cancelled);
    assert!(matches!(session.open(plain()), Err(LlmError::Cancelled)));
    assert!(matches!(session.info("policy"), Err(LlmError::Cancelled)));
    assert!(matches!(conversation.branch(0), Err(LlmError::Cancelled)));
    assert_eq!(session.verdict(), Some(FailureKind::Cancelled));
    assert_eq!(notes.lines().len(), 2);
    // The calls are gone from the policy.
    while gate.waiting() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn dropping_a_reply_ends_its_call() {
    let gate = Arc::new(Gate::new(slow(0)));
    let (session, notes) = session(Settings::default(), gate.clone());
    let pending = start(&session);
    gate.until_waiting(1).await;
    drop(pending);
    while gate.waiting() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(notes.lines(), ["failed 0 cancelled"]);
    assert_eq!(session.verdict(), None, "the harness chose it");
}

#[tokio::test]
async fn closing_writes_what_is_pending_in_order_and_nothing_afterwards() {
    let (session, notes) = session(Settings::default(), slow(0));
    let mut pending: Vec<_> = (0..3).map(|_| start(&session)).collect();
    pending[1].finish().await.unwrap();
    session.close();
    let told = ["turn 1 of 1", "failed 0 cancelled", "failed 2 cancelled"];
    assert_eq!(notes.lines(), told);
    assert_eq!(session.verdict(), None);
    assert!(matches!(session.open(plain()), Err(LlmError::Cancelled)));
    assert_eq!(pending[2].finish().await, Err(LlmError::Cancelled));
    drop(pending);
    assert_eq!(notes.lines(), told);
}

#[test]
fn a_harness_may_run_on_any_thread() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let gateway = runtime.block_on(async { gateway(Settings::default(), slow(0)) });
    let session = session_of(&gateway, &Notes::new());
    // Not a thread of the runtime.
    let mut pending = start(&session);
    let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(other.block_on(pending.finish()).unwrap().message.plain_text(), "yes");
}
