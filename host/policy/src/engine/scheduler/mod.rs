//! One step after the other: who is computed, and what becomes of it.

mod seats;

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
};

use fulgurite_model::{Batch, KvSlots, Model, Row};
use fulgurite_trace::FinishReason;
use rayon::prelude::*;

use super::{
    EngineOptions, EngineStatistics,
    call::{Call, Job, Words},
    place::View,
    sampler::Choice,
};
use crate::PolicyError;

/// From this vocabulary on, drawing for several calls is worth several threads.
const WORTH_SPLITTING: usize = 8192;

/// A place in the memory for keys and values.
#[derive(Default)]
struct Slot {
    /// The tokens whose keys and values it holds, computed by the current version.
    held: Vec<u32>,
    call: Option<Call>,
    used: u64,
}

impl Slot {
    fn view(&self) -> View<'_> {
        View { held: &self.held, planned: self.call.as_ref().map(Call::tokens), used: self.used }
    }

    /// The tokens of its call that are still to be computed.
    fn rest(&self) -> &[u32] {
        let tokens = self.call.as_ref().map_or(&[][..], Call::tokens);
        tokens.get(self.held.len()..).unwrap_or_default()
    }
}

/// Slots, the calls in them, and the calls that wait.
pub(super) struct Scheduler {
    words: Words,
    options: EngineOptions,
    context: usize,
    vocabulary: usize,
    version: u64,
    slots: Vec<Slot>,
    memory: KvSlots,
    waiting: VecDeque<Call>,
    /// Replies that are complete, and not yet handed out.
    finished: Vec<(Call, FinishReason)>,
    /// Counts calls and uses of slots.
    clock: u64,
    statistics: EngineStatistics,
}

/// One slot's part of a step.
struct Part {
    slot: usize,
    tokens: usize,
    /// The row whose logits the next token is drawn from; none while the prompt is not read.
    ready: Option<u32>,
}

impl Scheduler {
    pub(super) fn new(
        words: Words,
        options: EngineOptions,
        model: &Model,
        version: u64,
        context: usize,
        slots: usize,
    ) -> Result<Self, fulgurite_model::Error> {
        let memory = KvSlots::of(model, slots, context)?;
        let statistics = EngineStatistics {
            slots,
            context,
            key_value_bytes: memory.bytes(),
            ..EngineStatistics::default()
        };
        Ok(Self {
            words,
            options,
            context,
            vocabulary: model.config().vocabulary,
            version,
            slots: std::iter::repeat_with(Slot::default).take(slots).collect(),
            memory,
            waiting: VecDeque::new(),
            finished: Vec::new(),
            clock: 0,
            statistics,
        })
    }

    /// Whether another call may wait here.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < self.options.queue.max(1)
    }

    /// Calls in slots.
    pub(super) fn active(&self) -> usize {
        self.slots.iter().filter(|slot| slot.call.is_some()).count()
    }

    /// Whether there is nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.active() == 0
    }

    pub(super) fn statistics(&self) -> EngineStatistics {
        EngineStatistics { active: self.active(), waiting: self.waiting.len(), ..self.statistics }
    }

    /// Takes a call, or refuses it at once.
    pub(super) fn accept(&mut self, job: Job) {
        if let Err(error) = job.check(self.vocabulary, self.context) {
            let _ = job.answer.send(Err(error));
            return;
        }
        self.clock += 1;
        self.waiting.push_back(Call::new(self.clock, job, &self.words, self.context));
    }

    /// One pass through the model, of weights that stand still meanwhile.
    pub(super) fn step(&mut self, model: &Model, version: u64, admits: bool) {
        if version != self.version {
            self.renew(version);
        }
        self.dismiss();
        if admits {
            self.admit();
        }
        let (batch, parts) = self.plan();
        if parts.is_empty() {
            return;
        }
        self.statistics.steps += 1;
        self.statistics.most_active = self.statistics.most_active.max(parts.len());
        // Kernels assert what they assume. A file that breaks such an assumption must not take
        // the engine down.
        let computed =
            catch_unwind(AssertUnwindSafe(|| compute(model, &batch, &parts, &mut self.memory)));
        match computed {
            Ok(Ok(logits)) => self.advance(&parts, &logits),
            Ok(Err(error)) => {
                let text = error.to_string();
                self.fail_active(text.lines().next().unwrap_or_default());
            }
            Err(_) => self.fail_active("the model's computation panicked"),
        }
    }

    /// Ends the calls in slots, and forgets all sequences.
    fn fail_active(&mut self, why: &str) {
        for call in self.slots.iter_mut().filter_map(|slot| slot.call.take()) {
            self.statistics.failed += 1;
            call.fail(PolicyError::Internal(why.to_owned()));
        }
        self.forget();
    }

    /// Ends all calls, and forgets all sequences.
    pub(super) fn fail_all(&mut self, why: &str) {
        self.fail_active(why);
        for call in self.waiting.drain(..) {
            self.statistics.failed += 1;
            call.fail(PolicyError::Internal(why.to_owned()));
        }
    }

    /// What is computed in this step: the next token of every call that writes, and as much of
    /// the prompts, in the order of arrival, as a step may read.
    fn plan(&self) -> (Batch, Vec<Part>) {
        let mut order: Vec<(u64, usize, &Slot)> = self
            .slots
            .iter()
            .enumerate()
            .filter_map(|(number, slot)| Some((slot.call.as_ref()?.number, number, slot)))
            .collect();
        order.sort_unstable_by_key(|(arrival, ..)| *arrival);
        let mut budget = self.options.prefill.max(1);
        let mut batch = Batch { tokens: Vec::new(), rows: Vec::new() };
        let mut parts = Vec::with_capacity(order.len());
        for (_, number, slot) in order {
            let rest = slot.rest();
            let taken = match rest.len() {
                1 => 1,
                length => {
                    let taken = length.min(budget);
                    budget -= taken;
                    taken
                }
            };
            let tokens = rest.get(..taken).unwrap_or_default();
            if tokens.is_empty() {
                continue;
            }
            batch.tokens.extend_from_slice(tokens);
            let positions = slot.held.len()..slot.held.len() + taken;
            batch.rows.extend(positions.map(|position| Row {
                slot: id(number),
                position: u32::try_from(position).unwrap_or(u32::MAX),
            }));
            let last = u32::try_from(batch.rows.len() - 1).unwrap_or(u32::MAX);
            let ready = (taken == rest.len()).then_some(last);
            parts.push(Part { slot: number, tokens: taken, ready });
        }
        (batch, parts)
    }

    /// Notes what was computed, and draws the next tokens.
    fn advance(&mut self, parts: &[Part], logits: &[f32]) {
        for part in parts {
            let Some(slot) = self.slots.get_mut(part.slot) else { continue };
            let Some(call) = slot.call.as_ref() else { continue };
            let start = slot.held.len();
            let end = start + part.tokens;
            self.statistics.count(call, start, end);
            slot.held.extend_from_slice(call.tokens().get(start..end).unwrap_or_default());
        }
        let ready = parts.iter().filter(|part| part.ready.is_some()).map(|part| part.slot);
        let rows: Vec<(usize, &[f32])> =
            ready.zip(logits.chunks_exact(self.vocabulary.max(1))).collect();
        let draw = |(number, logits): &(usize, &[f32])| {
            Some((*number, self.slots.get(*number)?.call.as_ref()?.draw(logits)))
        };
        let drawn: Vec<Option<(usize, Option<Choice>)>> =
            if rows.len() > 1 && self.vocabulary >= WORTH_SPLITTING {
                rows.par_iter().map(draw).collect()
            } else {
                rows.iter().map(draw).collect()
            };
        for (number, choice) in drawn.into_iter().flatten() {
            self.statistics.sampled_tokens += 1;
            self.take(number, choice);
        }
    }

    fn take(&mut self, number: usize, choice: Option<Choice>) {
        let Some(call) = self.slots.get_mut(number).and_then(|slot| slot.call.as_mut()) else {
            return;
        };
        let Some(choice) = choice else {
            self.statistics.failed += 1;
            let call = self.park(number);
            // Whatever broke the logits may sit in the keys and values.
            if let Some(slot) = self.slots.get_mut(number) {
                slot.held.clear();
                self.memory.truncate(id(number), 0);
            }
            if let Some(call) = call {
                let text = "the model computes numbers that are none".to_owned();
                call.fail(PolicyError::Internal(text));
            }
            return;
        };
        if let Some(finish) = call.take(choice, self.version, &self.words) {
            let call = self.park(number);
            self.finished.extend(call.map(|call| (call, finish)));
        }
    }

    /// Hands out complete replies. After the statistics are published, so that whoever has a
    /// reply finds it counted.
    pub(super) fn answer(&mut self) {
        for (call, finish) in self.finished.drain(..) {
            call.finish(finish, &self.words);
        }
    }
}

impl EngineStatistics {
    /// Counts the positions of a call that a step computed.
    fn count(&mut self, call: &Call, start: usize, end: usize) {
        let prompt = (start..end).filter(|position| call.is_prompt(*position)).count();
        self.prefilled_tokens += prompt as u64;
        // Of a reply, only the token that was drawn last is new.
        let written = end.min(call.tokens().len() - 1).saturating_sub(start + prompt);
        self.recomputed_tokens += written as u64;
    }
}

/// A slot as the model numbers it. There are never that many.
fn id(slot: usize) -> u32 {
    u32::try_from(slot).unwrap_or(u32::MAX)
}

/// The logits of the rows that are ready.
fn compute(
    model: &Model,
    batch: &Batch,
    parts: &[Part],
    memory: &mut KvSlots,
) -> Result<Vec<f32>, fulgurite_model::Error> {
    // Inside the pool, since kernels hand over some hundred small pieces of work a token, and each
    // would wake a thread of the pool and wait for it.
    rayon::scope(|_| compute_here(model, batch, parts, memory))
}

fn compute_here(
    model: &Model,
    batch: &Batch,
    parts: &[Part],
    memory: &mut KvSlots,
) -> Result<Vec<f32>, fulgurite_model::Error> {
    let hidden = model.forward(batch, memory)?;
    let rows: Vec<u32> = parts.iter().filter_map(|part| part.ready).collect();
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let count = rows.len();
    let rows = fulgurite_model::Tensor::from_vec(rows, count, hidden.device())?;
    model.logits(&hidden.index_select(&rows, 0)?)?.flatten_all()?.to_vec1()
}
