//! What stands behind the resources of the contract.

#![allow(unreachable_pub, reason = "generated code exports these again, within the crate")]

use std::sync::Arc;

use wasmtime_wasi_io::poll::Pollable;

use crate::{
    capability::{ConversationHost, GraderHost, LlmError, PendingReply, Reply, SandboxId},
    clock::{Cancellation, EpisodeClock},
    guest::wait,
};

/// `llm.conversation`.
pub struct Conversation(pub(crate) Box<dyn ConversationHost>);

/// `llm.pending-reply`.
pub struct Pending {
    pub(crate) reply: Box<dyn PendingReply>,
    pub(crate) clock: EpisodeClock,
    pub(crate) cancellation: Cancellation,
}

impl Pending {
    /// The complete reply; the guest's clock stands still until it is there.
    pub(crate) async fn finish(&mut self) -> Result<Reply, LlmError> {
        let call = self.reply.finish();
        wait(&self.clock, &self.cancellation, LlmError::Cancelled, call).await
    }
}

#[wasmtime_wasi_io::async_trait]
impl Pollable for Pending {
    async fn ready(&mut self) {
        let call = async {
            self.reply.ready().await;
            Ok(())
        };
        // Cancelled or not, the next call tells.
        let _ = wait(&self.clock, &self.cancellation, (), call).await;
    }
}

/// `grader.sandbox`. Gives the sandbox back when dropped, at the latest with the store.
pub struct Sandbox {
    pub(crate) grader: Arc<dyn GraderHost>,
    pub(crate) id: SandboxId,
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.grader.close(self.id);
    }
}
