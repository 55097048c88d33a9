//! What an engine has done: counters, so that promises are checked by counting and not by time.

/// Counters since the engine's start, and how it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[non_exhaustive]
pub struct EngineStatistics {
    /// Passes through the model.
    pub steps: u64,
    /// Calls that were given a slot; a call that an update interrupted counts again.
    pub admitted: u64,
    /// Calls whose caller went away before the reply was complete.
    pub cancelled: u64,
    /// Calls that failed inside the engine.
    pub failed: u64,
    /// Tokens of prompts that were computed.
    pub prefilled_tokens: u64,
    /// Tokens of prompts that were not computed, because a slot held them.
    pub cached_tokens: u64,
    /// Tokens of replies that were computed again after an update.
    pub recomputed_tokens: u64,
    /// Tokens that were sampled; those taken back by an update count too.
    pub sampled_tokens: u64,
    /// Parked sequences that were forgotten to make room.
    pub evicted: u64,
    /// The most calls that were in slots at once.
    pub most_active: usize,
    /// Calls in slots.
    pub active: usize,
    /// Calls that wait for a slot.
    pub waiting: usize,
    /// Slots.
    pub slots: usize,
    /// Tokens that a sequence may have.
    pub context: usize,
    /// Bytes reserved for keys and values. They take memory as sequences grow into them.
    pub key_value_bytes: usize,
}
