//! A model that is sampled on this machine.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use fulgurite_model::{GgufFile, Model, Precision};
use fulgurite_trace::Digest;
use tokio::sync::{mpsc, oneshot};

use crate::{
    BrokenWeights, ChatFormat, Chunk, EngineError, EngineOptions, EngineStatistics, ModelError,
    Paused, Policy, PolicyError, PolicyInfo, PolicyReply, Prompt, ReplyRequest, TemplateFormat,
    Tokenizer, Weights,
    engine::{Engine, Handle, Job, SharedWeights},
};

/// What a local policy is made of.
#[derive(Debug)]
pub struct LocalModel {
    /// For people and traces: the source and its digest, e.g. `gguf:SmolLM2@1a2b3c4d5e6f`.
    pub name: String,
    /// The model.
    pub model: Model,
    /// Its tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// Its chat template.
    pub format: Arc<TemplateFormat>,
    /// The version that the weights are; 0 unless they were trained before.
    pub version: u64,
}

/// A token-level policy: a model of ours behind an engine that batches its calls.
///
/// Weights may be changed at any time ([`LocalPolicy::update`]); the engine sees it between two
/// steps. Equal requests with equal seeds give equal replies of one version, always with
/// [`EngineOptions::batch_invariant`], else up to rounding.
#[derive(Debug)]
pub struct LocalPolicy {
    info: PolicyInfo,
    format: Arc<TemplateFormat>,
    weights: Arc<SharedWeights>,
    engine: Handle,
}

impl LocalModel {
    /// The model, tokenizer and chat template in a GGUF file. Takes seconds for large files.
    pub fn gguf(path: &Path, weights: Weights) -> Result<Self, ModelError> {
        let mut file = GgufFile::open(path)?;
        let tokenizer = Arc::new(Tokenizer::of_gguf(&file)?);
        let template = file.text("tokenizer.chat_template").map(str::to_owned);
        let format =
            TemplateFormat::new(tokenizer.clone(), template.as_deref()).map_err(|error| {
                file.error(format!("its chat template cannot be used: {}", error.0))
            })?;
        let model = Model::of_gguf(&mut file, weights)?;
        let digest = Digest::from_bytes(file.digest()?);
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let stem: String = stem.chars().filter(|c| !c.is_control()).collect();
        Ok(Self {
            name: format!("gguf:{stem}@{}", digest.short()),
            model,
            tokenizer,
            format: Arc::new(format),
            version: 0,
        })
    }
}

impl LocalPolicy {
    /// Starts the engine.
    pub fn new(local: LocalModel, options: EngineOptions) -> Result<Self, EngineError> {
        let LocalModel { name, model, tokenizer, format, version } = local;
        let native_tools = format.native_tools();
        let precision =
            if options.batch_invariant { Precision::BatchInvariant } else { Precision::Usual };
        let weights = Arc::new(SharedWeights::new(model, version, precision));
        let engine =
            Engine { weights: weights.clone(), tokenizer, format: format.clone(), options }
                .start()?;
        let context_length = u32::try_from(engine.context).ok();
        let info = PolicyInfo { name, context_length, native_tools };
        Ok(Self { info, format, weights, engine })
    }

    /// Looks at the model while its weights stand still, as for scoring or for the gradients of
    /// an update. The engine goes on sampling; updates wait, so `look` must not call
    /// [`LocalPolicy::update`].
    pub fn read<R>(&self, look: impl FnOnce(&Model) -> R) -> Result<R, BrokenWeights> {
        self.weights.read(|model, _| look(model))
    }

    /// Changes the weights between two steps of the engine; gives the new version and what
    /// `change` gave. The version grows whatever that is. Blocks until the step under way has
    /// ended. What older versions computed is not used any more; replies under way go on or
    /// start anew, as [`EngineOptions::interrupted`] says.
    pub fn update<R>(
        &self,
        change: impl FnOnce(&mut Model) -> R,
    ) -> Result<(u64, R), BrokenWeights> {
        self.weights.update(change)
    }

    /// Stops the engine at the end of its step, until the answer is dropped. Calls wait.
    pub async fn pause(&self) -> Paused {
        self.engine.control.pause().await
    }

    /// Lets the calls that have a slot end and admits no others, until the answer is dropped.
    pub async fn drain(&self) -> Paused {
        self.engine.control.drain().await
    }

    /// What the engine has done so far.
    pub fn statistics(&self) -> EngineStatistics {
        self.engine.control.statistics()
    }
}

#[async_trait]
impl Policy for LocalPolicy {
    fn info(&self) -> &PolicyInfo {
        &self.info
    }

    fn version(&self) -> u64 {
        self.weights.version()
    }

    fn chat_format(&self) -> Option<Arc<dyn ChatFormat>> {
        Some(self.format.clone())
    }

    async fn reply(
        &self,
        request: ReplyRequest,
        chunks: Option<mpsc::Sender<Chunk>>,
    ) -> Result<PolicyReply, PolicyError> {
        let Prompt::Tokens(prompt) = request.prompt else {
            return Err(PolicyError::Invalid(
                "a local model is asked with token ids, not with messages".to_owned(),
            ));
        };
        let (answer, answered) = oneshot::channel();
        let job =
            Job { prompt, sampling: request.sampling, turn: request.key.turn, chunks, answer };
        let gone = || PolicyError::Internal("the model's engine has ended".to_owned());
        self.engine.jobs.send(job).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}
