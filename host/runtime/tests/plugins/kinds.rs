//! Every way to end is a kind of its own.

use fulgurite_runtime::{
    capability::{BudgetKind, LlmError},
    limits::LimitSettings,
};
use fulgurite_trace::{Ending, FailureKind, OutcomeStatus};

use crate::{
    guests::{ASK, LLM, asking, doing, harness},
    hosts::{Echo, Fixture},
};

async fn ending_of(expression: &str, limits: LimitSettings) -> Ending {
    let mut fixture = Fixture::new();
    fixture.limits = limits;
    fixture.ending(doing(expression)).await
}

fn little_fuel() -> LimitSettings {
    LimitSettings { fuel: Some(1_000_000), ..LimitSettings::default() }
}

const SPIN: &str = "(func $spin (loop $again (br $again)))";

#[tokio::test]
async fn an_outcome_is_completed() {
    let fixture = Fixture::new();
    let ending = fixture.ending(asking()).await;
    assert_eq!(ending.kind, FailureKind::Completed, "{ending:?}");
    let outcome = ending.outcome.unwrap();
    assert_eq!((outcome.status, outcome.answer.as_str()), (OutcomeStatus::Submitted, "hello"));
    assert!(ending.fuel_used > 100);
}

#[tokio::test]
async fn the_same_run_uses_the_same_fuel() {
    let fixture = Fixture::new();
    let harness = fixture.harness(asking()).await;
    let first = harness.run(fixture.run()).await;
    for _ in 0..20 {
        assert_eq!(harness.run(fixture.run()).await, first);
    }
}

#[tokio::test]
async fn a_returned_failure_is_a_harness_error() {
    let ending =
        ending_of("(call $fail (i32.const 16) (i32.const 5))", LimitSettings::default()).await;
    assert_eq!(ending.kind, FailureKind::HarnessError);
    assert_eq!(ending.message.as_deref(), Some("guest"));
    assert_eq!(ending.outcome, None);
}

#[tokio::test]
async fn an_endless_loop_is_out_of_fuel_and_says_where() {
    let mut fixture = Fixture::new();
    fixture.limits = little_fuel();
    let body = "(func $body (param i32 i32) (result i32) (call $spin) unreachable)";
    let ending = fixture.ending(harness("", &format!("{SPIN} {body}"))).await;
    assert_eq!(ending.kind, FailureKind::OutOfFuel, "{ending:?}");
    assert_eq!(ending.fuel_used, 1_000_000);
    assert_eq!(ending.backtrace[..2], ["spin", "body"], "{ending:?}");
}

#[tokio::test]
async fn an_endless_loop_with_endless_fuel_is_a_timeout() {
    let limits =
        LimitSettings { fuel: Some(1 << 60), wall_ms: Some(30), ..LimitSettings::default() };
    let ending = ending_of("(loop $again (br $again)) unreachable", limits).await;
    assert_eq!(ending.kind, FailureKind::Timeout, "{ending:?}");
    assert_eq!(ending.backtrace[0], "body", "{ending:?}");
}

#[tokio::test]
async fn unreachable_and_deep_recursion_are_traps() {
    let ending = ending_of("unreachable", LimitSettings::default()).await;
    assert_eq!(ending.kind, FailureKind::Trap);
    let ending =
        ending_of("(call $body (local.get 0) (local.get 1))", LimitSettings::default()).await;
    assert_eq!(ending.kind, FailureKind::Trap);
    assert!(ending.message.unwrap().contains("call stack exhausted"));
}

#[tokio::test]
async fn memory_beyond_the_limit_is_refused_and_a_trap_after_it_out_of_memory() {
    let limits = LimitSettings { memory_bytes: Some(4 << 20), ..little_fuel() };
    let grow = "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))";
    let ending = ending_of(&format!("{grow} unreachable"), limits).await;
    assert_eq!(ending.kind, FailureKind::OutOfMemory, "{ending:?}");
    assert!(ending.message.unwrap().contains("memory-bytes"));
    // A guest that takes the refusal well is none the worse for it.
    let ending =
        ending_of(&format!("{grow} (call $submit (i32.const 16) (i32.const 5))"), limits).await;
    assert_eq!(ending.kind, FailureKind::Completed, "{ending:?}");
}

#[tokio::test]
async fn memories_are_summed_and_counted() {
    let body =
        "(func $body (param i32 i32) (result i32) (call $submit (i32.const 0) (i32.const 0)))";
    let mut fixture = Fixture::new();
    fixture.limits.memory_bytes = Some(4 << 20);
    let two = "(memory $a 40) (memory $b 40)";
    let ending = fixture.ending(harness("", &format!("{two} {body}"))).await;
    assert_eq!(ending.kind, FailureKind::OutOfMemory, "{ending:?}");
    fixture.limits.memory_bytes = None;
    let ending = fixture.ending(harness("", &format!("{two} {body}"))).await;
    assert_eq!(ending.kind, FailureKind::Completed, "{ending:?}");
    let many = "(memory 1) (memory 1) (memory 1) (memory 1) (memory 1)";
    let ending = fixture.ending(harness("", &format!("{many} {body}"))).await;
    assert_eq!(ending.kind, FailureKind::OutOfMemory, "{ending:?}");
}

#[tokio::test]
async fn tables_are_limited() {
    let mut fixture = Fixture::new();
    fixture.limits.table_elements = Some(1_000);
    let body = r#"(table $t 1 funcref)
        (func $body (param i32 i32) (result i32)
          (loop $more
            (br_if $more (i32.ne (table.grow $t (ref.null func) (i32.const 100)) (i32.const -1))))
          unreachable)"#;
    let ending = fixture.ending(harness("", body)).await;
    assert_eq!(ending.kind, FailureKind::OutOfMemory, "{ending:?}");
    assert!(ending.message.unwrap().contains("table-elements"));
}

const EVENT: &str = r#"
  (import "fulgurite:plugin/trace@0.1.0" "event" (func $event (param i32 i32 i32 i32)))
  (import "fulgurite:plugin/trace@0.1.0" "metric" (func $metric (param i32 i32 f64)))
"#;

#[tokio::test]
async fn a_huge_string_to_the_host_is_out_of_memory() {
    let mut fixture = Fixture::new();
    fixture.limits.hostcall_bytes = Some(1 << 20);
    let body = r#"(func $body (param i32 i32) (result i32)
        (drop (memory.grow (i32.const 64)))
        (call $event (i32.const 0) (i32.const 0x200000) (i32.const 0) (i32.const 0))
        unreachable)"#;
    let ending = fixture.ending(harness(EVENT, body)).await;
    assert_eq!(ending.kind, FailureKind::OutOfMemory, "{ending:?}");
}

#[tokio::test]
async fn a_string_that_is_no_text_is_a_trap() {
    let body = r#"(data (i32.const 128) "\ff\fe")
        (func $body (param i32 i32) (result i32)
          (call $event (i32.const 128) (i32.const 2) (i32.const 0) (i32.const 0))
          unreachable)"#;
    let ending = Fixture::new().ending(harness(EVENT, body)).await;
    assert_eq!(ending.kind, FailureKind::Trap, "{ending:?}");
}

#[tokio::test]
async fn metrics_that_are_no_numbers_become_notes() {
    let fixture = Fixture::new();
    let body = r#"(func $body (param i32 i32) (result i32)
        (call $metric (i32.const 16) (i32.const 5) (f64.const 2.5))
        (call $metric (i32.const 16) (i32.const 5) (f64.const nan))
        (call $submit (i32.const 0) (i32.const 0)))"#;
    let ending = fixture.ending(harness(EVENT, body)).await;
    assert_eq!(ending.kind, FailureKind::Completed, "{ending:?}");
    assert_eq!(*fixture.notes.metrics.lock().unwrap(), [("guest".to_owned(), 2.5)]);
    assert_eq!(fixture.notes.events.lock().unwrap()[0].0, "metric-not-finite");
}

#[tokio::test]
async fn resources_without_end_are_out_of_memory() {
    let body = "(func $body (param i32 i32) (result i32) (loop $more (call $converse) (br $more)) unreachable)";
    for (resources, handles) in [(Some(50), None), (None, Some(50))] {
        let mut fixture = Fixture::new();
        fixture.limits.resources = resources;
        fixture.limits.handles = handles;
        let ending = fixture.ending(harness(LLM, &format!("{ASK} {body}"))).await;
        assert_eq!(ending.kind, FailureKind::OutOfMemory, "{ending:?}");
    }
}

#[tokio::test]
async fn a_failure_is_put_down_to_what_the_policy_said() {
    for (error, kind) in [
        (LlmError::ContextLength, FailureKind::ContextLength),
        (LlmError::Budget(BudgetKind::Tokens), FailureKind::Budget),
        (LlmError::Unavailable, FailureKind::PolicyError),
        (LlmError::RateLimited, FailureKind::PolicyError),
        (LlmError::Invalid("x".to_owned()), FailureKind::HarnessError),
    ] {
        let fixture = Fixture::with(16, Echo::failing(error.clone()));
        let ending = fixture.ending(asking()).await;
        assert_eq!(ending.kind, kind, "{error}");
        assert_eq!(ending.message.as_deref(), Some("llm"));
    }
}

const BUDGET: &str = r#"(import "fulgurite:plugin/budget@0.1.0" "left" (func $left (param i32)))"#;

#[tokio::test]
async fn budgets_tell_tokens_and_fuel() {
    // remaining { tokens: option<u64> at 0, ..., fuel: option<u64> at 48 }: the test is in the guest.
    let body = r#"(func $body (param i32 i32) (result i32)
        (call $left (i32.const 4096))
        (if (i64.ne (i64.load (i32.const 4104)) (i64.const 12)) (then unreachable))
        (if (i32.ne (i32.load8_u (i32.const 4144)) (i32.const 1)) (then unreachable))
        (if (i64.gt_u (i64.load (i32.const 4152)) (i64.const 1000000)) (then unreachable))
        (if (i64.lt_u (i64.load (i32.const 4152)) (i64.const 900000)) (then unreachable))
        (call $submit (i32.const 0) (i32.const 0)))"#;
    let mut fixture = Fixture::new();
    fixture.limits = little_fuel();
    let ending = fixture.ending(harness(BUDGET, body)).await;
    assert_eq!(ending.kind, FailureKind::Completed, "{ending:?}");
}

#[tokio::test]
async fn cancelling_answers_the_waiting_call_and_stops_the_rest() {
    let fixture = Fixture::with(16, Echo::gated(0));
    let harness = fixture.harness(asking()).await;
    let run = fixture.run();
    let running = tokio::spawn(async move { harness.run(run).await });
    fixture.echo.reached(1).await;
    fixture.cancellation.cancel();
    let ending = running.await.unwrap();
    assert_eq!(ending.kind, FailureKind::Cancelled, "{ending:?}");
    assert_eq!(ending.message.as_deref(), Some("llm"));
    // One that does not listen runs out of its grace; one that has not begun does not begin.
    let endless = fixture.ending(doing("(loop $again (br $again)) unreachable")).await;
    assert_eq!(endless.kind, FailureKind::Cancelled, "{endless:?}");
}
