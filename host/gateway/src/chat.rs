//! Stateless calls: recognising what the host has seen.

use std::{collections::VecDeque, sync::Arc};

use fulgurite_trace::Message;

use crate::{
    Conversation, ConversationConfig, LlmError, Reply, ReplyOptions, Session, conversation::Line,
    history::Seen, lock,
};

/// A conversation that a stateless caller may mean when it sends its history again.
pub(crate) struct Remembered {
    opened_as: OpenedAs,
    line: Arc<Line>,
}

#[derive(PartialEq)]
enum OpenedAs {
    Chat(ConversationConfig),
    /// By [`Session::generate`], for this model role.
    Raw(String),
}

impl Session {
    /// One call for code that keeps its own history: `messages` is all of it after the system
    /// message. The longest beginning that a conversation opened alike has seen is continued
    /// there; when that conversation has since gone another way, a branch of it is.
    pub async fn chat(
        &self,
        config: ConversationConfig,
        messages: Vec<Message>,
        options: ReplyOptions,
    ) -> Result<Reply, LlmError> {
        let (conversation, known) = self.recognise(config, &messages)?;
        let new = messages.into_iter().skip(known).collect();
        conversation.send(new, options).await
    }

    fn recognise(
        &self,
        config: ConversationConfig,
        messages: &[Message],
    ) -> Result<(Conversation, usize), LlmError> {
        self.alive()?;
        let opened_as = OpenedAs::Chat(config.clone());
        let best = self
            .alike(&opened_as)
            .into_iter()
            .filter_map(|line| {
                let seen = lock(&line.transcript).seen(messages)?;
                Some((seen, line))
            })
            // Among equals a conversation that can go on, then the most recent.
            .max_by_key(|(seen, _)| (seen.messages, seen.branch_at.is_none()));
        let Some((Seen { messages: known, branch_at }, line)) = best else {
            let conversation = self.open(config)?;
            self.remember(opened_as, &conversation);
            return Ok((conversation, 0));
        };
        let conversation = Conversation::of(self, line);
        let conversation = match branch_at {
            Some(turn) => conversation.branch(turn)?,
            None => conversation,
        };
        self.remember(opened_as, &conversation);
        Ok((conversation, known))
    }

    pub(crate) fn recognise_ids(
        &self,
        model_role: &str,
        prompt: &[u32],
    ) -> Result<Conversation, LlmError> {
        let opened_as = OpenedAs::Raw(model_role.to_owned());
        let best = self
            .alike(&opened_as)
            .into_iter()
            .filter_map(|line| {
                let seen = lock(&line.transcript).seen_ids(prompt)?;
                Some((seen, line))
            })
            .max_by_key(|(seen, _)| *seen);
        let conversation = match best {
            Some((_, line)) => Conversation::of(self, line),
            None => {
                let model_role = model_role.to_owned();
                self.open(ConversationConfig { model_role, ..Default::default() })?
            }
        };
        self.remember(opened_as, &conversation);
        Ok(conversation)
    }

    /// Conversations opened like this that are not at work, the most recent last.
    fn alike(&self, opened_as: &OpenedAs) -> Vec<Arc<Line>> {
        let state = lock(&self.inner.state);
        let alike = state.chats.iter().filter(|chat| chat.opened_as == *opened_as);
        alike.map(|chat| Arc::clone(&chat.line)).filter(|line| !line.is_busy()).collect()
    }

    /// Puts a conversation where the most recent one is, and forgets the oldest beyond the limit.
    fn remember(&self, opened_as: OpenedAs, conversation: &Conversation) {
        let line = Arc::clone(conversation.line());
        let most = self.inner.gateway.settings.limits.remembered_chats;
        let forgotten: VecDeque<Remembered> = {
            let mut state = lock(&self.inner.state);
            state.chats.retain(|chat| chat.line.id != line.id);
            state.chats.push_back(Remembered { opened_as, line });
            let surplus = state.chats.len().saturating_sub(most);
            state.chats.drain(..surplus).collect()
        };
        // Their histories may be large: not under the lock.
        drop(forgotten);
    }
}
