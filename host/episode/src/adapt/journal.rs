//! Notes of a harness, into the journal of its attempt.

use fulgurite_runtime::capability::JournalHost;
use fulgurite_trace::{EntryBody, EpisodeWriter, Metadata};

/// The journal of one attempt.
pub(crate) struct Journal {
    pub(crate) writer: EpisodeWriter,
}

impl JournalHost for Journal {
    fn event(&self, name: String, fields: Metadata) {
        self.writer.push(EntryBody::Event { name, fields });
    }

    fn metric(&self, name: String, value: f64) {
        self.writer.push(EntryBody::Metric { name, value });
    }

    fn denied(&self, import: &str) {
        self.writer.push(EntryBody::Denied { import: import.to_owned() });
    }

    fn output(&self, stdout: String, stderr: String) {
        self.writer.push(EntryBody::Output { stdout, stderr });
    }
}

/// What a reward writes and calls goes to the log of the run's owner: the journal of the episode
/// is closed by then, and belongs to the harness.
pub(crate) struct RewardLog {
    pub(crate) reward: String,
}

impl JournalHost for RewardLog {
    fn event(&self, name: String, _fields: Metadata) {
        tracing::debug!(reward = self.reward, name, "event of a reward");
    }

    fn metric(&self, name: String, value: f64) {
        tracing::debug!(reward = self.reward, name, value, "metric of a reward");
    }

    fn denied(&self, import: &str) {
        tracing::warn!(reward = self.reward, import, "a reward called what it was not given");
    }

    fn output(&self, stdout: String, stderr: String) {
        tracing::debug!(reward = self.reward, stdout, stderr, "output of a reward");
    }
}
