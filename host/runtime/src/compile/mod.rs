//! Compilation, in a child process with limits.
//!
//! A compiler that is fed hostile code may take any time and memory and may have bugs. So the
//! component is compiled by a second copy of this program: it gets nothing but the bytes on its
//! standard input and the file to write, has an empty environment, limits on processor time,
//! memory and file size, and is killed when it takes too long. At most a few are compiled at once.
//!
//! The child is no sandbox: it keeps a bad component from taking the machine or this process down.
//! A bug that let a component run code of its own in the compiler would give it the user's rights.
//!
//! The program that uses this crate must call [`child_main`] when its first argument is
//! [`CHILD_ARGUMENT`], before it does anything else.

mod child;

use std::{
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::Command,
    sync::Semaphore,
};

pub use child::{child_main, child_status};

use crate::{engine::on_demand, failure::truncate, machine::Layout};

/// The first argument of a compiling child.
pub const CHILD_ARGUMENT: &str = "__compile-component";

/// Bytes of the child's message that are kept.
const MOST_MESSAGE: u64 = 8 << 10;

/// The child's exit status when the component is at fault.
const REFUSED: u8 = 3;

/// What one compilation may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompileLimits {
    /// Until the child is killed.
    pub wall: Duration,
    /// Processor seconds of all its threads.
    pub cpu_seconds: u64,
    /// Bytes of address space.
    pub memory_bytes: u64,
    /// Bytes of compiled code.
    pub output_bytes: u64,
}

impl Default for CompileLimits {
    /// A Python component takes 10 processor seconds and a gigabyte.
    fn default() -> Self {
        Self {
            wall: Duration::from_secs(300),
            cpu_seconds: 300,
            memory_bytes: 6 << 30,
            output_bytes: 1 << 30,
        }
    }
}

/// Where components are compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compiler {
    /// In a child: this program with these arguments, which has to end up in [`child_main`].
    Child {
        /// The program.
        program: PathBuf,
        /// Its arguments.
        arguments: Vec<OsString>,
        /// What it may use.
        limits: CompileLimits,
    },
    /// In this process, without any limit. Only for components that are trusted, as in tests.
    ThisProcess,
}

impl Compiler {
    /// A second copy of the running program, with the default limits.
    pub fn this_program() -> io::Result<Self> {
        Ok(Self::Child {
            program: std::env::current_exe()?,
            arguments: vec![CHILD_ARGUMENT.into()],
            limits: CompileLimits::default(),
        })
    }

    /// The same within this time, on the wall clock and of all processors together. Without
    /// effect on [`Self::ThisProcess`].
    pub fn within(mut self, time: Duration) -> Self {
        if let Self::Child { limits, .. } = &mut self {
            limits.wall = time;
            limits.cpu_seconds = time.as_secs().max(1);
        }
        self
    }
}

/// A component could not be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// It is not valid.
    #[error("the component is not valid: {0}; build it again with a current toolchain")]
    Invalid(String),
    /// It took too long.
    #[error(
        "compiling the component took more than {} s and was stopped; a component that needs this \
         much is broken or hostile", .0.as_secs()
    )]
    Time(Duration),
    /// It took too much memory.
    #[error(
        "compiling the component took more than {} MiB and was stopped; a component that needs \
         this much is broken or hostile", .0 >> 20
    )]
    Memory(u64),
    /// It became too large.
    #[error("the compiled component has more than {} MiB", .0 >> 20)]
    Output(u64),
    /// The child could not do its work.
    #[error("the compiling child failed: {0}")]
    Child(String),
}

/// What the child is told first, on a line of its own, before the component's bytes.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    layout: Layout,
    output: PathBuf,
    limits: CompileLimits,
}

/// Compiles, at most a few at once.
#[derive(Debug)]
pub(crate) struct Compilation {
    compiler: Compiler,
    at_once: Semaphore,
}

impl Compilation {
    pub(crate) fn new(compiler: Compiler, at_once: usize) -> Self {
        Self { compiler, at_once: Semaphore::new(at_once.max(1)) }
    }

    /// Compiles `bytes` for `layout` into the file `output`. Needs a tokio runtime that drives
    /// processes and time.
    pub(crate) async fn compile(
        &self,
        bytes: Arc<[u8]>,
        layout: Layout,
        output: &Path,
    ) -> Result<(), CompileError> {
        // The semaphore is never closed.
        let _turn = self.at_once.acquire().await;
        match &self.compiler {
            Compiler::ThisProcess => {
                let compiled = tokio::task::spawn_blocking(move || compile(&bytes, layout))
                    .await
                    .map_err(|error| CompileError::Child(error.to_string()))??;
                tokio::fs::write(output, compiled)
                    .await
                    .map_err(|error| CompileError::Child(error.to_string()))
            }
            Compiler::Child { program, arguments, limits } => {
                let mut command = Command::new(program);
                command
                    .args(arguments)
                    .env_clear()
                    // Each thread and each arena of the allocator reserves address space, of
                    // which the child has a limited amount however many processors there are.
                    .env("RAYON_NUM_THREADS", threads().to_string())
                    .env("MALLOC_ARENA_MAX", "2")
                    .current_dir("/")
                    .stdin(Stdio::piped())
                    .stdout(Stdio::null())
                    .stderr(Stdio::piped())
                    .kill_on_drop(true);
                let order = Order { layout, output: output.to_owned(), limits: *limits };
                tokio::time::timeout(limits.wall, converse(command, &order, &bytes))
                    .await
                    .unwrap_or(Err(CompileError::Time(limits.wall)))
            }
        }
    }
}

/// Threads of one child.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get).min(8)
}

/// Compiles in this process.
fn compile(bytes: &[u8], layout: Layout) -> Result<Vec<u8>, CompileError> {
    let engine = on_demand(layout).map_err(|error| CompileError::Child(error.to_string()))?;
    engine.precompile_component(bytes).map_err(|error| {
        let mut message = format!("{error:#}");
        truncate(&mut message, 2_000);
        CompileError::Invalid(message)
    })
}

async fn converse(mut command: Command, order: &Order, bytes: &[u8]) -> Result<(), CompileError> {
    let failed = |error: io::Error| CompileError::Child(error.to_string());
    let mut header = serde_json::to_vec(order).map_err(|error| failed(error.into()))?;
    header.push(b'\n');
    let mut child = command.spawn().map_err(failed)?;
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A child that ends before it read everything says why by its status.
            let _ = stdin.write_all(&header).await;
            let _ = stdin.write_all(bytes).await;
            let _ = stdin.shutdown().await;
        }
    };
    let listen = async {
        let mut message = Vec::new();
        if let Some(mut stderr) = stderr {
            let _ = (&mut stderr).take(MOST_MESSAGE).read_to_end(&mut message).await;
            // Whatever else it says must not block it.
            let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
        }
        String::from_utf8_lossy(&message).trim().to_owned()
    };
    let ((), message, status) = tokio::join!(feed, listen, child.wait());
    let status = status.map_err(failed)?;
    verdict(status, message, &order.limits)
}

fn verdict(
    status: std::process::ExitStatus,
    message: String,
    limits: &CompileLimits,
) -> Result<(), CompileError> {
    let signal = status.signal().and_then(|number| Signal::try_from(number).ok());
    match (status.code(), signal) {
        (Some(0), _) => Ok(()),
        (Some(code), _) if code == i32::from(REFUSED) => Err(CompileError::Invalid(message)),
        (_, Some(Signal::SIGXCPU)) => {
            Err(CompileError::Time(Duration::from_secs(limits.cpu_seconds)))
        }
        (_, Some(Signal::SIGXFSZ)) => Err(CompileError::Output(limits.output_bytes)),
        // What Rust does when an allocation fails; also what the kernel does when memory is out.
        (_, Some(Signal::SIGABRT | Signal::SIGKILL | Signal::SIGSEGV | Signal::SIGBUS)) => {
            Err(CompileError::Memory(limits.memory_bytes))
        }
        (Some(101), _) if message.contains("Cannot allocate memory") => {
            Err(CompileError::Memory(limits.memory_bytes))
        }
        _ => Err(CompileError::Child(format!("{status}: {message}"))),
    }
}
