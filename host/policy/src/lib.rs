//! Where tokens come from: local models, tokenizers and chat templates, clients of upstream
//! servers, scripted policies.
//!
//! The room promises one trait, [`Policy`]. A policy is either *token-level* (it offers a
//! [`ChatFormat`], is asked with token ids, and its replies carry the ids it sampled) or
//! *message-level* (it is asked with messages). Only the gateway calls a policy. [`open`] makes
//! one from the [`PolicySpec`] that a user wrote.

pub mod chat;
mod chunks;
mod engine;
mod fixed;
mod flat;
mod hub;
mod local;
mod open;
pub mod openai;
mod oracle;
mod policy;
pub mod script;
mod sources;
mod spec;
mod tiny;
mod tokenizer;
mod tool_calls;
mod tutor;

pub use chat::{TemplateFormat, keep_known};
pub use engine::{
    BrokenWeights, EngineError, EngineOptions, EngineStatistics, Interrupted, Paused,
};
pub use fixed::{Constant, FixedReply, Gate};
pub use fulgurite_model::{ModelError, NumberType, Placement, Weights};
pub use hub::{HubError, HubModel, HubOptions};
pub use local::{LocalModel, LocalPolicy};
pub use open::{OpenContext, OpenError, open, open_model};
pub use openai::{ApiKey, KeyError, OpenAi, OpenAiOptions};
pub use oracle::Oracle;
pub use policy::{
    CallKey, ChatFormat, Chunk, FormatError, Policy, PolicyError, PolicyInfo, PolicyReply, Prompt,
    ReplyRequest, SampledReply, Sampling,
};
pub use script::{Script, ScriptError, ScriptKey};
pub use spec::{PolicySpec, SpecError};
pub use tiny::{TinyArchitecture, TinyModel};
pub use tokenizer::{ModelFolder, Tokenizer};
pub use tutor::Tutor;
