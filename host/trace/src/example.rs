//! Things to record, for tests.

use std::num::NonZeroU32;

use proptest::prelude::*;

use crate::{
    Captured, CommandLine, CommandOutput, CommandRequest, CommandStop, Digest, Ending, EntryBody,
    FailureKind, FinishReason, Message, Outcome, OutcomeStatus, Part, Role, SampledTokens, Score,
    ScoreComponent, ToolCall, ToolDefinition, ToolResult, Truncation, Turn, TurnValue, Usage,
    VersionSpan, entry::SegmentOrigin,
};

/// A turn of few tokens.
pub(crate) fn turn(index: u32, asked: &str) -> Turn {
    Turn {
        index,
        conversation: 0,
        segment: 0,
        origin: SegmentOrigin::Opened,
        agent: String::new(),
        model_role: "policy".into(),
        tools: Vec::new(),
        messages: vec![Message::text(Role::User, asked)],
        reply: Message::text(Role::Assistant, format!("reply {index}")),
        finish: FinishReason::Stop,
        usage: Usage { prompt_tokens: 10, cached_tokens: 4, completion_tokens: 5 },
        tokens: Some(SampledTokens {
            context: (0..8).map(|id| id + index).collect(),
            response: vec![index, 2, 70_000],
            log_probabilities: vec![-0.1, -2.5, -0.000_1],
            untruncated: Vec::new(),
            versions: vec![VersionSpan { start: 0, version: 3 }],
        }),
        temperature: 0.7,
        truncation: Truncation::default(),
        policy: "script".into(),
        latency_ms: 12,
        retries: 1,
    }
}

/// An ending without anything special.
pub(crate) fn ending(kind: FailureKind) -> Ending {
    Ending {
        kind,
        outcome: (kind == FailureKind::Completed).then(|| Outcome {
            status: OutcomeStatus::Submitted,
            answer: "42".into(),
            metadata: vec![("confidence".into(), "high".into())],
        }),
        message: (kind != FailureKind::Completed).then(|| "it went wrong".into()),
        backtrace: Vec::new(),
        fuel_used: 1000,
        virtual_ms: 5,
    }
}

/// A score with every part.
pub(crate) fn score(reward: &str, total: f64) -> Score {
    Score {
        reward: reward.into(),
        weight: 0.5,
        total,
        components: vec![ScoreComponent { name: "passed".into(), value: 0.1 + 0.2 }],
        turns: vec![TurnValue { turn: 1, value: -1.5 }],
        notes: vec![("note".into(), "text".into())],
    }
}

/// An entry of every kind, each with every optional field present.
pub(crate) fn every_entry() -> Vec<EntryBody> {
    let pairs = || vec![("name".to_owned(), "value".to_owned())];
    let mut full = turn(0, "hello");
    full.tools = vec![ToolDefinition {
        name: "bash".into(),
        description: "runs".into(),
        parameters: "{}".into(),
    }];
    full.reply.parts.extend([
        Part::Thinking("hm".into()),
        Part::ToolCall(ToolCall {
            id: "1".into(),
            name: "bash".into(),
            arguments: "{".into(),
            problem: Some("not JSON".into()),
        }),
    ]);
    full.reply.metadata = pairs();
    full.messages.push(Message {
        role: Role::Tool,
        parts: vec![Part::ToolResult(ToolResult {
            call: "1".into(),
            content: "no".into(),
            failed: true,
        })],
        metadata: pairs(),
    });
    let mut branched = turn(1, "again");
    branched.origin = SegmentOrigin::Branched { turn: 0 };
    branched.conversation = 1;
    branched.truncation =
        Truncation { top_k: NonZeroU32::new(20), top_p: Some(0.5), min_p: Some(0.25) };
    if let Some(tokens) = &mut branched.tokens {
        tokens.untruncated = vec![-0.5, -3.5, -0.25];
    }
    let mut restarted = turn(2, "shorter");
    restarted.origin = SegmentOrigin::Restarted { reason: "compaction".into() };
    restarted.segment = 1;
    let command = |command, stdout: &[u8]| EntryBody::Command {
        request: CommandRequest {
            command,
            cwd: Some("src".into()),
            env: pairs(),
            stdin: b"in".to_vec(),
            timeout_ms: Some(1000),
            output_bytes: Some(4096),
            metadata: pairs(),
        },
        output: CommandOutput {
            status: 124,
            stopped: Some(CommandStop::Timeout),
            stdout: Captured { bytes: stdout.to_vec(), total: 99 },
            stderr: Captured::default(),
            metadata: pairs(),
        },
        tree: Digest::of(b"tree"),
    };
    vec![
        EntryBody::Turn(Box::new(full)),
        command(CommandLine::Line("ls".into()), b"text"),
        command(CommandLine::Argv(vec!["ls".into(), "-l".into()]), b"\xff\xfe"),
        EntryBody::Turn(Box::new(branched)),
        EntryBody::Turn(Box::new(restarted)),
        EntryBody::TurnFailed {
            index: 3,
            conversation: 1,
            error: "unavailable".into(),
            detail: Some("502 from upstream".into()),
        },
        EntryBody::Event { name: "note".into(), fields: pairs() },
        EntryBody::Metric { name: "loss".into(), value: 0.1 + 0.2 },
        EntryBody::Denied { import: "wasi:sockets/tcp#connect".into() },
        EntryBody::Output { stdout: "out".into(), stderr: "err".into() },
    ]
}

/// Any entry that a harness can cause.
pub(crate) fn any_entry() -> impl Strategy<Value = EntryBody> {
    let text = "\\PC{0,12}|[\0-\u{ff}]{0,6}";
    let turn = (
        any::<u32>(),
        text,
        proptest::option::of((
            proptest::collection::vec(any::<u32>(), 0..20),
            proptest::collection::vec((any::<u32>(), -1e3..0.0_f32), 0..20),
            any::<bool>(),
        )),
        -10.0..10.0_f32,
    )
        .prop_map(|(index, asked, tokens, temperature)| {
            let mut turn = turn(0, &asked);
            turn.index = index;
            turn.temperature = temperature;
            turn.truncation.top_k = NonZeroU32::new(index % 3);
            turn.tokens = tokens.map(|(context, sampled, cut)| {
                let (response, log_probabilities): (_, Vec<f32>) = sampled.into_iter().unzip();
                let untruncated = if cut { log_probabilities.clone() } else { Vec::new() };
                let versions = Vec::new();
                SampledTokens { context, response, log_probabilities, untruncated, versions }
            });
            EntryBody::Turn(Box::new(turn))
        });
    let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
    let command = (text, bytes(), bytes(), any::<i32>(), 0..3000_usize).prop_map(
        |(line, stdin, stderr, status, length)| {
            let mut request = CommandRequest::line(line);
            request.stdin = stdin;
            let stdout = Captured { bytes: vec![b'a'; length], total: u64::MAX };
            let stderr = Captured { total: 3, bytes: stderr };
            let stopped = None;
            let output = CommandOutput { status, stopped, stdout, stderr, metadata: Vec::new() };
            EntryBody::Command { request, output, tree: Digest::of([1]) }
        },
    );
    prop_oneof![
        turn,
        command,
        (text, text).prop_map(|(name, value)| EntryBody::Event {
            fields: vec![(name.clone(), value)],
            name,
        }),
        (text, -1e300..1e300_f64).prop_map(|(name, value)| EntryBody::Metric { name, value }),
        text.prop_map(|import| EntryBody::Denied { import }),
        (text, text).prop_map(|(stdout, stderr)| EntryBody::Output { stdout, stderr }),
        (any::<u32>(), text).prop_map(|(index, error)| EntryBody::TurnFailed {
            index,
            conversation: 0,
            error,
            detail: None,
        }),
    ]
}
