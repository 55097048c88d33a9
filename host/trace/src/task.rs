//! One row of a dataset.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Message, Metadata};

/// The files an agent starts with.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workspace {
    /// An empty folder.
    #[default]
    Empty,
    /// Relative path to contents.
    Files(BTreeMap<String, String>),
    /// A folder of the host; relative to the task file. Shared by every task that names it.
    Folder(PathBuf),
}

/// A task. Only [`Task::id`], [`Task::input`], [`Task::metadata`] and the workspace ever reach a
/// harness; [`Task::grading`] and [`Task::references`] never do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Unique within a task file.
    pub id: String,
    /// What the agent is asked.
    pub input: String,
    /// Room for growth.
    #[serde(default, with = "pairs", skip_serializing_if = "Vec::is_empty")]
    pub metadata: Metadata,
    /// The files an agent starts with.
    #[serde(default)]
    pub workspace: Workspace,
    /// Hidden grading data.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub grading: serde_json::Map<String, serde_json::Value>,
    /// Reference replies for the oracle policy, in turn order. A key is a harness name, optionally
    /// followed by `/native` or `/text` (whether the conversation has native tools); the longer
    /// key wins.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub references: BTreeMap<String, Vec<ReferenceReply>>,
}

/// A reference reply: plain text, or a whole message where tool calls are needed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ReferenceReply {
    /// The assistant's text.
    Text(String),
    /// The assistant's message.
    Message(Message),
}

impl ReferenceReply {
    /// The reply as a message.
    pub fn into_message(self) -> Message {
        match self {
            Self::Text(text) => Message::text(crate::Role::Assistant, text),
            Self::Message(message) => message,
        }
    }
}

impl Task {
    /// The reference replies for a harness and tool format (`native` or `text`).
    pub fn references_for(&self, harness: &str, tool_format: &str) -> Option<&[ReferenceReply]> {
        self.references
            .get(&format!("{harness}/{tool_format}"))
            .or_else(|| self.references.get(harness))
            .map(Vec::as_slice)
    }
}

/// Metadata as a JSON object, which is how people write it in a task file.
mod pairs {
    use serde::{Deserializer, Serializer, de::Visitor, ser::SerializeMap};

    use crate::Metadata;

    pub(super) fn serialize<S: Serializer>(pairs: &Metadata, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(pairs.len()))?;
        for (name, value) in pairs {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Metadata, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Metadata;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object whose values are strings")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(
                self,
                mut map: A,
            ) -> Result<Metadata, A::Error> {
                let mut pairs = Metadata::new();
                while let Some((name, value)) = map.next_entry::<String, String>()? {
                    if pairs.iter().any(|(known, _)| *known == name) {
                        return Err(serde::de::Error::custom(format!("`{name}` is given twice")));
                    }
                    pairs.push((name, value));
                }
                Ok(pairs)
            }
        }
        from.deserialize_map(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_reads_as_people_write_it() {
        let task: Task = serde_json::from_str(
            r#"{"id":"a","input":"do","metadata":{"k":"v"},
                "workspace":{"files":{"a.py":"x"}},"grading":{"answer":"1"},
                "references":{"solve":["text"],"solve/native":["tool"]}}"#,
        )
        .unwrap();
        assert_eq!(task.metadata, [("k".to_owned(), "v".to_owned())]);
        assert_eq!(task.references_for("solve", "text").unwrap().len(), 1);
        let native = task.references_for("solve", "native").unwrap()[0].clone();
        assert_eq!(native.into_message().plain_text(), "tool");
        let again: Task = serde_json::from_str(&serde_json::to_string(&task).unwrap()).unwrap();
        assert_eq!(again, task);
    }

    #[test]
    fn unknown_keys_and_doubled_metadata_are_refused() {
        assert!(serde_json::from_str::<Task>(r#"{"id":"a","input":"b","imput":1}"#).is_err());
        let doubled = r#"{"id":"a","input":"b","metadata":{"k":"1","k":"2"}}"#;
        assert!(serde_json::from_str::<Task>(doubled).is_err());
    }
}
