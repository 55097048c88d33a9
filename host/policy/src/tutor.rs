//! Reference replies in a model's own tokens.

use std::sync::Arc;

use async_trait::async_trait;
use fulgurite_trace::{FinishReason, Message, Part, Role, Usage, VersionSpan};
use tokio::sync::mpsc;

use crate::{
    ChatFormat, Chunk, Oracle, Policy, PolicyError, PolicyInfo, PolicyReply, Prompt, ReplyRequest,
    SampledReply,
};

/// Says the reference replies of tasks in the place of a token-level policy, as that policy would
/// have to spell them, end token included. Episodes with it are demonstrations of the real
/// harness, token by token.
#[derive(Clone)]
pub struct Tutor {
    info: PolicyInfo,
    oracle: Arc<Oracle>,
    format: Arc<dyn ChatFormat>,
    /// What ends a reply.
    end: Option<u32>,
}

impl Tutor {
    /// In the place of `pupil`; none when that is no token-level policy.
    pub fn of(pupil: &dyn Policy, oracle: Oracle) -> Option<Self> {
        let format = pupil.chat_format()?;
        // What follows a reply that broke off begins with the token that would have ended it.
        let next = [Message::text(Role::User, "")];
        let glue = format.render_continuation(&next, &[], false).unwrap_or_default();
        let end = glue.into_iter().find(|id| format.is_end(*id));
        let info = PolicyInfo {
            name: format!("references as {}", pupil.info().name),
            ..pupil.info().clone()
        };
        Some(Self { info, oracle: Arc::new(oracle), format, end })
    }
}

impl std::fmt::Debug for Tutor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Tutor").field("info", &self.info).finish_non_exhaustive()
    }
}

#[async_trait]
impl Policy for Tutor {
    fn info(&self) -> &PolicyInfo {
        &self.info
    }

    fn chat_format(&self) -> Option<Arc<dyn ChatFormat>> {
        Some(Arc::clone(&self.format))
    }

    async fn reply(
        &self,
        request: ReplyRequest,
        chunks: Option<mpsc::Sender<Chunk>>,
    ) -> Result<PolicyReply, PolicyError> {
        let read = match &request.prompt {
            Prompt::Tokens(tokens) => tokens.len(),
            Prompt::Messages(_) => 0,
        };
        let key = request.key.clone();
        let reply = self.oracle.reply(request, chunks).await?;
        let mut text = String::new();
        for part in &reply.message.parts {
            match part {
                Part::Text(part) => text.push_str(part),
                _ => {
                    return Err(PolicyError::NoScript(format!(
                        "the reference reply {} of task `{}` holds more than text, which cannot \
                         be spelt in the tokens of {}; give references in text (`HARNESS/text`)",
                        key.turn, key.task, self.info.name
                    )));
                }
            }
        }
        let mut response = self.format.encode(&text);
        response.extend(self.end);
        let written = u64::try_from(response.len()).unwrap_or(u64::MAX);
        Ok(PolicyReply {
            message: self.format.parse(&response),
            finish: FinishReason::Stop,
            usage: Usage {
                prompt_tokens: u64::try_from(read).unwrap_or(u64::MAX),
                cached_tokens: 0,
                completion_tokens: written,
            },
            tokens: Some(SampledReply {
                response,
                versions: vec![VersionSpan { start: 0, version: 0 }],
                ..SampledReply::default()
            }),
        })
    }
}
