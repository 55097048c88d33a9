//! Stateless calls and raw tokens.

use fulgurite_policy::{Policy, PolicyError, Prompt};
use fulgurite_trace::{Message, Role, entry::SegmentOrigin};

use super::support::*;
use crate::{ConversationConfig, LlmError, ReplyOptions, Settings};

fn said(text: &str) -> Message {
    Message::text(Role::Assistant, text)
}

fn answers(texts: &[&str]) -> Vec<Answer> {
    texts.iter().map(|text| Ok(reply(text, 1))).collect()
}

#[tokio::test]
async fn a_history_that_was_seen_is_continued() {
    let policy = Listed::new(answers(&["  one\n", "two", "other"]));
    let (session, notes) = session(Settings::default(), policy.clone());
    let options = ReplyOptions::default;
    session.chat(plain(), user("a"), options()).await.unwrap();
    // The caller trimmed what the model said; the host kept it.
    let history = [user("a"), vec![said("one")], user("b")].concat();
    session.chat(plain(), history, options()).await.unwrap();
    session.chat(plain(), user("something else"), options()).await.unwrap();
    let turns = notes.turns();
    let conversations: Vec<u32> = turns.iter().map(|turn| turn.conversation).collect();
    assert_eq!(conversations, [0, 0, 1]);
    assert_eq!(turns[1].messages, user("b"));
    let asked = policy.asked.lock().unwrap();
    let Prompt::Messages(messages) = &asked[1].prompt else { panic!() };
    assert_eq!(messages[1].plain_text(), "  one\n");
    assert_eq!(asked[1].key.turn, 1);
}

#[tokio::test]
async fn a_history_that_went_another_way_is_a_branch() {
    let policy = Listed::new(answers(&["one", "two", "three", "four", "five"]));
    let (session, notes) = session(Settings::default(), policy);
    let options = ReplyOptions::default;
    session.chat(plain(), user("a"), options()).await.unwrap();
    let history = [user("a"), vec![said("one")], user("b")].concat();
    session.chat(plain(), history.clone(), options()).await.unwrap();
    session.chat(plain(), history.clone(), options()).await.unwrap();
    let longer = [history.clone(), vec![said("three")], user("c")].concat();
    session.chat(plain(), longer, options()).await.unwrap();
    let older = [history, vec![said("two")], user("d")].concat();
    session.chat(plain(), older, options()).await.unwrap();
    let turns = notes.turns();
    assert_eq!(turns[2].origin, SegmentOrigin::Branched { turn: 0 });
    let conversations: Vec<u32> = turns.iter().map(|turn| turn.conversation).collect();
    assert_eq!(conversations, [0, 0, 1, 1, 0], "the longest match wins");
}

#[tokio::test]
async fn conversations_opened_otherwise_are_not_meant() {
    let policy = Listed::new(answers(&["one", "two", "three"]));
    let (session, notes) = session(Settings::default(), policy);
    let system = |text: &str| ConversationConfig { system: Some(text.to_owned()), ..plain() };
    let history = [user("a"), vec![said("one")], user("b")].concat();
    let options = ReplyOptions::default;
    session.chat(system("x"), user("a"), options()).await.unwrap();
    session.chat(system("y"), history.clone(), options()).await.unwrap();
    session.chat(system("x"), history, options()).await.unwrap();
    let conversations: Vec<u32> = notes.turns().iter().map(|turn| turn.conversation).collect();
    assert_eq!(conversations, [0, 1, 0]);
}

#[tokio::test]
async fn a_chat_that_failed_is_tried_again_in_its_conversation() {
    let policy = Listed::new([Err(PolicyError::Internal("x".to_owned())), Ok(reply("a", 1))]);
    let (session, notes) = session(Settings::default(), policy);
    let failed = session.chat(plain(), user("a"), ReplyOptions::default()).await;
    assert_eq!(failed, Err(LlmError::Unavailable));
    assert!(session.verdict().is_some());
    session.chat(plain(), user("a"), ReplyOptions::default()).await.unwrap();
    assert_eq!(notes.lines(), ["failed 0 unavailable", "turn 1 of 0"]);
    assert_eq!(session.verdict(), None);
}

#[tokio::test]
async fn only_so_many_chats_are_remembered() {
    let mut settings = Settings::default();
    settings.limits.remembered_chats = 2;
    let (session, notes) = session(settings, Listed::new([]));
    for text in ["a", "b", "c"] {
        session.chat(plain(), user(text), at_most(1)).await.unwrap();
    }
    for text in ["c", "a"] {
        let history = [user(text), vec![said("all I may")], user("more")].concat();
        session.chat(plain(), history, at_most(1)).await.unwrap();
    }
    let conversations: Vec<u32> = notes.turns().iter().map(|turn| turn.conversation).collect();
    assert_eq!(conversations, [0, 1, 2, 2, 3], "`a` was forgotten");
}

#[tokio::test]
async fn raw_tokens_that_extend_a_call_stay_in_its_segment() {
    let policy = Babbler::new(Bytes { forgets_thinking: false }, true, Some(40));
    let asked: std::sync::Arc<dyn Policy> = policy.clone();
    let (session, notes) = session(Settings::default(), asked);
    let options = ReplyOptions::default;
    assert!(session.info("policy").unwrap().token_level);
    let first = session.generate("policy", vec![2, 150, 3], options()).await.unwrap();
    assert_eq!(first.log_probabilities.len(), first.tokens.len());
    let prompt = [vec![2, 150, 3], first.tokens.clone(), vec![2, 151, 3]].concat();
    session.generate("policy", prompt.clone(), options()).await.unwrap();
    session.generate("policy", vec![9], options()).await.unwrap();
    let turns = notes.turns();
    let places: Vec<_> = turns.iter().map(|turn| (turn.conversation, turn.segment)).collect();
    assert_eq!(places, [(0, 0), (0, 0), (1, 0)]);
    assert_eq!(turns[1].tokens.as_ref().unwrap().context, [2, 151, 3]);
    assert_eq!(policy.said.lock().unwrap()[1].0, prompt);
    assert!(turns.iter().all(|turn| turn.messages.is_empty()));
    let long = session.generate("policy", vec![2; 40], options()).await;
    assert_eq!(long, Err(LlmError::ContextLength));
    let empty = session.generate("policy", vec![], options()).await;
    assert!(matches!(empty, Err(LlmError::Invalid(_))));
}

#[tokio::test]
async fn raw_tokens_need_a_token_level_policy() {
    let (session, _) = session(Settings::default(), Listed::new([]));
    assert!(!session.info("policy").unwrap().token_level);
    let refused = session.generate("policy", vec![1], ReplyOptions::default()).await;
    assert!(matches!(refused, Err(LlmError::Unsupported(_))));
}
