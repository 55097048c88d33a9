//! Keys and values of finished calls, for the turns that follow.

use fulgurite_model::{KvState, Result};

struct Entry {
    tokens: Vec<u32>,
    version: u64,
    state: KvState,
    used: u64,
}

/// States by the tokens they hold and the version that computed them. Bounded in number and
/// bytes; what was not used for longest goes first.
pub(super) struct PrefixCache {
    entries: Vec<Entry>,
    clock: u64,
    maximum_entries: usize,
    maximum_bytes: usize,
}

impl PrefixCache {
    pub(super) fn new(maximum_entries: usize, maximum_bytes: usize) -> Self {
        Self { entries: Vec::new(), clock: 0, maximum_entries, maximum_bytes }
    }

    /// The state of the longest known beginning of this prompt, short of its last token (whose
    /// numbers are wanted). A state that is such a beginning as a whole is handed out, because
    /// its conversation goes on; of others a part is copied.
    pub(super) fn take(&mut self, prompt: &[u32], version: u64) -> Result<Option<KvState>> {
        let usable = prompt.get(..prompt.len().saturating_sub(1)).unwrap_or_default();
        let best = self
            .entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.version == version)
            .map(|(number, entry)| (common(&entry.tokens, usable), number))
            .max();
        let Some((length, number)) = best.filter(|(length, _)| *length > 0) else {
            return Ok(None);
        };
        if self.entries.get(number).is_some_and(|entry| entry.tokens.len() == length) {
            return Ok(Some(self.entries.swap_remove(number).state));
        }
        self.clock += 1;
        let clock = self.clock;
        match self.entries.get_mut(number) {
            Some(entry) => {
                entry.used = clock;
                entry.state.fork(length).map(Some)
            }
            None => Ok(None),
        }
    }

    /// Keeps a state that holds these tokens.
    pub(super) fn put(&mut self, tokens: Vec<u32>, version: u64, state: KvState) {
        if tokens.is_empty() || tokens.len() != state.len() {
            return;
        }
        // What the new state begins with need not be kept apart; nor do other versions.
        self.entries.retain(|entry| entry.version == version && !tokens.starts_with(&entry.tokens));
        self.clock += 1;
        self.entries.push(Entry { tokens, version, state, used: self.clock });
        while self.entries.len() > self.maximum_entries
            || self.entries.iter().map(|entry| entry.state.bytes()).sum::<usize>()
                > self.maximum_bytes
        {
            let oldest = self.entries.iter().enumerate().min_by_key(|(_, entry)| entry.used);
            let Some((number, _)) = oldest else { return };
            self.entries.swap_remove(number);
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }
}

fn common(left: &[u32], right: &[u32]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}
