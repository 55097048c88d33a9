//! Exit codes, decided from the error that ended the program.

use std::process::ExitCode;

use fulgurite_episode::{dataset::DatasetError, limits::LimitError};
use fulgurite_runtime::{LoadError, audit::AuditError, harness::DescribeError};

/// Something failed.
pub(crate) const FAILURE: u8 = 1;
const USAGE: u8 = 2;
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
pub(crate) fn code(error: &anyhow::Error) -> ExitCode {
    let is = |code: u8| ExitCode::from(code);
    for cause in error.chain() {
        if cause.is::<Interrupted>() {
            return is(INTERRUPTED);
        }
        if cause.is::<Usage>() || cause.is::<DatasetError>() || cause.is::<LimitError>() {
            return is(USAGE);
        }
        if cause.is::<Plugin>()
            || cause.is::<LoadError>()
            || cause.is::<AuditError>()
            || cause.is::<DescribeError>()
        {
            return is(PLUGIN);
        }
        if cause.is::<Policy>() {
            return is(POLICY);
        }
        if cause.is::<Episodes>() {
            return is(EPISODES);
        }
    }
    is(FAILURE)
}
