//! A model file, run on this machine.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use fulgurite_model::{GgufFile, Llama, Weights};
use tokio::sync::{mpsc, oneshot};

use crate::{
    ChatFormat, Chunk, ModelError, Policy, PolicyError, PolicyInfo, PolicyReply, Prompt,
    ReplyRequest, TemplateFormat, Tokenizer,
    engine::{Engine, EngineOptions, Job},
};

/// The context length unless another is asked for; the keys and values of more tokens take
/// gigabytes.
const USUAL_CONTEXT: usize = 32_768;

/// How a model file is run.
#[derive(Debug, Clone, Default)]
pub struct GgufOptions {
    /// In which form weights are held.
    pub weights: Weights,
    /// How the engine works.
    pub engine: EngineOptions,
}

/// A token-level policy: a llama-family GGUF file on the CPU, with its own tokenizer and chat
/// template.
///
/// Equal requests with equal seeds give equal replies. With quantised weights (as the file
/// stores them) that holds whatever the engine did before; with plain f32 weights only up to
/// rounding, since the kernel for matrices sums in another order than the one for vectors, and a
/// kept prefix decides which is used.
#[derive(Debug)]
pub struct GgufPolicy {
    info: PolicyInfo,
    format: Arc<TemplateFormat>,
    jobs: mpsc::Sender<Job>,
}

impl GgufPolicy {
    /// Loads a model file and starts its engine. Takes seconds for large files.
    pub fn open(path: &Path, options: GgufOptions) -> Result<Self, ModelError> {
        let mut file = GgufFile::open(path)?;
        let tokenizer = Arc::new(Tokenizer::of_gguf(&file)?);
        let template = file.text("tokenizer.chat_template").map(str::to_owned);
        let format =
            TemplateFormat::new(tokenizer.clone(), template.as_deref()).map_err(|error| {
                file.error(format!("its chat template cannot be used: {}", error.0))
            })?;
        let format = Arc::new(format);
        let model = Llama::of_gguf(&mut file, options.weights)?;
        let digest = file.digest()?;
        let longest = model.config().context;
        let context = match options.engine.context_length {
            Some(asked) => longest.min(asked as usize),
            None => longest.min(USUAL_CONTEXT),
        };
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let stem: String = stem.chars().filter(|c| !c.is_control()).collect();
        let info = PolicyInfo {
            name: format!("gguf:{stem}@{}", digest.short()),
            context_length: u32::try_from(context).ok(),
            native_tools: format.native_tools(),
        };
        let engine = Engine {
            model,
            tokenizer,
            format: format.clone(),
            options: options.engine,
            context,
            version: 0,
        };
        let jobs = engine
            .start()
            .map_err(|error| file.error(format!("no thread can be started for it: {error}")))?;
        Ok(Self { info, format, jobs })
    }
}

#[async_trait]
impl Policy for GgufPolicy {
    fn info(&self) -> &PolicyInfo {
        &self.info
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
        self.jobs.send(job).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}
