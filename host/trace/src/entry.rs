//! The journal of an episode: what happened, in order.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::{
    CommandOutput, CommandRequest, Digest, FinishReason, Message, Metadata, ToolDefinition, Usage,
};

/// A stretch of sampled tokens that one policy version wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionSpan {
    /// First token of the stretch, as an index into [`SampledTokens::response`].
    pub start: u32,
    /// The policy version.
    pub version: u64,
}

/// The exact tokens of one turn. The token history of a segment is, turn after turn, `context`
/// followed by `response`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SampledTokens {
    /// Ids that stand between the segment's history so far and the response. For the first turn
    /// of a segment: the whole prompt.
    pub context: Vec<u32>,
    /// Ids that the policy sampled, end token included when it chose one.
    pub response: Vec<u32>,
    /// Log-probability of each response id under the actual sampling distribution; empty when the
    /// policy gave none.
    pub log_probabilities: Vec<f32>,
    /// Log-probability of each response id under the whole softmax(logits / temperature). Only
    /// where the sampling distribution was cut ([`Turn::truncation`]); else empty, since it is
    /// `log_probabilities`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untruncated: Vec<f32>,
    /// Which version wrote which ids; starts are ascending and the first is 0.
    pub versions: Vec<VersionSpan>,
}

/// How the sampling distribution is cut. The cuts are made one after the other, in the order of
/// the fields, on softmax(logits / temperature); what is left is scaled to 1 after each.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Truncation {
    /// Only this many of the likeliest tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<NonZeroU32>,
    /// Only the fewest likeliest tokens that have this much of the mass together; in (0, 1].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f32>,
    /// Only tokens at least this share as likely as the likeliest; in [0, 1].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_p: Option<f32>,
}

impl Truncation {
    /// Whether nothing is cut.
    pub fn is_none(&self) -> bool {
        self.top_k.is_none()
            && self.top_p.is_none_or(|share| share >= 1.0)
            && self.min_p.is_none_or(|share| share <= 0.0)
    }

    /// What is wrong with the values, if anything.
    pub fn problem(&self) -> Option<String> {
        match (self.top_p, self.min_p) {
            (Some(share), _) if !(share > 0.0 && share <= 1.0) => {
                Some(format!("top-p is {share}; it must be above 0 and at most 1"))
            }
            (_, Some(share)) if !(0.0..=1.0).contains(&share) => {
                Some(format!("min-p is {share}; it must be from 0 to 1"))
            }
            _ => None,
        }
    }
}

/// Where a conversation's history came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SegmentOrigin {
    /// The conversation's first segment.
    Opened,
    /// The conversation shares the history of another, up to and including a turn.
    Branched {
        /// The turn, by its index within the episode.
        turn: u32,
    },
    /// The harness replaced the history.
    Restarted {
        /// The harness's words.
        reason: String,
    },
    /// The chat template no longer extends the ids (it dropped earlier thinking, say).
    Rendered,
}

/// One model call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Number within the episode, in the order in which calls started.
    pub index: u32,
    /// The conversation, numbered within the episode.
    pub conversation: u32,
    /// Segment of the conversation, from 0. Within a segment the token history only grows.
    pub segment: u32,
    /// How the segment began.
    pub origin: SegmentOrigin,
    /// The (sub-)agent that spoke; may be empty.
    pub agent: String,
    /// The model role asked for.
    pub model_role: String,
    /// The tools of the conversation; recorded with its first turn only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolDefinition>,
    /// The messages that are new since the last turn of the segment. For its first turn: the
    /// whole history when it was opened or restarted, else what is new since the conversation's
    /// last turn or the turn it branched from.
    pub messages: Vec<Message>,
    /// What the policy said.
    pub reply: Message,
    /// Why it ended.
    pub finish: FinishReason,
    /// Tokens of the call.
    pub usage: Usage,
    /// Exact tokens where the policy gives them; without them a turn cannot be trained on.
    pub tokens: Option<SampledTokens>,
    /// Sampling temperature.
    pub temperature: f32,
    /// How the sampling distribution was cut.
    #[serde(default, skip_serializing_if = "Truncation::is_none")]
    pub truncation: Truncation,
    /// The policy's name and digest, as in the run's plan.
    pub policy: String,
    /// Wall-clock milliseconds of the call. Not canonical.
    pub latency_ms: u64,
    /// Upstream retries before the reply. Not canonical.
    pub retries: u32,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
// Entries are moved once, straight into the journal.
#[allow(clippy::large_enum_variant)]
pub enum EntryBody {
    /// A model call was answered.
    Turn(Box<Turn>),
    /// A model call failed after all retries.
    TurnFailed {
        /// Number of the call within the episode.
        index: u32,
        /// The conversation.
        conversation: u32,
        /// Error code as in the contract (`unavailable`, `context-length`, ...).
        error: String,
        /// What the owner of the run is told beyond the code: may hold words of an upstream
        /// server, and is never shown to a component.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
    /// A command ran.
    Command {
        /// What was asked.
        request: CommandRequest,
        /// How it ended.
        output: CommandOutput,
        /// Digest of the tree afterwards.
        tree: Digest,
    },
    /// A note of the harness.
    Event {
        /// Its name.
        name: String,
        /// Its fields.
        fields: Metadata,
    },
    /// A number of the harness. Never a score.
    Metric {
        /// Its name.
        name: String,
        /// Its value; finite.
        value: f64,
    },
    /// Something was called that was not granted.
    Denied {
        /// The import, as `interface#function`.
        import: String,
    },
    /// Output the component wrote to its standard streams, cut at the limit.
    Output {
        /// Standard output, lossy UTF-8.
        stdout: String,
        /// Standard error, lossy UTF-8.
        stderr: String,
    },
    /// Entries of this kind were dropped at the trace's size limit.
    Truncated {
        /// How many.
        dropped: u64,
    },
}

/// An entry with its place in the episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// 0, 1, 2, … without gaps.
    pub sequence: u32,
    /// What happened.
    pub body: EntryBody,
}
