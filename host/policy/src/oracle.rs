//! The oracle: a policy that gives the reference replies that tasks carry.
//!
//! It proves everything but the model: a harness, sandbox and reward that do not give the
//! oracle full marks are wrong, or the task's reference is.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use async_trait::async_trait;
use fulgurite_trace::{Role, Task};
use tokio::sync::mpsc;

use crate::{
    CallKey, Chunk, FixedReply, Policy, PolicyError, PolicyInfo, PolicyReply, ReplyRequest,
    fixed::message_level_info,
};

/// Replies in turn order, by the name they are listed under.
type ByName = BTreeMap<String, Arc<[FixedReply]>>;

/// Answers with [`Task::references`].
///
/// A reference list is looked up under `HARNESS/TOOL-FORMAT` (`coder/text`), then under
/// `HARNESS` (`coder`); it holds the replies of the episode's first conversation, one a turn.
#[derive(Debug)]
pub struct Oracle {
    info: PolicyInfo,
    references: HashMap<String, ByName>,
}

impl Oracle {
    /// The oracle of these tasks.
    pub fn new<'a>(tasks: impl IntoIterator<Item = &'a Task>) -> Self {
        let mut oracle = Self { info: message_level_info("oracle"), references: HashMap::new() };
        for task in tasks {
            oracle.insert(task);
        }
        oracle
    }

    /// Adds one task's references.
    pub fn insert(&mut self, task: &Task) {
        let replies = task
            .references
            .iter()
            .map(|(name, replies)| {
                let replies = replies.iter().cloned();
                let replies = replies.map(|reply| FixedReply::message(reply.into_message()));
                (name.clone(), replies.collect())
            })
            .collect();
        self.references.insert(task.id.clone(), replies);
    }

    fn find(&self, key: &CallKey) -> Result<&FixedReply, String> {
        let by_name = self
            .references
            .get(&key.task)
            .ok_or_else(|| format!("the oracle does not know the task {:?}", key.task))?;
        let replies = by_name
            .get(&format!("{}/{}", key.harness, key.tool_format))
            .or_else(|| by_name.get(&key.harness))
            .ok_or_else(|| {
                let known: Vec<&str> = by_name.keys().map(String::as_str).collect();
                format!(
                    "the task {:?} has no reference replies for the harness {:?} ({} tools); it \
                     has them for: {}",
                    key.task,
                    key.harness,
                    key.tool_format,
                    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
                )
            })?;
        if key.conversation != 0 {
            return Err(format!(
                "the task {:?} has reference replies for conversation 0 only, the harness {:?} \
                 asks in conversation {}",
                key.task, key.harness, key.conversation
            ));
        }
        let reply = usize::try_from(key.turn).ok().and_then(|turn| replies.get(turn));
        let reply = reply.ok_or_else(|| {
            format!(
                "the task {:?} has {} reference replies for the harness {:?}; turn {} asks for \
                 one more",
                key.task,
                replies.len(),
                key.harness,
                key.turn
            )
        })?;
        if reply.message.role != Role::Assistant {
            return Err(format!(
                "the task {:?} has a reference reply for the harness {:?} whose role is not \
                 \"assistant\" (turn {})",
                key.task, key.harness, key.turn
            ));
        }
        Ok(reply)
    }
}

#[async_trait]
impl Policy for Oracle {
    fn info(&self) -> &PolicyInfo {
        &self.info
    }

    async fn reply(
        &self,
        request: ReplyRequest,
        chunks: Option<mpsc::Sender<Chunk>>,
    ) -> Result<PolicyReply, PolicyError> {
        let reply = self.find(&request.key).map_err(PolicyError::NoScript)?;
        Ok(reply.deliver(&request, chunks).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed::tests::{key, request};

    fn oracle() -> Oracle {
        let say = |text: &str| fulgurite_trace::Message::text(Role::Assistant, text);
        let task: Task = serde_json::from_value(serde_json::json!({
            "id": "HumanEval/0",
            "input": "write it",
            "references": {
                "coder": [say("one"), say("two")],
                "coder/text": ["in text"],
                "broken": [fulgurite_trace::Message::text(Role::User, "x")],
            },
        }))
        .unwrap();
        Oracle::new([&task])
    }

    async fn said(oracle: &Oracle, key: CallKey) -> Result<String, String> {
        match oracle.reply(request(key), None).await {
            Ok(reply) => Ok(reply.message.plain_text()),
            Err(PolicyError::NoScript(text)) => Err(text),
            Err(other) => panic!("{other}"),
        }
    }

    #[tokio::test]
    async fn replies_follow_turns_and_tool_format() {
        let oracle = oracle();
        assert_eq!(said(&oracle, key("HumanEval/0", "coder", 0)).await.unwrap(), "one");
        assert_eq!(said(&oracle, key("HumanEval/0", "coder", 1)).await.unwrap(), "two");
        let text = CallKey { tool_format: "text", ..key("HumanEval/0", "coder", 0) };
        assert_eq!(said(&oracle, text).await.unwrap(), "in text");
    }

    #[tokio::test]
    async fn what_is_missing_is_named() {
        let oracle = oracle();
        let error = said(&oracle, key("HumanEval/1", "coder", 0)).await.unwrap_err();
        assert!(error.contains("HumanEval/1"), "{error}");
        let error = said(&oracle, key("HumanEval/0", "solve", 0)).await.unwrap_err();
        assert!(error.contains("broken, coder, coder/text"), "{error}");
        let error = said(&oracle, key("HumanEval/0", "coder", 2)).await.unwrap_err();
        assert!(error.contains("has 2 reference replies"), "{error}");
        let error = said(&oracle, key("HumanEval/0", "broken", 0)).await.unwrap_err();
        assert!(error.contains("role is not"), "{error}");
        let other = CallKey { conversation: 1, ..key("HumanEval/0", "coder", 0) };
        assert!(said(&oracle, other).await.unwrap_err().contains("conversation 0 only"));
    }
}
