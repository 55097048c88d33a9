//! `cp` and `mv`.

use fulgurite_trace::file::{FileError, FileKind};

use super::Invocation;
use super::options::Options;
use super::remove::DEPTH;
use crate::shell::files::{base_name, describe, join};
use crate::shell::meter::{self, Stop};
use crate::shell::stream::WriteError;

/// Where operands go.
enum Destination {
    Into(Vec<u8>),
    As(Vec<u8>),
}

/// Sources, and where they go.
type Operands = (Vec<Vec<u8>>, Destination);

/// Sources and destination, or a complaint and a status.
fn destination(
    invocation: &mut Invocation<'_>,
    options: &Options,
) -> Result<Result<Operands, i32>, Stop> {
    let mut operands = options.operands.clone();
    if let Some(folder) = options.value("t") {
        if !invocation.files.is_directory(folder) {
            let shown = String::from_utf8_lossy(folder).into_owned();
            let message = format!("target directory '{shown}': No such file or directory");
            return invocation.fail(1, &message).map(Err);
        }
        return Ok(Ok((operands, Destination::Into(folder.to_vec()))));
    }
    let Some(last) = operands.pop() else {
        return invocation.fail(1, "missing file operand").map(Err);
    };
    if operands.is_empty() {
        let shown = String::from_utf8_lossy(&last).into_owned();
        let message = format!("missing destination file operand after '{shown}'");
        return invocation.fail(1, &message).map(Err);
    }
    let folder = invocation.files.is_directory(&last) && !options.has("T");
    if folder {
        return Ok(Ok((operands, Destination::Into(last))));
    }
    if operands.len() > 1 || (last.ends_with(b"/") && !is_folder(invocation, &operands)) {
        let shown = String::from_utf8_lossy(&last).into_owned();
        let message = match invocation.files.exists(&last) {
            true => format!("target '{shown}': Not a directory"),
            false => format!("target '{shown}': No such file or directory"),
        };
        return invocation.fail(1, &message).map(Err);
    }
    Ok(Ok((operands, Destination::As(last))))
}

fn is_folder(invocation: &Invocation<'_>, operands: &[Vec<u8>]) -> bool {
    operands.first().is_some_and(|path| invocation.files.is_directory(path))
}

impl Destination {
    fn path(&self, source: &[u8]) -> Vec<u8> {
        match self {
            Self::Into(folder) => join(folder, base_name(source)),
            Self::As(path) => path.clone(),
        }
    }
}

pub(super) fn cp(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = [
        "r|recursive",
        "R",
        "a|archive",
        "f|force",
        "p",
        "v|verbose",
        "n|no-clobber",
        "t|target-directory=",
        "T|no-target-directory",
        "L",
        "P",
        "d",
        "u",
    ];
    let Some(options) = invocation.options(&known)? else { return Ok(2) };
    let (sources, to) = match destination(invocation, &options)? {
        Ok(found) => found,
        Err(status) => return Ok(status),
    };
    let copier = Copier {
        recursive: ["r", "R", "a"].iter().any(|key| options.has(key)),
        links: ["a", "d", "P", "r", "R"].iter().any(|key| options.has(key)) && !options.has("L"),
        keep: options.has("n"),
        verbose: options.has("v"),
    };
    let mut status = 0;
    for source in &sources {
        let target = to.path(source);
        if !copier.copy(invocation, source, &target, 0)? {
            status = 1;
        }
    }
    Ok(status)
}

struct Copier {
    recursive: bool,
    links: bool,
    keep: bool,
    verbose: bool,
}

impl Copier {
    /// Copies one entry; `false` after complaining.
    fn copy(
        &self,
        invocation: &mut Invocation<'_>,
        from: &[u8],
        to: &[u8],
        depth: usize,
    ) -> Result<bool, Stop> {
        invocation.meter.charge(meter::ENTRY)?;
        let shown = String::from_utf8_lossy(from).into_owned();
        let stat = match invocation.files.stat(from, !self.links) {
            Ok(stat) => stat,
            Err(error) => {
                invocation.complain(&format!("cannot stat '{shown}': {}", describe(error)))?;
                return Ok(false);
            }
        };
        let shown_to = String::from_utf8_lossy(to).into_owned();
        let existing = invocation.files.stat(to, true).ok();
        if let Some(existing) = existing
            && existing.identity == stat.identity
            && stat.kind == FileKind::File
        {
            invocation.complain(&format!("'{shown}' and '{shown_to}' are the same file"))?;
            return Ok(false);
        }
        if existing.is_some() && self.keep && stat.kind != FileKind::Directory {
            return Ok(true);
        }
        if self.verbose {
            invocation.line(format!("'{shown}' -> '{shown_to}'").as_bytes())?;
        }
        let done = match stat.kind {
            FileKind::Directory if !self.recursive => {
                let message = format!("-r not specified; omitting directory '{shown}'");
                invocation.complain(&message)?;
                return Ok(false);
            }
            FileKind::Directory => {
                if inside(invocation, from, to) {
                    let message =
                        format!("cannot copy a directory, '{shown}', into itself, '{shown_to}'");
                    invocation.complain(&message)?;
                    return Ok(false);
                }
                return self.copy_folder(invocation, from, to, depth);
            }
            FileKind::Symlink => {
                if existing.is_some() || invocation.files.stat(to, false).is_ok() {
                    // If it stays, making the link says why.
                    let _ = invocation.files.unlink(to);
                }
                match invocation.files.read_link(from) {
                    Ok(target) => invocation.files.symlink(target.as_bytes(), to),
                    Err(error) => Err(error),
                }
            }
            FileKind::File => match existing.map(|existing| existing.kind) {
                Some(FileKind::Directory) => {
                    let message = format!(
                        "cannot overwrite directory '{shown_to}' with non-directory '{shown}'"
                    );
                    invocation.complain(&message)?;
                    return Ok(false);
                }
                _ => copy_bytes(invocation, from, to)?,
            },
        };
        if let Err(error) = done {
            let reason = describe(error);
            invocation.complain(&format!("cannot create regular file '{shown_to}': {reason}"))?;
            return Ok(false);
        }
        Ok(true)
    }

    fn copy_folder(
        &self,
        invocation: &mut Invocation<'_>,
        from: &[u8],
        to: &[u8],
        depth: usize,
    ) -> Result<bool, Stop> {
        let shown = String::from_utf8_lossy(from).into_owned();
        let shown_to = String::from_utf8_lossy(to).into_owned();
        if depth > DEPTH {
            invocation.complain(&format!("'{shown}': File name too long"))?;
            return Ok(false);
        }
        match invocation.files.make_directory(to) {
            Ok(()) => {}
            Err(FileError::Exists) if invocation.files.is_directory(to) => {}
            Err(FileError::Exists) => {
                let message =
                    format!("cannot overwrite non-directory '{shown_to}' with directory '{shown}'");
                invocation.complain(&message)?;
                return Ok(false);
            }
            Err(error) => {
                let reason = describe(error);
                invocation.complain(&format!("cannot create directory '{shown_to}': {reason}"))?;
                return Ok(false);
            }
        }
        let entries = match invocation.files.list(from) {
            Ok(entries) => entries,
            Err(error) => {
                invocation.complain(&format!("cannot access '{shown}': {}", describe(error)))?;
                return Ok(false);
            }
        };
        let mut all = true;
        for entry in entries.iter() {
            let name = entry.name.as_bytes();
            all &= self.copy(invocation, &join(from, name), &join(to, name), depth + 1)?;
        }
        Ok(all)
    }
}

/// Whether `to` is `from` or lies in it.
fn inside(invocation: &Invocation<'_>, from: &[u8], to: &[u8]) -> bool {
    match (invocation.files.absolute(from), invocation.files.absolute(to)) {
        (Ok(from), Ok(to)) => to == from || to.starts_with(&format!("{from}/")),
        _ => false,
    }
}

fn copy_bytes(
    invocation: &mut Invocation<'_>,
    from: &[u8],
    to: &[u8],
) -> Result<Result<(), FileError>, Stop> {
    let opened = invocation
        .files
        .input(from)
        .and_then(|input| Ok((input, invocation.files.output(to, false)?)));
    let (input, sink) = match opened {
        Ok(opened) => opened,
        Err(error) => return Ok(Err(error)),
    };
    loop {
        let chunk = match input.read_chunk() {
            Ok(chunk) => chunk,
            Err(error) => return Ok(Err(error)),
        };
        if chunk.is_empty() {
            return Ok(Ok(()));
        }
        invocation.meter.charge_each(chunk.len(), meter::BYTE)?;
        match sink.write(&chunk) {
            Ok(()) => {}
            Err(WriteError::File(error)) => return Ok(Err(error)),
            Err(WriteError::Full(stop)) => return Err(stop),
        }
    }
}

pub(super) fn mv(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = [
        "f|force",
        "n|no-clobber",
        "v|verbose",
        "t|target-directory=",
        "T|no-target-directory",
        "i",
    ];
    let Some(options) = invocation.options(&known)? else { return Ok(2) };
    let (sources, to) = match destination(invocation, &options)? {
        Ok(found) => found,
        Err(status) => return Ok(status),
    };
    let mut status = 0;
    for source in &sources {
        invocation.meter.charge(meter::ENTRY)?;
        let target = to.path(source);
        let shown = String::from_utf8_lossy(source).into_owned();
        let shown_to = String::from_utf8_lossy(&target).into_owned();
        let stat = match invocation.files.stat(source, false) {
            Ok(stat) => stat,
            Err(error) => {
                invocation.complain(&format!("cannot stat '{shown}': {}", describe(error)))?;
                status = 1;
                continue;
            }
        };
        let existing = invocation.files.stat(&target, false).ok();
        if existing.is_some() && options.has("n") {
            continue;
        }
        let problem = match existing {
            Some(existing) if existing.identity == stat.identity => {
                Some(format!("'{shown}' and '{shown_to}' are the same file"))
            }
            Some(existing)
                if existing.kind == FileKind::Directory && stat.kind != FileKind::Directory =>
            {
                Some(format!(
                    "cannot overwrite directory '{shown_to}' with non-directory '{shown}'"
                ))
            }
            Some(existing)
                if existing.kind != FileKind::Directory && stat.kind == FileKind::Directory =>
            {
                Some(format!(
                    "cannot overwrite non-directory '{shown_to}' with directory '{shown}'"
                ))
            }
            _ if stat.kind == FileKind::Directory && inside(invocation, source, &target) => {
                Some(format!("cannot move '{shown}' to a subdirectory of itself, '{shown_to}'"))
            }
            _ => match invocation.files.rename(source, &target) {
                Ok(()) => None,
                Err(error) => {
                    Some(format!("cannot move '{shown}' to '{shown_to}': {}", describe(error)))
                }
            },
        };
        match problem {
            Some(message) => {
                invocation.complain(&message)?;
                status = 1;
            }
            None if options.has("v") => {
                invocation.line(format!("renamed '{shown}' -> '{shown_to}'").as_bytes())?;
            }
            None => {}
        }
    }
    Ok(status)
}
