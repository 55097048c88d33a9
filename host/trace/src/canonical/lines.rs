//! The lines of the canonical form, each from what the store holds of it.

use data_encoding::BASE64;
use serde::Serialize;
use serde_json::{Map, Value};

use super::FORMAT;
use crate::{
    Captured, CommandLine, CommandOutput, CommandRequest, CommandStop, Digest, EntryBody,
    EpisodeSummary, FailureKind, FinishReason, Message, OutcomeStatus, Run, Score, ScoreComponent,
    SealedEnding, State, ToolDefinition, Truncation, Turn, TurnValue, VersionSpan,
    entry::SegmentOrigin,
};

/// A line.
#[derive(Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub(super) enum Line<'data> {
    Run(RunLine),
    Episode(EpisodeLine<'data>),
    Turn(Box<TurnLine<'data>>),
    TurnFailed(TurnFailedLine<'data>),
    Command(Box<CommandRecord<'data>>),
    Event(EventLine<'data>),
    Metric(MetricLine<'data>),
    Denied(DeniedLine<'data>),
    Output(OutputLine<'data>),
    Truncated(TruncatedLine),
    Ending(Box<EndingLine<'data>>),
    Score(ScoreLine<'data>),
}

#[derive(Clone, Copy, Serialize)]
pub(super) struct Place {
    pub(super) task: u32,
    pub(super) sample: u32,
}

#[derive(Serialize)]
pub(super) struct RunLine {
    format: u32,
    tasks: Option<Digest>,
    pinned: Value,
}

#[derive(Serialize)]
pub(super) struct EpisodeLine<'data> {
    #[serde(flatten)]
    place: Place,
    task_id: &'data str,
    state: State,
    total: Option<f64>,
    turns: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
}

#[derive(Serialize)]
pub(super) struct TurnLine<'data> {
    #[serde(flatten)]
    place: Place,
    index: u32,
    conversation: u32,
    segment: u32,
    origin: &'data SegmentOrigin,
    agent: &'data str,
    model_role: &'data str,
    policy: &'data str,
    temperature: f32,
    #[serde(skip_serializing_if = "Truncation::is_none")]
    truncation: Truncation,
    tools: &'data [ToolDefinition],
    messages: &'data [Message],
    reply: &'data Message,
    finish: FinishReason,
    prompt_tokens: u64,
    completion_tokens: u64,
    tokens: Option<TokensPart<'data>>,
}

#[derive(Serialize)]
struct TokensPart<'data> {
    context: &'data [u32],
    response: &'data [u32],
    log_probabilities: &'data [f32],
    #[serde(skip_serializing_if = "<[f32]>::is_empty")]
    untruncated: &'data [f32],
    versions: &'data [VersionSpan],
}

#[derive(Serialize)]
pub(super) struct TurnFailedLine<'data> {
    #[serde(flatten)]
    place: Place,
    index: u32,
    conversation: u32,
    error: &'data str,
}

#[derive(Serialize)]
pub(super) struct CommandRecord<'data> {
    #[serde(flatten)]
    place: Place,
    position: u32,
    argv: Option<&'data [String]>,
    line: Option<&'data str>,
    cwd: Option<&'data str>,
    env: &'data [(String, String)],
    stdin: Bytes,
    timeout_ms: Option<u32>,
    output_bytes: Option<u32>,
    request_metadata: &'data [(String, String)],
    status: i32,
    stopped: Option<CommandStop>,
    stdout: Stream,
    stderr: Stream,
    tree: Digest,
    metadata: &'data [(String, String)],
}

#[derive(Serialize)]
struct Stream {
    #[serde(flatten)]
    bytes: Bytes,
    total: u64,
}

/// Text where it is text.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
enum Bytes {
    Text(String),
    Base64(String),
}

#[derive(Serialize)]
pub(super) struct EventLine<'data> {
    #[serde(flatten)]
    place: Place,
    position: u32,
    name: &'data str,
    fields: &'data [(String, String)],
}

#[derive(Serialize)]
pub(super) struct MetricLine<'data> {
    #[serde(flatten)]
    place: Place,
    position: u32,
    name: &'data str,
    value: f64,
}

#[derive(Serialize)]
pub(super) struct DeniedLine<'data> {
    #[serde(flatten)]
    place: Place,
    position: u32,
    import: &'data str,
}

#[derive(Serialize)]
pub(super) struct OutputLine<'data> {
    #[serde(flatten)]
    place: Place,
    position: u32,
    stdout: &'data str,
    stderr: &'data str,
}

#[derive(Serialize)]
pub(super) struct TruncatedLine {
    #[serde(flatten)]
    place: Place,
    position: u32,
    dropped: u64,
}

#[derive(Serialize)]
pub(super) struct EndingLine<'data> {
    #[serde(flatten)]
    place: Place,
    kind: FailureKind,
    status: Option<OutcomeStatus>,
    answer: Option<&'data str>,
    metadata: &'data [(String, String)],
    message: Option<&'data str>,
    backtrace: &'data [String],
    fuel_used: u64,
    virtual_ms: u64,
    tree: Option<Digest>,
    changes: Value,
}

#[derive(Serialize)]
pub(super) struct ScoreLine<'data> {
    #[serde(flatten)]
    place: Place,
    reward: &'data str,
    weight: f64,
    total: f64,
    components: &'data [ScoreComponent],
    turns: &'data [TurnValue],
    notes: &'data [(String, String)],
}

pub(super) fn run_line(run: &Run) -> Line<'static> {
    let pinned = sorted(&run.record.pinned);
    Line::Run(RunLine { format: FORMAT, tasks: run.record.tasks, pinned })
}

pub(super) fn episode_line(place: Place, attempt: &EpisodeSummary) -> Line<'_> {
    Line::Episode(EpisodeLine {
        place,
        task_id: &attempt.task_id,
        state: attempt.state,
        total: attempt.total,
        turns: attempt.turns,
        prompt_tokens: attempt.prompt_tokens,
        completion_tokens: attempt.completion_tokens,
    })
}

pub(super) fn entry_line(place: Place, position: u32, body: &EntryBody) -> Line<'_> {
    match body {
        EntryBody::Turn(turn) => Line::Turn(Box::new(turn_line(place, turn))),
        EntryBody::TurnFailed { index, conversation, error, .. } => {
            let (index, conversation) = (*index, *conversation);
            Line::TurnFailed(TurnFailedLine { place, index, conversation, error })
        }
        EntryBody::Command { request, output, tree } => {
            Line::Command(Box::new(command_line(place, position, request, output, *tree)))
        }
        EntryBody::Event { name, fields } => {
            Line::Event(EventLine { place, position, name, fields })
        }
        EntryBody::Metric { name, value } => {
            Line::Metric(MetricLine { place, position, name, value: *value })
        }
        EntryBody::Denied { import } => Line::Denied(DeniedLine { place, position, import }),
        EntryBody::Output { stdout, stderr } => {
            Line::Output(OutputLine { place, position, stdout, stderr })
        }
        EntryBody::Truncated { dropped } => {
            Line::Truncated(TruncatedLine { place, position, dropped: *dropped })
        }
    }
}

fn turn_line(place: Place, turn: &Turn) -> TurnLine<'_> {
    TurnLine {
        place,
        index: turn.index,
        conversation: turn.conversation,
        segment: turn.segment,
        origin: &turn.origin,
        agent: &turn.agent,
        model_role: &turn.model_role,
        policy: &turn.policy,
        temperature: turn.temperature,
        truncation: turn.truncation,
        tools: &turn.tools,
        messages: &turn.messages,
        reply: &turn.reply,
        finish: turn.finish,
        prompt_tokens: turn.usage.prompt_tokens,
        completion_tokens: turn.usage.completion_tokens,
        tokens: turn.tokens.as_ref().map(|tokens| TokensPart {
            context: &tokens.context,
            response: &tokens.response,
            log_probabilities: &tokens.log_probabilities,
            untruncated: &tokens.untruncated,
            versions: &tokens.versions,
        }),
    }
}

fn command_line<'data>(
    place: Place,
    position: u32,
    request: &'data CommandRequest,
    output: &'data CommandOutput,
    tree: Digest,
) -> CommandRecord<'data> {
    let (argv, line) = match &request.command {
        CommandLine::Argv(argv) => (Some(argv.as_slice()), None),
        CommandLine::Line(line) => (None, Some(line.as_str())),
    };
    let stream =
        |captured: &Captured| Stream { bytes: Bytes::of(&captured.bytes), total: captured.total };
    CommandRecord {
        place,
        position,
        argv,
        line,
        cwd: request.cwd.as_deref(),
        env: &request.env,
        stdin: Bytes::of(&request.stdin),
        timeout_ms: request.timeout_ms,
        output_bytes: request.output_bytes,
        request_metadata: &request.metadata,
        status: output.status,
        stopped: output.stopped,
        stdout: stream(&output.stdout),
        stderr: stream(&output.stderr),
        tree,
        metadata: &output.metadata,
    }
}

pub(super) fn ending_line(place: Place, sealed: &SealedEnding) -> Line<'_> {
    let ending = &sealed.ending;
    let outcome = ending.outcome.as_ref();
    Line::Ending(Box::new(EndingLine {
        place,
        kind: ending.kind,
        status: outcome.map(|outcome| outcome.status),
        answer: outcome.map(|outcome| outcome.answer.as_str()),
        metadata: outcome.map_or(&[], |outcome| outcome.metadata.as_slice()),
        message: ending.message.as_deref(),
        backtrace: &ending.backtrace,
        fuel_used: ending.fuel_used,
        virtual_ms: ending.virtual_ms,
        tree: sealed.tree,
        changes: changes_value(&sealed.changes),
    }))
}

/// The list of changes of a manifest; the digest of anything else.
fn changes_value(manifest: &[u8]) -> Value {
    if manifest.is_empty() {
        return Value::Null;
    }
    match serde_json::from_slice::<Value>(manifest) {
        Ok(Value::Object(mut manifest)) if manifest.contains_key("changes") => {
            manifest.remove("changes").map_or(Value::Null, |changes| sorted(&changes))
        }
        _ => Value::String(Digest::of(manifest).to_string()),
    }
}

pub(super) fn score_line(place: Place, score: &Score) -> Line<'_> {
    Line::Score(ScoreLine {
        place,
        reward: &score.reward,
        weight: score.weight,
        total: score.total,
        components: &score.components,
        turns: &score.turns,
        notes: &score.notes,
    })
}

impl Bytes {
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Base64(BASE64.encode(bytes)),
        }
    }
}

/// The same value with the keys of every object in order.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            let members = members.into_iter().map(|(name, value)| (name.clone(), sorted(value)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        plain => plain.clone(),
    }
}
