//! Parameters by name, and how they change.

use candle_core::{Result, Tensor};

use crate::{
    Gradients, Model,
    linear::Matrices,
    numbers::{change, numbers},
};

impl Model {
    /// Every parameter that training changes, by its name in the checkpoint (adapters: in PEFT's
    /// files). With adapters these are all there are. Empty for quantised weights.
    pub fn trainable(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.views().iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// Number of trainable numbers.
    pub fn trainable_numbers(&self) -> usize {
        self.trainable().map(|(_, tensor)| tensor.elem_count()).sum()
    }

    /// Lets a function change every trainable parameter in place, with its gradient beside it.
    /// All clones of the model compute with the new numbers from then on; nobody may be in the
    /// middle of a pass.
    pub fn update(
        &self,
        gradients: &Gradients,
        mut function: impl FnMut(&str, &mut [f32], &[f32]),
    ) -> Result<()> {
        for (name, tensor) in self.trainable() {
            let Some(gradient) = gradients.get(name) else {
                candle_core::bail!("there is no gradient for `{name}`")
            };
            let gradient = numbers(gradient)?;
            if gradient.len() != tensor.elem_count() {
                candle_core::bail!("the gradient of `{name}` has another shape")
            }
            change(tensor, |values| function(name, values, &gradient))?;
        }
        Ok(())
    }

    /// Writes new numbers over a trainable parameter.
    pub fn write_parameter(&self, name: &str, values: &[f32]) -> Result<()> {
        let Some((_, tensor)) = self.trainable().find(|(known, _)| *known == name) else {
            candle_core::bail!("the model has no trainable parameter `{name}`")
        };
        if tensor.elem_count() != values.len() {
            candle_core::bail!(
                "`{name}` has {} numbers, and {} are given",
                tensor.elem_count(),
                values.len()
            )
        }
        change(tensor, |to| to.copy_from_slice(values))
    }
}

/// Names of all parameters of a plain model, with views of their numbers.
pub(crate) fn views(model: &Model) -> Result<Vec<(String, Tensor)>> {
    let mut views = Vec::new();
    if !model.is_plain() {
        return Ok(views);
    }
    for linear in model.linears() {
        if let Matrices::Plain(matrix) = &linear.matrices {
            for part in &linear.parts {
                views.push((part.name.clone(), matrix.narrow(0, part.start, part.outputs)?));
            }
        }
    }
    for vector in model.vectors() {
        views.push((vector.name.clone(), vector.tensor.clone()));
    }
    views.sort_by(|left, right| left.0.cmp(&right.0));
    Ok(views)
}

/// Names of all matrices of adapters, with these.
pub(crate) fn adapter_views(model: &Model) -> Vec<(String, Tensor)> {
    let adapters = model.linears().flat_map(|linear| &linear.adapters);
    let mut views: Vec<_> = adapters
        .flat_map(|adapter| {
            [
                (adapter.a_name.clone(), adapter.a.clone()),
                (adapter.b_name.clone(), adapter.b.clone()),
            ]
        })
        .collect();
    views.sort_by(|left, right| left.0.cmp(&right.0));
    views
}
