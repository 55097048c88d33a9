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
