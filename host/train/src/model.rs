//! The models of `fulgurite-model` as learners.

use std::path::Path;

use fulgurite_model::{Gradients, Model, Packed, TokenScore};

use crate::{
    learner::{Change, Learner, LearnerError, Loss},
    run::Save,
};

/// What the policy is not to leave too far.
#[derive(Debug)]
pub enum Reference {
    /// The model without its adapters. Costs nothing.
    Base,
    /// A model with weights of its own: loaded once more, since a clone shares those that are
    /// trained.
    Frozen(Box<Model>),
}

/// Lets weights change while nobody computes with them, and says which version they are then.
///
/// Whoever samples from the same weights stands behind this: it waits until no token is being
/// computed, calls `change` once, and goes on with the new version.
pub trait Gate: Send {
    /// Calls `change` and makes `version` the version of the weights.
    fn update(
        &mut self,
        version: u64,
        change: &mut dyn FnMut() -> Result<(), LearnerError>,
    ) -> Result<(), LearnerError>;
}

/// Nobody else computes with the weights.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Gate for Alone {
    fn update(
        &mut self,
        _version: u64,
        change: &mut dyn FnMut() -> Result<(), LearnerError>,
    ) -> Result<(), LearnerError> {
        change()
    }
}

/// A model that is trained: all of its parameters, or its adapters when it has some.
#[derive(Debug)]
pub struct ModelLearner<G> {
    model: Model,
    gradients: Gradients,
    reference: Option<Reference>,
    gate: G,
    /// Which model adapters belong to.
    base: String,
}

impl<G: Gate> ModelLearner<G> {
    /// Trains `model`, whose clones (whoever samples has one) see each update at once.
    pub fn new(model: Model, reference: Option<Reference>, gate: G) -> Result<Self, LearnerError> {
        if model.trainable().next().is_none() {
            return Err("the model has nothing to train: its weights are quantised; load them \
                        plain, or add adapters"
                .into());
        }
        if matches!(reference, Some(Reference::Base)) && model.lora().is_none() {
            return Err("a model without adapters has no base to compare with; give it a frozen \
                        copy as reference"
                .into());
        }
        let gradients = Gradients::new(&model)?;
        Ok(Self { model, gradients, reference, gate, base: String::new() })
    }

    /// Says which model adapters belong to, for the files that are written.
    #[must_use]
    pub fn with_base(self, base: String) -> Self {
        Self { base, ..self }
    }

    /// The model.
    pub const fn model(&self) -> &Model {
        &self.model
    }
}

impl<G> Save for ModelLearner<G> {
    /// The adapters as PEFT has them, where the model has some; else the whole model.
    fn save(&self, folder: &Path) -> Result<(), LearnerError> {
        match self.model.lora() {
            Some(_) => self.model.save_peft(folder, &self.base)?,
            None => self.model.save(folder)?,
        }
        Ok(())
    }
}

impl<G: Gate> Learner for ModelLearner<G> {
    fn vocabulary(&self) -> usize {
        self.model.config().vocabulary
    }

    fn score(&self, packed: &Packed) -> Result<Vec<TokenScore>, LearnerError> {
        Ok(self.model.score(packed)?)
    }

    fn score_reference(&self, packed: &Packed) -> Result<Vec<TokenScore>, LearnerError> {
        match &self.reference {
            Some(Reference::Base) => Ok(self.model.score_base(packed)?),
            Some(Reference::Frozen(model)) => Ok(model.score(packed)?),
            None => Err("a penalty for leaving the reference needs a reference".into()),
        }
    }

    fn backward(&mut self, packed: &Packed, loss: &mut Loss<'_>) -> Result<(), LearnerError> {
        self.model.backward(packed, &mut self.gradients, |scores| loss(scores)).map_err(
            |error| match error {
                fulgurite_model::BackwardError::Loss(error) => error,
                fulgurite_model::BackwardError::Model(error) => error.into(),
            },
        )?;
        Ok(())
    }

    fn gradient_norm(&self) -> Result<f64, LearnerError> {
        match self.gradients.check() {
            // The step says so, and saves the batch.
            Err(fulgurite_model::GradientError::NotFinite { .. }) => Ok(f64::NAN),
            checked => {
                checked?;
                Ok(self.gradients.norm()?)
            }
        }
    }

    fn update(&mut self, version: u64, change: &mut Change<'_>) -> Result<(), LearnerError> {
        let ranks: std::collections::BTreeMap<String, usize> =
            self.model.trainable().map(|(name, tensor)| (name.to_owned(), tensor.rank())).collect();
        let (model, gradients) = (&self.model, &self.gradients);
        self.gate.update(version, &mut || {
            let mut misfit = None;
            model.update(gradients, |name, values, gradient| {
                let decays = ranks.get(name).is_some_and(|rank| *rank > 1);
                if misfit.is_none() {
                    misfit = change(name, values, gradient, decays).err();
                }
            })?;
            misfit.map_or(Ok(()), |error| Err(error.into()))
        })
    }

    fn clear_gradients(&mut self) -> Result<(), LearnerError> {
        Ok(self.gradients.clear()?)
    }
}
