//! `rm` and `rmdir`.

use fulgurite_trace::file::{FileError, FileKind};

use super::Invocation;
use super::paths::folder_name;
use crate::shell::files::{base_name, describe, join};
use crate::shell::meter::{self, Stop};

/// Deepest folders that are walked.
pub(super) const DEPTH: usize = 256;

pub(super) fn rm(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = ["r|recursive", "R", "f|force", "d|dir", "v|verbose", "i", "I"];
    let Some(options) = invocation.options(&known)? else { return Ok(2) };
    let recursive = options.has("r") || options.has("R");
    let force = options.has("f");
    if options.operands.is_empty() {
        return if force { Ok(0) } else { invocation.fail(1, "missing operand") };
    }
    let mut status = 0;
    for path in &options.operands {
        invocation.meter.charge(meter::ENTRY)?;
        let shown = String::from_utf8_lossy(path).into_owned();
        if matches!(base_name(path), b"." | b".." | b"/") && recursive {
            invocation
                .complain(&format!("refusing to remove '.', '..' or '/': skipping '{shown}'"))?;
            status = 1;
            continue;
        }
        let removed = match invocation.files.stat(path, false) {
            Ok(stat) if stat.kind == FileKind::Directory && recursive => {
                remove_all(invocation, path, 0, options.has("v"))?
            }
            Ok(stat) if stat.kind == FileKind::Directory && options.has("d") => {
                invocation.files.remove_directory(path)
            }
            Ok(stat) if stat.kind == FileKind::Directory => Err(FileError::IsDirectory),
            Ok(_) => {
                let removed = invocation.files.unlink(path);
                if removed.is_ok() && options.has("v") {
                    invocation.line(format!("removed '{shown}'").as_bytes())?;
                }
                removed
            }
            Err(FileError::NotFound | FileError::NotDirectory) if force => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            invocation.complain(&format!("cannot remove '{shown}': {}", describe(error)))?;
            status = 1;
        }
    }
    Ok(status)
}

fn remove_all(
    invocation: &mut Invocation<'_>,
    path: &[u8],
    depth: usize,
    verbose: bool,
) -> Result<Result<(), FileError>, Stop> {
    if depth > DEPTH {
        return Ok(Err(FileError::NameTooLong));
    }
    let entries = match invocation.files.list(path) {
        Ok(entries) => entries,
        Err(error) => return Ok(Err(error)),
    };
    for entry in entries.iter() {
        invocation.meter.charge(meter::ENTRY)?;
        let inner = join(path, entry.name.as_bytes());
        let removed = match entry.kind {
            FileKind::Directory => remove_all(invocation, &inner, depth + 1, verbose)?,
            _ => {
                let removed = invocation.files.unlink(&inner);
                if removed.is_ok() && verbose {
                    let shown = String::from_utf8_lossy(&inner).into_owned();
                    invocation.line(format!("removed '{shown}'").as_bytes())?;
                }
                removed
            }
        };
        if removed.is_err() {
            return Ok(removed);
        }
    }
    let removed = invocation.files.remove_directory(path);
    if removed.is_ok() && verbose {
        let shown = String::from_utf8_lossy(path).into_owned();
        invocation.line(format!("removed directory '{shown}'").as_bytes())?;
    }
    Ok(removed)
}

pub(super) fn rmdir(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = ["p|parents", "v|verbose", "|ignore-fail-on-non-empty"];
    let Some(options) = invocation.options(&known)? else { return Ok(2) };
    if options.operands.is_empty() {
        return invocation.fail(1, "missing operand");
    }
    let mut status = 0;
    for operand in &options.operands {
        let mut path = operand.clone();
        loop {
            invocation.meter.charge(meter::ENTRY)?;
            let removed = match invocation.files.stat(&path, false) {
                Ok(stat) if stat.kind != FileKind::Directory => Err(FileError::NotDirectory),
                _ => invocation.files.remove_directory(&path),
            };
            match removed {
                Ok(()) => {}
                Err(FileError::NotEmpty) if options.has("ignore-fail-on-non-empty") => break,
                Err(error) => {
                    let shown = String::from_utf8_lossy(&path).into_owned();
                    let reason = describe(error);
                    invocation.complain(&format!("failed to remove '{shown}': {reason}"))?;
                    status = 1;
                    break;
                }
            }
            let above = folder_name(&path).to_vec();
            if !options.has("p") || above == b"." || above == b"/" {
                break;
            }
            path = above;
        }
    }
    Ok(status)
}
