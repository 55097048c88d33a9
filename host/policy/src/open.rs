//! From a specification to a policy.

use std::sync::Arc;

use crate::{
    Constant, EngineError, EngineOptions, LocalModel, LocalPolicy, ModelError, OpenAi,
    OpenAiOptions, Oracle, Policy, PolicyError, PolicySpec, Script, ScriptError, Weights,
};

/// What policies may need besides their specification.
#[derive(Default)]
pub struct OpenContext {
    /// What `oracle` answers with; absent where no tasks are at hand.
    pub oracle: Option<Oracle>,
    /// How to talk to `openai` servers, with the key.
    pub openai: OpenAiOptions,
    /// How models are run on this machine.
    pub engine: EngineOptions,
}

/// A policy that could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// `oracle` without tasks.
    #[error(
        "the policy `oracle` answers with the tasks' reference replies, and no tasks are given"
    )]
    NoTasks,
    /// A script that cannot be read.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// A client that cannot be made.
    #[error(transparent)]
    Client(#[from] PolicyError),
    /// A model file that cannot be used.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A model that cannot be run.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Opens the policy that a specification names. Reads files (a model may take seconds), so
/// asynchronous callers do this on a blocking thread.
pub fn open(spec: &PolicySpec, context: OpenContext) -> Result<Arc<dyn Policy>, OpenError> {
    Ok(match spec {
        PolicySpec::Script(path) => Arc::new(Script::open(path)?),
        PolicySpec::Oracle => Arc::new(context.oracle.ok_or(OpenError::NoTasks)?),
        PolicySpec::Empty => Arc::new(Constant::empty()),
        PolicySpec::OpenAi { url, model } => Arc::new(OpenAi::new(url, model, context.openai)?),
        PolicySpec::Gguf(path) => {
            let model = LocalModel::gguf(path, Weights::default())?;
            Arc::new(LocalPolicy::new(model, context.engine)?)
        }
    })
}
