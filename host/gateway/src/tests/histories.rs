//! Token histories: what was sampled is what the next prefix holds.

use std::collections::BTreeMap;

use fulgurite_policy::{ChatFormat, Policy, SampledReply};
use fulgurite_trace::{Message, Role, Turn, VersionSpan, entry::SegmentOrigin};
use proptest::prelude::*;

use super::support::*;
use crate::{Conversation, ConversationConfig, History, LlmError, ReplyOptions, Settings};

#[derive(Debug, Clone)]
enum Step {
    Send { conversation: usize, text: String, max_tokens: u32, stop: bool },
    Branch { conversation: usize, turn: usize },
    Restart { conversation: usize, text: String },
}

fn step() -> impl Strategy<Value = Step> {
    let conversation = 0_usize..8;
    let text = "[a-c]{0,4}";
    prop_oneof![
        6 => (conversation.clone(), text, 1_u32..12, any::<bool>()).prop_map(
            |(conversation, text, max_tokens, stop)| Step::Send {
                conversation, text, max_tokens, stop
            }
        ),
        2 => (conversation.clone(), 0_usize..8)
            .prop_map(|(conversation, turn)| Step::Branch { conversation, turn }),
        1 => (conversation, text)
            .prop_map(|(conversation, text)| Step::Restart { conversation, text }),
    ]
}

/// What the test believes a conversation to be.
struct Line {
    conversation: Conversation,
    messages: Vec<Message>,
    /// The same, replies as their ids spell them.
    said: Vec<Message>,
    turns: Vec<(u32, usize)>,
    restarts: usize,
    restarted_since: bool,
}

struct Told {
    turns: Vec<Turn>,
    said: Vec<(Vec<u32>, Vec<u32>)>,
    /// The whole history before each turn, as messages.
    histories: Vec<Vec<Message>>,
    /// The same, replies as their ids spell them.
    said_histories: Vec<Vec<Message>>,
    /// Segments that restarts alone explain, by conversation.
    restarts: BTreeMap<u32, usize>,
}

async fn play(steps: &[Step], history: History, format: Bytes, pairs: bool) -> Told {
    let policy = Babbler::new(format, pairs, None);
    let asked: std::sync::Arc<dyn Policy> = policy.clone();
    let (session, notes) = session(Settings { history, ..Settings::default() }, asked);
    let config = ConversationConfig { system: Some("s".to_owned()), ..plain() };
    let system = Message::text(Role::System, "s");
    let mut lines = vec![Line {
        conversation: session.open(config).unwrap(),
        messages: vec![system.clone()],
        said: vec![system.clone()],
        turns: vec![],
        restarts: 0,
        restarted_since: false,
    }];
    let (mut histories, mut said_histories) = (vec![], vec![]);
    for step in steps {
        match step {
            Step::Send { conversation, text, max_tokens, stop } => {
                let at = conversation % lines.len();
                let line = &mut lines[at];
                let stop = if *stop { vec!["zz".to_owned()] } else { vec![] };
                let options =
                    ReplyOptions { max_tokens: Some(*max_tokens), stop, ..Default::default() };
                let reply = line.conversation.send(user(text), options).await.unwrap();
                line.messages.extend(user(text));
                line.said.extend(user(text));
                histories.push(line.messages.clone());
                said_histories.push(line.said.clone());
                line.messages.push(reply.message);
                let response = policy.said.lock().unwrap().last().unwrap().1.clone();
                line.said.push(format.parse(&response));
                line.turns.push((reply.turn, line.messages.len()));
                line.restarts += usize::from(std::mem::take(&mut line.restarted_since));
            }
            Step::Branch { conversation, turn } => {
                let line = &lines[conversation % lines.len()];
                let Some(&(turn, length)) = line.turns.get(*turn) else { continue };
                let conversation = line.conversation.branch(turn).unwrap();
                // Turns before a restart belong to a history that only the host still knows.
                if line.messages.len() < length || line.restarts > 0 || line.restarted_since {
                    continue;
                }
                lines.push(Line {
                    conversation,
                    messages: line.messages[..length].to_vec(),
                    said: line.said[..length].to_vec(),
                    turns: line.turns.iter().copied().filter(|turn| turn.1 <= length).collect(),
                    restarts: 0,
                    restarted_since: false,
                });
            }
            Step::Restart { conversation, text } => {
                let at = conversation % lines.len();
                let line = &mut lines[at];
                line.conversation.restart(user(text), "compaction".to_owned()).unwrap();
                line.messages = [vec![system.clone()], user(text)].concat();
                line.said = line.messages.clone();
                line.restarted_since |= !line.turns.is_empty();
                line.turns.clear();
            }
        }
    }
    let restarts = lines.iter().map(|line| (line.conversation.id(), line.restarts)).collect();
    let said = policy.said.lock().unwrap().clone();
    Told { turns: notes.turns(), said, histories, said_histories, restarts }
}

/// Contexts and responses, one after another, are exactly what the policy was asked with.
fn check_prefixes(told: &Told) -> Result<(), TestCaseError> {
    let mut segments = BTreeMap::<(u32, u32), Vec<u32>>::new();
    prop_assert_eq!(told.turns.len(), told.said.len());
    for (turn, (prompt, response)) in told.turns.iter().zip(&told.said) {
        let tokens = turn.tokens.as_ref().unwrap();
        let history = segments.entry((turn.conversation, turn.segment)).or_default();
        history.extend(&tokens.context);
        prop_assert_eq!(&*history, prompt, "turn {}", turn.index);
        prop_assert_eq!(&tokens.response, response);
        history.extend(&tokens.response);
        prop_assert_eq!(tokens.log_probabilities.len(), response.len());
        prop_assert_eq!(&tokens.versions, &[VersionSpan { start: 0, version: 7 }]);
    }
    Ok(())
}

/// New messages and replies, one after another, are the history.
fn check_messages(told: &Told) -> Result<(), TestCaseError> {
    let mut known = BTreeMap::<u32, Vec<Message>>::new();
    let mut after = BTreeMap::<u32, Vec<Message>>::new();
    for (turn, history) in told.turns.iter().zip(&told.histories) {
        let line = known.entry(turn.conversation).or_default();
        match &turn.origin {
            SegmentOrigin::Restarted { .. } if turn.messages.len() > 1 => line.clear(),
            SegmentOrigin::Branched { turn } if line.is_empty() => *line = after[turn].clone(),
            _ => {}
        }
        line.extend(turn.messages.iter().cloned());
        prop_assert_eq!(&*line, history, "turn {}", turn.index);
        line.push(turn.reply.clone());
        after.insert(turn.index, line.clone());
    }
    Ok(())
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn append_only_gives_one_segment_for_each_linear_history(
        steps in prop::collection::vec(step(), 1..24),
        forgets_thinking: bool,
        pairs: bool,
    ) {
        let format = Bytes { forgets_thinking };
        let told = block_on(play(&steps, History::AppendOnly, format, pairs));
        check_prefixes(&told)?;
        check_messages(&told)?;
        let mut ended = BTreeMap::<(u32, u32), bool>::new();
        let mut after = Vec::<(Vec<u32>, bool)>::new();
        for (turn, (prompt, response)) in told.turns.iter().zip(&told.said) {
            prop_assert_ne!(&turn.origin, &SegmentOrigin::Rendered);
            let tokens = turn.tokens.as_ref().unwrap();
            let segment = (turn.conversation, turn.segment);
            if let Some(ended) = ended.insert(segment, ends(&tokens.response)) {
                // What the policy did not end, be it cut off or stopped by a string, the host ends.
                prop_assert_eq!(tokens.context.first() != Some(&END), ended);
            } else if let SegmentOrigin::Branched { turn } = &turn.origin {
                let (history, ended) = &after[usize::try_from(*turn).unwrap()];
                let more = prompt.strip_prefix(history.as_slice());
                prop_assert!(more.is_some(), "a branch holds what was sampled");
                prop_assert_eq!(more.unwrap().first() != Some(&END), *ended);
            }
            after.push(([&**prompt, response].concat(), ends(response)));
            let most = told.restarts[&turn.conversation];
            prop_assert!(usize::try_from(turn.segment).unwrap() <= most);
        }
    }

    #[test]
    fn faithful_spells_the_rendering_and_holds_what_was_sampled(
        steps in prop::collection::vec(step(), 1..24),
        forgets_thinking: bool,
        pairs: bool,
    ) {
        let format = Bytes { forgets_thinking };
        let told = block_on(play(&steps, History::Faithful, format, pairs));
        check_prefixes(&told)?;
        check_messages(&told)?;
        let mut last = BTreeMap::<u32, (u32, Vec<u32>)>::new();
        let mut after = Vec::<Vec<u32>>::new();
        for ((turn, (prompt, response)), history) in
            told.turns.iter().zip(&told.said).zip(&told.said_histories)
        {
            let rendered = spelled(&format.render(history, &[]).unwrap());
            prop_assert_eq!(&spelled(prompt), &rendered);
            let known = match (&turn.origin, last.get(&turn.conversation)) {
                (SegmentOrigin::Restarted { .. }, Some((segment, _))) if *segment < turn.segment => {
                    None
                }
                (_, Some((segment, ids))) => Some((Some(*segment), ids)),
                (SegmentOrigin::Branched { turn }, None) => {
                    Some((None, &after[usize::try_from(*turn).unwrap()]))
                }
                _ => None,
            };
            if let Some((segment, ids)) = known {
                // Nothing was dropped exactly when the rendering begins with what was spelled. (A
                // branch from before a segment that was dropped may not know its ids any more.)
                let holds = rendered.starts_with(&spelled(ids));
                prop_assert!(holds || !prompt.starts_with(ids), "turn {}", turn.index);
                if let Some(segment) = segment {
                    prop_assert_eq!(prompt.starts_with(ids), holds, "turn {}", turn.index);
                    prop_assert_eq!(turn.segment, segment + u32::from(!holds));
                }
                // Only thinking is ever dropped: by the template, or when it was cut off right
                // behind the marker that opens it, so that there is none.
                let cut = ids.windows(2).any(|pair| pair[0] == THINK && pair[1] < 100);
                if !forgets_thinking && !cut && ids.last() != Some(&THINK) {
                    prop_assert!(holds, "turn {}", turn.index);
                }
            }
            let ids = [prompt.clone(), response.clone()].concat();
            after.push(ids.clone());
            last.insert(turn.conversation, (turn.segment, ids));
        }
    }
}

fn ends(response: &[u32]) -> bool {
    matches!(response.last(), Some(&(END | OTHER_END)))
}

/// Ids as they compare: bytes one by one, and one end token as good as another.
fn spelled(ids: &[u32]) -> Vec<u32> {
    let format = Bytes { forgets_thinking: false };
    let mut spelled = vec![];
    for id in ids {
        let mut bytes = vec![];
        format.spell(*id, &mut bytes);
        if bytes.is_empty() {
            spelled.push(if *id == OTHER_END { END } else { *id });
        } else {
            spelled.extend(bytes.into_iter().map(|byte| 100 + u32::from(byte)));
        }
    }
    spelled
}

#[tokio::test]
async fn a_template_that_forgets_thinking_begins_new_segments() {
    let thinks = |turn: &Turn| turn.reply.parts.len() > 1;
    // The seed decides whether the babbler thinks; some seed of a few does in its first turn.
    for seed in 0.. {
        let policy = Babbler::new(Bytes { forgets_thinking: true }, false, None);
        let (session, notes) = session(Settings { seed, ..Settings::default() }, policy);
        let conversation = session.open(plain()).unwrap();
        for text in ["a", "b"] {
            conversation.send(user(text), ReplyOptions::default()).await.unwrap();
        }
        let turns = notes.turns();
        if thinks(&turns[0]) {
            assert_eq!(turns[1].segment, 1);
            assert_eq!(turns[1].origin, SegmentOrigin::Rendered);
            assert_eq!(turns[1].messages, user("b"));
            break;
        }
        assert_eq!(turns[1].segment, 0);
    }
}

#[tokio::test]
async fn what_the_policy_sampled_stays_though_a_rendering_would_cut_it_otherwise() {
    let (mut rendered_otherwise, mut other_ends, mut stopped) = (0, 0, 0);
    for seed in 0..32 {
        let format = Bytes { forgets_thinking: false };
        let policy = Babbler::new(format, true, None);
        let asked: std::sync::Arc<dyn Policy> = policy.clone();
        let (session, notes) = session(Settings { seed, ..Settings::default() }, asked);
        let conversation = session.open(plain()).unwrap();
        let stop = vec!["zz".to_owned()];
        let options = ReplyOptions { max_tokens: Some(20), stop, ..Default::default() };
        let mut messages = vec![];
        for text in ["a", "b", "c"] {
            messages.extend(user(text));
            let reply = conversation.send(user(text), options.clone()).await.unwrap();
            messages.push(reply.message);
        }
        let said = policy.said.lock().unwrap();
        for (before, next) in said.iter().zip(&said[1..]) {
            let known = [&*before.0, &before.1].concat();
            assert!(next.0.starts_with(&known), "seed {seed}");
            // What the policy ended has no second end; what it did not end, the template ends.
            let glue = next.0[known.len()];
            assert_eq!(glue != END, ends(&known), "seed {seed}");
        }
        assert!(notes.turns().iter().all(|turn| turn.segment == 0));
        let sampled = [&*said[1].0, &said[1].1].concat();
        let rendered = format.render(&messages[..4], &[]).unwrap();
        rendered_otherwise += usize::from(!rendered.starts_with(&sampled));
        other_ends += usize::from(sampled.contains(&OTHER_END));
        stopped += usize::from(said.iter().any(|(_, response)| !ends(response)));
    }
    assert!(rendered_otherwise > 0 && other_ends > 0 && stopped > 0, "else this shows nothing");
}

#[tokio::test]
async fn a_branch_of_a_branch_still_holds_what_was_sampled() {
    let mut rendered_otherwise = 0;
    for seed in 0..16 {
        let policy = Babbler::new(Bytes { forgets_thinking: true }, true, None);
        let asked: std::sync::Arc<dyn Policy> = policy.clone();
        let settings = Settings { history: History::AppendOnly, seed, ..Settings::default() };
        let (session, notes) = session(settings, asked);
        let first = session.open(plain()).unwrap();
        first.send(user("a"), at_most(20)).await.unwrap();
        let second = first.branch(0).unwrap();
        second.send(user("b"), at_most(20)).await.unwrap();
        let third = second.branch(0).unwrap();
        let reply = third.send(user("c"), at_most(20)).await.unwrap();
        let said = policy.said.lock().unwrap();
        let sampled = [&*said[0].0, &said[0].1].concat();
        assert!(said[2].0.starts_with(&sampled), "seed {seed}");
        assert_eq!(notes.turns()[2].origin, SegmentOrigin::Branched { turn: 0 });
        assert_eq!(reply.turn, 2);
        let history = [user("a"), vec![notes.turns()[0].reply.clone()], user("c")].concat();
        let rendered = Bytes { forgets_thinking: true }.render(&history, &[]).unwrap();
        rendered_otherwise += usize::from(!rendered.starts_with(&sampled));
    }
    assert!(rendered_otherwise > 0, "else this test shows nothing");
}

#[tokio::test]
async fn reported_prompts_of_message_level_policies_follow_the_same_rule() {
    let answer = |text, prompt: &[u32], response: &[u32]| {
        let tokens = SampledReply {
            prompt: prompt.to_vec(),
            response: response.to_vec(),
            // One too few: dropped rather than trained on.
            log_probabilities: vec![-1.0; response.len() - 1],
            versions: vec![VersionSpan { start: 3, version: 1 }],
            ..Default::default()
        };
        Ok(fulgurite_policy::PolicyReply { tokens: Some(tokens), ..reply(text, 0) })
    };
    let mut unreported = answer("five", &[], &[9]).unwrap();
    unreported.tokens.as_mut().unwrap().prompt.clear();
    let policy = Listed::new([
        answer("one", &[1, 2], &[3, 4]),
        answer("two", &[1, 2, 3, 4, 5], &[6]),
        answer("three", &[1, 2, 30, 40, 50], &[7, 8]),
        Ok(reply("four", 1)),
        Ok(unreported),
        answer("six", &[1, 2, 30, 40, 50, 7, 8, 9], &[10]),
    ]);
    let (session, notes) = session(Settings::default(), policy);
    let conversation = session.open(plain()).unwrap();
    for text in ["a", "b", "c", "d", "e", "f"] {
        conversation.send(user(text), ReplyOptions::default()).await.unwrap();
    }
    let told: Vec<_> = notes
        .turns()
        .into_iter()
        .map(|turn| (turn.segment, turn.tokens.map(|tokens| tokens.context)))
        .collect();
    let expected = [
        (0, Some(vec![1, 2])),
        (0, Some(vec![5])),
        (1, Some(vec![1, 2, 30, 40, 50])),
        (1, None),
        (1, None),
        (2, Some(vec![1, 2, 30, 40, 50, 7, 8, 9])),
    ];
    assert_eq!(told, expected);
    let first = notes.turns()[0].clone();
    let tokens = first.tokens.unwrap();
    assert!(tokens.log_probabilities.is_empty());
    assert_eq!(tokens.versions, [VersionSpan { start: 0, version: 0 }]);
    assert_eq!(first.usage.completion_tokens, 2, "what is there to see counts");
}

#[tokio::test]
async fn a_failed_call_leaves_the_conversation_as_it_was() {
    let invalid = || Err(fulgurite_policy::PolicyError::Invalid("no".to_owned()));
    let policy = Listed::new([Ok(reply("one", 1)), invalid(), Ok(reply("two", 1))]);
    let (session, notes) = session(Settings::default(), policy.clone());
    let conversation = session.open(plain()).unwrap();
    conversation.send(user("a"), ReplyOptions::default()).await.unwrap();
    let failed = conversation.send(user("lost"), ReplyOptions::default()).await;
    assert!(matches!(failed, Err(LlmError::Invalid(_))));
    conversation.send(user("b"), ReplyOptions::default()).await.unwrap();
    let asked = policy.asked.lock().unwrap();
    let fulgurite_policy::Prompt::Messages(messages) = &asked[2].prompt else { panic!() };
    let texts: Vec<String> = messages.iter().map(Message::plain_text).collect();
    assert_eq!(texts, ["a", "one", "b"]);
    assert_eq!(asked[2].key.turn, 1, "scripts count answered turns");
    assert_eq!(notes.lines(), ["turn 0 of 0", "failed 1 invalid", "turn 2 of 0"]);
}

#[tokio::test]
async fn tools_are_told_once_and_restarts_give_their_reason() {
    let policy = Listed::new([]);
    let (session, notes) = session(Settings::default(), policy.clone());
    let tool = fulgurite_trace::ToolDefinition {
        name: "bash".to_owned(),
        description: "runs".to_owned(),
        parameters: "{}".to_owned(),
    };
    let config = ConversationConfig { system: Some("s".to_owned()), tools: vec![tool], ..plain() };
    let conversation = session.open(config).unwrap();
    conversation.send(user("a"), at_most(3)).await.unwrap();
    conversation.restart(user("summary"), "too long".to_owned()).unwrap();
    conversation.send(vec![], at_most(3)).await.unwrap();
    let turns = notes.turns();
    assert_eq!((turns[0].tools.len(), turns[1].tools.len()), (1, 0));
    assert_eq!(turns[1].segment, 1);
    assert_eq!(turns[1].origin, SegmentOrigin::Restarted { reason: "too long".to_owned() });
    assert_eq!(turns[1].messages.len(), 2, "system message and summary");
    assert_eq!(policy.asked.lock().unwrap()[1].key.tool_format, "native");
    let before = conversation.branch(0).unwrap();
    before.send(user("b"), at_most(3)).await.unwrap();
    let asked = policy.asked.lock().unwrap();
    let fulgurite_policy::Prompt::Messages(messages) = &asked[2].prompt else { panic!() };
    let texts: Vec<String> = messages.iter().map(Message::plain_text).collect();
    assert_eq!(texts, ["s", "a", "all I may", "b"]);
    assert_eq!(notes.turns()[2].messages, user("b"));
    assert!(matches!(conversation.branch(9), Err(LlmError::Invalid(_))));
}

#[tokio::test]
async fn what_cannot_be_answered_is_refused_before_it_costs_a_turn() {
    let (session, _) = session(Settings::default(), Listed::with_tools([], false));
    let conversation = session.open(plain()).unwrap();
    for messages in [vec![], vec![Message::text(Role::Assistant, "me")]] {
        let refused = conversation.start(messages, ReplyOptions::default());
        assert!(matches!(refused, Err(LlmError::Invalid(_))));
    }
    assert_eq!(session.remaining().turns, Some(256));
    let role = ConversationConfig { model_role: "judge".to_owned(), ..plain() };
    let Err(LlmError::Unsupported(text)) = session.open(role) else { panic!() };
    assert!(text.contains("`judge`") && text.contains("policy"), "{text}");
    let tool = fulgurite_trace::ToolDefinition {
        name: "bash".to_owned(),
        description: String::new(),
        parameters: "{}".to_owned(),
    };
    let config = ConversationConfig { tools: vec![tool], ..plain() };
    assert!(matches!(session.open(config), Err(LlmError::Unsupported(_))));
}

#[tokio::test]
async fn a_template_error_keeps_its_secrets_and_costs_a_turn() {
    let policy = Babbler::new(Bytes { forgets_thinking: false }, false, None);
    let (session, notes) = session(Settings::default(), policy);
    let conversation = session.open(plain()).unwrap();
    let Err(LlmError::Invalid(text)) = conversation.start(user("{{ refuse }}"), at_most(5)) else {
        panic!()
    };
    assert!(!text.contains("secret"));
    assert_eq!(notes.lines(), ["failed 0 invalid"]);
    assert_eq!(session.remaining().turns, Some(255));
    conversation.send(user("fine"), at_most(5)).await.unwrap();
}
