//! What a command sees of the world: arguments, environment, standard streams, its own end.

use std::sync::{Arc, Mutex, PoisonError};

use wasmtime::component::Resource;
use wasmtime_wasi::p2::bindings::cli::{
    environment, exit, stderr, stdin, stdout,
    terminal_input::{self, TerminalInput},
    terminal_output::{self, TerminalOutput},
    terminal_stderr, terminal_stdin, terminal_stdout,
};
use wasmtime_wasi_io::{
    bytes::Bytes,
    poll::Pollable,
    streams::{DynInputStream, DynOutputStream, InputStream, StreamError, StreamResult},
};

use super::{
    fuel::{BYTE, NAME},
    pipe::PipeInput,
    state::{Source, WasiState},
};

/// The most one read of standard input answers.
const READ_LIMIT: usize = 64 << 10;

/// The guest ended itself. Reaches the caller as the error of the call that ran the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the guest exited with status {code}")]
pub struct Exit {
    /// From 0 to 255.
    pub code: u8,
}

impl environment::Host for WasiState {
    fn get_environment(&mut self) -> wasmtime::Result<Vec<(String, String)>> {
        let bytes = self.environment.iter().map(|(name, value)| name.len() + value.len());
        let bytes = bytes.sum::<usize>() as u64;
        self.owe(self.environment.len() as u64, NAME);
        self.owe(bytes, BYTE);
        Ok(self.environment.clone())
    }

    fn get_arguments(&mut self) -> wasmtime::Result<Vec<String>> {
        let bytes = self.arguments.iter().map(String::len).sum::<usize>() as u64;
        self.owe(self.arguments.len() as u64, NAME);
        self.owe(bytes, BYTE);
        Ok(self.arguments.clone())
    }

    fn initial_cwd(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(self.initial_cwd.clone())
    }
}

impl exit::Host for WasiState {
    fn exit(&mut self, status: Result<(), ()>) -> wasmtime::Result<()> {
        Err(Exit { code: u8::from(status.is_err()) }.into())
    }

    fn exit_with_code(&mut self, status_code: u8) -> wasmtime::Result<()> {
        Err(Exit { code: status_code }.into())
    }
}

impl stdin::Host for WasiState {
    fn get_stdin(&mut self) -> wasmtime::Result<Resource<DynInputStream>> {
        let stream: DynInputStream = match &self.stdin {
            Source::Bytes(bytes) => Box::new(BytesInput(Arc::clone(bytes))),
            Source::Pipe(reader) => Box::new(PipeInput::new(reader.side())),
        };
        Ok(self.table.push(stream)?)
    }
}

impl stdout::Host for WasiState {
    fn get_stdout(&mut self) -> wasmtime::Result<Resource<DynOutputStream>> {
        Ok(self.table.push(self.stdout.stream())?)
    }
}

impl stderr::Host for WasiState {
    fn get_stderr(&mut self) -> wasmtime::Result<Resource<DynOutputStream>> {
        Ok(self.table.push(self.stderr.stream())?)
    }
}

impl terminal_input::Host for WasiState {}

impl terminal_input::HostTerminalInput for WasiState {
    fn drop(&mut self, terminal: Resource<TerminalInput>) -> wasmtime::Result<()> {
        self.table.delete(terminal)?;
        Ok(())
    }
}

impl terminal_output::Host for WasiState {}

impl terminal_output::HostTerminalOutput for WasiState {
    fn drop(&mut self, terminal: Resource<TerminalOutput>) -> wasmtime::Result<()> {
        self.table.delete(terminal)?;
        Ok(())
    }
}

impl terminal_stdin::Host for WasiState {
    fn get_terminal_stdin(&mut self) -> wasmtime::Result<Option<Resource<TerminalInput>>> {
        Ok(None)
    }
}

impl terminal_stdout::Host for WasiState {
    fn get_terminal_stdout(&mut self) -> wasmtime::Result<Option<Resource<TerminalOutput>>> {
        Ok(None)
    }
}

impl terminal_stderr::Host for WasiState {
    fn get_terminal_stderr(&mut self) -> wasmtime::Result<Option<Resource<TerminalOutput>>> {
        Ok(None)
    }
}

/// Standard input from bytes. All streams of one guest read on where the last one stopped.
struct BytesInput(Arc<Mutex<Bytes>>);

#[wasmtime_wasi_io::async_trait]
impl Pollable for BytesInput {
    async fn ready(&mut self) {}
}

impl InputStream for BytesInput {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes.is_empty() {
            return Err(StreamError::Closed);
        }
        let length = size.min(READ_LIMIT).min(bytes.len());
        Ok(bytes.split_to(length))
    }
}
