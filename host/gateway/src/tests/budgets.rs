//! Budgets, caps and limits.

use fulgurite_trace::{FailureKind, FinishReason};

use super::support::*;
use crate::{BudgetKind, Budgets, Limits, LlmError, Remaining, ReplyOptions, Settings};

fn settings(tokens: Option<u64>, turns: Option<u32>) -> Settings {
    Settings { budgets: Budgets { tokens, turns }, ..Settings::default() }
}

#[tokio::test]
async fn parallel_replies_share_the_budget_and_never_overdraw_it() {
    let policy = Listed::new([]);
    let (session, _) = session(settings(Some(100), None), policy.clone());
    let open = || session.open(plain()).unwrap();
    let conversations = [open(), open(), open()];
    let start = |at: usize| conversations[at].start(user("a"), at_most(60));
    let mut first = start(0).unwrap();
    let mut second = start(1).unwrap();
    assert!(matches!(start(2), Err(LlmError::Budget(BudgetKind::Tokens))));
    assert_eq!(session.verdict(), None, "tokens may still come back");
    first.finish().await.unwrap();
    second.finish().await.unwrap();
    let allowed: Vec<u32> =
        policy.asked.lock().unwrap().iter().map(|asked| asked.sampling.max_tokens).collect();
    assert_eq!(allowed, [60, 40]);
    assert_eq!(session.usage().completion_tokens, 100);
    assert!(matches!(start(2), Err(LlmError::Budget(BudgetKind::Tokens))));
    assert_eq!(session.verdict(), Some(FailureKind::Budget));
}

#[tokio::test]
async fn a_reply_that_is_given_up_costs_what_it_reserved() {
    let (session, _) = session(settings(Some(100), Some(3)), Silent::new());
    let conversation = session.open(plain()).unwrap();
    drop(conversation.start(user("a"), at_most(30)).unwrap());
    assert_eq!(session.remaining(), Remaining { tokens: Some(70), turns: Some(2) });
    conversation.start(user("a"), at_most(30)).unwrap().cancel();
    assert_eq!(session.remaining(), Remaining { tokens: Some(40), turns: Some(1) });
    assert_eq!(session.usage().failed, 2);
}

#[tokio::test]
async fn turns_are_counted_when_they_start() {
    let (session, _) = session(settings(None, Some(2)), Listed::new([]));
    let conversation = session.open(plain()).unwrap();
    for _ in 0..2 {
        conversation.send(user("a"), at_most(1)).await.unwrap();
    }
    for _ in 0..2 {
        let refused = conversation.send(user("a"), at_most(1)).await;
        assert_eq!(refused, Err(LlmError::Budget(BudgetKind::Turns)));
    }
    assert_eq!(session.verdict(), Some(FailureKind::Budget));
}

#[tokio::test]
async fn the_models_room_caps_a_reply_and_no_room_is_a_context_length_error() {
    // "aaaa" renders to 7 ids: role, four bytes, end, role.
    let policy = Babbler::new(Bytes { forgets_thinking: false }, false, Some(8));
    let (session, notes) = session(settings(Some(100), None), policy);
    let conversation = session.open(plain()).unwrap();
    let reply = conversation.send(user("aaaa"), at_most(50)).await.unwrap();
    assert!(reply.usage.completion_tokens <= 1);
    let short = session.open(plain()).unwrap();
    let full = short.send(user("aaaaaaaa"), at_most(50)).await;
    assert_eq!(full, Err(LlmError::ContextLength));
    assert_eq!(session.verdict(), Some(FailureKind::ContextLength));
    assert_eq!(notes.lines(), ["turn 0 of 0", "failed 1 context-length"]);
    assert_eq!(session.remaining().tokens, Some(100 - reply.usage.completion_tokens));
    // A later success in the same conversation makes it good.
    let reply = short.send(user("a"), ReplyOptions::default()).await.unwrap();
    assert!(matches!(reply.finish, FinishReason::Stop | FinishReason::Length));
    assert_eq!(session.verdict(), None);
}

#[tokio::test]
async fn a_hostile_harness_meets_its_limits() {
    let limits = Limits { conversations: 2, pending: 1, history_bytes: 4096, ..Limits::default() };
    let (session, _) = session(Settings { limits, ..Settings::default() }, Silent::new());
    let first = session.open(plain()).unwrap();
    let second = session.open(plain()).unwrap();
    assert!(matches!(session.open(plain()), Err(LlmError::Invalid(_))));
    let large = "x".repeat(5000);
    assert!(matches!(first.start(user(&large), at_most(1)), Err(LlmError::Invalid(_))));
    assert!(matches!(first.restart(user(&large), String::new()), Err(LlmError::Invalid(_))));
    let pending = first.start(user("a"), at_most(1)).unwrap();
    assert!(matches!(second.start(user("a"), at_most(1)), Err(LlmError::Invalid(_))));
    drop(pending);
    second.start(user("a"), at_most(1)).unwrap();
}

#[tokio::test]
async fn what_conversations_held_is_given_back() {
    let limits = Limits { history_bytes: 4096, ..Limits::default() };
    let settings = Settings { limits, ..Settings::default() };
    let (session, _) = session(settings, Listed::new([]));
    for _ in 0..8 {
        let conversation = session.open(plain()).unwrap();
        conversation.send(user(&"x".repeat(2500)), at_most(1)).await.unwrap();
        let again = conversation.send(user(&"x".repeat(2500)), at_most(1)).await;
        assert!(matches!(again, Err(LlmError::Invalid(_))));
    }
}
