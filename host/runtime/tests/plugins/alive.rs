//! Many guests at once.

use std::sync::{Arc, atomic::Ordering};

use fulgurite_trace::FailureKind;
use tokio::task::JoinSet;

use crate::{
    guests::{asking, doing},
    hosts::{Echo, Fixture},
};

#[tokio::test]
async fn a_thousand_episodes_wait_at_once_and_all_finish() {
    let fixture = Fixture::with(1_000, Echo::gated(0));
    let harness = fixture.harness(asking()).await;
    let mut running = JoinSet::new();
    for _ in 0..1_000 {
        let (harness, run) = (harness.clone(), fixture.run());
        running.spawn(async move { harness.run(run).await.kind });
    }
    fixture.echo.reached(1_000).await;
    fixture.echo.gate.add_permits(1_000);
    let kinds = running.join_all().await;
    assert_eq!(kinds, vec![FailureKind::Completed; 1_000]);
}

#[tokio::test]
async fn a_full_pool_makes_guests_wait_and_not_fail() {
    let fixture = Fixture::with(4, Echo::gated(0));
    let harness = fixture.harness(asking()).await;
    let mut running = JoinSet::new();
    for _ in 0..40 {
        let (harness, run) = (harness.clone(), fixture.run());
        running.spawn(async move { harness.run(run).await.kind });
    }
    fixture.echo.reached(4).await;
    assert_eq!(fixture.echo.waiting.load(Ordering::SeqCst), 4);
    assert_eq!(fixture.runtime.plugins().places_free(), 0);
    fixture.echo.gate.add_permits(40);
    assert_eq!(running.join_all().await, vec![FailureKind::Completed; 40]);
    assert_eq!(fixture.runtime.plugins().places_free(), 4);
}

#[tokio::test]
async fn endless_loops_do_not_keep_others_waiting() {
    let mut fixture = Fixture::with(128, Echo::gated(0));
    let harness = fixture.harness(asking()).await;
    let mut waiting = JoinSet::new();
    for _ in 0..100 {
        let (harness, run) = (harness.clone(), fixture.run());
        waiting.spawn(async move { harness.run(run).await.kind });
    }
    fixture.echo.reached(100).await;
    fixture.limits.fuel = Some(1 << 60);
    let endless = fixture.harness(doing("(loop $again (br $again)) unreachable")).await;
    let mut looping = JoinSet::new();
    for _ in 0..8 {
        let (endless, run) = (endless.clone(), fixture.run());
        looping.spawn(async move { endless.run(run).await.kind });
    }
    fixture.echo.gate.add_permits(100);
    assert_eq!(waiting.join_all().await, vec![FailureKind::Completed; 100]);
    // None of the loops ended meanwhile; dropping their callers stops them.
    assert!(looping.try_join_next().is_none());
    looping.shutdown().await;
    while fixture.runtime.plugins().places_free() < 128 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn instantiation_can_be_timed() {
    let fixture = Fixture::new();
    let harness = Arc::new(fixture.harness(asking()).await);
    assert!(harness.time_instantiation().await.unwrap().as_nanos() > 0);
}
