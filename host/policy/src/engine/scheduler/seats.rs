//! Which call sits in which slot, and what becomes of the sequences in them.

use super::{Scheduler, Slot, id};
use crate::{
    PolicyError,
    engine::{
        Interrupted,
        call::Call,
        place::{Place, View, place},
    },
};

impl Scheduler {
    /// New weights: what the old ones computed is of no use. Calls that were under way wait at
    /// the front, in their order, for their sequence to be computed again; so each token's
    /// log-probability is exactly that of the version it is marked with.
    pub(super) fn renew(&mut self, version: u64) {
        self.version = version;
        let mut calls: Vec<Call> =
            self.slots.iter_mut().filter_map(|slot| slot.call.take()).collect();
        calls.sort_unstable_by_key(|call| std::cmp::Reverse(call.number));
        for mut call in calls {
            if self.options.interrupted == Interrupted::Resample {
                call.restart(&self.words);
            }
            self.waiting.push_front(call);
        }
        self.forget();
    }

    /// Lets go of calls whose callers went away.
    pub(super) fn dismiss(&mut self) {
        let before = self.waiting.len();
        self.waiting.retain(|call| !call.is_cancelled());
        let mut gone = before - self.waiting.len();
        for number in 0..self.slots.len() {
            let call = self.slots.get(number).and_then(|slot| slot.call.as_ref());
            if call.is_some_and(Call::is_cancelled) {
                gone += 1;
                self.park(number);
            }
        }
        self.statistics.cancelled += gone as u64;
    }

    /// Takes the call out of a slot, whose sequence stays for what may follow.
    pub(super) fn park(&mut self, number: usize) -> Option<Call> {
        self.clock += 1;
        let slot = self.slots.get_mut(number)?;
        slot.used = self.clock;
        if !self.options.prefix_cache {
            slot.held.clear();
            self.memory.truncate(id(number), 0);
        }
        slot.call.take()
    }

    /// Gives waiting calls their slots, first come, first served; a call that waits for a
    /// beginning lets others pass.
    pub(super) fn admit(&mut self) {
        let mut number = 0;
        while let Some(call) = self.waiting.get(number) {
            let mut views: Vec<View<'_>> = self.slots.iter().map(Slot::view).collect();
            if !self.options.prefix_cache {
                for view in &mut views {
                    view.held = &[];
                    view.planned = view.planned.map(|_| &[][..]);
                }
            }
            match place(&views, call.tokens()) {
                Place::Full => return,
                Place::Later => number += 1,
                chosen => {
                    let Some(call) = self.waiting.remove(number) else { return };
                    self.seat(call, chosen);
                }
            }
        }
    }

    fn seat(&mut self, mut call: Call, place: Place) {
        let (number, keep, source) = match place {
            Place::Here { slot, keep } => (slot, keep, None),
            Place::Copy { from, to, keep } => (to, keep, Some(from)),
            Place::Later | Place::Full => return self.waiting.push_front(call),
        };
        let Some(slot) = self.slots.get_mut(number) else { return };
        let kept = if source.is_some() { 0 } else { keep };
        if slot.held.len() > kept {
            self.statistics.evicted += 1;
        }
        let copied = match source {
            Some(from) => {
                self.memory.truncate(id(number), 0);
                self.memory.copy_prefix(id(from), id(number), keep)
            }
            None => {
                self.memory.truncate(id(number), keep);
                Ok(())
            }
        };
        if let Err(error) = copied {
            slot.held.clear();
            self.memory.truncate(id(number), 0);
            self.statistics.failed += 1;
            return call.fail(PolicyError::Internal(error.to_string()));
        }
        slot.held.clear();
        slot.held.extend_from_slice(call.tokens().get(..keep).unwrap_or_default());
        self.clock += 1;
        slot.used = self.clock;
        self.statistics.admitted += 1;
        self.statistics.cached_tokens += keep as u64;
        call.found(keep);
        slot.call = Some(call);
        if let Some(source) = source.and_then(|from| self.slots.get_mut(from)) {
            source.used = self.clock;
        }
    }

    /// Forgets all sequences.
    pub(super) fn forget(&mut self) {
        for (number, slot) in self.slots.iter_mut().enumerate() {
            slot.held.clear();
            self.memory.truncate(id(number), 0);
        }
    }
}
