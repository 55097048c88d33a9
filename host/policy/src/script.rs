//! The scripted policy: replies from a file, looked up by where a call stands.
//!
//! # The file
//!
//! JSON Lines: one object a line, blank lines ignored. Every field of the key may be left out,
//! and then matches anything:
//!
//! | field | meaning |
//! |---|---|
//! | `task` | id of the task |
//! | `harness` | the harness's name |
//! | `agent` | the (sub-)agent's name; `""` is the unnamed one |
//! | `tool_format` | `"native"` or `"text"` |
//! | `conversation` | conversation within the episode, from 0 |
//! | `turn` | turn within the conversation, from 0 |
//!
//! and the reply is exactly one of
//!
//! | field | meaning |
//! |---|---|
//! | `text` | the reply as plain text |
//! | `message` | a whole message as traces write it: `{"role":"assistant","parts":[{"text":"…"},{"tool-call":{"id":"1","name":"bash","arguments":"{}"}}]}` |
//!
//! with, optionally, `finish` (`stop`, `length`, `tool-calls`, `filtered`), `usage`
//! (`{"prompt_tokens":0,"cached_tokens":0,"completion_tokens":0}`) and `delay_ms`.
//!
//! Where several lines match, the one that names more fields wins; among equally many, `task`
//! counts before `harness`, then `turn`, `conversation`, `tool_format`, `agent`. Two lines with
//! the same key are an error, so the order of lines never matters.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use fulgurite_trace::{Digest, FinishReason, Message, Part, Role, Usage};
use serde::Deserialize;
use tokio::sync::mpsc;

use crate::{
    CallKey, Chunk, FixedReply, Policy, PolicyError, PolicyInfo, PolicyReply, ReplyRequest,
    fixed::message_level_info,
};

/// The longest line of a script.
const MAXIMUM_LINE: u64 = 16 << 20;
/// The longest script.
const MAXIMUM_FILE: u64 = 1 << 30;
/// The longest delay a line may ask for.
const MAXIMUM_DELAY_MS: u64 = 3_600_000;
/// How many keys are looked at for the nearest ones of an error.
const MAXIMUM_COMPARED: usize = 10_000;

/// Which calls a scripted reply answers. An absent field matches anything.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ScriptKey {
    /// Id of the task.
    pub task: Option<String>,
    /// Name of the harness.
    pub harness: Option<String>,
    /// Turn within the conversation.
    pub turn: Option<u32>,
    /// Conversation within the episode.
    pub conversation: Option<u32>,
    /// `native` or `text`.
    pub tool_format: Option<String>,
    /// The (sub-)agent.
    pub agent: Option<String>,
}

/// The fields of a [`ScriptKey`] that are present, one bit each, the weightiest highest.
type Mask = u8;

impl ScriptKey {
    fn mask(&self) -> Mask {
        [
            self.task.is_some(),
            self.harness.is_some(),
            self.turn.is_some(),
            self.conversation.is_some(),
            self.tool_format.is_some(),
            self.agent.is_some(),
        ]
        .into_iter()
        .fold(0, |mask, present| (mask << 1) | Mask::from(present))
    }

    /// The only key with these fields that could match the call.
    fn of_call(call: &CallKey, mask: Mask) -> Self {
        let has = |bit: u8| mask & (1 << bit) != 0;
        Self {
            task: has(5).then(|| call.task.clone()),
            harness: has(4).then(|| call.harness.clone()),
            turn: has(3).then_some(call.turn),
            conversation: has(2).then_some(call.conversation),
            tool_format: has(1).then(|| call.tool_format.to_owned()),
            agent: has(0).then(|| call.agent.clone()),
        }
    }

    /// How many of the named fields differ from the call's.
    fn differences(&self, call: &CallKey) -> usize {
        let own = Self::of_call(call, self.mask());
        usize::from(self.task != own.task)
            + usize::from(self.harness != own.harness)
            + usize::from(self.turn != own.turn)
            + usize::from(self.conversation != own.conversation)
            + usize::from(self.tool_format != own.tool_format)
            + usize::from(self.agent != own.agent)
    }
}

impl fmt::Display for ScriptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = [
            ("task", self.task.as_ref().map(|text| format!("{text:?}"))),
            ("harness", self.harness.as_ref().map(|text| format!("{text:?}"))),
            ("turn", self.turn.map(|number| number.to_string())),
            ("conversation", self.conversation.map(|number| number.to_string())),
            ("tool_format", self.tool_format.as_ref().map(|text| format!("{text:?}"))),
            ("agent", self.agent.as_ref().map(|text| format!("{text:?}"))),
        ];
        let named: Vec<String> = fields
            .into_iter()
            .filter_map(|(name, value)| value.map(|value| format!("{name} {value}")))
            .collect();
        if named.is_empty() { f.write_str("any call") } else { f.write_str(&named.join(", ")) }
    }
}

/// A script that could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// The file cannot be opened or read.
    #[error(
        "the script {} cannot be read: {source}\n  mend: write script:FILE with the path of a JSON \
         Lines file of replies",
        path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A line is wrong.
    #[error(
        "the script {}, line {line}: {reason}\n  mend: a line is a JSON object with `text` or \
         `message`, such as {{\"text\": \"yes\"}}",
        path.display()
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// Replies looked up by where a call stands. See the [module](self) for the file format.
#[derive(Debug)]
pub struct Script {
    info: PolicyInfo,
    replies: HashMap<ScriptKey, FixedReply>,
    /// The masks in use, the most specific first.
    masks: Vec<Mask>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    task: Option<String>,
    harness: Option<String>,
    agent: Option<String>,
    tool_format: Option<String>,
    conversation: Option<u32>,
    turn: Option<u32>,
    text: Option<String>,
    message: Option<Message>,
    finish: Option<FinishReason>,
    usage: Option<Usage>,
    #[serde(default)]
    delay_ms: u64,
}

impl Line {
    fn check(self) -> Result<(ScriptKey, FixedReply), String> {
        if let Some(format) = self.tool_format.as_deref()
            && !matches!(format, "native" | "text")
        {
            return Err(format!("`tool_format` is {format:?}, not \"native\" or \"text\""));
        }
        if self.delay_ms > MAXIMUM_DELAY_MS {
            return Err(format!("`delay_ms` is more than an hour ({MAXIMUM_DELAY_MS})"));
        }
        let message = match (self.text, self.message) {
            (Some(text), None) => Message::text(Role::Assistant, text),
            (None, Some(message)) => message,
            (Some(_), Some(_)) => return Err("both `text` and `message` are given".to_owned()),
            (None, None) => return Err("neither `text` nor `message` is given".to_owned()),
        };
        if message.role != Role::Assistant {
            return Err("the message's role is not \"assistant\"".to_owned());
        }
        if message.parts.iter().any(|part| matches!(part, Part::ToolResult(_))) {
            return Err("the message holds a tool result, which only a harness can say".to_owned());
        }
        let key = ScriptKey {
            task: self.task,
            harness: self.harness,
            turn: self.turn,
            conversation: self.conversation,
            tool_format: self.tool_format,
            agent: self.agent,
        };
        let delay = Duration::from_millis(self.delay_ms);
        Ok((key, FixedReply { message, finish: self.finish, usage: self.usage, delay }))
    }
}

impl Script {
    /// Reads a script file.
    pub fn open(path: &Path) -> Result<Self, ScriptError> {
        let read_error = |source| ScriptError::Read { path: path.to_owned(), source };
        let file = File::open(path).map_err(read_error)?;
        if file.metadata().map_err(read_error)?.is_dir() {
            return Err(read_error(std::io::ErrorKind::IsADirectory.into()));
        }
        Self::read(BufReader::new(file), path)
    }

    /// Reads a script; `path` names it in errors.
    pub fn read(reader: impl BufRead, path: &Path) -> Result<Self, ScriptError> {
        let mut reader = reader.take(MAXIMUM_FILE);
        let mut lines: HashMap<ScriptKey, usize> = HashMap::new();
        let mut entries = Vec::new();
        // Equal scripts have equal names, wherever they lie.
        let mut digest = Vec::new();
        let mut buffer = Vec::new();
        for line in 1.. {
            let line_error = |reason| ScriptError::Line { path: path.to_owned(), line, reason };
            buffer.clear();
            let read = reader
                .by_ref()
                .take(MAXIMUM_LINE + 1)
                .read_until(b'\n', &mut buffer)
                .map_err(|source| ScriptError::Read { path: path.to_owned(), source })?;
            if read as u64 > MAXIMUM_LINE {
                return Err(line_error(format!("longer than {} MiB", MAXIMUM_LINE >> 20)));
            }
            if read == 0 {
                if reader.limit() == 0 {
                    return Err(line_error(format!(
                        "the file is longer than {} GiB",
                        MAXIMUM_FILE >> 30
                    )));
                }
                break;
            }
            digest.extend_from_slice(Digest::of(&buffer).as_bytes());
            if buffer.trim_ascii().is_empty() {
                continue;
            }
            let text = std::str::from_utf8(&buffer)
                .map_err(|_| line_error("it is not UTF-8 text".to_owned()))?;
            let (key, reply) = serde_json::from_str::<Line>(text)
                .map_err(|error| error.to_string())
                .and_then(Line::check)
                .map_err(&line_error)?;
            if let Some(first) = lines.insert(key.clone(), line) {
                return Err(line_error(format!("the same key as line {first}: {key}")));
            }
            entries.push((key, reply));
        }
        if entries.is_empty() {
            return Err(ScriptError::Line {
                path: path.to_owned(),
                line: 1,
                reason: "the script is empty; each line is an object such as \
                         {\"turn\":0,\"text\":\"hello\"}"
                    .to_owned(),
            });
        }
        let stem = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self::new(format!("script:{stem}@{}", Digest::of(&digest).short()), entries))
    }

    /// A script of these replies. Of equal keys the last counts.
    pub fn new(
        name: impl Into<String>,
        replies: impl IntoIterator<Item = (ScriptKey, FixedReply)>,
    ) -> Self {
        let replies: HashMap<ScriptKey, FixedReply> = replies.into_iter().collect();
        let mut masks: Vec<Mask> = replies.keys().map(ScriptKey::mask).collect();
        masks.sort_unstable_by_key(|mask| std::cmp::Reverse((mask.count_ones(), *mask)));
        masks.dedup();
        Self { info: message_level_info(name), replies, masks }
    }

    fn find(&self, call: &CallKey) -> Option<&FixedReply> {
        self.masks.iter().find_map(|mask| self.replies.get(&ScriptKey::of_call(call, *mask)))
    }

    fn missing(&self, call: &CallKey) -> PolicyError {
        let mut nearest: BTreeMap<(usize, String), ()> = BTreeMap::new();
        for key in self.replies.keys().take(MAXIMUM_COMPARED) {
            nearest.insert((key.differences(call), key.to_string()), ());
            if nearest.len() > 3 {
                nearest.pop_last();
            }
        }
        let nearest: Vec<String> = nearest.into_keys().map(|(_, key)| key).collect();
        PolicyError::NoScript(format!(
            "{} has none for {}; the nearest keys are: {}",
            self.info.name,
            ScriptKey::of_call(call, Mask::MAX),
            nearest.join(" | ")
        ))
    }
}

#[async_trait]
impl Policy for Script {
    fn info(&self) -> &PolicyInfo {
        &self.info
    }

    async fn reply(
        &self,
        request: ReplyRequest,
        chunks: Option<mpsc::Sender<Chunk>>,
    ) -> Result<PolicyReply, PolicyError> {
        let reply = self.find(&request.key).ok_or_else(|| self.missing(&request.key))?;
        Ok(reply.deliver(&request, chunks).await)
    }
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
