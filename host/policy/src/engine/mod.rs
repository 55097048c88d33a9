//! The thread that samples.
//!
//! **Continuous batching.** Calls arrive over a bounded queue. Each step admits waiting calls to
//! free slots, reads prompts in chunks (a budget of tokens a step, all prompts together) and
//! computes the next token of every reply that is being written, all in one ragged pass
//! ([`scheduler`]). A caller that goes away frees its slot at the next step.
//!
//! **Prefix cache.** A slot is a place for the keys and values of one sequence, allocated at the
//! start. A sequence stays in its slot when its call has ended, so a conversation's next turn
//! costs only its new tokens, and the n calls of a group compute their prompt once ([`place`]
//! has the rule). Everything in the slots was computed by one version of the weights; an update
//! empties them.
//!
//! **Weights change between steps only.** A step holds the weights' lock for reading, an update
//! for writing, so never inside a token. A reply that an update splits has its sequence computed
//! again by the new weights and goes on, or starts anew ([`Interrupted`]); each token is marked
//! with its version, and its log-probability is that version's.
//!
//! **What is the same twice.** Each token is drawn with its own number of the seed's stream
//! ([`sampler`]). With [`EngineOptions::batch_invariant`] the logits too depend on the sequence
//! and the weights alone, so the same prompt, seed and version give the same tokens, whatever
//! else is in the batch and whatever was cached. Without it, they are the same up to rounding.

mod call;
mod control;
mod place;
mod sampler;
mod scheduler;
mod statistics;
mod text;
mod weights;

use std::sync::Arc;

use fulgurite_model::ModelConfig;
use tokio::sync::mpsc;

pub(crate) use self::{call::Job, control::Control, weights::SharedWeights};
use self::{call::Words, scheduler::Scheduler};
pub use self::{control::Paused, statistics::EngineStatistics, weights::BrokenWeights};
use crate::{TemplateFormat, Tokenizer};

/// The most tokens of a sequence unless others are asked for.
const USUAL_CONTEXT: usize = 32_768;
/// Enough for candle's deepest calls.
const STACK: usize = 8 << 20;

/// What becomes of a reply that an update of the weights interrupts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Interrupted {
    /// It goes on with the new weights; what was sampled stays. Each token is marked with the
    /// version that sampled it.
    #[default]
    Continue,
    /// It is taken back and sampled anew, so that one version wrote all of it. Chunks that were
    /// sent cannot be taken back; the reply counts.
    Resample,
}

/// How an engine works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineOptions {
    /// Tokens of history and reply together, at most what the model was made for. Absent: what
    /// the model was made for, up to 32,768 and up to what fits
    /// [`EngineOptions::key_value_bytes`].
    pub context_length: Option<u32>,
    /// Calls that wait inside the engine for a slot. As many again wait in the channel to it;
    /// further callers wait outside.
    pub queue: usize,
    /// Tokens of prompts that one step reads, all calls together.
    pub prefill: usize,
    /// Sequences that are held at once, whether they are being written or are kept for later
    /// turns; fewer where they do not fit [`EngineOptions::key_value_bytes`].
    pub slots: usize,
    /// Bytes for the keys and values of all slots. They are reserved at the start, and take
    /// memory as sequences grow into them.
    pub key_value_bytes: usize,
    /// Whether sequences are kept and shared. Without it every call computes its whole prompt.
    pub prefix_cache: bool,
    /// Whether a token's numbers never depend on what else is in the batch. Costs speed.
    pub batch_invariant: bool,
    /// What becomes of a reply that an update interrupts.
    pub interrupted: Interrupted,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            context_length: None,
            queue: 64,
            prefill: 256,
            slots: 16,
            key_value_bytes: 4 << 30,
            prefix_cache: true,
            batch_invariant: false,
            interrupted: Interrupted::Continue,
        }
    }
}

/// An engine that could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// Not even one sequence fits.
    #[error(
        "keys and values of {context} tokens take {needed} MiB, and {allowed} MiB are allowed\n  \
         mend: ask for a shorter context, or allow more"
    )]
    Memory {
        /// Tokens of a sequence.
        context: usize,
        /// MiB they take.
        needed: usize,
        /// MiB that are allowed.
        allowed: usize,
    },
    /// The memory could not be had.
    #[error("no memory for keys and values: {0}")]
    Allocation(fulgurite_model::Error),
    /// The weights are half written.
    #[error(transparent)]
    Weights(#[from] BrokenWeights),
    /// The thread could not be started.
    #[error("no thread can be started for the engine: {0}")]
    Thread(std::io::Error),
}

/// How many tokens a sequence may have, and how many sequences there are.
fn dimensions(
    options: &EngineOptions,
    config: &ModelConfig,
) -> Result<(usize, usize), EngineError> {
    let numbers = 2 * config.layers * config.key_value_heads * config.head;
    let per_token = (numbers * size_of::<f32>()).max(1);
    let fitting = options.key_value_bytes / per_token;
    let context = match options.context_length {
        Some(asked) => config.context.min(usize::try_from(asked).unwrap_or(usize::MAX)),
        None => config.context.min(USUAL_CONTEXT).min(fitting),
    };
    let slots = fitting.checked_div(context).unwrap_or(0).min(options.slots.max(1));
    if slots == 0 {
        let context = context.max(1);
        let needed = (context.saturating_mul(per_token) >> 20).max(1);
        return Err(EngineError::Memory {
            context,
            needed,
            allowed: options.key_value_bytes >> 20,
        });
    }
    Ok((context, slots))
}

/// What samples: weights and what is needed to talk with them.
pub(crate) struct Engine {
    pub(crate) weights: Arc<SharedWeights>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) format: Arc<TemplateFormat>,
    pub(crate) options: EngineOptions,
}

/// The way to an engine's thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) jobs: mpsc::Sender<Job>,
    pub(crate) control: Arc<Control>,
    /// Tokens of a sequence.
    pub(crate) context: usize,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.control.close();
    }
}

impl Engine {
    /// Reserves the memory and starts the thread.
    pub(crate) fn start(self) -> Result<Handle, EngineError> {
        let Self { weights, tokenizer, format, options } = self;
        let (sender, jobs) = mpsc::channel::<Job>(options.queue.max(1));
        let words = Words { tokenizer, format };
        let (scheduler, context) = weights.read(|model, version| {
            let (context, slots) = dimensions(&options, model.config())?;
            Scheduler::new(words, options, model, version, context, slots)
                .map(|scheduler| (scheduler, context))
                .map_err(EngineError::Allocation)
        })??;
        let control = Control::new();
        control.publish(scheduler.statistics());
        let shared = control.clone();
        std::thread::Builder::new()
            .name("policy-engine".to_owned())
            .stack_size(STACK)
            .spawn(move || run(scheduler, jobs, &weights, &shared))
            .map_err(EngineError::Thread)?;
        Ok(Handle { jobs: sender, control, context })
    }
}

/// The thread.
fn run(
    mut scheduler: Scheduler,
    mut jobs: mpsc::Receiver<Job>,
    weights: &SharedWeights,
    control: &Control,
) {
    loop {
        if scheduler.is_idle() {
            control.stand(true);
            let Some(job) = jobs.blocking_recv() else { return };
            scheduler.accept(job);
            control.stand(false);
        }
        while scheduler.has_room() {
            match jobs.try_recv() {
                Ok(job) => scheduler.accept(job),
                Err(_) => break,
            }
        }
        let admits = control.before_step(scheduler.active());
        if let Err(broken) = weights.read(|model, version| scheduler.step(model, version, admits)) {
            scheduler.fail_all(&broken.to_string());
        }
        control.publish(scheduler.statistics());
        scheduler.answer();
    }
}
