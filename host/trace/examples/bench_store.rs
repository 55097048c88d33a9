//! Measures the store on this machine: `cargo run --release -p fulgurite-trace --example
//! bench_store [FOLDER] [TURNS] [TASKS]`.

#![allow(clippy::print_stdout)]

use fulgurite_trace::store::{BenchOptions, bench};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().map_or_else(std::env::temp_dir, Into::into);
    let defaults = BenchOptions::default();
    let turns = arguments.next().map_or(Ok(defaults.turns), |text| text.parse())?;
    let tasks = arguments.next().map_or(Ok(defaults.tasks), |text| text.parse())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let figures = runtime.block_on(bench(&folder, BenchOptions { turns, tasks, ..defaults }))?;
    println!("{}", serde_json::to_string_pretty(&figures)?);
    Ok(())
}
