//! Exit codes, decided from the error that ended the program.

use fulgurite_episode::{dataset::DatasetError, limits::LimitError};
use fulgurite_registry::RegistryError;
use fulgurite_runtime::{LoadError, audit::AuditError, harness::DescribeError};

/// Something failed.
const FAILURE: u8 = 1;
pub(crate) const USAGE: u8 = 2;
const PLUGIN: u8 = 3;
const POLICY: u8 = 4;
const EPISODES: u8 = 5;
const INTERRUPTED: u8 = 130;

/// The user asked for something that makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// A plugin is not acceptable.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Plugin(pub(crate) String);

/// The policy cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Policy(pub(crate) String);

/// The run ended, but not every episode counts.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Episodes(pub(crate) String);

/// The user stopped the program.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Interrupted(pub(crate) String);

/// The documented code of an error.
pub(crate) fn code(error: &anyhow::Error) -> u8 {
    // The first that applies: what the user did goes before what came of it.
    let codes = [
        (has::<Interrupted>(error), INTERRUPTED),
        (has::<Usage>(error), USAGE),
        (has::<DatasetError>(error), USAGE),
        (has::<LimitError>(error), USAGE),
        (has::<Plugin>(error), PLUGIN),
        (has::<LoadError>(error), PLUGIN),
        (has::<AuditError>(error), PLUGIN),
        (has::<DescribeError>(error), PLUGIN),
        (has::<RegistryError>(error), PLUGIN),
        (has::<Policy>(error), POLICY),
        (has::<Episodes>(error), EPISODES),
    ];
    codes.into_iter().find_map(|(applies, code)| applies.then_some(code)).unwrap_or(FAILURE)
}

/// Whether the error, one of its contexts or one of its causes is a `T`.
fn has<T: std::error::Error + Send + Sync + 'static>(error: &anyhow::Error) -> bool {
    // A context is only found by the error itself, a cause behind a library's error only in the
    // chain.
    error.downcast_ref::<T>().is_some() || error.chain().any(|cause| cause.is::<T>())
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn contexts_and_causes_decide_the_code() {
        let as_context = anyhow!("x").context(Usage("y".into())).context("z");
        assert!(has::<Usage>(&as_context));
        let as_cause = anyhow::Error::new(Policy("y".into())).context("z");
        assert!(has::<Policy>(&as_cause) && !has::<Usage>(&as_cause));
    }
}
