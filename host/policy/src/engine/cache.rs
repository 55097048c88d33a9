//! Keys and values of finished calls, for the turns that follow.

use fulgurite_model::{KvSlots, ModelConfig, Result};

#[derive(Default)]
struct Entry {
    tokens: Vec<u32>,
    version: u64,
    used: u64,
}

/// Slots, and the tokens and version that each holds. One slot is always free for a call; the
/// others keep what was not used for longest last.
pub(super) struct PrefixCache {
    pub(super) slots: KvSlots,
    entries: Vec<Entry>,
    keep: bool,
    clock: u64,
}

impl PrefixCache {
    pub(super) fn new(
        config: &ModelConfig,
        context: usize,
        maximum_entries: usize,
        maximum_bytes: usize,
    ) -> Result<Self> {
        let bytes = (context * config.state_bytes_per_token()).max(1);
        let count = maximum_entries.min(maximum_bytes / bytes) + 1;
        let slots = KvSlots::new(config, count, context)?;
        let entries = (0..count).map(|_| Entry::default()).collect();
        Ok(Self { slots, entries, keep: count > 1, clock: 0 })
    }

    /// A slot that holds the longest known beginning of this prompt, short of its last token
    /// (whose numbers are wanted). A slot that is such a beginning as a whole is handed out,
    /// because its conversation goes on; of others a part is copied.
    pub(super) fn take(&mut self, prompt: &[u32], version: u64) -> Result<u32> {
        let usable = prompt.get(..prompt.len().saturating_sub(1)).unwrap_or_default();
        let common = |entry: &Entry| {
            if entry.version != version {
                return 0;
            }
            entry.tokens.iter().zip(usable).take_while(|(left, right)| left == right).count()
        };
        let best = (0u32..).zip(&self.entries).max_by_key(|(_, entry)| common(entry));
        let (from, length, whole) = best.map_or((0, 0, false), |(slot, entry)| {
            let length = common(entry);
            (slot, length, length > 0 && length == entry.tokens.len())
        });
        let slot = if whole {
            from
        } else {
            let oldest = (0u32..)
                .zip(&self.entries)
                .min_by_key(|(slot, entry)| (*slot == from && length > 0, entry.used));
            oldest.map_or(0, |(slot, _)| slot)
        };
        if slot != from {
            self.slots.copy_prefix(from, slot, length)?;
        }
        self.slots.truncate(slot, length);
        self.forget(slot);
        Ok(slot)
    }

    fn forget(&mut self, slot: u32) {
        if let Some(entry) = self.entries.get_mut(slot as usize) {
            *entry = Entry::default();
        }
    }

    /// Keeps a slot that holds these tokens.
    pub(super) fn put(&mut self, slot: u32, tokens: Vec<u32>, version: u64) {
        if !self.keep || tokens.is_empty() || tokens.len() != self.slots.length(slot) {
            return;
        }
        // What the slot begins with need not be kept apart; nor do other versions.
        for entry in &mut self.entries {
            if entry.version != version || tokens.starts_with(&entry.tokens) {
                *entry = Entry::default();
            }
        }
        self.clock += 1;
        let used = self.clock;
        if let Some(entry) = self.entries.get_mut(slot as usize) {
            *entry = Entry { tokens, version, used };
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.entries.iter_mut().for_each(|entry| *entry = Entry::default());
    }
}
