//! `cargo xtask`: set-up, demo, tests and packaging of guests.
//!
//! Only what has to happen before there is a `fulgurite` binary, or around it, lives here; all
//! real work is done by that binary.

mod artifacts;
mod check;
mod demo;
mod project;
mod readme;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Sets Fulgurite up, shows it, tests it.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    after_help = "Exit codes: 0 done, 1 something failed, 2 wrong usage."
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Compiles the host and the shipped plugins, fetches what they need, registers them
    Setup,
    /// Set-up, then real coding episodes on 20 HumanEval tasks
    Demo {
        /// Tasks of the small model's run
        #[arg(long, default_value_t = 20)]
        tasks: u32,
    },
    /// Set-up, then every test
    Test {
        /// Passed on to `cargo test`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Format, lints, licences, documentation: what is checked beside the tests
    Lint,
    /// Runs the commands of the READMEs exactly as printed
    Readme,
}

fn main() -> ExitCode {
    let done: Result<()> = match Arguments::parse().task {
        Task::Setup => project::setup(project::Selection::for_users(), None).map(|_| ()),
        Task::Demo { tasks } => demo::run(tasks),
        Task::Test { arguments } => check::test(&arguments),
        Task::Lint => check::lint(),
        Task::Readme => readme::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Progress and errors go to standard error; standard output is for results.
#[allow(clippy::print_stderr, reason = "this binary talks to people")]
fn say(text: impl std::fmt::Display) {
    eprintln!("xtask: {text}");
}
