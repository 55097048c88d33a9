//! The compiling child.

use std::{
    fs::OpenOptions,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    process::ExitCode,
};

use nix::{
    libc,
    sys::resource::{Resource, setrlimit},
};

use super::{CompileError, CompileLimits, Order, REFUSED, compile};
use crate::audit::MOST_BYTES;

/// Bytes of the longest order.
const MOST_ORDER: u64 = 64 << 10;

/// Does one compilation as told on standard input, and answers the status to exit with. To be
/// called in a fresh process whose first argument is [`super::CHILD_ARGUMENT`].
pub fn child_main() -> ExitCode {
    ExitCode::from(child_status())
}

/// The same, for those who exit by other means than returning.
pub fn child_status() -> u8 {
    match work() {
        Ok(()) => 0,
        Err(CompileError::Invalid(message)) => {
            say(&message);
            REFUSED
        }
        Err(error) => {
            say(&error.to_string());
            1
        }
    }
}

fn say(message: &str) {
    // Nobody is left to be told when this fails.
    let _ = writeln!(io::stderr(), "{message}");
}

fn work() -> Result<(), CompileError> {
    let failed = |error: io::Error| CompileError::Child(error.to_string());
    let mut stdin = BufReader::new(io::stdin());
    let mut line = Vec::new();
    (&mut stdin).take(MOST_ORDER).read_until(b'\n', &mut line).map_err(failed)?;
    let order: Order = serde_json::from_slice(&line)
        .map_err(|error| CompileError::Child(format!("the order cannot be read: {error}")))?;
    confine(&order.limits).map_err(|error| failed(error.into()))?;
    let mut bytes = Vec::new();
    stdin.take(MOST_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    let compiled = compile(&bytes, order.layout)?;
    let mut output = OpenOptions::new()
        .write(true)
        .truncate(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&order.output)
        .map_err(failed)?;
    output.write_all(&compiled).map_err(failed)
}

/// Takes from this process what compiling does not need. There is no way back.
fn confine(limits: &CompileLimits) -> nix::Result<()> {
    // The second, hard limit on time comes a little later, so that the first one names the reason.
    setrlimit(Resource::RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds.saturating_add(2))?;
    for (resource, most) in [
        (Resource::RLIMIT_AS, limits.memory_bytes),
        (Resource::RLIMIT_FSIZE, limits.output_bytes),
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_NOFILE, 64),
    ] {
        setrlimit(resource, most, most)?;
    }
    Ok(())
}
