//! Same inputs, same run: the order of things does not follow the policy's pace.

use std::{sync::Arc, time::Duration};

use fulgurite_policy::{Constant, FixedReply, Script, ScriptKey};
use fulgurite_trace::EntryBody;
use proptest::prelude::*;

use super::support::*;
use crate::{Conversation, PendingReply, ReplyOptions, Settings};

/// A harness with three sub-agents that takes replies as they become ready, and goes on with
/// each agent at once.
async fn agents(delays: &[u64; 9]) -> Vec<EntryBody> {
    let replies = delays.iter().zip(0_u32..).map(|(delay, at)| {
        let (agent, turn) = (at / 3, at % 3);
        let key = ScriptKey { conversation: Some(agent), turn: Some(turn), ..ScriptKey::default() };
        let reply = FixedReply::text(format!("{agent}.{turn}"));
        (key, reply.after(Duration::from_millis(*delay)))
    });
    let script = Script::new("script", replies);
    let (session, notes) = session(Settings::default(), Arc::new(script));
    let conversations: Vec<Conversation> = (0..3).map(|_| session.open(plain()).unwrap()).collect();
    let ask =
        |agent: usize| conversations[agent].start(user("go on"), ReplyOptions::default()).unwrap();
    let mut pending: Vec<(usize, u32, PendingReply)> =
        (0..3).rev().map(|agent| (agent, 0, ask(agent))).collect();
    while !pending.is_empty() {
        // One pass over all, as a poll over pollables does it.
        let ready = {
            let mut waits: Vec<_> =
                pending.iter_mut().map(|(_, _, reply)| Box::pin(reply.ready())).collect();
            std::future::poll_fn(|context| {
                let ready: Vec<usize> = waits
                    .iter_mut()
                    .enumerate()
                    .filter_map(|(at, wait)| wait.as_mut().poll(context).is_ready().then_some(at))
                    .collect();
                if ready.is_empty() {
                    std::task::Poll::Pending
                } else {
                    std::task::Poll::Ready(ready)
                }
            })
            .await
        };
        for at in ready.into_iter().rev() {
            let (agent, turn, mut reply) = pending.remove(at);
            assert_eq!(
                reply.finish().await.unwrap().message.plain_text(),
                format!("{agent}.{turn}")
            );
            if turn < 2 {
                pending.push((agent, turn + 1, ask(agent)));
            }
        }
    }
    let entries = notes.entries().into_iter().map(|mut entry| {
        if let EntryBody::Turn(turn) = &mut entry {
            turn.latency_ms = 0;
        }
        entry
    });
    entries.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_journal_does_not_depend_on_how_long_replies_take(
        delays in prop::array::uniform9(0_u64..50),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let (expected, told) =
            runtime.block_on(async { (agents(&[0; 9]).await, agents(&delays).await) });
        prop_assert_eq!(expected.len(), 9);
        prop_assert_eq!(expected, told);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_on_threads() {
    let expected = agents(&[0; 9]).await;
    for _ in 0..50 {
        assert_eq!(agents(&[0; 9]).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn entries_follow_the_order_of_taking() {
    let reply = FixedReply::text("yes").after(Duration::from_secs(1));
    let (session, notes) = session(Settings::default(), Arc::new(Constant::new("slow", reply)));
    let open = || session.open(plain()).unwrap();
    let (one, two) = (open(), open());
    let mut first = one.start(user("a"), ReplyOptions::default()).unwrap();
    let mut second = two.start(user("a"), ReplyOptions::default()).unwrap();
    assert_eq!((first.turn(), second.turn()), (0, 1));
    second.finish().await.unwrap();
    first.finish().await.unwrap();
    assert_eq!(notes.lines(), ["turn 1 of 1", "turn 0 of 0"]);
}
