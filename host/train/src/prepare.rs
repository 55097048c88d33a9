//! What a step needs to know of its tokens before the weights change: log-probabilities of the
//! old policy and of the reference, and advantages.

use fulgurite_trace::TurnValue;

use crate::{
    advantage::{self, Credit},
    batch::{self, Row},
    group::{Chosen, Grade},
    kl::KlPlace,
    learner::Learner,
    loss::correction,
    metrics::Metrics,
    report,
    settings::OldLogProbabilities,
    step::{StepError, Trainer},
};

impl Trainer {
    /// Log-probabilities before the step, and the correction for what sampled the tokens.
    pub(crate) fn old(
        &self,
        learner: &dyn Learner,
        rows: &mut [Row],
        metrics: &mut Metrics,
    ) -> Result<(), StepError> {
        let (asked, version) = (self.settings.old, self.version);
        let recorded = |row: &Row| {
            asked == OldLogProbabilities::WhereRecorded
                && row.sample.untruncated.is_none()
                && row.sample.versions() == Some((version, version))
        };
        let wanted = |row: &Row| !recorded(row) || row.sample.log_probabilities.is_none();
        let packs = batch::packs(rows, self.settings.pack_tokens, None, wanted);
        let scores = batch::score_rows(rows, &packs, |packed| learner.score(packed));
        let scores = scores.map_err(StepError::Learner)?;
        let mut mismatch = report::Mismatch::default();
        for (row, computed) in rows.iter_mut().zip(scores) {
            let wide =
                |values: &Vec<f32>| -> Vec<f64> { values.iter().copied().map(f64::from).collect() };
            let behaviour = row.sample.log_probabilities.as_ref().map(wide);
            let is_computed = computed.is_some();
            row.old = computed.or_else(|| behaviour.clone()).unwrap_or_default();
            let Some(behaviour) = behaviour else {
                mismatch.unknown += row.sample.trained();
                continue;
            };
            // Without the cut, sampling and training kernels should agree on the same version.
            let whole = row.sample.untruncated.as_ref().map_or_else(|| behaviour.clone(), wide);
            let tokens = row.sample.targets().zip(row.old.iter().zip(&whole));
            for ((_, stretch), (old, whole)) in tokens {
                if is_computed && stretch.version == version {
                    mismatch.add(old - whole);
                }
            }
            if let Some(most) = self.settings.importance_threshold {
                let pairs = row.old.iter().zip(&behaviour);
                row.correction = pairs.map(|(old, own)| correction(*old, *own, most)).collect();
            }
        }
        mismatch.report(metrics);
        if let Some(row) = rows.iter().find(|row| !row.old.iter().all(|old| old.is_finite())) {
            let problem = format!(
                "a log-probability of {} before the step is not finite",
                row.sample.episode
            );
            return Err(self.stop(problem, rows));
        }
        Ok(())
    }

    pub(crate) fn reference(
        &self,
        learner: &dyn Learner,
        rows: &mut [Row],
    ) -> Result<(), StepError> {
        if self.settings.kl.is_none() {
            return Ok(());
        }
        let packs = batch::packs(rows, self.settings.pack_tokens, None, |_| true);
        let scores = batch::score_rows(rows, &packs, |packed| learner.score_reference(packed));
        for (row, scores) in rows.iter_mut().zip(scores.map_err(StepError::Learner)?) {
            row.reference = scores;
        }
        Ok(())
    }

    /// Takes the divergence from the reference off the rewards, where it belongs there.
    pub(crate) fn penalise(&self, groups: &mut [Vec<Chosen>], rows: &[Row]) {
        let Some(kl) = self.settings.kl.filter(|kl| kl.place == KlPlace::Reward) else { return };
        let by_turn = matches!(self.settings.credit, Credit::Turns { .. });
        for (episode, chosen) in groups.iter_mut().flatten().enumerate() {
            for row in rows.iter().filter(|row| row.episode == episode) {
                let reference = row.reference.iter().flatten();
                for (((_, stretch), old), reference) in
                    row.sample.targets().zip(&row.old).zip(reference)
                {
                    let penalty = kl.coefficient * kl.estimator.value(*old, *reference);
                    if by_turn {
                        let (turn, value) = (stretch.turn, -penalty);
                        chosen.grade.turns.push(TurnValue { turn, value });
                    } else {
                        chosen.grade.total -= penalty;
                    }
                }
            }
        }
    }

    pub(crate) fn advantages(
        &self,
        groups: &[Vec<Chosen>],
        rows: &mut [Row],
        metrics: &mut Metrics,
    ) {
        let turns: Vec<Vec<u32>> = groups.iter().flatten().map(trained_turns).collect();
        let mut numbers = turns.iter();
        let returns: Vec<Vec<Vec<f64>>> = groups
            .iter()
            .map(|group| {
                let own = group.iter().zip(numbers.by_ref());
                own.map(|(chosen, turns)| {
                    let Grade { total, turns: values } = &chosen.grade;
                    // Episodes without values of turns were dropped when groups were chosen.
                    advantage::returns(self.settings.credit, *total, values, turns)
                        .unwrap_or_default()
                })
                .collect()
            })
            .collect();
        let advantages = advantage::advantages(self.settings.estimator, &returns).concat();
        report::of_advantages(metrics, &advantages);
        for row in rows {
            let (Some(own), Some(turns)) = (advantages.get(row.episode), turns.get(row.episode))
            else {
                continue;
            };
            let of = |turn: u32| match own.as_slice() {
                [single] if self.settings.credit == Credit::Outcome => *single,
                own => turns
                    .binary_search(&turn)
                    .ok()
                    .and_then(|at| own.get(at))
                    .copied()
                    .unwrap_or_default(),
            };
            row.advantage = row.sample.targets().map(|(_, stretch)| of(stretch.turn)).collect();
        }
    }
}

/// Ascending turns with trained tokens.
fn trained_turns(chosen: &Chosen) -> Vec<u32> {
    let rows = chosen.samples.samples.iter();
    let mut turns: Vec<u32> =
        rows.flat_map(|row| row.stretches.iter().map(|stretch| stretch.turn)).collect();
    turns.sort_unstable();
    turns.dedup();
    turns
}
