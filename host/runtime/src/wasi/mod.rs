//! The host side of WASI 0.2 for guests: our own, because nothing of the host may show through.
//!
//! # What it promises
//! - A guest sees only what its [`WasiConfig`] holds: no environment, argument, file, stream or
//!   time of the host. Sockets are there to be linked against and always denied ([`STUBBED`]);
//!   each try is counted in [`WasiState::denied`].
//! - Time is virtual ([`clock`] has the rules), random numbers come from a seed ([`random`]).
//!   The same guest with the same inputs sees the same answers, whatever the machine does.
//! - Files are those of the [`FileTree`]s that were mounted; their handles are given back when the
//!   guest drops them and when the store is dropped.
//! - Whatever a guest can make grow is bounded: resources, open files and open listings of folders
//!   by [`WasiLimits`], single reads and random bytes by constants, output by its capture, pipes by
//!   their buffer.
//! - Whatever a guest has the host do costs fuel ([`fuel`]), where the store's owner asks for it.
//! - Errors that a guest can read are codes and fixed words, never texts of the host.
//!
//! # What it leaves to others
//! Fuel, memory and the wall clock belong to the store's owner; which imports a component may have
//! is decided by the audit, for which [`GRANTED`] and [`STUBBED`] are the lists.
//!
//! [`FileTree`]: fulgurite_trace::file::FileTree

pub mod clock;
mod command;
pub mod filesystem;
pub mod fuel;
pub mod output;
pub mod pipe;
mod poll;
pub mod random;
mod sockets;
mod state;
mod streams;

use wasmtime::component::{HasData, Linker};
use wasmtime_wasi::p2::bindings::{cli, clocks, random as random_bindings};
use wasmtime_wasi_io::bindings::wasi::io;

pub use clock::{ClockConfig, VirtualTimeout};
pub use command::Exit;
pub use filesystem::Preopen;
pub(crate) use fuel::pay_for_calls;
pub use output::Output;
pub use pipe::{Connection, PipeReader, PipeWriter, connect};
pub use sockets::Denied;
pub use state::{Stdin, WasiConfig, WasiLimits, WasiState};

use fuel::called;

/// The version of WASI that is linked. Guests built for any other 0.2 version find it as well.
pub const VERSION: &str = "0.2.12";

/// Interfaces that work, without version.
pub const GRANTED: &[&str] = &[
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stderr",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:random/random",
];

/// Interfaces that are linked because language runtimes import them, and whose every use is
/// denied. Without version.
pub const STUBBED: &[&str] = &[
    "wasi:sockets/instance-network",
    "wasi:sockets/ip-name-lookup",
    "wasi:sockets/network",
    "wasi:sockets/tcp",
    "wasi:sockets/tcp-create-socket",
    "wasi:sockets/udp",
    "wasi:sockets/udp-create-socket",
];

/// What the data of a store must offer for [`add_to_linker`].
pub trait WasiView: Send + 'static {
    /// The WASI state of this store's guest. Its [`WasiState::table`] is the resource table of
    /// the store, for other host functions too.
    fn wasi(&mut self) -> &mut WasiState;
}

/// Names [`WasiState`] for generated code.
struct HasWasi;

impl HasData for HasWasi {
    type Data<'a> = &'a mut WasiState;
}

/// Links every interface of [`GRANTED`] and [`STUBBED`].
///
/// # Errors
/// When one of the names is linked already.
pub fn add_to_linker<T: WasiView>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    io::error::add_to_linker::<T, HasWasi>(linker, called::<T>)?;
    io::poll::add_to_linker::<T, HasWasi>(linker, called::<T>)?;
    io::streams::add_to_linker::<T, HasWasi>(linker, called::<T>)?;
    clocks::monotonic_clock::add_to_linker::<T, HasWasi>(linker, called::<T>)?;
    clocks::wall_clock::add_to_linker::<T, HasWasi>(linker, called::<T>)?;
    random_bindings::random::add_to_linker::<T, HasWasi>(linker, called::<T>)?;
    random_bindings::insecure::add_to_linker::<T, HasWasi>(linker, called::<T>)?;
    random_bindings::insecure_seed::add_to_linker::<T, HasWasi>(linker, called::<T>)?;
    cli::environment::add_to_linker::<T, HasWasi>(linker, called::<T>)?;
    cli::exit::add_to_linker::<T, HasWasi>(linker, called::<T>)?;
    cli::stdin::add_to_linker::<T, HasWasi>(linker, called::<T>)?;
    cli::stdout::add_to_linker::<T, HasWasi>(linker, called::<T>)?;
    cli::stderr::add_to_linker::<T, HasWasi>(linker, called::<T>)?;
    cli::terminal_input::add_to_linker::<T, HasWasi>(linker, called::<T>)?;
    cli::terminal_output::add_to_linker::<T, HasWasi>(linker, called::<T>)?;
    cli::terminal_stdin::add_to_linker::<T, HasWasi>(linker, called::<T>)?;
    cli::terminal_stdout::add_to_linker::<T, HasWasi>(linker, called::<T>)?;
    cli::terminal_stderr::add_to_linker::<T, HasWasi>(linker, called::<T>)?;
    filesystem::add_to_linker(linker)?;
    sockets::add_to_linker(linker)
}
