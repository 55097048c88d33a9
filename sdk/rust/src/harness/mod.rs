//! For harnesses: agent programs that talk to a model and act in a workspace.
//!
//! ```no_run
//! use fulgurite_sdk::harness::*;
//!
//! struct Parrot;
//!
//! impl Harness for Parrot {
//!     type Config = NoConfig;
//!
//!     fn describe() -> Description {
//!         Description::new("parrot", env!("CARGO_PKG_VERSION"))
//!     }
//!
//!     fn run(episode: Episode<NoConfig>) -> Result<Outcome, Failure> {
//!         let mut conversation = Conversation::with("policy").open()?;
//!         let reply = conversation.send(&episode.task.input)?;
//!         Ok(Outcome::submitted(reply.text()))
//!     }
//! }
//!
//! fulgurite_sdk::export_harness!(Parrot);
//! ```
//!
//! A harness with a tool is in `examples/minimal_harness.rs`.
//!
//! Errors: calls to the model answer `Result`s, and `?` turns an [`LlmError`] into a [`Failure`]
//! of the episode. A harness that runs out of budget usually does better by returning
//! [`Outcome::gave_up`] with what it has: see [`LlmError::is_final`].

mod conversation;
#[doc(hidden)]
pub mod export;
mod outcome;

pub use schemars::JsonSchema;
pub use serde::{Deserialize, Serialize};

pub use crate::Metadata;
pub use crate::bindings::harness::exports::fulgurite::plugin::agent::{
    Capability, Description, Failure, Outcome, Prompt, Status, Task,
};
pub use crate::bindings::harness::fulgurite::plugin::commands::{
    Captured, ExecError, Output, Stop,
};
pub use crate::bindings::harness::fulgurite::plugin::llm::{
    Chunk, LlmError, ModelInfo, Options, Reply, TokenReply,
};
pub use crate::bindings::harness::fulgurite::plugin::types::{
    BudgetKind, FinishReason, Message, Part, Role, ToolCall, ToolDefinition, ToolResult, Usage,
};
pub use crate::command::Command;
pub use crate::configuration::NoConfig;
pub use crate::fence::{Block, fenced_blocks};
pub use crate::message::IntoMessages;
pub use crate::text::clip;
pub use crate::tool::Tool;
pub use conversation::{Conversation, Opening, Pending, wait_any};
pub use outcome::Prompts;

use serde::de::DeserializeOwned;

/// An agent program. Name it to [`export_harness!`](crate::export_harness).
pub trait Harness {
    /// Its configuration. The JSON Schema is part of the description; what does not fit fails
    /// the episode with a message that names the setting.
    type Config: DeserializeOwned + JsonSchema;

    /// Who it is. Called at registration too, so it uses no import: no clock, no file, no random.
    fn describe() -> Description;

    /// One episode.
    fn run(episode: Episode<Self::Config>) -> Result<Outcome, Failure>;
}

/// What a harness gets to work on.
#[derive(Debug, Clone)]
pub struct Episode<C> {
    /// The task, without anything that only graders see.
    pub task: Task,
    /// The configuration.
    pub config: C,
    /// The prompts that the description names, as the run tuned them.
    pub prompts: Prompts,
}

/// Makes a type that implements [`Harness`] the harness that this component exports. Once a crate.
#[macro_export]
macro_rules! export_harness {
    ($harness:ident) => {
        const _: () = {
            struct Exported;

            impl $crate::bindings::harness::exports::fulgurite::plugin::agent::Guest for Exported {
                fn describe() -> $crate::harness::Description {
                    $crate::harness::export::describe::<$harness>()
                }

                fn run(
                    task: $crate::harness::Task,
                    config: ::std::string::String,
                ) -> ::core::result::Result<$crate::harness::Outcome, $crate::harness::Failure>
                {
                    $crate::harness::export::run::<$harness>(task, &config)
                }
            }

            $crate::bindings::harness::export_harness_bindings!(
                Exported with_types_in $crate::bindings::harness
            );
        };
    };
}

/// What the policy behind a model role can do.
pub fn model_info(model_role: &str) -> Result<ModelInfo, LlmError> {
    crate::bindings::harness::fulgurite::plugin::llm::info(model_role)
}

/// Continues raw token ids, where [`ModelInfo::token_level`] says that this works.
pub fn generate(
    model_role: &str,
    prompt: &[u32],
    options: &Options,
) -> Result<TokenReply, LlmError> {
    crate::bindings::harness::fulgurite::plugin::llm::generate(model_role, prompt, options)
}

/// Commands inside the workspace.
pub mod exec {
    use super::{Command, ExecError, Output};
    use crate::bindings::harness::fulgurite::plugin::exec;

    /// Runs a shell line. A command that fails is an `Ok` with its status.
    ///
    /// ```no_run
    /// # use fulgurite_sdk::harness::*;
    /// # fn list() -> Result<String, Failure> {
    /// let output = exec::run("ls -l")?;
    /// # Ok(output.transcript(10_000)) }
    /// ```
    pub fn run(line: &str) -> Result<Output, ExecError> {
        command(Command::line(line))
    }

    /// Runs a command built with more care.
    pub fn command(command: Command) -> Result<Output, ExecError> {
        exec::run(&command.into_request())
    }

    /// Names of the programs and commands that exist, sorted.
    pub fn programs() -> Vec<String> {
        exec::programs()
    }
}

/// Notes for the trace. They never are a score.
pub mod trace {
    use crate::bindings::harness::fulgurite::plugin::trace;

    /// Records that something happened.
    pub fn event(name: &str, fields: &[(&str, &str)]) {
        let fields: crate::Metadata =
            fields.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        trace::event(name, &fields);
    }

    /// Records a number.
    pub fn metric(name: &str, value: f64) {
        trace::metric(name, value);
    }
}

/// What is left of the episode's limits.
pub mod budget {
    pub use crate::bindings::harness::fulgurite::plugin::budget::{Remaining, left};
}
