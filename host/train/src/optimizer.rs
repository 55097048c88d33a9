//! AdamW (arXiv:1711.05101), in place.
//!
//! Weights, gradients and both moments are `f32`; the arithmetic of each element too, in the
//! order in which PyTorch does it. The moments are a plain map by parameter name, which a
//! checkpoint saves as it is.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// What is fixed for a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdamWSettings {
    /// Decay of the first moment, in [0, 1).
    pub beta1: f64,
    /// Decay of the second moment, in [0, 1).
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Weights shrink by this × the learning rate before each update, apart from the moments.
    /// Vectors (norms, biases) do not.
    pub weight_decay: f64,
}

impl Default for AdamWSettings {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 }
    }
}

/// The moments of a parameter.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Moments {
    /// Of the gradient.
    pub first: Vec<f32>,
    /// Of its square.
    pub second: Vec<f32>,
}

/// The optimizer with its state.
#[derive(Debug, Clone, PartialEq)]
pub struct AdamW {
    /// What is fixed.
    pub settings: AdamWSettings,
    /// Updates so far.
    pub step: u64,
    /// By parameter name.
    pub moments: BTreeMap<String, Moments>,
}

/// A gradient or a moment does not fit its parameter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("parameter `{name}` has {values} values, but its {what} {other}")]
pub struct ShapeError {
    name: String,
    values: usize,
    what: &'static str,
    other: usize,
}

/// One update of all parameters; see [`AdamW::begin`].
#[derive(Debug)]
pub struct Update<'optimizer> {
    moments: &'optimizer mut BTreeMap<String, Moments>,
    factors: Factors,
}

#[derive(Debug, Clone, Copy)]
struct Factors {
    /// What the first moment takes of a gradient.
    share1: f32,
    beta2: f32,
    /// What the second moment takes of its square.
    share2: f32,
    epsilon: f32,
    /// Learning rate over the correction of the first moment's bias.
    rate: f32,
    /// Root of the correction of the second moment's bias.
    root: f32,
    /// What is left of a weight.
    keep: f32,
    /// Gradients are multiplied with this first.
    scale: f32,
}

/// Elements that one task takes.
const CHUNK: usize = 16 * 1024;

impl AdamW {
    /// Without a past.
    pub const fn new(settings: AdamWSettings) -> Self {
        Self { settings, step: 0, moments: BTreeMap::new() }
    }

    /// Begins the next update; every parameter is to be handed to [`Update::apply`] once.
    /// Gradients are multiplied with `scale` (see [`clip`]).
    #[allow(clippy::cast_possible_truncation)]
    pub fn begin(&mut self, learning_rate: f64, scale: f64) -> Update<'_> {
        self.step = self.step.saturating_add(1);
        let AdamWSettings { beta1, beta2, epsilon, weight_decay } = self.settings;
        let steps = i32::try_from(self.step).unwrap_or(i32::MAX);
        let factors = Factors {
            share1: (1.0 - beta1) as f32,
            beta2: beta2 as f32,
            share2: (1.0 - beta2) as f32,
            epsilon: epsilon as f32,
            rate: (learning_rate / (1.0 - beta1.powi(steps))) as f32,
            root: (1.0 - beta2.powi(steps)).sqrt() as f32,
            keep: (1.0 - learning_rate * weight_decay) as f32,
            scale: scale as f32,
        };
        Update { moments: &mut self.moments, factors }
    }
}

impl Update<'_> {
    /// Updates a parameter. `decays` says whether weight decay applies to it.
    pub fn apply(
        &mut self,
        name: &str,
        values: &mut [f32],
        gradient: &[f32],
        decays: bool,
    ) -> Result<(), ShapeError> {
        let count = values.len();
        let misfit = |what, other| ShapeError { name: name.to_owned(), values: count, what, other };
        if gradient.len() != count {
            return Err(misfit("gradient has", gradient.len()));
        }
        if !self.moments.contains_key(name) {
            let moments = Moments { first: vec![0.0; count], second: vec![0.0; count] };
            self.moments.insert(name.to_owned(), moments);
        }
        let Some(moments) = self.moments.get_mut(name) else {
            return Err(misfit("moments have", 0));
        };
        for moment in [&moments.first, &moments.second] {
            if moment.len() != count {
                return Err(misfit("moments have", moment.len()));
            }
        }
        let mut factors = self.factors;
        if !decays {
            factors.keep = 1.0;
        }
        if count <= CHUNK {
            factors.apply(values, gradient, &mut moments.first, &mut moments.second);
        } else {
            let parts = values.par_chunks_mut(CHUNK).zip(gradient.par_chunks(CHUNK));
            let first = moments.first.par_chunks_mut(CHUNK);
            let second = moments.second.par_chunks_mut(CHUNK);
            parts.zip(first).zip(second).for_each(|(((values, gradient), first), second)| {
                factors.apply(values, gradient, first, second);
            });
        }
        Ok(())
    }
}

impl Factors {
    fn apply(self, values: &mut [f32], gradient: &[f32], first: &mut [f32], second: &mut [f32]) {
        let moments = first.iter_mut().zip(second);
        for ((value, gradient), (first, second)) in values.iter_mut().zip(gradient).zip(moments) {
            let gradient = gradient * self.scale;
            *value *= self.keep;
            *first += (gradient - *first) * self.share1;
            *second = *second * self.beta2 + gradient * gradient * self.share2;
            *value -= self.rate * (*first / (second.sqrt() / self.root + self.epsilon));
        }
    }
}

/// What gradients are multiplied with so that their common norm is at most `most`. As PyTorch's
/// `clip_grad_norm_`, so a little less than that.
pub fn clip(norm: f64, most: f64) -> f64 {
    (most / (norm + 1e-6)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_an_error() {
        let mut adam = AdamW::new(AdamWSettings::default());
        let error = adam.begin(0.1, 1.0).apply("w", &mut [1.0, 2.0], &[1.0], true).unwrap_err();
        assert_eq!(error.to_string(), "parameter `w` has 2 values, but its gradient has 1");
        adam.begin(0.1, 1.0).apply("w", &mut [1.0], &[1.0], true).unwrap();
        let error =
            adam.begin(0.1, 1.0).apply("w", &mut [1.0, 2.0], &[1.0, 2.0], true).unwrap_err();
        assert_eq!(error.to_string(), "parameter `w` has 2 values, but its moments have 1");
    }

    #[test]
    fn chunks_change_nothing() {
        let count = 2 * CHUNK + 5;
        let gradient: Vec<f32> = (0..count).map(|index| (index % 97) as f32 - 48.0).collect();
        let mut whole = vec![1.0; count];
        let mut alone = vec![1.0; count];
        let settings = AdamWSettings { weight_decay: 0.1, ..AdamWSettings::default() };
        let (mut one, mut other) = (AdamW::new(settings), AdamW::new(settings));
        for _ in 0..3 {
            one.begin(0.1, 0.5).apply("w", &mut whole, &gradient, true).unwrap();
            let mut update = other.begin(0.1, 0.5);
            let parts = alone.chunks_mut(CHUNK).zip(gradient.chunks(CHUNK));
            for (index, (values, gradient)) in parts.enumerate() {
                update.apply(&index.to_string(), values, gradient, true).unwrap();
            }
        }
        assert_eq!(whole, alone);
    }

    #[test]
    fn vectors_do_not_decay_when_told_so() {
        let settings = AdamWSettings { weight_decay: 1.0, ..AdamWSettings::default() };
        let mut adam = AdamW::new(settings);
        let (mut decays, mut stays) = ([1.0], [1.0]);
        let mut update = adam.begin(0.1, 1.0);
        update.apply("matrix", &mut decays, &[0.0], true).unwrap();
        update.apply("vector", &mut stays, &[0.0], false).unwrap();
        assert_eq!((decays, stays), ([0.9], [1.0]));
    }

    #[test]
    fn small_gradients_are_not_scaled_up() {
        assert_eq!(clip(0.5, 1.0), 1.0);
        assert!((clip(4.0, 1.0) - 0.25).abs() < 1e-6);
        assert_eq!(clip(0.0, 1.0), 1.0);
    }
}
