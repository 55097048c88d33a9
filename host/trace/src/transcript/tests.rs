use super::*;
use crate::{
    CommandOutput, CommandRequest, Digest, Ending, FailureKind, Message, Outcome, OutcomeStatus,
    Part, Role, ScoreComponent, State, ToolCall, ToolResult, example,
};

fn record() -> EpisodeRecord {
    let reply = Message {
        role: Role::Assistant,
        parts: vec![
            Part::Thinking("let me look".into()),
            Part::Text("I list the files.".into()),
            Part::ToolCall(ToolCall {
                id: "call-1".into(),
                name: "bash".into(),
                arguments: r#"{"command":"ls"}"#.into(),
                problem: None,
            }),
        ],
        metadata: Vec::new(),
    };
    let mut first = example::turn(0, "Fix the bug.");
    first.reply = reply;
    let mut second = example::turn(1, "");
    second.messages = vec![Message {
        role: Role::Tool,
        parts: vec![Part::ToolResult(ToolResult {
            call: "call-1".into(),
            content: "main.py".into(),
            failed: false,
        })],
        metadata: Vec::new(),
    }];
    let mut output = CommandOutput {
        status: 1,
        stopped: None,
        stdout: Default::default(),
        stderr: Default::default(),
        metadata: Vec::new(),
    };
    output.stdout.bytes = b"one\n\x1b]0;title\x07two\n".to_vec();
    output.stdout.total = 1000;
    let bodies = [
        EntryBody::Turn(Box::new(first)),
        EntryBody::Command {
            request: CommandRequest::line("ls"),
            output,
            tree: Digest::of(b"tree"),
        },
        EntryBody::Turn(Box::new(second)),
        EntryBody::Event { name: "note".into(), fields: vec![("why".into(), "a\nb".into())] },
        EntryBody::Denied { import: "wasi:sockets/tcp#connect".into() },
    ];
    EpisodeRecord {
        summary: EpisodeSummary {
            episode: EpisodeRef::first(3, 1),
            task_id: "HumanEval/3".into(),
            state: State::Scored,
            kind: Some(FailureKind::Completed),
            total: Some(0.5),
            reason: None,
            turns: 2,
            prompt_tokens: 20,
            completion_tokens: 10,
            wall_ms: Some(12),
        },
        entries: (0..).zip(bodies).map(|(sequence, body)| Entry { sequence, body }).collect(),
        ending: Some(SealedEnding {
            ending: Ending {
                kind: FailureKind::Completed,
                outcome: Some(Outcome {
                    status: OutcomeStatus::Submitted,
                    answer: "done".into(),
                    metadata: Vec::new(),
                }),
                message: None,
                backtrace: Vec::new(),
                fuel_used: 7,
                virtual_ms: 8,
            },
            tree: Some(Digest::of(b"tree")),
            changes: br#"{"lower":"x","changes":[
                {"path":"main.py","kind":"modified","entry":"file","size":12,"digest":null},
                {"path":"new\u001b[2J","kind":"added","entry":"directory","size":0,"digest":null}
            ]}"#
            .to_vec(),
        }),
        scores: vec![Score {
            reward: "tests-pass".into(),
            weight: 1.0,
            total: 0.5,
            components: vec![ScoreComponent { name: "passed".into(), value: 0.5 }],
            turns: Vec::new(),
            notes: vec![("case".into(), "x\u{202e}y".into())],
        }],
    }
}

#[test]
fn an_episode_reads_from_top_to_bottom() {
    let text: Vec<String> =
        render(&record(), Options::default()).iter().map(Line::to_string).collect();
    let expected = [
        "episode HumanEval/3  task 3, sample 1, attempt 0",
        "scored, completed, total 0.5  2 turns, 20 tokens read, 10 written",
        "",
        "turn 0  conversation 0, 10 tokens read, 5 written",
        "  user",
        "    Fix the bug.",
        "  assistant",
        "    thinking",
        "      let me look",
        "    I list the files.",
        "    calls bash  call-1",
        r#"      {"command":"ls"}"#,
        "",
        "command ls",
    ];
    assert_eq!(text[..expected.len()], expected);
    let rest = text[expected.len()..].join("\n");
    for part in [
        "  status 1  tree ",
        "  stdout, cut from 1000 bytes\n    one\n    \\x1b]0;title\\x07two",
        "    result  call-1\n      main.py",
        "event note\n  why: a\\nb",
        "denied wasi:sockets/tcp#connect",
        "ended completed, submitted  7 fuel, 8 virtual ms\n  answer\n    done",
        "workspace: 2 changes",
        "  ~ main.py  12 bytes\n  + new\\x1b[2J/",
        "scores  total 0.5\n  tests-pass 0.5  weight 1\n    passed 0.5\n    case: x\\u{202e}y",
    ] {
        assert!(rest.contains(part), "{part:?} is missing in\n{rest}");
    }
}

#[test]
fn only_our_own_colours_reach_the_terminal() {
    for line in render(&record(), Options { lines_per_block: None, columns: None }) {
        let plain = line.to_string();
        assert!(!plain.contains(|character: char| character.is_control()), "{plain:?}");
        let mut painted = line.paint();
        for style in ["1", "2", "31", "32", "33", "36", "0"] {
            painted = painted.replace(&format!("\x1b[{style}m"), "");
        }
        assert_eq!(painted, plain);
    }
}

#[test]
fn long_blocks_and_lines_are_cut_and_counted() {
    let mut record = record();
    let mut turn = example::turn(0, &"line\n".repeat(100));
    turn.reply = Message::text(Role::Assistant, "x".repeat(1000));
    record.entries = vec![Entry { sequence: 0, body: EntryBody::Turn(Box::new(turn)) }];
    let options = Options { lines_per_block: Some(10), columns: Some(80) };
    let text: Vec<String> = render(&record, options).iter().map(Line::to_string).collect();
    assert_eq!(text.iter().filter(|line| *line == "    line").count(), 10);
    assert!(text.contains(&"    … 90 more lines".to_owned()));
    assert!(text.iter().any(|line| line.ends_with("x … 920 more characters")));
    assert!(text.iter().all(|line| line.chars().count() < 130));
}
