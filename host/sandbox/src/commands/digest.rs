//! `sha256sum`.

use sha2::{Digest as _, Sha256};

use super::Invocation;
use super::lines::or_stdin;
use crate::shell::meter::{self, Stop};

pub(super) fn sha256(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let Some(options) = invocation.options(&["b|binary", "t|text"])? else { return Ok(2) };
    let mut status = 0;
    for path in or_stdin(options.operands) {
        let Some(text) = invocation.read_or_complain(&path)? else {
            status = 1;
            continue;
        };
        invocation.meter.charge_each(text.len(), 4 * meter::BYTE)?;
        let mut line: String =
            Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
        line.push_str("  ");
        let mut line = line.into_bytes();
        line.extend_from_slice(&path);
        invocation.line(&line)?;
    }
    Ok(status)
}
