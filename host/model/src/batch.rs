//! What a model is asked to compute, and what it remembers.

use std::collections::HashSet;

use candle_core::{Result, bail};

use crate::{Model, ModelConfig, placed::PlacedSlots};

/// Where a token stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The slot of its sequence.
    pub slot: u32,
    /// Its position in that sequence.
    pub position: u32,
}

/// Tokens to run through a model in one pass: any mixture of parts of prompts and single tokens,
/// of any slots.
///
/// Rows of one slot stand together, and their positions continue what the slot holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// Where each stands.
    pub rows: Vec<Row>,
}

impl Batch {
    /// The tokens that follow what a slot holds.
    pub fn following(slots: &KvSlots, slot: u32, tokens: &[u32]) -> Self {
        let mut batch = Self::default();
        batch.push(slots, slot, tokens);
        batch
    }

    /// Adds the tokens that follow what a slot holds. Once a slot and batch.
    pub fn push(&mut self, slots: &KvSlots, slot: u32, tokens: &[u32]) {
        let start = slots.length(slot);
        self.tokens.extend_from_slice(tokens);
        self.rows.extend(
            (start..).take(tokens.len()).map(|position| Row { slot, position: position as u32 }),
        );
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Runs of rows of one slot, if the batch is sound.
    pub(crate) fn runs(&self, config: &ModelConfig, slots: &KvSlots) -> Result<Vec<Run>> {
        if self.tokens.is_empty() || self.tokens.len() != self.rows.len() {
            bail!("a batch has {} tokens for {} rows", self.tokens.len(), self.rows.len())
        }
        check_tokens(&self.tokens, config)?;
        let mut runs: Vec<Run> = Vec::new();
        let mut known = HashSet::new();
        for (number, row) in self.rows.iter().enumerate() {
            let position = row.position as usize;
            match runs.last_mut() {
                Some(run) if run.slot == row.slot => {
                    if position != run.position + run.rows {
                        bail!(
                            "row {number} of a batch has position {position} in slot {}, after {}",
                            row.slot,
                            run.position + run.rows - 1
                        )
                    }
                    run.rows += 1;
                }
                _ => {
                    if row.slot as usize >= slots.lengths.len() {
                        bail!("there is no slot {}, only {}", row.slot, slots.lengths.len())
                    }
                    if !known.insert(row.slot) {
                        bail!("the rows of slot {} do not stand together", row.slot)
                    }
                    if position != slots.length(row.slot) {
                        bail!(
                            "slot {} holds {} tokens, and a batch goes on at {position}",
                            row.slot,
                            slots.length(row.slot)
                        )
                    }
                    runs.push(Run { slot: row.slot, row: number, rows: 1, position });
                }
            }
        }
        if let Some(run) = runs.iter().find(|run| run.position + run.rows > slots.capacity) {
            bail!(
                "slot {} has room for {} tokens, not for {}",
                run.slot,
                slots.capacity,
                run.position + run.rows
            )
        }
        Ok(runs)
    }
}

pub(crate) fn check_tokens(tokens: &[u32], config: &ModelConfig) -> Result<()> {
    match tokens.iter().find(|token| **token as usize >= config.vocabulary) {
        Some(token) => bail!("the token {token} is not in the vocabulary"),
        None => Ok(()),
    }
}

/// Rows of one slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) slot: u32,
    pub(crate) row: usize,
    pub(crate) rows: usize,
    pub(crate) position: usize,
}

/// Keys and values of the tokens seen so far, in slots of fixed size that are allocated once.
///
/// A token sees its own slot, up to its own position. Memory that is not used yet is not touched.
#[derive(Debug)]
pub struct KvSlots {
    /// Of each layer: keys and values, each (slots, capacity, key heads · head).
    layers: Vec<(Vec<f32>, Vec<f32>)>,
    /// Instead of `layers`, where the model is computed on another device.
    placed: Option<PlacedSlots>,
    lengths: Vec<usize>,
    capacity: usize,
    width: usize,
}

impl KvSlots {
    /// `slots` empty slots for `capacity` tokens each.
    pub fn new(config: &ModelConfig, slots: usize, capacity: usize) -> Result<Self> {
        let width = config.key_width();
        let numbers = slots.checked_mul(capacity).and_then(|rows| rows.checked_mul(width));
        let Some(numbers) = numbers.filter(|numbers| *numbers <= isize::MAX as usize / 4) else {
            bail!("{slots} slots of {capacity} tokens are more than memory can be addressed for")
        };
        let layers = (0..config.layers).map(|_| (vec![0.0; numbers], vec![0.0; numbers])).collect();
        Ok(Self { layers, placed: None, lengths: vec![0; slots], capacity, width })
    }

    /// `slots` empty slots for `capacity` tokens each, where a model is computed.
    pub fn of(model: &Model, slots: usize, capacity: usize) -> Result<Self> {
        let Some(placed) = model.placed() else {
            return Self::new(model.config(), slots, capacity);
        };
        let mut own = Self::new(model.config(), slots, capacity)?;
        own.layers = Vec::new();
        own.placed = Some(placed.slots(model.config(), slots, capacity)?);
        Ok(own)
    }

    /// Keys and values of each layer on another device.
    pub(crate) fn placed(&self) -> Option<&PlacedSlots> {
        self.placed.as_ref()
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.lengths.len()
    }

    /// Tokens for which a slot has room.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Tokens that a slot holds; 0 for a slot that there is not.
    pub fn length(&self, slot: u32) -> usize {
        self.lengths.get(slot as usize).copied().unwrap_or(0)
    }

    /// Forgets all tokens of a slot but the first `length`.
    pub fn truncate(&mut self, slot: u32, length: usize) {
        if let Some(known) = self.lengths.get_mut(slot as usize) {
            *known = length.min(*known);
        }
    }

    /// Replaces what slot `to` holds by the first `length` tokens of slot `from`.
    pub fn copy_prefix(&mut self, from: u32, to: u32, length: usize) -> Result<()> {
        let slots = self.lengths.len();
        if from as usize >= slots || to as usize >= slots || length > self.length(from) {
            bail!(
                "slot {to} cannot get {length} tokens of slot {from}, which holds {} ({slots} slots)",
                self.length(from)
            )
        }
        let slot = self.capacity * self.width;
        let (source, target) = (from as usize * slot, to as usize * slot);
        for numbers in self.placed.iter().flatten().flat_map(|(keys, values)| [keys, values]) {
            if length > 0 && from != to {
                let copy = numbers.narrow(0, from as usize * self.capacity, length)?.copy()?;
                numbers.slice_set(&copy, 0, to as usize * self.capacity)?;
            }
        }
        for numbers in self.layers.iter_mut().flat_map(|(keys, values)| [keys, values]) {
            numbers.copy_within(source..source + length * self.width, target);
        }
        if let Some(known) = self.lengths.get_mut(to as usize) {
            *known = length;
        }
        Ok(())
    }

    /// Bytes of memory set aside.
    pub fn bytes(&self) -> usize {
        if let Some((keys, _)) = self.placed.as_ref().and_then(|placed| placed.first()) {
            let layers = self.placed.as_ref().map_or(0, Vec::len);
            return 2 * layers * keys.elem_count() * keys.dtype().size_in_bytes();
        }
        2 * self.layers.len() * self.slots() * self.capacity * self.width * size_of::<f32>()
    }

    /// Writes a layer's keys and values of some rows, (rows, stride) with the keys at `keys` and
    /// the values behind them. The rows count once [`KvSlots::advance`] is called.
    pub(crate) fn write(
        &mut self,
        layer: usize,
        runs: &[Run],
        numbers: &[f32],
        stride: usize,
        keys: usize,
    ) -> Result<()> {
        let (width, capacity) = (self.width, self.capacity);
        let Some((all_keys, all_values)) = self.layers.get_mut(layer) else {
            bail!("there is no layer {layer}")
        };
        for run in runs {
            let start = (run.slot as usize * capacity + run.position) * width;
            let rows = numbers.chunks_exact(stride).skip(run.row).take(run.rows);
            let span = start..start + run.rows * width;
            let (Some(to_keys), Some(to_values)) =
                (all_keys.get_mut(span.clone()), all_values.get_mut(span))
            else {
                bail!("slot {} is full", run.slot)
            };
            let to = to_keys.chunks_exact_mut(width).zip(to_values.chunks_exact_mut(width));
            for (row, (to_keys, to_values)) in rows.zip(to) {
                let (Some(from_keys), Some(from_values)) =
                    (row.get(keys..keys + width), row.get(keys + width..keys + 2 * width))
                else {
                    bail!("rows are too short for keys and values")
                };
                to_keys.copy_from_slice(from_keys);
                to_values.copy_from_slice(from_values);
            }
        }
        Ok(())
    }

    /// A slot's keys and values of a layer.
    pub(crate) fn held(&self, layer: usize, slot: u32) -> Option<(&[f32], &[f32])> {
        let size = self.capacity * self.width;
        let span = slot as usize * size..(slot as usize + 1) * size;
        let (keys, values) = self.layers.get(layer)?;
        Some((keys.get(span.clone())?, values.get(span)?))
    }

    /// From one token to the next.
    pub(crate) fn stride(&self) -> usize {
        self.width
    }

    /// Takes the rows just written into use.
    pub(crate) fn advance(&mut self, runs: &[Run]) {
        for run in runs {
            if let Some(length) = self.lengths.get_mut(run.slot as usize) {
                *length = run.position + run.rows;
            }
        }
    }
}
