//! Measurements with a real component, by hand:
//! `FULGURITE_COMPONENT=one-turn.wasm cargo test -p fulgurite-runtime --test plugins measure -- --ignored --nocapture`

use std::{sync::Arc, time::Instant};

use fulgurite_trace::FailureKind;
use tokio::task::JoinSet;

use crate::hosts::{Echo, Fixture};

fn component() -> Arc<[u8]> {
    let path = std::env::var("FULGURITE_COMPONENT").expect("FULGURITE_COMPONENT names a harness");
    std::fs::read(path).unwrap().into()
}

fn status(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measure_alive() {
    let count = 10_000;
    let began = Instant::now();
    let fixture = Fixture::with(10_000, Echo::gated(0));
    println!("runtime in {:?}, {:?}", began.elapsed(), fixture.runtime.plugins());
    assert_eq!(fixture.runtime.plugins().fallback(), None);
    let harness = fixture.harness(component()).await;
    println!("before: {} KiB, {} mappings", status("VmRSS:"), mappings());
    let began = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..count {
        let (harness, run) = (harness.clone(), fixture.run());
        running.spawn(async move { harness.run(run).await });
    }
    fixture.echo.reached(count).await;
    println!(
        "alive after {:?}: {} KiB, {} mappings, {} KiB page tables",
        began.elapsed(),
        status("VmRSS:"),
        mappings(),
        status("VmPTE:"),
    );
    fixture.echo.gate.add_permits(count);
    while let Some(ending) = running.join_next().await {
        let ending = ending.unwrap();
        assert_eq!(ending.kind, FailureKind::Completed, "{ending:?}");
    }
    println!("finished after {:?}: {} KiB", began.elapsed(), status("VmRSS:"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measure_speed() {
    let fixture = Fixture::with(64, Echo::open());
    let harness = fixture.harness(component()).await;
    let mut times = Vec::new();
    for _ in 0..2_000 {
        times.push(harness.time_instantiation().await.unwrap());
    }
    times.sort();
    println!("instantiation p50 {:?} p99 {:?}", times[1_000], times[1_980]);
    let mut loads: Vec<_> =
        (0..20).map(|_| fixture.runtime.time_cached_load(harness.inspection()).unwrap()).collect();
    loads.sort();
    println!("cached load p50 {:?} worst {:?}", loads[10], loads[19]);
    for concurrency in [1, 64] {
        let (began, count) = (Instant::now(), 10_000);
        let mut running = JoinSet::new();
        for _ in 0..concurrency {
            let (harness, runs) = (harness.clone(), vec![(); count / concurrency]);
            let runs: Vec<_> = runs.into_iter().map(|()| fixture.run()).collect();
            running.spawn(async move {
                for run in runs {
                    let ending = harness.run(run).await;
                    assert_eq!(ending.kind, FailureKind::Completed, "{ending:?}");
                }
            });
        }
        running.join_all().await;
        let rate = count as f64 / began.elapsed().as_secs_f64();
        println!("{concurrency} at once: {rate:.0} episodes/s");
    }
}
