//! `mkdir`, `touch`, `ln`, `chmod`.

use fulgurite_trace::file::FileError;

use super::Invocation;
use crate::shell::files::{base_name, describe, join};
use crate::shell::meter::{self, Stop};

pub(super) fn mkdir(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = ["p|parents", "v|verbose", "m|mode="];
    let Some(options) = invocation.options(&known)? else { return Ok(2) };
    if options.operands.is_empty() {
        return invocation.fail(1, "missing operand");
    }
    let mut status = 0;
    for path in &options.operands {
        let made = match options.has("p") {
            true => make_all(invocation, path)?,
            false => {
                invocation.meter.charge(meter::ENTRY)?;
                invocation.files.make_directory(path)
            }
        };
        let shown = String::from_utf8_lossy(path).into_owned();
        match made {
            Ok(()) if options.has("v") => {
                invocation.line(format!("mkdir: created directory '{shown}'").as_bytes())?;
            }
            Ok(()) => {}
            Err(error) => {
                let reason = describe(error);
                invocation.complain(&format!(
                    "cannot create directory \u{2018}{shown}\u{2019}: {reason}"
                ))?;
                status = 1;
            }
        }
    }
    Ok(status)
}

/// Makes a folder and those above it.
fn make_all(invocation: &mut Invocation<'_>, path: &[u8]) -> Result<Result<(), FileError>, Stop> {
    if path.is_empty() {
        return Ok(Err(FileError::NotFound));
    }
    let mut prefix = if path.starts_with(b"/") { b"/".to_vec() } else { Vec::new() };
    for part in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        invocation.meter.charge(meter::ENTRY)?;
        prefix = join(&prefix, part);
        if matches!(part, b"." | b"..") {
            continue;
        }
        match invocation.files.make_directory(&prefix) {
            Err(FileError::Exists) if invocation.files.is_directory(&prefix) => {}
            Err(error) => return Ok(Err(error)),
            Ok(()) => {}
        }
    }
    Ok(Ok(()))
}

pub(super) fn touch(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let Some(options) = invocation.options(&["c|no-create", "a", "m"])? else { return Ok(2) };
    if options.operands.is_empty() {
        return invocation.fail(1, "missing file operand");
    }
    let mut status = 0;
    for path in &options.operands {
        invocation.meter.charge(meter::ENTRY)?;
        if options.has("c") && !invocation.files.exists(path) {
            continue;
        }
        if let Err(error) = invocation.files.touch(path) {
            let shown = String::from_utf8_lossy(path).into_owned();
            invocation.complain(&format!("cannot touch '{shown}': {}", describe(error)))?;
            status = 1;
        }
    }
    Ok(status)
}

pub(super) fn ln(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = ["s|symbolic", "f|force", "n|no-dereference", "v"];
    let Some(options) = invocation.options(&known)? else { return Ok(2) };
    let (targets, place) = match options.operands.as_slice() {
        [] => return invocation.fail(1, "missing file operand"),
        [target] => (std::slice::from_ref(target), base_name(target).to_vec()),
        [targets @ .., place] => (targets, place.clone()),
    };
    let into = invocation.files.is_directory(&place) && !options.has("n");
    if targets.len() > 1 && !into {
        let shown = String::from_utf8_lossy(&place).into_owned();
        return invocation.fail(1, &format!("target '{shown}' is not a directory"));
    }
    let mut status = 0;
    for target in targets {
        invocation.meter.charge(meter::ENTRY)?;
        let path = if into { join(&place, base_name(target)) } else { place.clone() };
        if options.has("f") && invocation.files.stat(&path, false).is_ok() {
            // If it cannot be removed, making the link says why.
            let _ = invocation.files.unlink(&path);
        }
        let made = match options.has("s") {
            true => invocation.files.symlink(target, &path),
            false => invocation.files.link(target, &path),
        };
        if let Err(error) = made {
            let kind = if options.has("s") { "symbolic" } else { "hard" };
            let shown = String::from_utf8_lossy(&path).into_owned();
            let reason = describe(error);
            invocation.complain(&format!("failed to create {kind} link '{shown}': {reason}"))?;
            status = 1;
        }
    }
    Ok(status)
}

/// There are no modes here: says nothing about files that exist, and fails for others.
pub(super) fn chmod(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let mut operands = invocation.arguments;
    while let [option, after @ ..] = operands
        && matches!(option.as_slice(), b"-R" | b"-v" | b"-f" | b"--recursive")
    {
        operands = after;
    }
    let [_mode, paths @ ..] = operands else {
        return invocation.fail(1, "missing operand");
    };
    if paths.is_empty() {
        return invocation.fail(1, "missing operand");
    }
    let mut status = 0;
    for path in paths {
        invocation.meter.charge(meter::ENTRY)?;
        if let Err(error) = invocation.files.stat(path, true) {
            let shown = String::from_utf8_lossy(path).into_owned();
            invocation.complain(&format!("cannot access '{shown}': {}", describe(error)))?;
            status = 1;
        }
    }
    Ok(status)
}
