//! What a model remembers of a sequence, as a value.

use candle_core::{DType, Device, Result, Tensor};

use crate::LlamaConfig;

/// Buffers grow by this many tokens.
const STEP: usize = 256;

/// Keys and values of the tokens seen so far, one slot a token.
///
/// It can be rewound ([`KvState::truncate`]) and copied in part ([`KvState::fork`]); two states
/// never share memory.
#[derive(Debug)]
pub struct KvState {
    /// Keys and values of each layer, each (batch, key-value heads, capacity, head).
    layers: Vec<(Tensor, Tensor)>,
    batch: usize,
    key_value_heads: usize,
    head: usize,
    length: usize,
    capacity: usize,
}

impl KvState {
    /// An empty state for this many sequences side by side.
    pub fn new(config: &LlamaConfig, batch: usize) -> Result<Self> {
        let mut state = Self {
            layers: Vec::new(),
            batch,
            key_value_heads: config.key_value_heads,
            head: config.head,
            length: 0,
            capacity: 0,
        };
        let empty = state.buffer(0)?;
        state.layers = vec![(empty.clone(), empty); config.layers];
        Ok(state)
    }

    fn buffer(&self, capacity: usize) -> Result<Tensor> {
        let shape = (self.batch, self.key_value_heads, capacity, self.head);
        Tensor::zeros(shape, DType::F32, &Device::Cpu)
    }

    /// Slots in use.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether no slot is in use.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Sequences side by side.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Bytes of memory taken.
    pub fn bytes(&self) -> usize {
        let numbers = self.batch * self.key_value_heads * self.capacity * self.head;
        2 * self.layers.len() * numbers * size_of::<f32>()
    }

    /// Forgets all slots but the first `length`.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// A copy of the first `length` slots.
    pub fn fork(&self, length: usize) -> Result<Self> {
        let length = length.min(self.length);
        let mut fork = Self {
            layers: Vec::with_capacity(self.layers.len()),
            length,
            capacity: length.next_multiple_of(STEP),
            ..*self
        };
        for (keys, values) in &self.layers {
            let copy = |from: &Tensor| copied(from, fork.buffer(fork.capacity)?, length);
            fork.layers.push((copy(keys)?, copy(values)?));
        }
        Ok(fork)
    }

    /// Makes room for `more` slots behind those in use.
    pub(crate) fn reserve(&mut self, more: usize) -> Result<()> {
        let needed = self.length + more;
        if needed <= self.capacity {
            return Ok(());
        }
        // A quarter more than needed keeps the copying linear overall.
        let capacity = (needed + needed / 4).next_multiple_of(STEP);
        let mut layers = Vec::with_capacity(self.layers.len());
        for (keys, values) in &self.layers {
            let grow = |from: &Tensor| copied(from, self.buffer(capacity)?, self.length);
            layers.push((grow(keys)?, grow(values)?));
        }
        self.layers = layers;
        self.capacity = capacity;
        Ok(())
    }

    /// Writes a layer's keys and values (batch, key-value heads, tokens, head) behind the slots
    /// in use, and gives the layer's whole buffers.
    pub(crate) fn write(
        &self,
        layer: usize,
        keys: &Tensor,
        values: &Tensor,
    ) -> Result<(&Tensor, &Tensor)> {
        let Some((all_keys, all_values)) = self.layers.get(layer) else {
            candle_core::bail!("the state has no layer {layer}")
        };
        all_keys.slice_set(keys, 2, self.length)?;
        all_values.slice_set(values, 2, self.length)?;
        Ok((all_keys, all_values))
    }

    /// Takes the slots just written into use.
    pub(crate) fn advance(&mut self, tokens: usize) {
        self.length += tokens;
    }
}

/// The first `length` slots of `from`, written to the beginning of `to`.
fn copied(from: &Tensor, to: Tensor, length: usize) -> Result<Tensor> {
    if length > 0 {
        to.slice_set(&from.narrow(2, 0, length)?.contiguous()?, 2, 0)?;
    }
    Ok(to)
}
