//! From what stopped a guest to the kind of its ending. The table is in [`crate::limits`].

use fulgurite_trace::FailureKind;
use wasmtime::{PoolConcurrencyLimitError, Trap, WasmBacktrace, component::ResourceTableError};

use crate::{
    capability::{ExecError, LlmError},
    limits::{Quota, Refusal},
    wasi::{Exit, VirtualTimeout},
};

/// Frames of a backtrace that are kept.
const MOST_FRAMES: usize = 32;

/// Bytes of a function name that are kept.
const MOST_NAME: usize = 200;

/// The host stopped the guest: carried through wasmtime as the root of its error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stop {
    #[error("the time limit passed (`wall-ms`)")]
    Timeout,
    #[error("cancelled")]
    Cancelled,
    #[error("`describe` called an import; it must answer without any")]
    ImportInDescribe,
    #[error("too many resources are open in the host (`resources`)")]
    Resources,
    #[error("the host's pool is full or the machine is out of memory")]
    Host,
    #[error("the record of the episode cannot be read")]
    Record,
}

/// What went wrong for a guest in each of its capabilities without a success after it: what an
/// error, an exit or a trap is put down to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Blame {
    llm: Option<FailureKind>,
    exec: Option<FailureKind>,
    denied: bool,
}

impl Blame {
    /// A call for the policy was answered.
    pub(crate) fn llm(&mut self, error: Option<&LlmError>) {
        self.llm = match error {
            None => None,
            Some(LlmError::Budget(_)) => Some(FailureKind::Budget),
            Some(LlmError::ContextLength) => Some(FailureKind::ContextLength),
            Some(LlmError::Cancelled) => Some(FailureKind::Cancelled),
            Some(LlmError::RateLimited | LlmError::Unavailable | LlmError::Timeout) => {
                Some(FailureKind::PolicyError)
            }
            // These are the guest's own mistakes.
            Some(
                LlmError::Invalid(_)
                | LlmError::Unsupported(_)
                | LlmError::Busy
                | LlmError::Other(..),
            ) => self.llm,
        };
    }

    /// A command was answered.
    pub(crate) fn exec(&mut self, error: Option<&ExecError>) {
        self.exec = match error {
            None => None,
            Some(ExecError::Budget(_)) => Some(FailureKind::Budget),
            Some(ExecError::Cancelled) => Some(FailureKind::Cancelled),
            Some(ExecError::Denied) => Some(FailureKind::Denied),
            Some(ExecError::Unavailable) => Some(FailureKind::SandboxError),
            Some(ExecError::Invalid(_) | ExecError::Other(..)) => self.exec,
        };
    }

    /// A stubbed import was called.
    pub(crate) fn denied(&mut self) {
        self.denied = true;
    }

    /// What a failure is put down to.
    pub(crate) fn kind(self) -> Option<FailureKind> {
        self.llm.or(self.exec).or(self.denied.then_some(FailureKind::Denied))
    }
}

/// A guest that did not return.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) message: String,
    pub(crate) backtrace: Vec<String>,
}

/// Decides the kind of an error that wasmtime returned from a call or an instantiation.
pub(crate) fn classify(error: &wasmtime::Error, quota: &Quota, blame: Blame) -> Failure {
    let backtrace = backtrace(error);
    let (kind, message) = kind_of(error, quota, blame);
    Failure { kind, message, backtrace }
}

fn kind_of(error: &wasmtime::Error, quota: &Quota, blame: Blame) -> (FailureKind, String) {
    if let Some(stop) = error.downcast_ref::<Stop>() {
        let kind = match stop {
            Stop::Timeout => FailureKind::Timeout,
            Stop::Cancelled => FailureKind::Cancelled,
            Stop::ImportInDescribe => FailureKind::Denied,
            Stop::Resources => FailureKind::OutOfMemory,
            Stop::Host | Stop::Record => FailureKind::SandboxError,
        };
        return (kind, stop.to_string());
    }
    if let Some(timeout) = error.downcast_ref::<VirtualTimeout>() {
        return (FailureKind::Timeout, format!("{timeout} (`virtual-ms`)"));
    }
    if error.downcast_ref::<PoolConcurrencyLimitError>().is_some() {
        return (FailureKind::SandboxError, Stop::Host.to_string());
    }
    if let Some(ResourceTableError::Full) = error.downcast_ref() {
        return (FailureKind::OutOfMemory, Stop::Resources.to_string());
    }
    let trap = error.downcast_ref::<Trap>().copied();
    if trap == Some(Trap::OutOfFuel) {
        return (FailureKind::OutOfFuel, "all fuel is used up (`fuel`)".to_owned());
    }
    let message = root(error);
    if let Some(refusal) = quota.refused() {
        let limit = match refusal {
            Refusal::Memory => "memory (`memory-bytes`)",
            Refusal::Table => "table elements (`table-elements`)",
        };
        let occupied = quota.memory();
        let message =
            format!("{limit} was refused with {occupied} bytes in use, and then: {message}");
        return (FailureKind::OutOfMemory, message);
    }
    if let Some(exit) = error.downcast_ref::<Exit>() {
        let kind = blame.kind().unwrap_or(FailureKind::HarnessError);
        return (kind, format!("{exit} instead of returning"));
    }
    if trap.is_none() && exceeds_count(&message) {
        return (FailureKind::OutOfMemory, message);
    }
    (blame.kind().unwrap_or(FailureKind::Trap), message)
}

/// The innermost cause: what the guest did, without the host's words around it.
fn root(error: &wasmtime::Error) -> String {
    let mut message = error.root_cause().to_string();
    truncate(&mut message, 2_000);
    message
}

/// wasmtime gives these no type. The version is pinned and tests hold the wording.
fn exceeds_count(message: &str) -> bool {
    message.starts_with("resource limit exceeded")
        || message.contains("fuel allocated for hostcalls has been exhausted")
        || message.contains("handle limit")
}

/// Function names, innermost first.
fn backtrace(error: &wasmtime::Error) -> Vec<String> {
    let Some(trace) = error.downcast_ref::<WasmBacktrace>() else { return Vec::new() };
    trace
        .frames()
        .iter()
        .take(MOST_FRAMES)
        .map(|frame| {
            let mut name = match frame.func_name() {
                Some(name) => name.to_owned(),
                None => format!("function {}", frame.func_index()),
            };
            truncate(&mut name, MOST_NAME);
            name
        })
        .collect()
}

/// Cuts a text at a character boundary.
pub(crate) fn truncate(text: &mut String, most: usize) {
    if text.len() > most {
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blame_is_lifted_by_a_success_and_kept_over_own_mistakes() {
        let mut blame = Blame::default();
        blame.llm(Some(&LlmError::ContextLength));
        blame.llm(Some(&LlmError::Busy));
        blame.exec(None);
        assert_eq!(blame.kind(), Some(FailureKind::ContextLength));
        blame.llm(None);
        assert_eq!(blame.kind(), None);
        blame.exec(Some(&ExecError::Unavailable));
        blame.denied();
        assert_eq!(blame.kind(), Some(FailureKind::SandboxError));
    }

    #[test]
    fn truncation_keeps_characters_whole() {
        let mut text = "aé".repeat(3);
        truncate(&mut text, 2);
        assert_eq!(text, "a…");
    }
}
