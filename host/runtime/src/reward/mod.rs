//! Rewards: scorers of finished episodes, one fresh store a score.

mod host;

use std::sync::Arc;

use fulgurite_trace::{FailureKind, Metadata, ScoreComponent, TurnValue};
use serde::{Deserialize, Serialize};
use wasmtime::component::Linker;

use self::host::RewardState;
use crate::{
    audit::Inspection,
    bindings::reward::{self as bindings, exports::fulgurite::plugin::scorer},
    capability::{EpisodeView, GraderHost},
    clock::{Cancellation, EpisodeClock},
    engine::Engine,
    executor::HostFailure,
    failure::{Failure, truncate},
    guest::{Guest, GuestConfig, GuestView as _, fuel_used, store, watched},
    harness::DescribeError,
    limits::Limits,
    runtime::{LoadError, Loaded, Runtime},
    wasi,
};

/// Bytes of a message that is kept of a failure.
const MOST_MESSAGE: usize = 4_000;

/// What a reward says of itself: hostile text, escape before showing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScorerDescription {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// JSON Schema of its configuration, as text.
    pub config_schema: String,
}

/// One score to give.
pub struct RewardRun {
    /// The reward's configuration, a JSON object as text.
    pub config: String,
    /// The finished episode.
    pub episode: Arc<dyn EpisodeView>,
    /// Sandboxes to grade in.
    pub grader: Arc<dyn GraderHost>,
    /// What it may use.
    pub limits: Limits,
    /// Where its random numbers start.
    pub seed: u64,
    /// The way to stop it.
    pub cancellation: Cancellation,
}

/// What a reward said. All numbers are finite, and turns are turns of the episode.
#[derive(Debug, Clone, PartialEq)]
pub struct Scored {
    /// The score.
    pub total: f64,
    /// Named parts.
    pub components: Vec<ScoreComponent>,
    /// Values of single turns.
    pub turns: Vec<TurnValue>,
    /// Notes: hostile text, escape before showing.
    pub notes: Metadata,
    /// Fuel it used.
    pub fuel_used: u64,
}

/// A reward gave no score.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the reward gave no score ({kind}, {signal}): {message}")]
pub struct RewardFailure {
    /// `reward-error`; or `sandbox-error` and `cancelled`, where it is not the reward's doing.
    pub kind: FailureKind,
    /// What happened, in the words of the table in [`crate::limits`]; `harness-error` for an
    /// error that the reward returned and for a score that is none.
    pub signal: FailureKind,
    /// The details: hostile text, escape before showing.
    pub message: String,
    /// Function names, innermost first.
    pub backtrace: Vec<String>,
    /// Fuel it used.
    pub fuel_used: u64,
    /// What it wrote to standard error, cut at the limit.
    pub stderr: String,
}

impl RewardFailure {
    fn new(signal: FailureKind, message: impl Into<String>) -> Self {
        let kind = match signal {
            FailureKind::SandboxError | FailureKind::Cancelled => signal,
            _ => FailureKind::RewardError,
        };
        Self {
            kind,
            signal,
            message: message.into(),
            backtrace: Vec::new(),
            fuel_used: 0,
            stderr: String::new(),
        }
    }
}

/// A loaded reward. Clones share the code.
#[derive(Clone)]
pub struct Reward {
    runtime: Runtime,
    loaded: Loaded,
    pre: bindings::RewardPre<RewardState>,
}

impl std::fmt::Debug for Reward {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Reward").field("loaded", &self.loaded).finish_non_exhaustive()
    }
}

impl Reward {
    pub(crate) fn prepare(runtime: Runtime, loaded: Loaded) -> Result<Self, LoadError> {
        let link = || {
            let mut linker = Linker::new(loaded.engine.wasm());
            wasi::add_to_linker(&mut linker)?;
            host::add_to_linker(&mut linker)?;
            bindings::RewardPre::new(linker.instantiate_pre(&loaded.component)?)
        };
        let pre =
            link().map_err(|error: wasmtime::Error| LoadError::Shape(format!("{error:#}")))?;
        Ok(Self { runtime, loaded, pre })
    }

    /// What the component is and wants.
    pub fn inspection(&self) -> &Inspection {
        &self.loaded.inspection
    }

    /// Asks the reward to describe itself, in a store where no capability answers.
    pub async fn describe(&self) -> Result<ScorerDescription, DescribeError> {
        let place = self.loaded.engine.place(&self.loaded.component).await;
        let (pre, engine) = (self.pre.clone(), self.loaded.engine.clone());
        let describing = self.runtime.executor().run(async move {
            let described = describe(&engine, &pre).await;
            drop(place);
            described
        });
        describing.await.unwrap_or_else(|failure| Err(DescribeError::host(failure)))
    }

    /// Scores one episode, as soon as there is a place for it. Dropping the future stops it.
    pub async fn score(&self, run: RewardRun) -> Result<Scored, RewardFailure> {
        let cancellation = run.cancellation.clone();
        let place = tokio::select! {
            biased;
            place = self.loaded.engine.place(&self.loaded.component) => place,
            () = cancellation.cancelled() => {
                let message = "cancelled before it began";
                return Err(RewardFailure::new(FailureKind::Cancelled, message));
            }
        };
        let (pre, engine) = (self.pre.clone(), self.loaded.engine.clone());
        let scoring = self.runtime.executor().run(async move {
            let scored = score(&engine, &pre, run).await;
            drop(place);
            scored
        });
        scoring.await.unwrap_or_else(|failure| {
            Err(RewardFailure::new(FailureKind::SandboxError, failure.to_string()))
        })
    }
}

async fn describe(
    engine: &Engine,
    pre: &bindings::RewardPre<RewardState>,
) -> Result<ScorerDescription, DescribeError> {
    let (limits, clock) = (Limits::of_describe(), EpisodeClock::start());
    let cancellation = Cancellation::new();
    let guest = Guest::new(GuestConfig {
        limits,
        seed: 0,
        files: None,
        clock: clock.clone(),
        cancellation: cancellation.clone(),
    });
    let mut store = store(engine, RewardState::new(guest, None))
        .map_err(|error| DescribeError::host(HostFailure(error.to_string())))?;
    let call = async {
        let reward = pre.instantiate_async(&mut store).await?;
        reward.fulgurite_plugin_scorer().call_describe(&mut store).await
    };
    match watched(&limits, &clock, &cancellation, call).await {
        Ok(scorer::Description { name, version, config_schema }) => {
            Ok(ScorerDescription { name, version, config_schema })
        }
        Err(error) => Err(DescribeError::new(store.data_mut().guest().failure(&error))),
    }
}

async fn score(
    engine: &Engine,
    pre: &bindings::RewardPre<RewardState>,
    run: RewardRun,
) -> Result<Scored, RewardFailure> {
    let RewardRun { config, episode, grader, limits, seed, cancellation } = run;
    let clock = EpisodeClock::start();
    let turn_count = episode.turn_count();
    let guest = Guest::new(GuestConfig {
        limits,
        seed,
        files: None,
        clock: clock.clone(),
        cancellation: cancellation.clone(),
    });
    let mut store = store(engine, RewardState::new(guest, Some((episode, grader))))
        .map_err(|error| RewardFailure::new(FailureKind::SandboxError, error.to_string()))?;
    let call = async {
        let reward = pre.instantiate_async(&mut store).await?;
        reward.fulgurite_plugin_scorer().call_score(&mut store, &config).await
    };
    let returned = watched(&limits, &clock, &cancellation, call).await;
    let fuel_used = fuel_used(&mut store);
    let mut state = store.into_data();
    let guest = state.guest();
    let failed = match returned {
        Ok(Ok(score)) => match accept(score, turn_count, fuel_used) {
            Ok(scored) => return Ok(scored),
            Err(message) => RewardFailure::new(FailureKind::HarnessError, message),
        },
        Ok(Err(scorer::Failure { mut message })) => {
            truncate(&mut message, MOST_MESSAGE);
            let signal = if cancellation.is_cancelled() {
                FailureKind::Cancelled
            } else {
                guest.blame().kind().unwrap_or(FailureKind::HarnessError)
            };
            RewardFailure::new(signal, message)
        }
        Err(error) => {
            let Failure { kind, message, backtrace } = guest.failure(&error);
            RewardFailure { backtrace, ..RewardFailure::new(kind, message) }
        }
    };
    let stderr = guest.output().map_or_else(String::new, |(_, stderr)| stderr);
    Err(RewardFailure { fuel_used, stderr, ..failed })
}

/// Takes a score for what it is, or says why it is none.
fn accept(score: scorer::Scores, turn_count: u32, fuel_used: u64) -> Result<Scored, String> {
    let scorer::Scores { total, components, turns, notes } = score;
    if !total.is_finite() {
        return Err(format!("the total is {total}; it has to be a finite number"));
    }
    for part in &components {
        if !part.value.is_finite() {
            let mut name = part.name.clone();
            truncate(&mut name, 200);
            return Err(format!("the component `{name}` is {}, not a finite number", part.value));
        }
    }
    for turn in &turns {
        if !turn.value.is_finite() {
            return Err(format!("turn {} is {}, not a finite number", turn.turn, turn.value));
        }
        if turn.turn >= turn_count {
            return Err(format!("turn {} has a value; there are {turn_count} turns", turn.turn));
        }
    }
    Ok(Scored {
        total,
        components: components
            .into_iter()
            .map(|scorer::Component { name, value }| ScoreComponent { name, value })
            .collect(),
        turns: turns
            .into_iter()
            .map(|scorer::TurnValue { turn, value }| TurnValue { turn, value })
            .collect(),
        notes,
        fuel_used,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(total: f64) -> scorer::Scores {
        scorer::Scores { total, components: Vec::new(), turns: Vec::new(), notes: Vec::new() }
    }

    #[test]
    fn only_finite_scores_of_turns_that_are_there_are_accepted() {
        assert_eq!(accept(score(0.5), 0, 7).unwrap().fuel_used, 7);
        for total in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(accept(score(total), 0, 0).is_err());
        }
        let mut with_part = score(1.0);
        with_part.components.push(scorer::Component { name: "x".into(), value: f64::NAN });
        assert!(accept(with_part, 0, 0).unwrap_err().contains("`x`"));
        let mut with_turn = score(1.0);
        with_turn.turns.push(scorer::TurnValue { turn: 2, value: 0.0 });
        assert!(accept(with_turn.clone(), 2, 0).is_err());
        assert!(accept(with_turn, 3, 0).is_ok());
    }
}
