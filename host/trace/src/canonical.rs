//! The canonical form of a run: JSON Lines that are equal, byte by byte, for equal runs.
//!
//! Left out is whatever may differ between two runs of the same thing: ids and times of the
//! store, latencies, retries, cache hits, attempts that did not count, words of upstream servers.
//! The order is that of task, sample and turn, not that of completion: an episode's turns come
//! first, by their number, and what else its journal holds follows in the order of the journal.
//! Sub-agents that wait for replies at the same time therefore give the same lines whichever
//! reply was there first.
//!
//! Every field is documented in `host/trace/TRACE.md`; a test compares.

use std::io::{self, Write};

use data_encoding::BASE64;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    Captured, CommandLine, CommandOutput, CommandRequest, CommandStop, Digest, EntryBody,
    EpisodeSummary, FailureKind, FinishReason, Message, OutcomeStatus, Run, Score, ScoreComponent,
    SealedEnding, State, Store, StoreError, ToolDefinition, Truncation, Turn, TurnValue,
    VersionSpan, entry::SegmentOrigin,
};

/// Version of the form; counted up when a field changes its meaning or goes away.
pub const FORMAT: u32 = 1;

/// An export ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The output could not be written.
    #[error("the export could not be written: {0}; free space or choose another file")]
    Write(#[from] io::Error),
}

/// Writes a whole run. One episode is in memory at a time. An export of a run that is still
/// written to is one of what was there at the time of reading.
pub fn export(store: &Store, run: &str, output: &mut dyn Write) -> Result<(), ExportError> {
    line(output, &run_line(&store.run(run)?))?;
    let mut attempts = store.episodes(run)?.into_iter().peekable();
    while let Some(attempt) = attempts.next() {
        let place = |attempt: &EpisodeSummary| (attempt.episode.task, attempt.episode.sample);
        // Only the last attempt counts.
        if attempts.peek().is_none_or(|next| place(next) != place(&attempt)) {
            export_episode(store, run, &attempt, output)?;
        }
    }
    output.flush()?;
    Ok(())
}

/// Writes the lines of one attempt.
pub fn export_episode(
    store: &Store,
    run: &str,
    attempt: &EpisodeSummary,
    output: &mut dyn Write,
) -> Result<(), ExportError> {
    let place = Place { task: attempt.episode.task, sample: attempt.episode.sample };
    line(
        output,
        &Line::Episode(EpisodeLine {
            place,
            task_id: &attempt.task_id,
            state: attempt.state,
            total: attempt.total,
            turns: attempt.turns,
            prompt_tokens: attempt.prompt_tokens,
            completion_tokens: attempt.completion_tokens,
        }),
    )?;
    let entries = store.entries(run, attempt.episode)?;
    let (mut turns, others): (Vec<_>, Vec<_>) =
        entries.into_iter().map(|entry| entry.body).partition(|body| turn_index(body).is_some());
    turns.sort_by_key(turn_index);
    for turn in &turns {
        line(output, &entry_line(place, 0, turn))?;
    }
    for (position, body) in (0..).zip(&others) {
        line(output, &entry_line(place, position, body))?;
    }
    if let Some(sealed) = store.ending(run, attempt.episode)? {
        line(output, &ending_line(place, &sealed))?;
    }
    for score in &store.scores(run, attempt.episode)? {
        line(output, &score_line(place, score))?;
    }
    Ok(())
}

fn line(output: &mut dyn Write, record: &Line<'_>) -> Result<(), ExportError> {
    serde_json::to_writer(&mut *output, record).map_err(io::Error::from)?;
    output.write_all(b"\n")?;
    Ok(())
}

#[derive(Serialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
enum Line<'data> {
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
struct Place {
    task: u32,
    sample: u32,
}

#[derive(Serialize)]
struct RunLine {
    format: u32,
    tasks: Option<Digest>,
    pinned: Value,
}

#[derive(Serialize)]
struct EpisodeLine<'data> {
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
struct TurnLine<'data> {
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
struct TurnFailedLine<'data> {
    #[serde(flatten)]
    place: Place,
    index: u32,
    conversation: u32,
    error: &'data str,
}

#[derive(Serialize)]
struct CommandRecord<'data> {
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
struct EventLine<'data> {
    #[serde(flatten)]
    place: Place,
    position: u32,
    name: &'data str,
    fields: &'data [(String, String)],
}

#[derive(Serialize)]
struct MetricLine<'data> {
    #[serde(flatten)]
    place: Place,
    position: u32,
    name: &'data str,
    value: f64,
}

#[derive(Serialize)]
struct DeniedLine<'data> {
    #[serde(flatten)]
    place: Place,
    position: u32,
    import: &'data str,
}

#[derive(Serialize)]
struct OutputLine<'data> {
    #[serde(flatten)]
    place: Place,
    position: u32,
    stdout: &'data str,
    stderr: &'data str,
}

#[derive(Serialize)]
struct TruncatedLine {
    #[serde(flatten)]
    place: Place,
    position: u32,
    dropped: u64,
}

#[derive(Serialize)]
struct EndingLine<'data> {
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
struct ScoreLine<'data> {
    #[serde(flatten)]
    place: Place,
    reward: &'data str,
    weight: f64,
    total: f64,
    components: &'data [ScoreComponent],
    turns: &'data [TurnValue],
    notes: &'data [(String, String)],
}

fn run_line(run: &Run) -> Line<'static> {
    let pinned = sorted(&run.record.pinned);
    Line::Run(RunLine { format: FORMAT, tasks: run.record.tasks, pinned })
}

const fn turn_index(body: &EntryBody) -> Option<u32> {
    match body {
        EntryBody::Turn(turn) => Some(turn.index),
        EntryBody::TurnFailed { index, .. } => Some(*index),
        _ => None,
    }
}

fn entry_line(place: Place, position: u32, body: &EntryBody) -> Line<'_> {
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

fn ending_line(place: Place, sealed: &SealedEnding) -> Line<'_> {
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

fn score_line(place: Place, score: &Score) -> Line<'_> {
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

#[cfg(test)]
#[path = "canonical_tests.rs"]
mod tests;
