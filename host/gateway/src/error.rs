//! What a harness learns when a call fails, and what the owner of the run learns.

use fulgurite_policy::PolicyError;
use fulgurite_trace::FailureKind;

/// Which budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BudgetKind {
    /// Completion tokens.
    Tokens,
    /// Model calls.
    Turns,
}

impl BudgetKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Turns => "turns",
        }
    }
}

/// Why a call failed, as `llm-error` of the contract. Holds nothing that an upstream server or
/// the host's surroundings said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LlmError {
    /// The upstream asked to slow down and the host's own retries are used up.
    #[error("the policy asks to slow down")]
    RateLimited,
    /// History and reply do not fit the model.
    #[error("the history does not fit the model; restart the conversation with less")]
    ContextLength,
    /// A budget of the episode is used up.
    #[error("the episode's budget of {} is used up", .0.name())]
    Budget(BudgetKind),
    /// The episode is being cancelled, or the reply was given up on.
    #[error("cancelled")]
    Cancelled,
    /// The request is wrong; the text says what.
    #[error("invalid: {0}")]
    Invalid(String),
    /// The policy cannot do this.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// A reply of this conversation is pending.
    #[error("a reply of this conversation is pending; finish or cancel it first")]
    Busy,
    /// The policy cannot be reached.
    #[error("the policy cannot be reached")]
    Unavailable,
    /// No reply in time.
    #[error("the policy did not answer in time")]
    Timeout,
    /// A code of a later minor version, with a text fit for people.
    #[error("error {0}: {1}")]
    Other(u32, String),
}

impl LlmError {
    /// Code of [`LlmError::Other`]: the reply was received but could not be recorded.
    pub const NOT_RECORDED: u32 = 1;

    /// The code in traces.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::RateLimited => "rate-limited",
            Self::ContextLength => "context-length",
            Self::Budget(BudgetKind::Tokens) => "budget: tokens",
            Self::Budget(BudgetKind::Turns) => "budget: turns",
            Self::Cancelled => "cancelled",
            Self::Invalid(_) => "invalid",
            Self::Unsupported(_) => "unsupported",
            Self::Busy => "busy",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Other(..) => "other",
        }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid(text.into())
    }
}

/// A failed call: what the harness is told, what the owner is told, and what it means for the
/// episode when its harness ends because of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) error: LlmError,
    pub(crate) detail: Option<String>,
    pub(crate) kind: Option<FailureKind>,
}

impl Failure {
    pub(crate) fn cancelled() -> Self {
        Self { error: LlmError::Cancelled, detail: None, kind: None }
    }

    pub(crate) fn context_length(detail: String) -> Self {
        Self {
            error: LlmError::ContextLength,
            detail: Some(detail),
            kind: Some(FailureKind::ContextLength),
        }
    }

    /// A request that the chat template or the policy refuses. It follows what the harness sent,
    /// so it must not pass for a failure of the infrastructure: that would let an episode escape
    /// its grade.
    pub(crate) fn refused(text: &str, detail: String) -> Self {
        Self { error: LlmError::invalid(text), detail: Some(detail), kind: None }
    }

    /// The policy broke its own contract.
    pub(crate) fn broken_policy(detail: impl Into<String>) -> Self {
        Self::infrastructure(LlmError::Unavailable, detail.into())
    }

    pub(crate) fn not_recorded(detail: String) -> Self {
        Self {
            error: LlmError::Other(
                LlmError::NOT_RECORDED,
                "the reply could not be recorded".to_owned(),
            ),
            detail: Some(detail),
            kind: Some(FailureKind::SandboxError),
        }
    }

    fn infrastructure(error: LlmError, detail: String) -> Self {
        Self { error, detail: Some(detail), kind: Some(FailureKind::PolicyError) }
    }
}

impl From<PolicyError> for Failure {
    fn from(error: PolicyError) -> Self {
        let detail = error.to_string();
        match error {
            PolicyError::RateLimited { .. } => Self::infrastructure(LlmError::RateLimited, detail),
            PolicyError::Timeout => Self::infrastructure(LlmError::Timeout, detail),
            PolicyError::ContextLength(_) => Self::context_length(detail),
            PolicyError::Invalid(_) => Self::refused("the policy refuses the request", detail),
            // Whether the key is wrong, a script lacks a reply or the model broke is the owner's
            // business alone.
            _ => Self::infrastructure(LlmError::Unavailable, detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_an_upstream_said_reaches_the_harness() {
        let secret = "Bearer sk-123 at http://10.0.0.1";
        for error in [
            PolicyError::Unavailable(secret.to_owned()),
            PolicyError::Unauthorized(secret.to_owned()),
            PolicyError::ContextLength(secret.to_owned()),
            PolicyError::Invalid(secret.to_owned()),
            PolicyError::NoScript(secret.to_owned()),
            PolicyError::Internal(secret.to_owned()),
        ] {
            let failure = Failure::from(error);
            assert!(!format!("{:?} {}", failure.error, failure.error).contains("sk-123"));
            assert!(failure.detail.unwrap().contains(secret), "the owner is told");
        }
    }

    #[test]
    fn a_request_that_the_policy_refuses_is_no_infrastructure_failure() {
        assert_eq!(Failure::from(PolicyError::Invalid("x".to_owned())).kind, None);
        let unreachable = Failure::from(PolicyError::Unavailable("x".to_owned()));
        assert_eq!(unreachable.kind, Some(FailureKind::PolicyError));
    }
}
