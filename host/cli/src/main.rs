//! The `fulgurite` binary: configuration, progress, output, wiring.
//!
//! What is done is done in the rooms; this one reads the command line and `fulgurite.toml`,
//! resolves them once, introduces the rooms to each other and shows what came of it. Results go
//! to standard output, as text or (`--json`) for machines; progress and remarks to standard
//! error. Exit codes are documented in `fulgurite --help`.

mod allocator;
mod args;
mod commands;
mod config;
mod exit;
mod guest;
mod host;
mod human_eval;
mod machine;
mod nearest;
mod output;
mod place;
mod policy;
mod relative;
mod run;
mod schema;
mod scratch;
mod signals;
mod table;
mod train;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use args::{Arguments, BenchCommand, Command, RewardCommand};
use clap::{CommandFactory as _, Parser as _};
use output::Output;
use place::Places;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

fn main() -> ExitCode {
    // A compiling child: a copy of this program with nothing but a component on its input.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == fulgurite_runtime::compile::CHILD_ARGUMENT)
    {
        return fulgurite_runtime::compile::child_main();
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return output::wrong_arguments(&error),
    };
    let output = Output::new(&arguments.global);
    log(output);
    match run(arguments, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = exit::code(&error);
            output.error(&error, code);
            ExitCode::from(code)
        }
    }
}

fn run(arguments: Arguments, output: Output) -> Result<()> {
    let places = Places::find(&arguments.global)?;
    match arguments.command {
        Command::Run(flags) => asynchronous(run::run(&flags, &places, output)),
        Command::Train(flags) => asynchronous(train::run(&flags, &places, output)),
        Command::Grade(grade) => asynchronous(commands::grade::run(&grade, &places, output)),
        Command::New(new) => commands::new::run(&new, output),
        Command::Build(build) => build_guest(&build, &places, output),
        Command::Inspect(inspect) => {
            asynchronous(commands::inspect::run(&inspect, &places, output))
        }
        Command::Reward(RewardCommand::Check(check)) => {
            asynchronous(commands::reward_check::run(&check, &places, output))
        }
        Command::Plugin(command) => asynchronous(commands::plugin::run(&command, &places, output)),
        Command::Tasks(command) => commands::tasks::run(&command, &places, output),
        Command::Trace(command) => commands::trace::run(&command, &places, output),
        Command::Compare(compare) => commands::compare::run(&compare, &places, output),
        Command::Bench(BenchCommand::Episodes { episodes, alive, python }) => {
            let python = python.as_deref();
            asynchronous(commands::bench::episodes(episodes, alive, python, &places, output))
        }
        Command::Bench(BenchCommand::Policy(asked)) => {
            asynchronous(commands::bench_policy::run(&asked, output))
        }
        Command::Bench(BenchCommand::Train(asked)) => commands::bench_train::run(&asked, output),
        Command::Bench(BenchCommand::Store { turns }) => {
            asynchronous(commands::bench::store(turns, &places, output))
        }
        Command::Serve(serve) => asynchronous(commands::serve::run(&serve, output)),
        Command::Doctor => commands::doctor::run(&places, output),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "fulgurite", &mut script);
            output.text(String::from_utf8_lossy(&script).trim_end())
        }
    }
}

fn build_guest(build: &args::Build, places: &Places, output: Output) -> Result<()> {
    output.remark(
        "building runs the package's own code (build scripts, macros, imported modules) with your \
         rights",
    );
    let tools = places.cache.join("tools");
    let built = guest::build(&build.path, build.output.as_deref(), &tools, output.is_quiet())?;
    for remark in &built.remarks {
        output.remark(remark);
    }
    let done = serde_json::json!({ "file": built.file });
    output.result(&done, |_| built.file.display().to_string())
}

fn asynchronous<F: Future<Output = Result<()>>>(work: F) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the threads of the program cannot be started")?
        .block_on(work)
}

/// The log goes to standard error; `RUST_LOG` says how much of it.
fn log(output: Output) {
    use tracing_subscriber::{EnvFilter, fmt};
    let quiet = if output.is_quiet() { "error" } else { "warn" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(quiet));
    // Only the first subscriber of a process counts, and this is it.
    let _ = fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .without_time()
        .try_init();
}
