//! Rewards: what they see, what they say.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use fulgurite_runtime::{
    capability::*,
    clock::{Cancellation, EpisodeClock},
    limits::{LimitSettings, Limits, Role},
    reward::{RewardFailure, RewardRun, Scored},
};
use fulgurite_trace::{CommandOutput, CommandRequest, Ending, FailureKind, Metadata, Turn};

use crate::{guests::reward, hosts::Fixture};

/// Its turns cannot be read.
struct Finished;

#[async_trait]
impl EpisodeView for Finished {
    fn task(&self) -> GradedTask {
        GradedTask {
            id: "task".to_owned(),
            input: "input".to_owned(),
            metadata: Metadata::new(),
            grading: "{}".to_owned(),
        }
    }

    fn ending(&self) -> Ending {
        Ending {
            kind: FailureKind::OutOfFuel,
            outcome: None,
            message: None,
            backtrace: Vec::new(),
            fuel_used: 0,
            virtual_ms: 0,
        }
    }

    fn turn_count(&self) -> u32 {
        3
    }

    async fn turns(&self, _: u32, _: u32) -> Result<Vec<Arc<Turn>>, TurnsUnreadable> {
        Err(TurnsUnreadable)
    }

    fn change_count(&self) -> u32 {
        0
    }

    fn changes(&self, _: u32, _: u32) -> Vec<Change> {
        Vec::new()
    }

    fn read_file(&self, _: &str, _: u64, _: u32) -> Result<Vec<u8>, ReadError> {
        Err(ReadError::NotFound)
    }
}

/// Counts its sandboxes; its lane is down.
#[derive(Default)]
struct Sandboxes(Mutex<Vec<u32>>);

#[async_trait]
impl GraderHost for Sandboxes {
    async fn open(&self, base: GraderBase) -> Result<SandboxId, GraderError> {
        assert_eq!(base, GraderBase::Pristine);
        let mut open = self.0.lock().unwrap();
        open.push(7);
        Ok(SandboxId(7))
    }

    fn close(&self, sandbox: SandboxId) {
        self.0.lock().unwrap().retain(|id| *id != sandbox.0);
    }

    fn put_file(&self, _: SandboxId, _: &str, _: Vec<u8>) -> Result<(), GraderError> {
        Err(GraderError::BadPath)
    }

    fn read_file(&self, _: SandboxId, _: &str, _: u32) -> Result<Vec<u8>, GraderError> {
        Err(GraderError::NotFound)
    }

    fn remove(&self, _: SandboxId, _: &str) -> Result<(), GraderError> {
        Err(GraderError::NotFound)
    }

    async fn run(
        &self,
        _: SandboxId,
        _: CommandRequest,
        _: &EpisodeClock,
    ) -> Result<CommandOutput, ExecError> {
        Err(ExecError::Unavailable)
    }

    async fn run_connected(
        &self,
        _: (SandboxId, CommandRequest),
        _: (SandboxId, CommandRequest),
        _: &EpisodeClock,
    ) -> Result<(CommandOutput, CommandOutput), ExecError> {
        Err(ExecError::Unavailable)
    }
}

async fn score_with(
    grader: Arc<Sandboxes>,
    imports: &str,
    body: &str,
) -> Result<Scored, RewardFailure> {
    let fixture = Fixture::new();
    let body = format!("(func $body (result i32) {body})");
    let reward = fixture.runtime.reward(reward(imports, &body)).await.unwrap();
    assert_eq!(reward.describe().await.unwrap().name, "guest");
    let settings = LimitSettings { fuel: Some(1_000_000), ..LimitSettings::default() };
    let run = RewardRun {
        config: "{}".to_owned(),
        episode: Arc::new(Finished),
        grader,
        limits: Limits::decode(Role::Reward, &settings).unwrap(),
        seed: 1,
        cancellation: Cancellation::new(),
    };
    reward.score(run).await
}

async fn score(imports: &str, body: &str) -> Result<Scored, RewardFailure> {
    score_with(Arc::default(), imports, body).await
}

#[tokio::test]
async fn a_reward_scores_what_it_sees() {
    let count = r#"
        (import "fulgurite:plugin/episode@0.1.0" "turn-count" (func $count (result i32)))"#;
    let scored = score(count, "(call $total (f64.convert_i32_u (call $count)))").await.unwrap();
    assert_eq!(scored.total, 3.0);
    assert!(scored.fuel_used > 0);
}

#[tokio::test]
async fn a_score_that_is_no_number_is_an_alarm() {
    let failure = score("", "(call $total (f64.const nan))").await.unwrap_err();
    assert_eq!(
        (failure.kind, failure.signal),
        (FailureKind::RewardError, FailureKind::HarnessError)
    );
    assert!(failure.message.contains("finite"), "{failure}");
}

#[tokio::test]
async fn traps_and_limits_are_alarms_with_their_signal() {
    for (body, signal) in [
        ("unreachable", FailureKind::Trap),
        ("(loop $again (br $again)) unreachable", FailureKind::OutOfFuel),
    ] {
        let failure = score("", body).await.unwrap_err();
        assert_eq!((failure.kind, failure.signal), (FailureKind::RewardError, signal));
    }
}

#[tokio::test]
async fn turns_that_cannot_be_read_are_not_the_rewards_doing_and_no_score() {
    let turns = r#"
        (import "fulgurite:plugin/episode@0.1.0" "turns" (func $turns (param i32 i32 i32)))"#;
    let body = "(call $turns (i32.const 0) (i32.const 1) (i32.const 4096))
        (call $total (f64.const 1))";
    let failure = score(turns, body).await.unwrap_err();
    assert_eq!(
        (failure.kind, failure.signal),
        (FailureKind::SandboxError, FailureKind::SandboxError)
    );
    assert!(failure.message.contains("cannot be read"), "{failure}");
}

const GRADER: &str = r#"
  (import "fulgurite:plugin/grader@0.1.0" "[static]sandbox.open" (func $open (param i32 i32)))
  (import "fulgurite:plugin/grader@0.1.0" "[method]sandbox.run" (func $run (param
    i32 i32)))
"#;

#[tokio::test]
async fn sandboxes_are_given_back_with_the_store() {
    let grader = Arc::new(Sandboxes::default());
    let open = r#"(import "fulgurite:plugin/grader@0.1.0" "[static]sandbox.open"
        (func $open (param i32 i32)))"#;
    // Opened twice and never dropped.
    let body = r#"(call $open (i32.const 1) (i32.const 4096))
        (if (i32.load8_u (i32.const 4096)) (then unreachable))
        (call $open (i32.const 1) (i32.const 4096))
        (call $total (f64.const 1))"#;
    let scored = score_with(Arc::clone(&grader), open, body).await.unwrap();
    assert_eq!(scored.total, 1.0);
    assert!(grader.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_lane_that_is_down_is_not_the_rewards_doing() {
    // request is passed in memory; an empty line at 5000 will do.
    let body = r#"(call $open (i32.const 1) (i32.const 4096))
        (i32.store8 (i32.const 5004) (i32.const 1))
        (i32.store (i32.const 5000) (i32.load (i32.const 4100)))
        (call $run (i32.const 5000) (i32.const 4200))
        unreachable"#;
    let failure = score(GRADER, body).await.unwrap_err();
    assert_eq!(
        (failure.kind, failure.signal),
        (FailureKind::SandboxError, FailureKind::SandboxError)
    );
}
