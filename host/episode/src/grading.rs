//! Grading a finished episode: each reward in a store of its own, over records that the host owns.

use std::sync::Arc;

use fulgurite_runtime::{
    Reward, Runtime,
    clock::Cancellation,
    limits::Role,
    reward::{RewardFailure, RewardRun, Scored},
};
use fulgurite_sandbox::Sealed;
use fulgurite_trace::{Ending, FailureKind, Score, Task, passed};

use crate::{
    adapt::{
        grader::Grader,
        programs::Programs,
        view::{Turns, View},
    },
    bounds::{command_limits, guest_limits, quota},
    limits::EpisodeLimits,
    plan::RewardPlan,
};

/// What episodes are graded with.
pub(crate) struct Grading<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) programs: &'a Programs,
    pub(crate) rewards: &'a [RewardPlan],
    /// Their components, in the same order.
    pub(crate) loaded: &'a [Reward],
    pub(crate) limits: &'a EpisodeLimits,
    pub(crate) floor: f64,
    pub(crate) cancellation: &'a Cancellation,
}

/// An episode that came to its end.
pub(crate) struct Finished {
    pub(crate) task: Arc<Task>,
    pub(crate) ending: Ending,
    pub(crate) sealed: Sealed,
    pub(crate) turns: Turns,
    pub(crate) seed: u64,
}

/// What the rewards gave.
pub(crate) struct Graded {
    pub(crate) scores: Vec<Score>,
    /// The weighted sum; of an episode that did not complete, the floor at most.
    pub(crate) total: f64,
    /// It completed, and the first reward gave at least 1.
    pub(crate) passed: bool,
}

impl Grading<'_> {
    /// Asks every reward; the first that fails, by name, is the error.
    pub(crate) async fn score(
        &self,
        finished: Finished,
    ) -> Result<Graded, (String, RewardFailure)> {
        let Finished { task, ending, sealed, turns, seed } = finished;
        let kind = ending.kind;
        let view = Arc::new(View { task, ending, sealed: sealed.clone(), turns });
        let mut scores = Vec::with_capacity(self.rewards.len());
        for (plan, reward) in self.rewards.iter().zip(self.loaded) {
            let grader = Grader::new(
                sealed.clone(),
                quota(self.limits),
                self.runtime.clone(),
                self.programs.clone(),
                command_limits(self.limits),
                seed,
            );
            let scored = reward.score(RewardRun {
                config: serde_json::Value::Object(plan.config.clone()).to_string(),
                episode: view.clone(),
                grader: Arc::new(grader),
                limits: guest_limits(Role::Reward, self.limits.reward_fuel, self.limits),
                seed,
                cancellation: self.cancellation.clone(),
            });
            let (reward, weight) = (plan.plugin.name.clone(), plan.weight);
            match scored.await {
                Ok(Scored { total, components, turns, notes, fuel_used: _ }) => {
                    scores.push(Score { reward, weight, total, components, turns, notes });
                }
                Err(failure) => return Err((reward, failure)),
            }
        }
        let is_complete = kind == FailureKind::Completed;
        let passed = passed(Some(kind), &scores);
        let sum: f64 = scores.iter().map(|score| score.weight * score.total).sum();
        let total = if is_complete { sum } else { sum.min(self.floor) };
        Ok(Graded { scores, total, passed })
    }
}
