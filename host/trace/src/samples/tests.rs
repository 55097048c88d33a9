use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{entry::SegmentOrigin, example};

/// What a simulated episode does next. Numbers choose among what there is.
#[derive(Debug, Clone)]
enum Step {
    Send(Reply),
    /// A conversation that begins with the history after a turn.
    Branch(usize),
    /// A history of the harness's own.
    Restart(usize, Vec<u32>),
    /// The template renders the history anew: an id in the middle is gone.
    Render(usize, usize),
}

#[derive(Debug, Clone)]
struct Reply {
    conversation: usize,
    new: Vec<u32>,
    response: Vec<u32>,
    split: usize,
    known: bool,
    log_probabilities: bool,
    warm: bool,
    judge: bool,
}

fn ids(length: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u32>> {
    // Few different ids, so that histories meet by chance too.
    prop::collection::vec(0..2_u32, length)
}

fn step() -> impl Strategy<Value = Step> {
    let reply = (0..6_usize, ids(0..3), ids(0..4), 0..4_usize, any::<[u8; 4]>());
    let reply = reply.prop_map(|(conversation, new, response, split, [a, b, c, d])| Reply {
        conversation,
        new,
        response,
        split,
        known: a > 25,
        log_probabilities: b > 40,
        warm: c > 40,
        judge: d < 40,
    });
    prop_oneof![
        6 => reply.prop_map(Step::Send),
        2 => (0..12_usize).prop_map(Step::Branch),
        1 => (0..6_usize, ids(0..4)).prop_map(|(at, ids)| Step::Restart(at, ids)),
        1 => (0..6_usize, 0..8_usize).prop_map(|(at, hole)| Step::Render(at, hole)),
    ]
}

/// A conversation as the simulation knows it: the whole prefix, never in pieces.
#[derive(Debug, Clone)]
struct Line {
    id: u32,
    segment: u32,
    ids: Vec<u32>,
    /// How much of the prefix the trace knows of this segment; none before its first turn.
    told: Option<usize>,
    judge: bool,
}

/// What the simulated policy did in a turn.
#[derive(Debug, Clone)]
struct Truth {
    turn: Turn,
    prefix: Vec<u32>,
    response: Vec<u32>,
}

fn log_probability(turn: u32, index: usize) -> f32 {
    -(turn as f32) - index as f32 / 100.0
}

fn play(steps: Vec<Step>) -> Vec<Truth> {
    let line = |id, judge| Line { id, segment: 0, ids: vec![7], told: None, judge };
    let mut lines = vec![line(0, false)];
    let mut after: Vec<(Line, Vec<u32>)> = Vec::new();
    let mut told = Vec::new();
    for step in steps {
        match step {
            Step::Branch(turn) => {
                let Some((parent, ids)) = after.get(turn) else { continue };
                let mut branch = line(lines.len() as u32, parent.judge);
                branch.ids = ids.clone();
                lines.push(branch);
            }
            Step::Restart(at, ids) => {
                let at = at % lines.len();
                let line = &mut lines[at];
                line.segment += u32::from(line.told.is_some());
                line.told = None;
                line.ids = ids;
            }
            Step::Render(at, hole) => {
                let at = at % lines.len();
                let line = &mut lines[at];
                if hole < line.ids.len() && line.told.is_some() {
                    line.ids.remove(hole);
                    line.segment += 1;
                    line.told = None;
                }
            }
            Step::Send(reply) => {
                if reply.conversation > lines.len() {
                    lines.push(line(lines.len() as u32, reply.judge));
                }
                let at = reply.conversation % lines.len();
                told.push(send(&mut lines[at], told.len() as u32, &reply));
                after.push((lines[at].clone(), lines[at].ids.clone()));
            }
        }
    }
    told
}

fn send(line: &mut Line, index: u32, reply: &Reply) -> Truth {
    line.ids.extend(&reply.new);
    let prefix = line.ids.clone();
    let response = reply.response.clone();
    let context = prefix[line.told.unwrap_or(0)..].to_vec();
    let mut versions = vec![VersionSpan { start: 0, version: 3 }];
    if reply.split > 0 && reply.split < response.len() {
        versions.push(VersionSpan { start: reply.split as u32, version: 4 });
    }
    if response.is_empty() {
        versions.clear();
    }
    let mut turn = example::turn(index, "ask");
    turn.conversation = line.id;
    turn.segment = line.segment;
    turn.origin = SegmentOrigin::Opened;
    turn.temperature = if reply.warm { 1.0 } else { 0.5 };
    if line.judge {
        turn.model_role = "judge".to_owned();
    }
    let all = (0..response.len()).map(|at| log_probability(index, at));
    turn.tokens = reply.known.then(|| SampledTokens {
        context,
        response: response.clone(),
        log_probabilities: if reply.log_probabilities { all.collect() } else { Vec::new() },
        versions,
        ..SampledTokens::default()
    });
    line.ids.extend(&response);
    line.told = Some(line.ids.len());
    if !reply.known {
        // What the host does when a reply comes without tokens.
        line.segment += 1;
        line.told = None;
    }
    Truth { turn, prefix, response }
}

fn entries(told: &[Truth], seed: usize) -> Vec<Entry> {
    let mut turns: Vec<Turn> = told.iter().map(|truth| truth.turn.clone()).collect();
    // Parallel replies stand in any order.
    if !turns.is_empty() {
        let length = turns.len();
        turns.swap(seed % length, (seed / 7) % length);
    }
    turns
        .into_iter()
        .map(|turn| EntryBody::Turn(Box::new(turn)))
        .zip(0..)
        .map(|(body, sequence)| Entry { sequence, body })
        .collect()
}

/// Every token that the policy sampled, with everything before it: what is to be trained.
type Token = (u32, Vec<u32>, u32, u64, u32);

fn tokens_sampled(told: &[Truth]) -> Vec<Token> {
    let mut tokens = Vec::new();
    for truth in told.iter().filter(|truth| truth.turn.model_role == "policy") {
        let Some(sampled) = &truth.turn.tokens else { continue };
        for (at, id) in truth.response.iter().enumerate() {
            let prefix = [&truth.prefix[..], &truth.response[..at]].concat();
            let spans = sampled.versions.iter();
            let span = spans.rev().find(|span| span.start as usize <= at).unwrap();
            let temperature = truth.turn.temperature.to_bits();
            if !prefix.is_empty() {
                tokens.push((truth.turn.index, prefix, *id, span.version, temperature));
            }
        }
    }
    tokens.sort();
    tokens
}

fn tokens_trained(samples: &[Sample]) -> Vec<Token> {
    let mut tokens = Vec::new();
    for sample in samples {
        for (at, stretch) in sample.targets() {
            let prefix = [&sample.prompt[..], &sample.response[..at]].concat();
            let temperature = sample.temperature.to_bits();
            let id = sample.response[at];
            tokens.push((stretch.turn, prefix, id, stretch.version, temperature));
        }
    }
    tokens.sort();
    tokens
}

/// A row, named by where it begins.
type Row = ((u32, u32), Vec<u32>, Vec<u32>);

/// Rows by the definition, comparing everything with everything.
fn rows_by_definition(told: &[Truth]) -> Vec<Row> {
    #[derive(Clone)]
    struct Strand {
        begins: (u32, u32),
        first: u32,
        last: u32,
        role: String,
        prompt: Vec<u32>,
        ids: Vec<u32>,
        trained: bool,
    }
    let mut segments = BTreeMap::<(u32, u32), Strand>::new();
    for Truth { turn, prefix, response } in told.iter().filter(|truth| truth.turn.tokens.is_some())
    {
        let begins = (turn.conversation, turn.segment);
        let strand = segments.entry(begins).or_insert_with(|| Strand {
            begins,
            first: turn.index,
            last: turn.index,
            role: turn.model_role.clone(),
            prompt: prefix.clone(),
            ids: Vec::new(),
            trained: false,
        });
        if strand.ids.is_empty() {
            strand.prompt = prefix.clone();
        }
        strand.last = turn.index;
        strand.ids = [&prefix[..], response].concat();
        strand.trained |= response.len() > usize::from(prefix.is_empty());
    }
    let mut segments: Vec<Strand> = segments.into_values().collect();
    segments.retain(|strand| !strand.ids.is_empty());
    segments.sort_by_key(|strand| strand.first);
    let mut rows: Vec<Strand> = Vec::new();
    for segment in segments {
        let continues = |row: &Strand| {
            segment.prompt.starts_with(&row.ids)
                && row.last < segment.first
                && row.role == segment.role
        };
        let longest = rows.iter().filter(|row| continues(row)).map(|row| row.ids.len()).max();
        let best = longest.and_then(|length| {
            rows.iter().position(|row| continues(row) && row.ids.len() == length)
        });
        match best {
            Some(at) => {
                rows[at].ids = segment.ids;
                rows[at].last = segment.last;
                rows[at].trained |= segment.trained;
            }
            None => rows.push(segment),
        }
    }
    rows.into_iter()
        .filter(|row| row.trained && row.role == "policy")
        .map(|row| (row.begins, row.prompt.clone(), row.ids[row.prompt.len()..].to_vec()))
        .collect()
}

fn policy_only() -> SampleSettings {
    SampleSettings { model_role: Some("policy".to_owned()), ..SampleSettings::default() }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_sampled_token_is_trained_once_behind_its_own_prefix(
        steps in prop::collection::vec(step(), 1..20),
        seed: u16,
    ) {
        let told = play(steps);
        let episode = EpisodeRef::first(1, 2);
        let built = samples(episode, &entries(&told, seed.into()), &policy_only());
        prop_assert_eq!(tokens_trained(&built.samples), tokens_sampled(&told));
        for sample in &built.samples {
            prop_assert_eq!(sample.check(), Ok(()));
            prop_assert_eq!(sample.episode, episode);
            let mask = sample.mask();
            prop_assert_eq!(mask.len(), sample.response.len());
            prop_assert_eq!(mask.iter().filter(|trained| **trained).count(), sample.trained());
            prop_assert!(sample.targets().all(|(at, _)| mask[at]));
            let known = sample.targets().map(|(_, stretch)| {
                let tokens = told[stretch.turn as usize].turn.tokens.as_ref().unwrap();
                !tokens.log_probabilities.is_empty()
            });
            prop_assert_eq!(sample.log_probabilities.is_some(), known.into_iter().all(|known| known));
            // A token's place in its turn follows from its prefix.
            for ((at, stretch), value) in
                sample.targets().zip(sample.log_probabilities.iter().flatten())
            {
                let begun = told[stretch.turn as usize].prefix.len();
                let place = sample.prompt.len() + at - begun;
                prop_assert_eq!(*value, log_probability(stretch.turn, place));
            }
        }
    }

    #[test]
    fn rows_are_the_fewest_that_the_definition_gives(
        steps in prop::collection::vec(step(), 1..20),
        seed: u16,
    ) {
        let told = play(steps);
        let entries = entries(&told, seed.into());
        let built = samples(EpisodeRef::first(0, 0), &entries, &policy_only());
        let mut rows: Vec<Row> = built
            .samples
            .iter()
            .map(|row| ((row.conversation, row.segment), row.prompt.clone(), row.response.clone()))
            .collect();
        // A row may be handed out once for each temperature.
        rows.dedup();
        prop_assert_eq!(rows, rows_by_definition(&told));
    }

    #[test]
    fn limits_drop_prompts_and_cut_responses_and_nothing_else(
        steps in prop::collection::vec(step(), 1..20),
        max_prompt in 0..6_usize,
        max_response in 0..10_usize,
    ) {
        let told = play(steps);
        let entries = entries(&told, 0);
        let whole = samples(EpisodeRef::first(0, 0), &entries, &policy_only());
        let limits = SampleSettings {
            max_prompt: Some(max_prompt),
            max_response: Some(max_response),
            ..policy_only()
        };
        let limited = samples(EpisodeRef::first(0, 0), &entries, &limits);
        let expected: Vec<Token> = whole
            .samples
            .iter()
            .filter(|row| row.prompt.len() <= max_prompt)
            .flat_map(|row| {
                tokens_trained(std::slice::from_ref(row))
                    .into_iter()
                    .filter(|token| token.1.len() < row.prompt.len() + max_response)
            })
            .collect();
        let mut found: Vec<Token> = limited
            .samples
            .iter()
            .flat_map(|row| tokens_trained(std::slice::from_ref(row)))
            .collect();
        let mut expected = expected;
        expected.sort();
        found.sort();
        prop_assert_eq!(&found, &expected);
        for row in &limited.samples {
            prop_assert_eq!(row.check(), Ok(()));
            prop_assert!(row.prompt.len() <= max_prompt && row.response.len() <= max_response);
        }
        prop_assert_eq!(limited.sampled_tokens, whole.sampled_tokens);
        let dropped: usize = whole
            .samples
            .iter()
            .filter(|row| row.prompt.len() > max_prompt)
            .map(Sample::trained)
            .sum();
        prop_assert_eq!(
            limited.skipped.cut_tokens as usize + dropped + limited.trained(),
            whole.trained()
        );
    }
}

fn turn(index: u32, context: &[u32], response: &[u32]) -> Turn {
    let mut turn = example::turn(index, "ask");
    let length = response.len();
    turn.tokens = Some(SampledTokens {
        context: context.to_vec(),
        response: response.to_vec(),
        log_probabilities: (0..length).map(|at| log_probability(index, at)).collect(),
        versions: vec![VersionSpan { start: 0, version: 3 }],
        ..SampledTokens::default()
    });
    turn
}

fn built(turns: Vec<Turn>) -> EpisodeSamples {
    let bodies = turns.into_iter().map(|turn| EntryBody::Turn(Box::new(turn)));
    let entries: Vec<Entry> =
        bodies.zip(0..).map(|(body, sequence)| Entry { sequence, body }).collect();
    samples(EpisodeRef::first(0, 0), &entries, &SampleSettings::default())
}

fn trained_ids(sample: &Sample) -> Vec<u32> {
    sample.targets().map(|(at, _)| sample.response[at]).collect()
}

const END: u32 = 99;

#[test]
fn a_length_stop_trains_no_end_token_and_the_chosen_end_token_is_trained() {
    let mut cut_off = turn(0, &[1], &[10, 11]);
    cut_off.finish = FinishReason::Length;
    // The template closes the reply that the policy did not close.
    let next = turn(1, &[END, 2, 3], &[12, END]);
    let built = built(vec![cut_off, next]);
    assert_eq!(built.samples.len(), 1);
    assert_eq!(trained_ids(&built.samples[0]), [10, 11, 12, END]);
    assert_eq!(built.samples[0].mask(), [true, true, false, false, false, true, true]);
    assert!(built.stopped_by_length);
}

#[test]
fn template_glue_and_tool_text_are_context_and_stop_strings_are_trained() {
    // "</answer>" is [20, 21]: the text was trimmed, the ids were sampled.
    let first = turn(0, &[1, 2], &[10, 20, 21]);
    let mut tool_says_what_a_policy_would = turn(1, &[END, 10, 20, 21, 5], &[13]);
    tool_says_what_a_policy_would.reply.parts.clear();
    let built = built(vec![first, tool_says_what_a_policy_would]);
    assert_eq!(trained_ids(&built.samples[0]), [10, 20, 21, 13]);
    assert!(!built.stopped_by_length);
}

#[test]
fn a_branch_at_the_last_turn_is_one_row_and_one_further_up_trains_nothing_twice() {
    let first = turn(0, &[1], &[10]);
    let second = turn(1, &[2], &[11]);
    let mut branch = turn(2, &[1, 10, 3], &[12]);
    branch.conversation = 1;
    branch.origin = SegmentOrigin::Branched { turn: 0 };
    let mut last = turn(3, &[1, 10, 2, 11, 4], &[13]);
    last.conversation = 2;
    last.origin = SegmentOrigin::Branched { turn: 1 };
    let built = built(vec![first, second, branch, last]);
    let rows: Vec<_> = built.samples.iter().map(trained_ids).collect();
    assert_eq!(rows, [vec![10, 11, 13], vec![12]]);
    assert_eq!(built.samples[1].prompt, [1, 10, 3]);
}

#[test]
fn tokens_of_another_version_are_marked_and_what_contradicts_itself_is_context() {
    let mut split = turn(0, &[1], &[10, 11, 12]);
    split.tokens.as_mut().unwrap().versions.push(VersionSpan { start: 1, version: 4 });
    let mut broken = turn(1, &[2], &[13]);
    broken.tokens.as_mut().unwrap().versions.clear();
    let mut short = turn(2, &[3], &[14, 15]);
    short.tokens.as_mut().unwrap().log_probabilities.pop();
    let built = built(vec![split, broken, short]);
    let sample = &built.samples[0];
    let versions: Vec<_> = sample.targets().map(|(_, stretch)| stretch.version).collect();
    assert_eq!(trained_ids(sample), [10, 11, 12, 14, 15]);
    assert_eq!(versions, [3, 4, 4, 3, 3]);
    assert_eq!(sample.versions(), Some((3, 4)));
    assert_eq!(sample.log_probabilities, None);
    assert_eq!(built.skipped.broken_turns, 1);
}

#[test]
fn a_turn_without_tokens_hides_the_rest_of_its_segment() {
    let mut unknown = turn(1, &[], &[]);
    unknown.tokens = None;
    let built = built(vec![turn(0, &[1], &[10]), unknown, turn(2, &[3], &[12])]);
    assert_eq!(trained_ids(&built.samples[0]), [10]);
    assert_eq!(built.skipped.turns_without_tokens, 2);
}

#[test]
fn a_token_that_nothing_predicts_is_not_trained() {
    let built = built(vec![turn(0, &[], &[10, 11])]);
    assert_eq!(trained_ids(&built.samples[0]), [11]);
    assert_eq!(built.samples[0].log_probabilities, Some(vec![log_probability(0, 1)]));
}

#[test]
fn only_the_last_attempt_of_an_episode_counts() {
    let first = EpisodeRef::first(0, 1);
    let other = EpisodeRef::first(0, 0);
    let last = first.next_attempt().next_attempt();
    let kept = last_attempts(vec![first, last, other, first.next_attempt()], |attempt| *attempt);
    assert_eq!(kept, [other, last]);
}
