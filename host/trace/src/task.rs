//! One row of a dataset.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Metadata;

/// A task. Only [`Task::id`], [`Task::input`], [`Task::metadata`] and the workspace ever reach a
/// harness; [`Task::grading`] and [`Task::references`] never do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Unique within a task file.
    pub id: String,
    /// What the agent is asked.
    pub input: String,
    /// Room for growth.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metadata: Metadata,
    /// Files of the workspace: relative path to contents. Absent: an empty workspace.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, Vec<u8>>,
    /// Hidden grading data: a JSON object.
    #[serde(default)]
    pub grading: serde_json::Map<String, serde_json::Value>,
    /// Reference replies for the oracle policy: by harness name, the replies in turn order.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub references: BTreeMap<String, Vec<crate::Message>>,
}
