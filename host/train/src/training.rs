//! What a learner is asked, and what it answers.

/// Sequences, and which of their tokens are scored. Sequences never see each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Packed {
    /// Token ids of each sequence.
    pub sequences: Vec<Vec<u32>>,
    /// The tokens that are scored.
    pub targets: Vec<Target>,
    /// Scores are those of softmax(logits / temperature). Positive.
    pub temperature: f32,
}

/// A token whose prediction is scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Which sequence.
    pub sequence: u32,
    /// Its position there, at least 1: it is predicted from what stands before it.
    pub position: u32,
}

/// What the model says of a target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenScore {
    /// Log-probability of the token, in nats.
    pub log_probability: f32,
    /// Entropy of the whole distribution at its place, in nats.
    pub entropy: f32,
}

/// How a loss depends on a [`TokenScore`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TokenGradient {
    /// d loss / d log-probability.
    pub log_probability: f32,
    /// d loss / d entropy.
    pub entropy: f32,
}
