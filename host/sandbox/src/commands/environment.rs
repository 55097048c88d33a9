//! `printenv`, `uname`, `whoami`: what little there is to know about the surroundings.

use super::Invocation;
use crate::shell::meter::Stop;

pub(super) fn printenv(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let Some(options) = invocation.options(&[])? else { return Ok(2) };
    let mut missing = false;
    if options.operands.is_empty() {
        let variables = invocation.variables;
        for (name, value) in variables.exported() {
            invocation.out(name.as_bytes())?;
            invocation.out(b"=")?;
            invocation.line(value)?;
        }
    }
    for name in &options.operands {
        let variables = invocation.variables;
        let name = String::from_utf8_lossy(name);
        match variables.exported().find(|(known, _)| *known == name) {
            Some((_, value)) => invocation.line(value)?,
            None => missing = true,
        }
    }
    Ok(i32::from(missing))
}

pub(super) fn uname(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let Some(options) = invocation.options(&["s", "a", "m", "r", "n", "o"])? else { return Ok(2) };
    let all = options.has("a");
    let parts = [("s", "Fulgurite"), ("n", "sandbox"), ("r", "0"), ("m", "wasm32"), ("o", "WASI")];
    let mut shown: Vec<&str> =
        parts.iter().filter(|(key, _)| all || options.has(key)).map(|(_, part)| *part).collect();
    if shown.is_empty() {
        shown.push("Fulgurite");
    }
    invocation.line(shown.join(" ").as_bytes()).map(|()| 0)
}

pub(super) fn whoami(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    invocation.line(b"agent").map(|()| 0)
}
