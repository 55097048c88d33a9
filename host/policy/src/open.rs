//! From a specification to a policy.

use std::{path::PathBuf, sync::Arc};

use fulgurite_model::{NumberType, Placement};

use crate::{
    Constant, EngineError, EngineOptions, HubError, HubOptions, LocalModel, LocalPolicy,
    ModelError, OpenAi, OpenAiOptions, Oracle, Policy, PolicyError, PolicySpec, Script,
    ScriptError, Weights,
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
    /// Whether these are to think, for chat templates that have a switch for it.
    pub thinking: Option<bool>,
    /// A folder with an adapter in PEFT's layout, for models that are run on this machine.
    pub adapter: Option<PathBuf>,
    /// Where models are computed, and how their weights are held there.
    pub placement: (Placement, NumberType),
    /// Where models of the hub come from; absent: what the environment says.
    pub hub: Option<HubOptions>,
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
    /// A device that cannot be used.
    #[error(
        "the model cannot be computed on the device: {0}\n  mend: leave `device` out to use the CPU; \
         graphics cards need a build with `--features cuda`"
    )]
    Device(String),
    /// A model of the hub that cannot be had.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// A model that cannot be run.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Opens the policy that a specification names. Reads files (a model may take seconds), so
/// asynchronous callers do this on a blocking thread.
pub fn open(spec: &PolicySpec, context: OpenContext) -> Result<Arc<dyn Policy>, OpenError> {
    let (placement, numbers) = context.placement;
    let is_placed = placement != Placement::Cpu;
    // Adapters stand beside the weights that they were trained beside, and devices know no other.
    let is_plain = context.adapter.is_some() || is_placed;
    let weights = if is_plain { Weights::Plain } else { Weights::default() };
    if let Some(mut model) = open_model(spec, weights, context.hub)? {
        if let Some(folder) = &context.adapter {
            model.add_adapter(folder)?;
        }
        model.place(placement, numbers)?;
        let model = model.with_thinking(context.thinking);
        return Ok(Arc::new(LocalPolicy::new(model, context.engine)?));
    }
    Ok(match spec {
        PolicySpec::Script(path) => Arc::new(Script::open(path)?),
        PolicySpec::Oracle => Arc::new(context.oracle.ok_or(OpenError::NoTasks)?),
        PolicySpec::OpenAi { url, model } => Arc::new(OpenAi::new(url, model, context.openai)?),
        _ => Arc::new(Constant::empty()),
    })
}

/// Opens the model that a specification names, to be sampled or trained on this machine; none for
/// a policy of another kind. `weights` says how those of GGUF files are held; `hub` where models
/// of the hub come from, in absence what the environment says. May take seconds.
pub fn open_model(
    spec: &PolicySpec,
    weights: Weights,
    hub: Option<HubOptions>,
) -> Result<Option<LocalModel>, OpenError> {
    Ok(Some(match spec {
        PolicySpec::Gguf(path) => LocalModel::gguf(path, weights)?,
        PolicySpec::Folder(path) => LocalModel::folder(path)?,
        PolicySpec::Tiny(path) => LocalModel::tiny(path)?,
        PolicySpec::Hub(model) => {
            LocalModel::hub(model, &hub.unwrap_or_else(HubOptions::from_environment))?
        }
        PolicySpec::Script(_)
        | PolicySpec::Oracle
        | PolicySpec::Empty
        | PolicySpec::OpenAi { .. } => return Ok(None),
    }))
}
