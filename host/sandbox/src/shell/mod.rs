//! The shell line: a documented subset of bash over one file tree.
//!
//! A line is parsed whole by brush-parser ([`syntax`]), lowered to a plan that holds nothing but
//! supported constructs ([`lower`], [`plan`]), and walked ([`evaluate`]). A construct that is not
//! offered refuses the whole line with status 2 before anything has run. What is offered stands in
//! `SHELL.md`.
//!
//! Not promised: locales (text is bytes, as in `LC_ALL=C`), file modes and owners (there are
//! none), and concurrency (the stages of a pipeline run one after another, so a stage that reads
//! only the beginning of its input does not end the stage before it).

pub(crate) mod arithmetic;
mod brace;
pub(crate) mod builtins;
mod change;
mod condition;
pub(crate) mod evaluate;
mod expand;
mod fields;
pub(crate) mod files;
mod functions;
mod glob;
mod loops;
mod lower;
mod lower_test;
pub(crate) mod meter;
mod parameter;
pub(crate) mod pattern;
mod plan;
mod program;
mod read;
mod redirect;
mod scan;
mod script;
mod settings;
mod simple;
pub(crate) mod stream;
mod syntax;
pub(crate) mod variables;
mod word;

pub(crate) use scan::byte as scan_byte;

use std::sync::Arc;

use fulgurite_trace::file::FileTree;
use fulgurite_trace::{CommandLine, CommandOutput, CommandRequest, CommandStop};

use crate::lane::{CommandLimits, LaneError, ProgramRunner};
use evaluate::Evaluator;
use files::describe;
use meter::Stop;
use stream::{Input, Io, Sink};

/// Most arguments of a command, and most variables of its environment.
const ARGUMENTS: usize = 65_536;

/// Runs one command.
pub(crate) async fn run(
    runner: Arc<dyn ProgramRunner>,
    request: &CommandRequest,
    tree: Arc<dyn FileTree>,
    limits: &CommandLimits,
) -> Result<CommandOutput, LaneError> {
    let limits = narrowed(limits, request);
    let room = limits.output_bytes;
    let mut shell = Evaluator::new(runner, tree, limits)
        .map_err(|error| LaneError::Invalid(format!("the workspace cannot be opened: {error}")))?;
    let io = Io {
        stdin: Input::bytes(request.stdin.clone()),
        stdout: Sink::capture(room),
        stderr: Sink::capture(room),
    };
    let result = match prepare(&mut shell, request)? {
        Ok(()) => start(&mut shell, request, &io).await,
        Err(stop) => Err(stop),
    };
    let (status, stopped) = match result {
        Ok(()) => (shell.status, shell.stopped),
        Err(stop) => stopped(stop, &io)?,
    };
    Ok(CommandOutput {
        status,
        stopped,
        stdout: io.stdout.take_captured(),
        stderr: io.stderr.take_captured(),
        metadata: vec![("fuel".to_owned(), shell.meter.used().to_string())],
    })
}

/// The limits of this request: it may wish for less, never for more.
fn narrowed(limits: &CommandLimits, request: &CommandRequest) -> CommandLimits {
    let mut limits = limits.clone();
    if let Some(milliseconds) = request.timeout_ms {
        let wished = u64::from(milliseconds).saturating_mul(limits.fuel_per_millisecond);
        limits.fuel = limits.fuel.min(wished);
    }
    if let Some(bytes) = request.output_bytes {
        limits.output_bytes = limits.output_bytes.min(bytes as usize);
    }
    limits
}

/// Sets up the working folder and the environment.
fn prepare(shell: &mut Evaluator, request: &CommandRequest) -> Result<Result<(), Stop>, LaneError> {
    if let Some(cwd) = &request.cwd
        && let Err(error) = shell.files.change(cwd.as_bytes())
    {
        return Err(LaneError::Invalid(format!(
            "the working folder `{}`: {}",
            cwd.escape_debug(),
            describe(error)
        )));
    }
    if request.env.len() > ARGUMENTS {
        return Err(LaneError::Invalid(format!("more than {ARGUMENTS} environment variables")));
    }
    let cwd = shell.files.cwd().as_bytes().to_vec();
    let mut set = |name: &str, value: &[u8]| -> Result<(), Stop> {
        // Nothing is readonly yet.
        let _ = shell.variables.set(name, value.to_vec())?;
        shell.variables.export(name, true)
    };
    let defaults: [(&str, &[u8]); 3] =
        [("HOME", b"/"), ("PATH", b"/usr/local/bin:/usr/bin:/bin"), ("PWD", &cwd)];
    for (name, value) in defaults {
        if let Err(stop) = set(name, value) {
            return Ok(Err(stop));
        }
    }
    for (name, value) in &request.env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(LaneError::Invalid(format!(
                "the environment variable `{}` cannot be set",
                name.escape_debug()
            )));
        }
        if let Err(stop) = set(name, value.as_bytes()) {
            return Ok(Err(stop));
        }
    }
    Ok(Ok(()))
}

async fn start(shell: &mut Evaluator, request: &CommandRequest, io: &Io) -> Result<(), Stop> {
    match &request.command {
        CommandLine::Line(line) => shell.source(line.as_bytes(), io).await.map(|_| ()),
        CommandLine::Argv(argv) => {
            let bytes: usize = argv.iter().map(|argument| argument.len() + 1).sum();
            if argv.len() > ARGUMENTS || bytes > shell.limits.variable_bytes {
                return Err(Stop::Memory("too many arguments".to_owned()));
            }
            let arguments = argv.iter().map(|argument| argument.as_bytes().to_vec()).collect();
            shell.run(arguments, io).await.map(|_| ())
        }
    }
}

/// Status and reason of a command that was stopped; says so on its standard error.
fn stopped(stop: Stop, io: &Io) -> Result<(i32, Option<CommandStop>), LaneError> {
    let (status, reason, message) = match stop {
        Stop::Timeout => (124, CommandStop::Timeout, "its fuel is used up".to_owned()),
        Stop::Memory(what) => (137, CommandStop::Memory, what),
        Stop::Lane(error) => return Err(error),
    };
    // The streams keep head and tail; they take everything.
    let _ = io.stderr.write(format!("sh: stopped: {message}\n").as_bytes());
    Ok((status, Some(reason)))
}
