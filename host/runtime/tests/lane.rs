//! The real Python interpreter in the lane of a [`Runtime`]: pool, places and threads.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests may fail loudly"
)]

mod support;

use std::num::NonZeroUsize;

use fulgurite_runtime::{
    LaneProgram, Runtime, Settings,
    clock::EpisodeClock,
    compile::Compiler,
    componentize::componentize,
    program::ProgramRequest,
    wasi::{Output, Stdin, connect},
};
use support::python::{cache, module, output, request};
use tokio::task::JoinSet;

/// A runtime with room for four programs, and Python in it.
async fn lane() -> (Runtime, LaneProgram) {
    let mut settings = Settings::new(cache().join("tests").join("code"), Compiler::ThisProcess);
    settings.plugins = 4.try_into().unwrap();
    settings.programs = 4.try_into().unwrap();
    settings.threads = NonZeroUsize::MIN;
    let runtime = Runtime::new(settings).unwrap();
    let program = runtime.program(componentize(&module()).unwrap()).await.unwrap();
    (runtime, program)
}

fn pair() -> (ProgramRequest, ProgramRequest) {
    let (one, two) = connect();
    let (mut left, mut right) = (request("print(6)"), request("print(int(input()) * 7)"));
    (left.stdin, left.stdout) = (Stdin::Pipe(one.input), Output::Pipe(one.output));
    (right.stdin, right.stdout) = (Stdin::Pipe(two.input), Output::default());
    (left, right)
}

#[tokio::test]
async fn programs_wait_for_places_alone_and_in_pairs() {
    let (runtime, python) = lane().await;
    assert_eq!(runtime.programs().fallback(), None);
    let mut running = JoinSet::new();
    for number in 0..6 {
        let alone = python.clone();
        running.spawn(async move {
            let request = request(&format!("print({number} ** 2)"));
            let end = alone.run(request, &EpisodeClock::start()).await.unwrap();
            assert_eq!(output(&end), format!("{}\n", number * number));
        });
        let python = python.clone();
        running.spawn(async move {
            let (left, right) = pair();
            let clock = EpisodeClock::start();
            let ends = LaneProgram::run_connected((&python, left), (&python, right), &clock).await;
            assert_eq!(ends.0.unwrap().status, 0);
            assert_eq!(output(&ends.1.unwrap()), "42\n");
            assert!(!clock.stands_still());
        });
    }
    running.join_all().await;
    assert_eq!(runtime.programs().places_free(), 4);
}

#[tokio::test]
async fn a_dropped_command_gives_its_place_back() {
    let (runtime, python) = lane().await;
    let clock = EpisodeClock::start();
    let mut running = JoinSet::new();
    for _ in 0..4 {
        let (python, clock) = (python.clone(), clock.clone());
        running.spawn(async move { python.run(request("while True: pass"), &clock).await });
    }
    while runtime.programs().places_free() > 0 {
        tokio::task::yield_now().await;
    }
    running.shutdown().await;
    let end = python.run(request("print('next')"), &clock).await.unwrap();
    assert_eq!(output(&end), "next\n");
}
