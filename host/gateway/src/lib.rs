//! The one way to a policy: conversations, capture, budgets, retries.
//!
//! A [`Gateway`] is built once a run and knows which policy stands behind which model role. An
//! episode gets a [`Session`] from it, opens [`Conversation`]s and starts [`PendingReply`]s, as
//! `wit/llm.wit` describes them. What this room promises:
//!
//! - **Token in, token out.** For token-level policies the host keeps the ids of every
//!   conversation. What the policy sampled is what the next turn's prefix holds: within a segment
//!   the recorded contexts and responses, one after another, are exactly what the policy was
//!   asked with. With [`History::Faithful`] the chat template decides, and a rendering that does
//!   not spell what the ids spell begins a new segment; with [`History::AppendOnly`] one linear
//!   conversation is exactly one segment.
//! - **Durable before release.** [`PendingReply::finish`] answers only once the turn, and every
//!   earlier entry of the episode, is committed. Chunks before it are provisional.
//! - **Nothing is half done.** A call that fails, is cancelled or is dropped leaves the
//!   conversation as it was before the call, and one `turn-failed` entry in the journal.
//! - **Budgets are exact.** Tokens and turns are reserved when a call starts, so that parallel
//!   calls cannot overdraw. A call given up on costs all it had reserved: what it wrote by then
//!   depends on time, what it is charged must not.
//! - **Same inputs, same order.** Turns are numbered by the order of starting, conversations by
//!   the order of opening, and entries are written when the harness takes a reply, not when the
//!   policy happens to answer. [`PendingReply::ready`] tells of all pending replies of a session
//!   at once, so that a harness cannot see which was faster.
//! - **Waiting is not an error.** While the gateway is paused, calls wait.
//!   [`Session::waited`] tells how long an episode has waited, for clocks that stand still.
//! - **Guests learn codes, owners learn causes.** [`LlmError`] holds no upstream text; the detail
//!   goes to the log and the journal.
//!
//! Not promised: that a reply cut off upstream is charged for (only complete replies are), or
//! that an upstream server samples the same twice.

mod board;
mod call;
mod chat;
mod check;
mod conversation;
mod error;
mod gate;
mod gateway;
mod history;
mod journal;
mod ledger;
mod pending;
mod seed;
pub mod serve;
mod session;
mod settings;
mod stopwatch;
mod tokens;
mod words;

#[cfg(test)]
mod tests;

pub use conversation::Conversation;
pub use error::{BudgetKind, LlmError};
pub use fulgurite_policy::Chunk;
pub use gate::{Drained, Pause};
pub use gateway::{BuildError, Gateway, GatewayBuilder};
pub use ledger::{Remaining, SessionUsage};
pub use pending::PendingReply;
pub use session::{Session, SessionConfig};
pub use settings::{Budgets, History, Limits, Retries, SamplingDefaults, Settings};
pub use words::{ConversationConfig, ModelInfo, Reply, ReplyOptions, TokenReply};

/// A lock whose data stays sound when a holder panics: every critical section of this room
/// leaves its data whole at each step.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
