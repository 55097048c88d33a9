//! One call: what it asks, and what is written so far.

use std::sync::Arc;

use fulgurite_trace::{FinishReason, Usage, VersionSpan};
use tokio::sync::{mpsc, oneshot};

use super::{
    sampler::{Choice, Sampler},
    text::ReplyText,
};
use crate::{
    Chunk, PolicyError, PolicyReply, SampledReply, Sampling, TemplateFormat, Tokenizer,
    chunks::ChunkSender, fixed::natural_finish,
};

/// The most stop strings of a call, the longest of them, and the most stop tokens.
const MAXIMUM_STOPS: usize = 64;
const MAXIMUM_STOP: usize = 1024;
const MAXIMUM_STOP_TOKENS: usize = 1024;

/// What an engine is asked.
pub(crate) struct Job {
    pub(crate) prompt: Arc<[u32]>,
    pub(crate) sampling: Sampling,
    pub(crate) turn: u32,
    pub(crate) chunks: Option<mpsc::Sender<Chunk>>,
    pub(crate) answer: oneshot::Sender<Result<PolicyReply, PolicyError>>,
}

/// Between the ids of a call and what people read.
#[derive(Clone)]
pub(super) struct Words {
    pub(super) tokenizer: Arc<Tokenizer>,
    pub(super) format: Arc<TemplateFormat>,
}

impl Job {
    /// Why this cannot be answered, if it cannot.
    pub(super) fn check(&self, vocabulary: usize, context: usize) -> Result<(), PolicyError> {
        let Self { prompt, sampling, .. } = self;
        let invalid = |text: &str| Err(PolicyError::Invalid(text.to_owned()));
        if prompt.is_empty() {
            return invalid("the history has no tokens");
        }
        let unknown = |id: &&u32| usize::try_from(**id).map_or(true, |id| id >= vocabulary);
        if let Some(id) = prompt.iter().find(unknown) {
            return invalid(&format!("the history holds {id}, which is no token of the model"));
        }
        if prompt.len() >= context {
            return Err(PolicyError::ContextLength(format!(
                "it has {} tokens, and history and reply together may have {context}",
                prompt.len(),
            )));
        }
        if sampling.max_tokens == 0 {
            return invalid("a reply of no tokens is asked for");
        }
        if !(sampling.temperature >= 0.0 && sampling.temperature.is_finite()) {
            return invalid("the temperature is not a number from 0 on");
        }
        if let Some(problem) = sampling.truncation.problem() {
            return invalid(&problem);
        }
        let stops = &sampling.stop;
        if stops.len() > MAXIMUM_STOPS
            || stops.iter().any(|stop| stop.is_empty() || stop.len() > MAXIMUM_STOP)
        {
            return invalid("a stop string is empty or too long, or there are too many");
        }
        if sampling.stop_tokens.len() > MAXIMUM_STOP_TOKENS {
            return invalid("there are too many stop tokens");
        }
        Ok(())
    }
}

/// A call that is being answered.
pub(super) struct Call {
    /// In the order of arrival.
    pub(super) number: u64,
    /// The prompt, and what was sampled.
    tokens: Vec<u32>,
    prompt: usize,
    /// Tokens of the reply at most.
    maximum: usize,
    /// Tokens of the prompt that were not computed for this call.
    cached: usize,
    sampling: Sampling,
    sampler: Sampler,
    turn: u32,
    text: ReplyText,
    chunks: ChunkSender,
    log_probabilities: Vec<f32>,
    untruncated: Vec<f32>,
    versions: Vec<VersionSpan>,
    answer: oneshot::Sender<Result<PolicyReply, PolicyError>>,
}

impl Call {
    /// From a job that was checked.
    pub(super) fn new(number: u64, job: Job, words: &Words, context: usize) -> Self {
        let Job { prompt, sampling, turn, chunks, answer } = job;
        let room = context.saturating_sub(prompt.len());
        Self {
            number,
            prompt: prompt.len(),
            maximum: usize::try_from(sampling.max_tokens).map_or(room, |asked| asked.min(room)),
            cached: 0,
            sampler: Sampler::new(&sampling),
            text: ReplyText::new(&sampling.stop, words.format.native_tools()),
            sampling,
            turn,
            chunks: ChunkSender::new(chunks),
            tokens: prompt.to_vec(),
            log_probabilities: Vec::new(),
            untruncated: Vec::new(),
            versions: Vec::new(),
            answer,
        }
    }

    /// The prompt, and what was sampled so far.
    pub(super) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Whether this position belongs to the prompt.
    pub(super) fn is_prompt(&self, position: usize) -> bool {
        position < self.prompt
    }

    /// The caller went away.
    pub(super) fn is_cancelled(&self) -> bool {
        self.answer.is_closed()
    }

    /// Tells how much of the prompt was known.
    pub(super) fn found(&mut self, kept: usize) {
        if self.response().is_empty() {
            self.cached = kept.min(self.prompt);
        }
    }

    fn response(&self) -> &[u32] {
        self.tokens.get(self.prompt..).unwrap_or_default()
    }

    /// Draws the next token from these logits. `None` where they are no numbers.
    pub(super) fn draw(&self, logits: &[f32]) -> Option<Choice> {
        self.sampler.draw(logits, self.response().len() as u64)
    }

    /// Takes the next token, drawn from what weights of this version computed. Says why the reply
    /// ends with it, if it does.
    pub(super) fn take(
        &mut self,
        choice: Choice,
        version: u64,
        words: &Words,
    ) -> Option<FinishReason> {
        let Choice { token, log_probability, untruncated } = choice;
        let number = self.response().len();
        self.tokens.push(token);
        self.log_probabilities.push(log_probability);
        if !self.sampler.is_whole() {
            self.untruncated.push(untruncated);
        }
        if self.versions.last().is_none_or(|span| span.version != version) {
            let start = u32::try_from(number).unwrap_or(u32::MAX);
            self.versions.push(VersionSpan { start, version });
        }
        let ended = words.tokenizer.is_end(token)
            || self.sampling.stop_tokens.contains(&token)
            || self.text.push(words.tokenizer.bytes(token), &mut self.chunks);
        if ended {
            Some(FinishReason::Stop)
        } else if number + 1 >= self.maximum {
            Some(FinishReason::Length)
        } else {
            None
        }
    }

    /// Takes back what was sampled. Chunks that were sent cannot be taken back, and what follows
    /// would not fit them, so there are none any more.
    pub(super) fn restart(&mut self, words: &Words) {
        if self.response().is_empty() {
            return;
        }
        self.tokens.truncate(self.prompt);
        self.text = ReplyText::new(&self.sampling.stop, words.format.native_tools());
        self.chunks = ChunkSender::new(None);
        self.log_probabilities.clear();
        self.untruncated.clear();
        self.versions.clear();
    }

    /// Tells the caller, if it is still there.
    pub(super) fn fail(self, error: PolicyError) {
        let _ = self.answer.send(Err(error));
    }

    /// Gives the caller its reply, if it is still there.
    pub(super) fn finish(mut self, finish: FinishReason, words: &Words) {
        let response = self.response().to_vec();
        let text = self.text.finish(&mut self.chunks);
        let message = words.format.parse_text(&text, self.turn);
        let finish = match finish {
            FinishReason::Stop => natural_finish(&message),
            other => other,
        };
        let count = |tokens: usize| u64::try_from(tokens).unwrap_or(u64::MAX);
        let reply = PolicyReply {
            message,
            finish,
            usage: Usage {
                prompt_tokens: count(self.prompt),
                cached_tokens: count(self.cached),
                completion_tokens: count(response.len()),
            },
            tokens: Some(SampledReply {
                prompt: Vec::new(),
                response,
                log_probabilities: self.log_probabilities,
                untruncated: self.untruncated,
                versions: self.versions,
            }),
        };
        let _ = self.answer.send(Ok(reply));
    }
}
