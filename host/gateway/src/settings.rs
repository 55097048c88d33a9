//! How a run wants its gateway.

use std::{num::NonZeroU32, time::Duration};

use fulgurite_trace::Truncation;

/// How token histories grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum History {
    /// The chat template renders the whole history each turn. Where the rendering begins with
    /// what the ids so far spell, these ids are kept as they were sampled (in whichever pieces,
    /// with whichever end token, with a stop string that the message lacks) and the segment goes
    /// on; where it does not (the template drops earlier thinking), a new segment begins.
    #[default]
    Faithful,
    /// The history only grows: one linear conversation is exactly one segment.
    AppendOnly,
}

/// How often and how patiently transient failures are retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// Calls in all, the first included.
    pub attempts: NonZeroU32,
    /// Wait before the second call; doubled for each further one, with random jitter on top.
    pub first_delay: Duration,
    /// No wait is longer, whatever the upstream wishes (`Retry-After`).
    pub longest_delay: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            attempts: NonZeroU32::new(6).unwrap_or(NonZeroU32::MIN),
            first_delay: Duration::from_millis(500),
            longest_delay: Duration::from_secs(30),
        }
    }
}

/// Sampling where a harness wishes nothing, and what it may wish.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingDefaults {
    /// New tokens of one reply: the default and the cap.
    pub max_tokens: NonZeroU32,
    /// 0 is greedy.
    pub temperature: f32,
    /// How the distribution is cut; not at all by default.
    pub truncation: Truncation,
    /// Whether the harness's wishes for another distribution (temperature, top-k, top-p, min-p)
    /// are ignored, as training needs it: all samples come from one distribution then.
    pub fixed_distribution: bool,
    /// Strings that end every reply, besides those the harness gives.
    pub stop: Vec<String>,
}

impl Default for SamplingDefaults {
    fn default() -> Self {
        Self {
            max_tokens: NonZeroU32::new(1024).unwrap_or(NonZeroU32::MIN),
            temperature: 1.0,
            truncation: Truncation::default(),
            fixed_distribution: false,
            stop: Vec::new(),
        }
    }
}

/// What one episode may use; none means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budgets {
    /// Completion tokens in all.
    pub tokens: Option<u64>,
    /// Model calls in all, failed and cancelled ones included.
    pub turns: Option<u32>,
}

impl Default for Budgets {
    fn default() -> Self {
        Self { tokens: None, turns: Some(256) }
    }
}

/// What keeps a hostile harness from filling the host's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Conversations that one episode may open.
    pub conversations: u32,
    /// Replies that may be pending at once in one episode.
    pub pending: u32,
    /// Bytes of text that all histories of one episode may hold together.
    pub history_bytes: usize,
    /// Stateless histories that are remembered to be recognised.
    pub remembered_chats: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            conversations: 4096,
            pending: 64,
            history_bytes: 32 * 1024 * 1024,
            remembered_chats: 64,
        }
    }
}

/// Everything a run decides about its gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// How token histories grow.
    pub history: History,
    /// Retries of transient failures.
    pub retries: Retries,
    /// Longest time of one call, waiting in queues not counted.
    pub call_timeout: Duration,
    /// Sampling where a harness wishes nothing.
    pub sampling: SamplingDefaults,
    /// What one episode may use.
    pub budgets: Budgets,
    /// Bounds against hostile harnesses.
    pub limits: Limits,
    /// Calls that one policy serves at once.
    pub concurrency: NonZeroU32,
    /// From this, the task and the turn follows the seed of every call.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            history: History::default(),
            retries: Retries::default(),
            call_timeout: Duration::from_secs(600),
            sampling: SamplingDefaults::default(),
            budgets: Budgets::default(),
            limits: Limits::default(),
            concurrency: NonZeroU32::new(64).unwrap_or(NonZeroU32::MIN),
            seed: 0,
        }
    }
}
