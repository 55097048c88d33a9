//! Between the generated types of the contract and the words of the project. Conversions lose
//! nothing and cannot fail, except where the guest's side has more than one way to say a thing.

use fulgurite_trace as words;

use crate::{
    bindings::{
        harness::fulgurite::plugin::{commands, llm, types},
        reward::fulgurite::plugin::{episode, grader},
    },
    capability,
};

/// Converts element by element.
pub(crate) fn all<A, B: From<A>>(items: Vec<A>) -> Vec<B> {
    items.into_iter().map(B::from).collect()
}

/// Enums with the same cases on both sides.
macro_rules! same_cases {
    ($($from:path => $to:path { $($case:ident),* $(,)? })*) => {
        $(impl From<$from> for $to {
            fn from(value: $from) -> Self {
                use $from as From;
                match value { $(From::$case => Self::$case),* }
            }
        })*
    };
}

same_cases! {
    types::Role => words::Role { System, User, Assistant, Tool }
    words::Role => types::Role { System, User, Assistant, Tool }
    words::FinishReason => types::FinishReason { Stop, Length, ToolCalls, Filtered }
    words::CommandStop => commands::Stop { Timeout, Memory, Trap }
    capability::BudgetKind => types::BudgetKind { Tokens, Turns, Commands, Time, Fuel }
    words::OutcomeStatus => episode::Status { Submitted, GaveUp }
    words::file::FileKind => episode::EntryKind { File, Directory, Symlink }
    capability::ReadError => episode::ReadError { NotFound, NotAFile, TooLarge }
    grader::Base => capability::GraderBase { Empty, Pristine, Changed }
}

impl From<types::Message> for words::Message {
    fn from(message: types::Message) -> Self {
        Self { role: message.role.into(), parts: all(message.parts), metadata: message.metadata }
    }
}

impl From<words::Message> for types::Message {
    fn from(message: words::Message) -> Self {
        Self { role: message.role.into(), parts: all(message.parts), metadata: message.metadata }
    }
}

impl From<types::Part> for words::Part {
    fn from(part: types::Part) -> Self {
        match part {
            types::Part::Text(text) => Self::Text(text),
            types::Part::Thinking(text) => Self::Thinking(text),
            types::Part::ToolCall(types::ToolCall { id, name, arguments, problem }) => {
                Self::ToolCall(words::ToolCall { id, name, arguments, problem })
            }
            types::Part::ToolResult(types::ToolResult { call, content, failed }) => {
                Self::ToolResult(words::ToolResult { call, content, failed })
            }
        }
    }
}

impl From<words::Part> for types::Part {
    fn from(part: words::Part) -> Self {
        match part {
            words::Part::Text(text) => Self::Text(text),
            words::Part::Thinking(text) => Self::Thinking(text),
            words::Part::ToolCall(words::ToolCall { id, name, arguments, problem }) => {
                Self::ToolCall(types::ToolCall { id, name, arguments, problem })
            }
            words::Part::ToolResult(words::ToolResult { call, content, failed }) => {
                Self::ToolResult(types::ToolResult { call, content, failed })
            }
        }
    }
}

impl From<types::ToolDefinition> for words::ToolDefinition {
    fn from(tool: types::ToolDefinition) -> Self {
        let types::ToolDefinition { name, description, parameters } = tool;
        Self { name, description, parameters }
    }
}

impl From<words::Usage> for types::Usage {
    fn from(usage: words::Usage) -> Self {
        let words::Usage { prompt_tokens, cached_tokens, completion_tokens } = usage;
        Self { prompt_tokens, cached_tokens, completion_tokens }
    }
}

impl From<llm::ConversationConfig> for capability::ConversationConfig {
    fn from(config: llm::ConversationConfig) -> Self {
        Self {
            model_role: config.model_role,
            agent: config.agent,
            system: config.system,
            tools: all(config.tools),
            parent: config.parent,
            metadata: config.metadata,
        }
    }
}

impl TryFrom<llm::Options> for capability::ReplyOptions {
    type Error = capability::LlmError;

    fn try_from(options: llm::Options) -> Result<Self, Self::Error> {
        if options.temperature.is_some_and(|temperature| !(0.0..=100.0).contains(&temperature)) {
            let why = "`temperature` has to be from 0 to 100".to_owned();
            return Err(capability::LlmError::Invalid(why));
        }
        Ok(Self {
            max_tokens: options.max_tokens,
            temperature: options.temperature,
            stop: options.stop,
            metadata: options.metadata,
        })
    }
}

impl From<capability::Reply> for llm::Reply {
    fn from(reply: capability::Reply) -> Self {
        Self {
            message: reply.message.into(),
            finish: reply.finish.into(),
            usage: reply.usage.into(),
            turn: reply.turn,
            metadata: reply.metadata,
        }
    }
}

impl From<capability::TokenReply> for llm::TokenReply {
    fn from(reply: capability::TokenReply) -> Self {
        Self {
            tokens: reply.tokens,
            log_probabilities: reply.log_probabilities,
            finish: reply.finish.into(),
            usage: reply.usage.into(),
            turn: reply.turn,
        }
    }
}

impl From<capability::ModelInfo> for llm::ModelInfo {
    fn from(info: capability::ModelInfo) -> Self {
        let capability::ModelInfo { native_tools, context_length, token_level, metadata } = info;
        Self { native_tools, context_length, token_level, metadata }
    }
}

impl From<capability::Chunk> for llm::Chunk {
    fn from(chunk: capability::Chunk) -> Self {
        match chunk {
            capability::Chunk::Text(text) => Self::Text(text),
            capability::Chunk::Thinking(text) => Self::Thinking(text),
        }
    }
}

impl From<capability::LlmError> for llm::LlmError {
    fn from(error: capability::LlmError) -> Self {
        use capability::LlmError as From;
        match error {
            From::RateLimited => Self::RateLimited,
            From::ContextLength => Self::ContextLength,
            From::Budget(kind) => Self::Budget(kind.into()),
            From::Cancelled => Self::Cancelled,
            From::Invalid(why) => Self::Invalid(why),
            From::Unsupported(why) => Self::Unsupported(why),
            From::Busy => Self::Busy,
            From::Unavailable => Self::Unavailable,
            From::Timeout => Self::Timeout,
            From::Other(code, text) => Self::Other((code, text)),
        }
    }
}

impl From<commands::Request> for words::CommandRequest {
    fn from(request: commands::Request) -> Self {
        Self {
            command: match request.command {
                commands::Command::Argv(argv) => words::CommandLine::Argv(argv),
                commands::Command::Line(line) => words::CommandLine::Line(line),
            },
            cwd: request.cwd,
            env: request.env,
            stdin: request.stdin,
            timeout_ms: request.timeout_ms,
            output_bytes: request.output_bytes,
            metadata: request.metadata,
        }
    }
}

impl From<words::Captured> for commands::Captured {
    fn from(captured: words::Captured) -> Self {
        Self { bytes: captured.bytes, total: captured.total }
    }
}

impl From<words::CommandOutput> for commands::Output {
    fn from(output: words::CommandOutput) -> Self {
        Self {
            status: output.status,
            stopped: output.stopped.map(Into::into),
            stdout: output.stdout.into(),
            stderr: output.stderr.into(),
            metadata: output.metadata,
        }
    }
}

impl From<capability::ExecError> for commands::ExecError {
    fn from(error: capability::ExecError) -> Self {
        use capability::ExecError as From;
        match error {
            From::Invalid(why) => Self::Invalid(why),
            From::Budget(kind) => Self::Budget(kind.into()),
            From::Cancelled => Self::Cancelled,
            From::Denied => Self::Denied,
            From::Unavailable => Self::Unavailable,
            From::Other(code, text) => Self::Other((code, text)),
        }
    }
}

impl From<capability::GraderError> for grader::GraderError {
    fn from(error: capability::GraderError) -> Self {
        use capability::GraderError as From;
        match error {
            From::BadPath => Self::BadPath,
            From::Quota => Self::Quota,
            From::NotFound => Self::NotFound,
            From::Other(code, text) => Self::Other((code, text)),
        }
    }
}

impl From<capability::GradedTask> for episode::GradedTask {
    fn from(task: capability::GradedTask) -> Self {
        let capability::GradedTask { id, input, metadata, grading } = task;
        Self { id, input, metadata, grading }
    }
}

impl From<words::Ending> for episode::EpisodeEnding {
    fn from(ending: words::Ending) -> Self {
        let kind = ending.kind.name().to_owned();
        match ending.outcome {
            Some(words::Outcome { status, answer, metadata }) => {
                Self { kind, status: Some(status.into()), answer, metadata }
            }
            None => Self { kind, status: None, answer: String::new(), metadata: Vec::new() },
        }
    }
}

impl From<&words::Turn> for episode::Turn {
    fn from(turn: &words::Turn) -> Self {
        Self {
            index: turn.index,
            conversation: turn.conversation,
            agent: turn.agent.clone(),
            messages: all(turn.messages.clone()),
            reply: turn.reply.clone().into(),
            finish: turn.finish.into(),
            usage: turn.usage.into(),
        }
    }
}

impl From<capability::Change> for episode::ChangeEntry {
    fn from(change: capability::Change) -> Self {
        let kind = match change.kind {
            capability::ChangeKind::Added(kind) => episode::Change::Added(kind.into()),
            capability::ChangeKind::Modified(kind) => episode::Change::Modified(kind.into()),
            capability::ChangeKind::Removed => episode::Change::Removed,
        };
        Self { path: change.path, change: kind, size: change.size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_way_there_and_back() {
        let message = words::Message {
            role: words::Role::Assistant,
            parts: vec![
                words::Part::Text("a".into()),
                words::Part::Thinking("b".into()),
                words::Part::ToolCall(words::ToolCall {
                    id: "1".into(),
                    name: "n".into(),
                    arguments: "{".into(),
                    problem: Some("no JSON".into()),
                }),
                words::Part::ToolResult(words::ToolResult {
                    call: "1".into(),
                    content: "c".into(),
                    failed: true,
                }),
            ],
            metadata: vec![("k".into(), "v".into())],
        };
        let there = types::Message::from(message.clone());
        assert_eq!(words::Message::from(there), message);
    }

    #[test]
    fn temperatures_that_are_no_temperatures_are_refused() {
        for temperature in [f32::NAN, f32::INFINITY, -0.1] {
            let options = llm::Options {
                max_tokens: None,
                temperature: Some(temperature),
                stop: Vec::new(),
                metadata: Vec::new(),
            };
            assert!(capability::ReplyOptions::try_from(options).is_err(), "{temperature}");
        }
    }
}
