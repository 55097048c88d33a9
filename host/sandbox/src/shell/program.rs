//! Programs of the wasm lane, and scripts.

use std::sync::{Arc, Mutex, PoisonError};

use fulgurite_trace::CommandStop;

use super::evaluate::{Evaluator, Flow, Step};
use super::files::{base_name, describe};
use super::meter::{self, Stop};
use super::plan::Refusal;
use super::stream::{Io, Sink, WriteError};
use super::syntax;
use crate::lane::{OutputState, ProgramCall, ProgramOutput};

/// Takes a program's output into the shell's streams; remembers the first failure.
struct Streams {
    stdout: Sink,
    stderr: Sink,
    failed: Mutex<Option<WriteError>>,
}

impl Streams {
    fn write(&self, sink: &Sink, bytes: &[u8]) -> OutputState {
        match sink.write(bytes) {
            Ok(()) => OutputState::Open,
            Err(error) => {
                let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.get_or_insert(error);
                OutputState::Full
            }
        }
    }
}

impl ProgramOutput for Streams {
    fn stdout(&self, bytes: &[u8]) -> OutputState {
        self.write(&self.stdout, bytes)
    }

    fn stderr(&self, bytes: &[u8]) -> OutputState {
        self.write(&self.stderr, bytes)
    }
}

impl Evaluator {
    /// Runs a registered program with what is left of the fuel.
    pub(crate) async fn program(&mut self, program: &str, arguments: &[Vec<u8>], io: &Io) -> Step {
        let argv: Option<Vec<String>> =
            arguments.iter().map(|argument| String::from_utf8(argument.clone()).ok()).collect();
        let Some(argv) = argv else {
            return self.fail(io, 126, &format!("{program}: an argument is not valid UTF-8"));
        };
        let stdin = match io.stdin.peek_all(self.limits.buffer_bytes) {
            Ok(stdin) => stdin?,
            Err(error) => return self.fail(io, 1, &format!("{program}: {}", describe(error))),
        };
        let env = self
            .variables
            .exported()
            .filter_map(|(name, value)| {
                Some((name.to_owned(), String::from_utf8(value.to_vec()).ok()?))
            })
            .collect();
        let streams = Arc::new(Streams {
            stdout: io.stdout.clone(),
            stderr: io.stderr.clone(),
            failed: Mutex::new(None),
        });
        let call = ProgramCall {
            program: program.to_owned(),
            argv,
            env,
            cwd: self.files.cwd().to_owned(),
            stdin,
            tree: Arc::clone(self.files.tree()),
            fuel: self.meter.left(),
            memory_bytes: self.limits.program_memory_bytes,
            output: streams.clone(),
        };
        let end = self.runner.run(call).await.map_err(Stop::Lane)?;
        self.meter.charge(end.fuel_used)?;
        let failed = streams.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.status = end.status;
        match failed {
            Some(WriteError::Full(stop)) => return Err(stop),
            Some(WriteError::File(error)) => {
                self.complain(io, &format!("{program}: write error: {}", describe(error)))?;
                self.status = if end.status == 0 { 1 } else { end.status };
            }
            None => {}
        }
        // Like a process that is killed: the shell goes on, and remembers it for the result.
        match end.stop {
            Some(CommandStop::Timeout) => return Err(Stop::Timeout),
            Some(CommandStop::Memory) => {
                self.complain(io, &format!("{program}: killed: out of memory"))?;
                self.status = 137;
            }
            Some(CommandStop::Trap) => {
                self.complain(io, &format!("{program}: aborted: it trapped"))?;
                self.status = 134;
            }
            None => {}
        }
        self.stopped = end.stop;
        Ok(Flow::Next)
    }

    /// Parses text and runs it in this shell.
    pub(crate) async fn source(&mut self, text: &[u8], io: &Io) -> Step {
        match self.parse(text)? {
            Ok(list) => self.list(&list, io).await,
            Err(refusal) => self.refuse(&refusal, io),
        }
    }

    pub(crate) fn parse(
        &mut self,
        text: &[u8],
    ) -> Result<Result<super::plan::List, Refusal>, Stop> {
        self.meter.charge(syntax::cost(text))?;
        Ok(syntax::parse(text))
    }

    /// Status 2, and what was wrong.
    pub(crate) fn refuse(&mut self, refusal: &Refusal, io: &Io) -> Step {
        let message = match refusal {
            Refusal::Unsupported(construct) => format!("unsupported: {construct}"),
            Refusal::Syntax(what) => format!("syntax error: {what}"),
        };
        self.complain(io, &message)?;
        self.status = 2;
        Ok(Flow::Exit)
    }

    /// Runs text as a shell of its own, with `$0` and arguments of its own.
    pub(crate) async fn run_text(
        &mut self,
        text: &[u8],
        name: Vec<u8>,
        arguments: Vec<Vec<u8>>,
        io: &Io,
    ) -> Step {
        let list = match self.parse(text)? {
            Ok(list) => list,
            Err(refusal) => {
                self.refuse(&refusal, io)?;
                return Ok(Flow::Next);
            }
        };
        let script = std::mem::replace(&mut self.script, name);
        let caller = std::mem::replace(&mut self.positional, arguments);
        let functions = std::mem::take(&mut self.functions);
        let options = self.options;
        let result = self.subshell(&list, io).await;
        self.options = options;
        self.functions = functions;
        self.positional = caller;
        self.script = script;
        result.map(|()| Flow::Next)
    }

    /// Runs a file of the tree: by its `#!` line, or as a shell script.
    pub(crate) async fn script(&mut self, arguments: Vec<Vec<u8>>, io: &Io) -> Step {
        let path = arguments.first().cloned().unwrap_or_default();
        let shown = String::from_utf8_lossy(&path).escape_default().to_string();
        let text = match self.files.read(&path, self.limits.buffer_bytes, &mut self.meter)? {
            Ok(text) => text,
            Err(error) => return self.fail(io, 126, &format!("{shown}: {}", describe(error))),
        };
        let first_line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut interpreter: Vec<Vec<u8>> = first_line
            .strip_prefix(b"#!")
            .unwrap_or_default()
            .split(|byte| byte.is_ascii_whitespace())
            .filter(|part| !part.is_empty())
            .map(<[u8]>::to_vec)
            .collect();
        if interpreter.first().is_some_and(|name| base_name(name) == b"env") {
            interpreter.remove(0);
        }
        if let Some(first) = interpreter.first_mut() {
            *first = base_name(first).to_vec();
        }
        let name = interpreter.first().map(Vec::as_slice).unwrap_or(b"sh");
        if matches!(name, b"sh" | b"bash" | b"dash") {
            if text.iter().take(512).any(|byte| *byte == 0) {
                return self.fail(io, 126, &format!("{shown}: cannot execute binary file"));
            }
            let mut rest = arguments;
            rest.remove(0);
            return self.run_text(&text, path, rest, io).await;
        }
        let name = String::from_utf8_lossy(name).into_owned();
        if !self.programs.contains(&name) && crate::commands::find(&name).is_none() {
            let name = name.escape_default();
            return self.fail(io, 126, &format!("{shown}: {name}: bad interpreter"));
        }
        self.meter.charge(meter::COMMAND)?;
        interpreter.extend(arguments);
        self.run(interpreter, io).await
    }
}
