//! Talking to a model.

use super::{IntoMessages, LlmError, Message, Options, Reply, Tool, ToolDefinition};
use crate::Metadata;
use crate::bindings::harness::fulgurite::plugin::llm;
use crate::bindings::harness::wasi::io::poll;

/// A line of turns that share a token history. The host keeps the history: only what is new is
/// sent.
#[derive(Debug)]
pub struct Conversation {
    inner: llm::Conversation,
}

impl Conversation {
    /// Begins to open a conversation with the model in a role, usually `policy`.
    ///
    /// ```no_run
    /// # use fulgurite_sdk::harness::*;
    /// # fn ask() -> Result<String, LlmError> {
    /// let mut conversation = Conversation::with("policy").system("Be brief.").open()?;
    /// let reply = conversation.send("What is a fulgurite?")?;
    /// # Ok(reply.text()) }
    /// ```
    pub fn with(model_role: &str) -> Opening {
        Opening {
            config: llm::ConversationConfig {
                model_role: model_role.to_string(),
                agent: String::new(),
                system: None,
                tools: Vec::new(),
                parent: None,
                metadata: Metadata::new(),
            },
        }
    }

    /// Unique within the episode.
    pub fn id(&self) -> u32 {
        self.inner.id()
    }

    /// Sends what is new and waits for the reply.
    pub fn send(&mut self, messages: impl IntoMessages) -> Result<Reply, LlmError> {
        self.send_with(messages, &Options::default())
    }

    /// [`Conversation::send`] with wishes for the reply.
    pub fn send_with(
        &mut self,
        messages: impl IntoMessages,
        options: &Options,
    ) -> Result<Reply, LlmError> {
        self.inner.send(&messages.into_messages(), options)
    }

    /// Sends what is new without waiting, so that several conversations proceed at once. A second
    /// call while a reply is pending answers [`LlmError::Busy`].
    pub fn start(
        &mut self,
        messages: impl IntoMessages,
        options: &Options,
    ) -> Result<Pending, LlmError> {
        let inner = self.inner.start(&messages.into_messages(), options)?;
        Ok(Pending { inner })
    }

    /// A new conversation that shares the history up to and including a turn
    /// ([`Reply::turn`](super::Reply)).
    pub fn branch(&self, at: u32) -> Result<Conversation, LlmError> {
        Ok(Conversation { inner: self.inner.branch(at)? })
    }

    /// Replaces the history after the system message, for compaction. The reason goes to the
    /// trace.
    pub fn restart(&mut self, messages: impl IntoMessages, reason: &str) -> Result<(), LlmError> {
        self.inner.restart(&messages.into_messages(), reason)
    }
}

/// A conversation that is about to be opened.
#[derive(Debug, Clone)]
pub struct Opening {
    config: llm::ConversationConfig,
}

impl Opening {
    /// Names the (sub-)agent that speaks, for the trace.
    pub fn agent(mut self, name: &str) -> Self {
        self.config.agent = name.to_string();
        self
    }

    /// The standing instructions.
    pub fn system(mut self, text: impl Into<String>) -> Self {
        self.config.system = Some(text.into());
        self
    }

    /// Offers a tool, where [`super::ModelInfo::native_tools`] says that this works.
    pub fn tool<T: Tool>(self) -> Self {
        self.tools([T::definition()])
    }

    /// Offers tools whose schemas were made by hand.
    pub fn tools(mut self, tools: impl IntoIterator<Item = ToolDefinition>) -> Self {
        self.config.tools.extend(tools);
        self
    }

    /// The conversation that this one is started from, for the trace.
    pub fn parent(mut self, parent: &Conversation) -> Self {
        self.config.parent = Some(parent.id());
        self
    }

    /// Opens the conversation.
    pub fn open(self) -> Result<Conversation, LlmError> {
        Ok(Conversation { inner: llm::Conversation::open(&self.config)? })
    }

    /// One stateless call, for ported code that keeps its own history. The host recognises a
    /// history it has seen and continues it.
    pub fn chat(self, messages: &[Message], options: &Options) -> Result<Reply, LlmError> {
        llm::chat(&self.config, messages, options)
    }
}

/// A reply that is being written.
#[derive(Debug)]
pub struct Pending {
    inner: llm::PendingReply,
}

impl Pending {
    /// Waits for the next piece; `None` when the reply is complete. Pieces are provisional: only
    /// [`Pending::finish`] is recorded.
    pub fn next_chunk(&mut self) -> Result<Option<llm::Chunk>, LlmError> {
        self.inner.next_chunk()
    }

    /// Whether [`Pending::next_chunk`] or [`Pending::finish`] would answer at once.
    pub fn is_ready(&self) -> bool {
        self.inner.subscribe().ready()
    }

    /// Waits until the reply is complete and recorded.
    pub fn finish(self) -> Result<Reply, LlmError> {
        self.inner.finish()
    }

    /// Gives the reply up.
    pub fn cancel(self) {
        self.inner.cancel();
    }
}

/// Waits until at least one reply has news; answers the indices of those that do.
///
/// ```no_run
/// # use fulgurite_sdk::harness::*;
/// # fn first(mut replies: Vec<Pending>) -> Result<Option<Reply>, LlmError> {
/// let ready = wait_any(&replies);
/// let Some(index) = ready.first() else { return Ok(None) };
/// let reply = replies.swap_remove(*index).finish()?;
/// # Ok(Some(reply)) }
/// ```
pub fn wait_any(replies: &[Pending]) -> Vec<usize> {
    if replies.is_empty() {
        return Vec::new();
    }
    let pollables: Vec<poll::Pollable> =
        replies.iter().map(|reply| reply.inner.subscribe()).collect();
    let borrowed: Vec<&poll::Pollable> = pollables.iter().collect();
    poll::poll(&borrowed).into_iter().map(|index| index as usize).collect()
}
