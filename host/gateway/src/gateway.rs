//! The gateway of a run.

use std::{collections::BTreeMap, sync::Arc};

use fulgurite_policy::Policy;
use tokio::{runtime::Handle, sync::Semaphore};

use crate::gate::Gate;
use crate::{LlmError, ModelInfo, Pause, Session, SessionConfig, Settings, call::Model, check};

/// Knows which policy stands behind which model role. Clones share everything.
#[derive(Clone)]
pub struct Gateway {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    models: BTreeMap<String, Model>,
    pub(crate) settings: Settings,
    pub(crate) gate: Gate,
    /// Calls run here, whichever thread a harness runs on.
    pub(crate) runtime: Handle,
}

/// The run's settings make no gateway.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No policy was given.
    #[error("the gateway has no policy; give it one for the model role `policy`")]
    NoPolicy,
    /// A role was given twice.
    #[error("the model role `{0}` was given two policies; remove one of them")]
    DuplicateRole(String),
    /// The default temperature is no temperature.
    #[error("the temperature of the run must be finite and not negative")]
    Temperature,
    /// The default cuts of the distribution are none.
    #[error("the sampling of the run: {0}")]
    Truncation(String),
    /// Built outside of an asynchronous runtime.
    #[error("the gateway must be built inside a tokio runtime, on which its calls are to run")]
    NoRuntime,
}

/// Collects what a [`Gateway`] needs.
pub struct GatewayBuilder {
    settings: Settings,
    policies: Vec<(String, Arc<dyn Policy>)>,
}

impl GatewayBuilder {
    /// The policy behind a model role; usually one, for the role `policy`. A policy given for
    /// several roles has one concurrency limit for all of them.
    #[must_use]
    pub fn policy(mut self, model_role: impl Into<String>, policy: Arc<dyn Policy>) -> Self {
        self.policies.push((model_role.into(), policy));
        self
    }

    /// The gateway. Must be called inside the tokio runtime on which the calls are to run.
    pub fn build(self) -> Result<Gateway, BuildError> {
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        let Self { settings, policies } = self;
        if policies.is_empty() {
            return Err(BuildError::NoPolicy);
        }
        let temperature = settings.sampling.temperature;
        if !temperature.is_finite() || temperature < 0.0 {
            return Err(BuildError::Temperature);
        }
        if let Some(problem) = settings.sampling.truncation.problem() {
            return Err(BuildError::Truncation(problem));
        }
        let concurrency = usize::try_from(settings.concurrency.get()).unwrap_or(usize::MAX);
        let concurrency = concurrency.min(Semaphore::MAX_PERMITS);
        let mut models = BTreeMap::<String, Model>::new();
        for (role, policy) in policies {
            let shared = models.values().find(|model| Arc::ptr_eq(&model.policy, &policy));
            let model = match shared {
                Some(model) => model.clone(),
                None => Model { policy, places: Arc::new(Semaphore::new(concurrency)) },
            };
            if models.insert(role.clone(), model).is_some() {
                return Err(BuildError::DuplicateRole(role));
            }
        }
        Ok(Gateway { shared: Arc::new(Shared { models, settings, gate: Gate::new(), runtime }) })
    }
}

impl Gateway {
    /// Begins to build a gateway.
    pub const fn builder(settings: Settings) -> GatewayBuilder {
        GatewayBuilder { settings, policies: Vec::new() }
    }

    /// The way to the policies for one episode.
    pub fn session(&self, config: SessionConfig) -> Session {
        Session::new(Arc::clone(&self.shared), config)
    }

    /// Holds new calls back until the answer is dropped, as for an update of weights. Further
    /// attempts of calls that failed count as new calls.
    pub fn pause(&self) -> Pause {
        self.shared.gate.pause()
    }

    /// Calls that policies work on just now.
    pub fn running_calls(&self) -> usize {
        self.shared.gate.passed()
    }

    /// The model roles, sorted.
    pub fn model_roles(&self) -> impl Iterator<Item = &str> {
        self.shared.models.keys().map(String::as_str)
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }
}

impl Shared {
    pub(crate) fn model(&self, role: &str) -> Result<&Model, LlmError> {
        self.models.get(role).ok_or_else(|| {
            let roles: Vec<&str> = self.models.keys().map(String::as_str).collect();
            LlmError::Unsupported(format!(
                "the run has no model for the role `{}`; it has: {}",
                check::excerpt(role),
                roles.join(", ")
            ))
        })
    }

    pub(crate) fn info(&self, role: &str) -> Result<ModelInfo, LlmError> {
        let policy = &self.model(role)?.policy;
        let info = policy.info();
        Ok(ModelInfo {
            native_tools: info.native_tools,
            context_length: info.context_length,
            token_level: policy.chat_format().is_some(),
            metadata: Vec::new(),
        })
    }
}
