//! `basename`, `dirname`, `pwd`, `readlink`, `realpath`.

use super::Invocation;
use crate::shell::files::base_name;
use crate::shell::meter::{self, Stop};

/// The folder part, as `dirname` cuts it.
pub(super) fn folder_name(path: &[u8]) -> &[u8] {
    let trim = |path: &[u8]| path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let absolute = path.first() == Some(&b'/');
    let root: &[u8] = if absolute { b"/" } else { b"." };
    let named = path.get(..trim(path)).unwrap_or_default();
    let Some(slash) = named.iter().rposition(|byte| *byte == b'/') else { return root };
    let folder = named.get(..slash).unwrap_or_default();
    match folder.get(..trim(folder)).unwrap_or_default() {
        b"" => root,
        folder => folder,
    }
}

pub(super) fn basename(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let Some(options) = invocation.options(&["a|multiple", "s|suffix="])? else { return Ok(2) };
    let (paths, suffix) = match options.operands.as_slice() {
        [] => return invocation.fail(1, "missing operand"),
        all if options.has("a") || options.has("s") => (all, options.value("s")),
        [path] => (std::slice::from_ref(path), None),
        [path, suffix] => (std::slice::from_ref(path), Some(suffix.as_slice())),
        _ => return invocation.fail(1, "extra operand"),
    };
    for path in paths {
        let name = base_name(path);
        let cut = suffix.and_then(|suffix| name.strip_suffix(suffix));
        invocation.line(cut.filter(|cut| !cut.is_empty()).unwrap_or(name))?;
    }
    Ok(0)
}

pub(super) fn dirname(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let Some(options) = invocation.options(&[])? else { return Ok(2) };
    if options.operands.is_empty() {
        return invocation.fail(1, "missing operand");
    }
    for path in &options.operands {
        invocation.line(folder_name(path))?;
    }
    Ok(0)
}

pub(super) fn pwd(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    if invocation.options(&["P|physical", "L|logical"])?.is_none() {
        return Ok(2);
    }
    let cwd = invocation.files.cwd().to_owned();
    invocation.line(cwd.as_bytes()).map(|()| 0)
}

pub(super) fn readlink(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = ["f|canonicalize", "e|canonicalize-existing", "m|canonicalize-missing", "n"];
    let Some(options) = invocation.options(&known)? else { return Ok(2) };
    if ["f", "e", "m"].iter().any(|key| options.has(key)) {
        return resolve(invocation, &options.operands, options.has("e"));
    }
    let mut status = 0;
    for path in &options.operands {
        invocation.meter.charge(meter::ENTRY)?;
        match invocation.files.read_link(path) {
            Ok(target) if options.has("n") => invocation.out(target.as_bytes())?,
            Ok(target) => invocation.line(target.as_bytes())?,
            Err(_) => status = 1,
        }
    }
    Ok(status)
}

pub(super) fn realpath(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = ["e|canonicalize-existing", "m|canonicalize-missing", "s|no-symlinks"];
    let Some(options) = invocation.options(&known)? else { return Ok(2) };
    if options.operands.is_empty() {
        return invocation.fail(1, "missing operand");
    }
    resolve(invocation, &options.operands, options.has("e"))
}

fn resolve(
    invocation: &mut Invocation<'_>,
    paths: &[Vec<u8>],
    existing: bool,
) -> Result<i32, Stop> {
    let mut status = 0;
    for path in paths {
        match canonical(invocation, path)? {
            Ok(resolved) if existing && !invocation.files.exists(resolved.as_bytes()) => {
                let missing = fulgurite_trace::file::FileError::NotFound;
                invocation.complain_path(path, missing)?;
                status = 1;
            }
            Ok(resolved) => invocation.line(resolved.as_bytes())?,
            Err(error) => {
                invocation.complain_path(path, error)?;
                status = 1;
            }
        }
    }
    Ok(status)
}

/// Follows every link of a path; what does not exist stays as it is named.
fn canonical(
    invocation: &mut Invocation<'_>,
    path: &[u8],
) -> Result<Result<String, fulgurite_trace::file::FileError>, Stop> {
    let absolute = match invocation.files.absolute(path) {
        Ok(absolute) => absolute,
        Err(error) => return Ok(Err(error)),
    };
    let mut todo: Vec<String> = absolute.split('/').rev().map(str::to_owned).collect();
    let mut done: Vec<String> = Vec::new();
    let mut links = 0;
    while let Some(part) = todo.pop() {
        invocation.meter.charge(meter::ENTRY)?;
        match part.as_str() {
            "" | "." => continue,
            ".." => {
                done.pop();
                continue;
            }
            _ => done.push(part),
        }
        let here = format!("/{}", done.join("/"));
        if let Ok(target) = invocation.files.read_link(here.as_bytes()) {
            links += 1;
            if links > 40 {
                return Ok(Err(fulgurite_trace::file::FileError::Loop));
            }
            done.pop();
            todo.extend(target.split('/').rev().map(str::to_owned));
        }
    }
    Ok(Ok(format!("/{}", done.join("/"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cut_as_gnu_does() {
        for (path, folder, name) in [
            ("a/b", "a", "b"),
            ("a", ".", "a"),
            ("/a", "/", "a"),
            ("/", "/", "/"),
            ("a//b//", "a", "b"),
            ("//", "/", "/"),
            ("", ".", ""),
        ] {
            assert_eq!(folder_name(path.as_bytes()), folder.as_bytes(), "{path}");
            assert_eq!(base_name(path.as_bytes()), name.as_bytes(), "{path}");
        }
    }
}
