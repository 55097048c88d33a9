//! The shell line.

use std::sync::Arc;

use fulgurite_trace::file::FileTree;
use fulgurite_trace::{Captured, CommandOutput, CommandRequest};

use crate::lane::{CommandLimits, LaneError, ProgramRunner};

/// Runs one command.
pub(crate) async fn run(
    _runner: Arc<dyn ProgramRunner>,
    _request: &CommandRequest,
    _tree: Arc<dyn FileTree>,
    _limits: &CommandLimits,
) -> Result<CommandOutput, LaneError> {
    let message = b"sh: the shell line is not built yet\n".to_vec();
    Ok(CommandOutput {
        status: 2,
        stopped: None,
        stdout: Captured::default(),
        stderr: Captured { total: message.len() as u64, bytes: message },
        metadata: Vec::new(),
    })
}
