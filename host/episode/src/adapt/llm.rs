//! The policy: `runtime` asks for a guest, `gateway` answers. The two rooms say the same words in
//! types of their own; this is the dictionary.

use async_trait::async_trait;
use fulgurite_gateway as gateway;
use fulgurite_runtime::capability::{
    BudgetHost, BudgetKind, Chunk, ConversationConfig, ConversationHost, LlmError, LlmHost,
    ModelInfo, PendingReply, Remaining, Reply, ReplyOptions, TokenReply,
};
use fulgurite_trace::Message;

use super::exec::CommandsLeft;

/// The policies of one attempt.
pub(crate) struct Policies {
    pub(crate) session: gateway::Session,
}

struct Conversation(gateway::Conversation);

struct Pending(gateway::PendingReply);

#[async_trait]
impl LlmHost for Policies {
    async fn info(&self, model_role: &str) -> Result<ModelInfo, LlmError> {
        let info = self.session.info(model_role).map_err(error)?;
        Ok(ModelInfo {
            native_tools: info.native_tools,
            context_length: info.context_length,
            token_level: info.token_level,
            metadata: info.metadata,
        })
    }

    async fn open(
        &self,
        config: ConversationConfig,
    ) -> Result<Box<dyn ConversationHost>, LlmError> {
        let opened = self.session.open(opening(config)).map_err(error)?;
        Ok(Box::new(Conversation(opened)))
    }

    async fn chat(
        &self,
        config: ConversationConfig,
        messages: Vec<Message>,
        wishes: ReplyOptions,
    ) -> Result<Reply, LlmError> {
        let said = self.session.chat(opening(config), messages, options(wishes)).await;
        said.map(reply).map_err(error)
    }

    async fn generate(
        &self,
        model_role: &str,
        prompt: Vec<u32>,
        wishes: ReplyOptions,
    ) -> Result<TokenReply, LlmError> {
        let said = self.session.generate(model_role, prompt, options(wishes)).await;
        let said = said.map_err(error)?;
        Ok(TokenReply {
            tokens: said.tokens,
            log_probabilities: said.log_probabilities,
            finish: said.finish,
            usage: said.usage,
            turn: said.turn,
        })
    }
}

#[async_trait]
impl ConversationHost for Conversation {
    fn id(&self) -> u32 {
        self.0.id()
    }

    async fn start(
        &mut self,
        messages: Vec<Message>,
        wishes: ReplyOptions,
    ) -> Result<Box<dyn PendingReply>, LlmError> {
        let pending = self.0.start(messages, options(wishes)).map_err(error)?;
        Ok(Box::new(Pending(pending)))
    }

    async fn branch(&mut self, at: u32) -> Result<Box<dyn ConversationHost>, LlmError> {
        let branch = self.0.branch(at).map_err(error)?;
        Ok(Box::new(Self(branch)))
    }

    async fn restart(&mut self, messages: Vec<Message>, reason: String) -> Result<(), LlmError> {
        self.0.restart(messages, reason).map_err(error)
    }
}

#[async_trait]
impl PendingReply for Pending {
    async fn ready(&mut self) {
        self.0.ready().await;
    }

    async fn next_chunk(&mut self) -> Result<Option<Chunk>, LlmError> {
        let chunk = self.0.next_chunk().await.map_err(error)?;
        Ok(chunk.map(|chunk| match chunk {
            gateway::Chunk::Text(text) => Chunk::Text(text),
            gateway::Chunk::Thinking(text) => Chunk::Thinking(text),
        }))
    }

    async fn finish(&mut self) -> Result<Reply, LlmError> {
        self.0.finish().await.map(reply).map_err(error)
    }

    fn cancel(&mut self) {
        self.0.cancel();
    }
}

/// What is left to one attempt.
pub(crate) struct Budgets {
    pub(crate) session: gateway::Session,
    pub(crate) commands: std::sync::Arc<CommandsLeft>,
}

impl BudgetHost for Budgets {
    fn remaining(&self) -> Remaining {
        let left = self.session.remaining();
        Remaining { tokens: left.tokens, turns: left.turns, commands: Some(self.commands.get()) }
    }
}

fn opening(config: ConversationConfig) -> gateway::ConversationConfig {
    let ConversationConfig { model_role, agent, system, tools, parent, metadata } = config;
    gateway::ConversationConfig { model_role, agent, system, tools, parent, metadata }
}

fn options(wishes: ReplyOptions) -> gateway::ReplyOptions {
    let ReplyOptions { max_tokens, temperature, stop, metadata } = wishes;
    gateway::ReplyOptions { max_tokens, temperature, stop, metadata }
}

fn reply(reply: gateway::Reply) -> Reply {
    let gateway::Reply { message, finish, usage, turn, metadata } = reply;
    Reply { message, finish, usage, turn, metadata }
}

fn error(error: gateway::LlmError) -> LlmError {
    use gateway::LlmError as From;
    match error {
        From::RateLimited => LlmError::RateLimited,
        From::ContextLength => LlmError::ContextLength,
        From::Budget(gateway::BudgetKind::Tokens) => LlmError::Budget(BudgetKind::Tokens),
        From::Budget(gateway::BudgetKind::Turns) => LlmError::Budget(BudgetKind::Turns),
        From::Cancelled => LlmError::Cancelled,
        From::Invalid(text) => LlmError::Invalid(text),
        From::Unsupported(text) => LlmError::Unsupported(text),
        From::Busy => LlmError::Busy,
        From::Unavailable => LlmError::Unavailable,
        From::Timeout => LlmError::Timeout,
        From::Other(code, text) => LlmError::Other(code, text),
    }
}
