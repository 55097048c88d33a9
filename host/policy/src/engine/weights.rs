//! The weights, which the engine reads and a trainer changes.

use std::sync::{
    RwLock,
    atomic::{AtomicU64, Ordering},
};

use fulgurite_model::{Model, Precision};

/// An update of the weights panicked, so they may be half written. Nothing is sampled from such
/// weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an update of the weights did not end, and they may be half written")]
pub struct BrokenWeights;

/// A model with its version.
#[derive(Debug)]
pub(crate) struct SharedWeights {
    model: RwLock<(Model, u64)>,
    precision: Precision,
    /// The version again, for those who must not wait for an update.
    version: AtomicU64,
}

impl SharedWeights {
    pub(crate) fn new(mut model: Model, version: u64, precision: Precision) -> Self {
        model.set_precision(precision);
        let model = RwLock::new((model, version));
        Self { model, precision, version: AtomicU64::new(version) }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Looks at the weights while they stand still.
    pub(crate) fn read<R>(&self, look: impl FnOnce(&Model, u64) -> R) -> Result<R, BrokenWeights> {
        let weights = self.model.read().map_err(|_| BrokenWeights)?;
        Ok(look(&weights.0, weights.1))
    }

    /// Changes the weights between two steps. The version grows even where the change fails:
    /// what it did by then, nobody knows.
    pub(crate) fn update<R>(
        &self,
        change: impl FnOnce(&mut Model) -> R,
    ) -> Result<(u64, R), BrokenWeights> {
        let mut weights = self.model.write().map_err(|_| BrokenWeights)?;
        weights.1 += 1;
        let result = change(&mut weights.0);
        // It may be another model now.
        weights.0.set_precision(self.precision);
        self.version.store(weights.1, Ordering::Release);
        Ok((weights.1, result))
    }
}
