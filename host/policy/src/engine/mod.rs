//! The thread that owns a model.
//!
//! One call at a time, first come, first served, over a bounded queue; a caller that finds it
//! full waits, and a caller that goes away cancels its call at the next token. Keys and values
//! of finished calls are kept for the turns that follow ([`cache`]).

mod cache;
mod sampler;
mod text;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use fulgurite_model::{Batch, KvState, Llama, Tensor};
use fulgurite_trace::{FinishReason, Usage, VersionSpan};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use tokio::sync::{mpsc, oneshot};

use self::{cache::PrefixCache, sampler::choose, text::ReplyText};
use crate::{
    Chunk, PolicyError, PolicyReply, SampledReply, Sampling, TemplateFormat, Tokenizer,
    chunks::ChunkSender, fixed::natural_finish,
};

/// The most stop strings of a call, and the longest.
const MAXIMUM_STOPS: usize = 64;
const MAXIMUM_STOP: usize = 1024;
/// Enough for candle's deepest calls.
const STACK: usize = 8 << 20;

/// How an engine works.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Tokens of history and reply together, at most what the model was made for. Absent: what
    /// the model was made for, up to 32,768.
    pub context_length: Option<u32>,
    /// Calls that wait in the queue; further callers wait outside.
    pub queue: usize,
    /// Tokens read at a time while a prompt is read; a cancelled call ends between two.
    pub prefill: usize,
    /// Sequences kept for later turns; 0 keeps none.
    pub cached_sequences: usize,
    /// Bytes that these may take.
    pub cached_bytes: usize,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            context_length: None,
            queue: 64,
            prefill: 256,
            cached_sequences: 64,
            cached_bytes: 512 << 20,
        }
    }
}

/// What an engine is asked.
pub(crate) struct Job {
    pub(crate) prompt: Arc<[u32]>,
    pub(crate) sampling: Sampling,
    pub(crate) turn: u32,
    pub(crate) chunks: Option<mpsc::Sender<Chunk>>,
    pub(crate) answer: oneshot::Sender<Result<PolicyReply, PolicyError>>,
}

/// The model and what is needed to talk with it.
pub(crate) struct Engine {
    pub(crate) model: Llama,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) format: Arc<TemplateFormat>,
    pub(crate) options: EngineOptions,
    /// Tokens of history and reply together.
    pub(crate) context: usize,
    pub(crate) version: u64,
}

impl Engine {
    /// Starts the thread. It ends when the sender is gone.
    pub(crate) fn start(self) -> std::io::Result<mpsc::Sender<Job>> {
        let (sender, mut jobs) = mpsc::channel::<Job>(self.options.queue.max(1));
        let mut cache = PrefixCache::new(self.options.cached_sequences, self.options.cached_bytes);
        std::thread::Builder::new().name("policy-engine".to_owned()).stack_size(STACK).spawn(
            move || {
                while let Some(mut job) = jobs.blocking_recv() {
                    // Kernels assert what they assume. A file that breaks such an assumption
                    // must not take the engine down.
                    let result = catch_unwind(AssertUnwindSafe(|| self.run(&mut job, &mut cache)));
                    let result = result.unwrap_or_else(|_| {
                        cache.clear();
                        Err(PolicyError::Internal("the model's computation panicked".to_owned()))
                    });
                    // The caller may be gone.
                    let _ = job.answer.send(result);
                }
            },
        )?;
        Ok(sender)
    }

    fn run(&self, job: &mut Job, cache: &mut PrefixCache) -> Result<PolicyReply, PolicyError> {
        self.check(&job.prompt, &job.sampling)?;
        let computed = |error: fulgurite_model::Error| {
            let text = error.to_string();
            PolicyError::Internal(text.lines().next().unwrap_or_default().to_owned())
        };
        let mut state = match cache.take(&job.prompt, self.version).map_err(computed)? {
            Some(state) => state,
            None => KvState::new(self.model.config(), 1).map_err(computed)?,
        };
        let cached = state.len();
        let mut reply = Generation {
            text: ReplyText::new(&job.sampling.stop, self.format.native_tools()),
            chunks: ChunkSender::new(job.chunks.take()),
            response: Vec::new(),
            log_probabilities: Vec::new(),
            finish: FinishReason::Length,
        };
        let result = self.generate(job, &mut state, &mut reply).map_err(computed)?;
        let known = job.prompt.iter().chain(&reply.response).copied().take(state.len()).collect();
        cache.put(known, self.version, state);
        result?;
        Ok(self.finish(job, reply, cached))
    }

    fn check(&self, prompt: &[u32], sampling: &Sampling) -> Result<(), PolicyError> {
        let invalid = |text: &str| Err(PolicyError::Invalid(text.to_owned()));
        if prompt.is_empty() {
            return invalid("the history has no tokens");
        }
        if let Some(id) = prompt.iter().find(|id| **id as usize >= self.tokenizer.len()) {
            return invalid(&format!("the history holds {id}, which is no token of the model"));
        }
        if prompt.len() >= self.context {
            return Err(PolicyError::ContextLength(format!(
                "it has {} tokens, and history and reply together may have {}",
                prompt.len(),
                self.context
            )));
        }
        if sampling.max_tokens == 0 {
            return invalid("a reply of no tokens is asked for");
        }
        if !(sampling.temperature >= 0.0 && sampling.temperature.is_finite()) {
            return invalid("the temperature is not a number from 0 on");
        }
        let stops = &sampling.stop;
        if stops.len() > MAXIMUM_STOPS
            || stops.iter().any(|stop| stop.is_empty() || stop.len() > MAXIMUM_STOP)
        {
            return invalid("a stop string is empty or too long, or there are too many");
        }
        Ok(())
    }

    /// Reads the prompt and writes the reply. The inner error is the caller's absence.
    fn generate(
        &self,
        job: &Job,
        state: &mut KvState,
        reply: &mut Generation,
    ) -> fulgurite_model::Result<Result<(), PolicyError>> {
        let cancelled = || Ok(Err(PolicyError::Unavailable("the call was cancelled".to_owned())));
        let mut logits = Vec::new();
        while state.len() < job.prompt.len() {
            if job.answer.is_closed() {
                return cancelled();
            }
            let rest = job.prompt.get(state.len()..).unwrap_or_default();
            let part = rest.get(..self.options.prefill.max(1)).unwrap_or(rest);
            let hidden = self.model.forward(&Batch::following(state, part), state)?;
            if state.len() == job.prompt.len() {
                logits = self.last_logits(&hidden)?;
            }
        }
        let mut random = ChaCha8Rng::seed_from_u64(job.sampling.seed);
        let room = self.context - job.prompt.len();
        let maximum = room.min(job.sampling.max_tokens as usize);
        loop {
            let Some(choice) = choose(&logits, job.sampling.temperature, &mut random) else {
                return Err(fulgurite_model::Error::Msg(
                    "the model computes numbers that are none".to_owned(),
                ));
            };
            reply.response.push(choice.token);
            reply.log_probabilities.push(choice.log_probability);
            let ended = self.tokenizer.is_end(choice.token);
            if ended || reply.text.push(self.tokenizer.bytes(choice.token), &mut reply.chunks) {
                reply.finish = FinishReason::Stop;
                return Ok(Ok(()));
            }
            if reply.response.len() >= maximum {
                return Ok(Ok(()));
            }
            if job.answer.is_closed() {
                return cancelled();
            }
            let hidden = self.model.forward(&Batch::following(state, &[choice.token]), state)?;
            logits = self.last_logits(&hidden)?;
        }
    }

    fn last_logits(&self, hidden: &Tensor) -> fulgurite_model::Result<Vec<f32>> {
        let (_, tokens, _) = hidden.dims3()?;
        let last = hidden.narrow(1, tokens - 1, 1)?.flatten_all()?.unsqueeze(0)?;
        self.model.logits(&last)?.flatten_all()?.to_vec1()
    }

    fn finish(&self, job: &Job, mut reply: Generation, cached: usize) -> PolicyReply {
        let text = reply.text.finish(&mut reply.chunks);
        let message = self.format.parse_text(&text, job.turn);
        let finish = match reply.finish {
            FinishReason::Stop => natural_finish(&message),
            other => other,
        };
        let count = |tokens: usize| u64::try_from(tokens).unwrap_or(u64::MAX);
        PolicyReply {
            message,
            finish,
            usage: Usage {
                prompt_tokens: count(job.prompt.len()),
                cached_tokens: count(cached),
                completion_tokens: count(reply.response.len()),
            },
            tokens: Some(SampledReply {
                prompt: Vec::new(),
                response: reply.response,
                log_probabilities: reply.log_probabilities,
                versions: vec![VersionSpan { start: 0, version: self.version }],
            }),
        }
    }
}

/// A reply while it is written.
struct Generation {
    text: ReplyText,
    chunks: ChunkSender,
    response: Vec<u32>,
    log_probabilities: Vec<f32>,
    finish: FinishReason,
}
