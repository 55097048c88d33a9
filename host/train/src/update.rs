//! Forward, backward and the optimizer.

use std::ops::Range;

use crate::{
    batch::{self, Row},
    learner::Learner,
    loss::{LossSums, Objective, Token, evaluate},
    optimizer::clip,
    step::{StepError, Trainer},
};

/// What all parts of a step come to.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) loss: f64,
    pub(crate) sums: LossSums,
    pub(crate) updates: u64,
    pub(crate) norm: f64,
    pub(crate) norm_max: f64,
    pub(crate) clipped: u64,
}

/// What updates are made for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Aim {
    /// What is minimised.
    pub(crate) objective: Objective,
    /// The temperature of all rows; none: each row's own.
    pub(crate) temperature: Option<f32>,
    /// The learning rate.
    pub(crate) rate: f64,
}

impl Trainer {
    /// Forward, backward and update, for each part of the episodes in each pass.
    pub(crate) fn learn(
        &mut self,
        learner: &mut dyn Learner,
        rows: &[Row],
        episodes: usize,
        aim: Aim,
    ) -> Result<Totals, StepError> {
        let mut totals = Totals::default();
        let parts = self.settings.parts.min(episodes.max(1));
        for _ in 0..self.settings.passes {
            for part in 0..parts {
                let from = episodes.saturating_mul(part) / parts;
                let to = episodes.saturating_mul(part.saturating_add(1)) / parts;
                let made = self.part(learner, rows, from..to, aim, &mut totals);
                let cleared = learner.clear_gradients();
                made?;
                cleared.map_err(StepError::Learner)?;
            }
        }
        Ok(totals)
    }

    fn part(
        &mut self,
        learner: &mut dyn Learner,
        rows: &[Row],
        episodes: Range<usize>,
        aim: Aim,
        totals: &mut Totals,
    ) -> Result<(), StepError> {
        let Aim { objective, temperature, rate } = aim;
        let wanted = |row: &Row| row.trained && episodes.contains(&row.episode);
        let weights = self.weights(rows, &episodes, wanted);
        let packs = batch::packs(rows, self.settings.pack_tokens, temperature, wanted);
        if packs.is_empty() {
            return Ok(());
        }
        for pack in &packs {
            let mut tokens = Vec::with_capacity(pack.packed.targets.len());
            for at in &pack.rows {
                if let (Some(row), Some(weight)) = (rows.get(*at), weights.get(*at)) {
                    tokens.extend(row_tokens(row, *weight));
                }
            }
            let mut problem = None;
            let made = learner.backward(&pack.packed, &mut |scores| {
                if scores.len() != tokens.len() {
                    return Err(format!(
                        "the model gave {} scores for {} targets",
                        scores.len(),
                        tokens.len()
                    )
                    .into());
                }
                let evaluated = evaluate(&objective, scores, &tokens);
                let finite = evaluated.gradients.iter().all(|gradient| {
                    gradient.log_probability.is_finite() && gradient.entropy.is_finite()
                });
                if !finite || !evaluated.value.is_finite() {
                    let text = format!("the loss of a pack is {}", evaluated.value);
                    problem = Some(text.clone());
                    return Err(text.into());
                }
                totals.loss += evaluated.value;
                totals.sums.add(&evaluated.sums);
                Ok(evaluated.gradients)
            });
            if let Some(problem) = problem {
                return Err(self.stop(problem, rows));
            }
            made.map_err(StepError::Learner)?;
        }
        let norm = learner.gradient_norm().map_err(StepError::Learner)?;
        if !norm.is_finite() {
            return Err(self.stop(format!("the norm of the gradients is {norm}"), rows));
        }
        let scale = self.settings.max_gradient_norm.map_or(1.0, |most| clip(norm, most));
        let mut update = self.optimizer.begin(rate, scale);
        self.version = self.version.saturating_add(1);
        learner
            .update(self.version, &mut |name, values, gradient, decays| {
                update.apply(name, values, gradient, decays)
            })
            .map_err(StepError::Learner)?;
        totals.updates = totals.updates.saturating_add(1);
        totals.norm += norm;
        totals.norm_max = totals.norm_max.max(norm);
        totals.clipped = totals.clipped.saturating_add(u64::from(scale < 1.0));
        Ok(())
    }

    /// The weight of each row's tokens; 0 for rows that do not take part.
    fn weights(
        &self,
        rows: &[Row],
        episodes: &Range<usize>,
        wanted: impl Fn(&Row) -> bool,
    ) -> Vec<f64> {
        let mut lengths = vec![Vec::new(); episodes.len()];
        let mut places = Vec::with_capacity(rows.len());
        for row in rows {
            let episode = row.episode.checked_sub(episodes.start).filter(|_| wanted(row));
            places.push(episode.and_then(|episode| {
                let own = lengths.get_mut(episode)?;
                own.push(row.sample.trained());
                Some((episode, own.len().saturating_sub(1)))
            }));
        }
        let weights = self.settings.aggregation.weights(&lengths);
        places
            .into_iter()
            .map(|place| {
                let (episode, row) = place?;
                weights.get(episode)?.get(row).copied()
            })
            .map(Option::unwrap_or_default)
            .collect()
    }
}

fn row_tokens(row: &Row, weight: f64) -> impl Iterator<Item = Token> {
    row.old.iter().zip(&row.advantage).zip(&row.correction).enumerate().map(
        move |(at, ((old, advantage), correction))| Token {
            old: *old,
            reference: row.reference.as_ref().and_then(|values| values.get(at)).copied(),
            advantage: *advantage,
            correction: *correction,
            weight,
        },
    )
}
