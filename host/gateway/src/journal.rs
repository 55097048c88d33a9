//! Where turns are written. The seam exists for tests, which hold commits back.

use async_trait::async_trait;
use fulgurite_trace::EntryBody;

/// The journal of one episode.
#[async_trait]
pub(crate) trait Journal: Send + Sync {
    /// Appends an entry.
    fn push(&self, body: EntryBody);
    /// Returns once everything pushed so far is durable. The error is for the owner of the run.
    async fn commit(&self) -> Result<(), String>;
}
