//! Gradients, by parameter.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Result, Tensor};
use rayon::prelude::*;

use super::buffers::Buffers;
use crate::{
    Model,
    linear::Matrices,
    numbers::{change, numbers},
};

/// Numbers that are summed in one go.
const BLOCK: usize = 1 << 16;

/// A trainable parameter whose gradient is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GradientError {
    /// No pass has reached the parameter.
    #[error("no gradient has reached the trainable parameter `{0}`")]
    Missing(String),
    /// There are numbers that are none.
    #[error("the gradient of `{name}` holds {count} numbers that are not finite")]
    NotFinite {
        /// Of the parameter.
        name: String,
        /// How many.
        count: usize,
    },
}

/// The gradients of all trainable parameters, f32, added up over passes.
#[derive(Debug)]
pub struct Gradients {
    /// By the number of the parameter.
    slots: Vec<Option<Slot>>,
    /// By name: the slot, and a view of its numbers.
    views: BTreeMap<String, (usize, Tensor)>,
    /// Memory of the last pass, for the next one.
    pub(super) buffers: Buffers,
}

#[derive(Debug)]
struct Slot {
    tensor: Tensor,
    reached: bool,
}

impl Gradients {
    /// Zeros for all that is trainable in a model.
    pub fn new(model: &Model) -> Result<Self> {
        let mut gradients =
            Self { slots: Vec::new(), views: BTreeMap::new(), buffers: Buffers::default() };
        gradients.slots.resize_with(model.numbered_parameters(), || None);
        if model.lora().is_some() {
            for adapter in model.linears().flat_map(|linear| &linear.adapters) {
                gradients.add(adapter.id, &adapter.a, [(adapter.a_name.clone(), None)])?;
                gradients.add(adapter.id + 1, &adapter.b, [(adapter.b_name.clone(), None)])?;
            }
            return Ok(gradients);
        }
        for linear in model.linears() {
            let Matrices::Plain(matrix) = &linear.matrices else { continue };
            let parts = linear.parts.iter();
            let parts = parts.map(|part| (part.name.clone(), Some((part.start, part.outputs))));
            gradients.add(linear.id, matrix, parts)?;
        }
        for vector in model.vectors() {
            gradients.add(vector.id, &vector.tensor, [(vector.name.clone(), None)])?;
        }
        Ok(gradients)
    }

    fn add(
        &mut self,
        id: usize,
        like: &Tensor,
        parts: impl IntoIterator<Item = (String, Option<(usize, usize)>)>,
    ) -> Result<()> {
        let tensor = Tensor::zeros(like.shape(), DType::F32, &Device::Cpu)?;
        for (name, part) in parts {
            let view = match part {
                Some((start, length)) => tensor.narrow(0, start, length)?,
                None => tensor.clone(),
            };
            self.views.insert(name, (id, view));
        }
        if let Some(slot) = self.slots.get_mut(id) {
            *slot = Some(Slot { tensor, reached: false });
        }
        Ok(())
    }

    /// Whether a parameter is trained.
    pub(crate) fn wants(&self, id: usize) -> bool {
        self.slots.get(id).is_some_and(Option::is_some)
    }

    /// Lets a function add to the gradient of a parameter, if that is trained.
    pub(crate) fn accumulate(
        &mut self,
        id: usize,
        function: impl FnOnce(&mut [f32]) -> bool,
    ) -> Result<()> {
        let Some(Some(slot)) = self.slots.get_mut(id) else { return Ok(()) };
        slot.reached = true;
        if !change(&slot.tensor, function)? {
            candle_core::bail!("a gradient does not fit its parameter")
        }
        Ok(())
    }

    /// The gradient of a parameter, in its shape.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.views.get(name).map(|(_, view)| view)
    }

    /// Names and gradients of all trainable parameters, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.views.iter().map(|(name, (_, view))| (name.as_str(), view))
    }

    /// The Euclidean norm of all gradients together.
    pub fn norm(&self) -> Result<f64> {
        let mut sum = 0f64;
        for slot in self.slots.iter().flatten() {
            let numbers = numbers(&slot.tensor)?;
            // Sums of blocks, added in order: the same whatever the number of threads.
            let blocks: Vec<f64> = numbers
                .par_chunks(BLOCK)
                .map(|block| block.iter().map(|number| f64::from(*number).powi(2)).sum())
                .collect();
            sum += blocks.iter().sum::<f64>();
        }
        Ok(sum.sqrt())
    }

    /// Multiplies all gradients.
    pub fn scale(&mut self, factor: f32) -> Result<()> {
        self.each(|numbers| numbers.iter_mut().for_each(|number| *number *= factor))
    }

    /// Back to zeros that nothing has reached.
    pub fn clear(&mut self) -> Result<()> {
        self.slots.iter_mut().flatten().for_each(|slot| slot.reached = false);
        self.each(|numbers| numbers.fill(0.0))
    }

    fn each(&mut self, function: impl Fn(&mut [f32]) + Sync) -> Result<()> {
        for slot in self.slots.iter().flatten() {
            change(&slot.tensor, |numbers| numbers.par_chunks_mut(BLOCK).for_each(&function))?;
        }
        Ok(())
    }

    /// Fails unless every trainable parameter has a gradient, and all are finite.
    pub fn check(&self) -> std::result::Result<(), GradientError> {
        for (name, (id, view)) in &self.views {
            let reached = self.slots.get(*id).and_then(Option::as_ref).is_some_and(|s| s.reached);
            if !reached {
                return Err(GradientError::Missing(name.clone()));
            }
            let count = numbers(view).map_or(usize::MAX, |numbers| {
                numbers.iter().filter(|number| !number.is_finite()).count()
            });
            if count > 0 {
                return Err(GradientError::NotFinite { name: name.clone(), count });
            }
        }
        Ok(())
    }
}
