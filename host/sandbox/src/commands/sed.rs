//! `sed`: options and files.

use super::Invocation;
use super::lines::or_stdin;
use super::sed_parse::parse;
use super::sed_run::{Editor, Outcome};
use crate::shell::files::describe;
use crate::shell::meter::Stop;

pub(super) fn run(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = [
        "n|quiet",
        "|silent",
        "e|expression=",
        "f|file=",
        "E|regexp-extended",
        "r",
        "i|in-place=?",
        "s|separate",
        "|posix",
        "u|unbuffered",
        "z|null-data",
    ];
    let Some(options) = invocation.options(&known)? else { return Ok(2) };
    if options.has("z") {
        return invocation.fail(2, "unsupported: -z");
    }
    let mut operands = options.operands.clone();
    let mut script: Vec<u8> = Vec::new();
    let mut given = false;
    for (key, value) in options.given() {
        let part = match (key, value) {
            ("e", Some(text)) => text.to_vec(),
            ("f", Some(path)) => {
                let Some(text) = invocation.read_or_complain(path)? else { return Ok(1) };
                text.strip_suffix(b"\n").unwrap_or(&text).to_vec()
            }
            _ => continue,
        };
        if given {
            script.push(b'\n');
        }
        given = true;
        script.extend_from_slice(&part);
    }
    if !given {
        if operands.is_empty() {
            return invocation.fail(1, "usage: sed [OPTION]... {script} [input-file]...");
        }
        script = operands.remove(0);
    }
    let extended = options.has("E") || options.has("r");
    let quiet_line = script.starts_with(b"#n\n");
    let commands = match parse(&script, extended, invocation.meter)? {
        Ok(commands) => commands,
        Err(message) => {
            let status = if message.contains("unsupported") { 2 } else { 1 };
            return invocation.fail(status, &format!("-e expression #1: {message}"));
        }
    };
    let quiet = options.has("n") || options.has("silent") || quiet_line;
    let in_place = options.has("i");
    let suffix = options.value("i").unwrap_or_default().to_vec();
    let mut status = 0;
    if !in_place && !options.has("s") {
        let mut inputs = Vec::new();
        for path in or_stdin(operands) {
            match read(invocation, &path)? {
                Some(text) => inputs.push(text),
                None => status = 2,
            }
            invocation.check_room(inputs.iter().map(Vec::len).sum())?;
        }
        let mut editor = Editor::new(&commands, quiet);
        let outcome = editor.edit(invocation, &inputs, None)?;
        return Ok(finish(outcome, status));
    }
    let mut editor = Editor::new(&commands, quiet);
    for path in or_stdin(operands) {
        let Some(text) = read(invocation, &path)? else {
            status = 4;
            continue;
        };
        editor.restart();
        let mut result = Vec::new();
        let target = in_place.then_some(&mut result);
        let outcome = editor.edit(invocation, std::slice::from_ref(&text), target)?;
        if in_place {
            if !suffix.is_empty() {
                let backup = [path.as_slice(), &suffix].concat();
                if let Err(error) = invocation.files.write(&backup, &text) {
                    invocation.complain_path(&backup, error)?;
                    return Ok(4);
                }
            }
            if let Err(error) = invocation.files.write(&path, &result) {
                let shown = String::from_utf8_lossy(&path).into_owned();
                let message = format!("couldn't open file {shown}: {}", describe(error));
                return invocation.fail(4, &message);
            }
        }
        if let Outcome::Quit(_) = outcome {
            return Ok(finish(outcome, status));
        }
    }
    Ok(status)
}

fn finish(outcome: Outcome, status: i32) -> i32 {
    match outcome {
        Outcome::End => status,
        Outcome::Quit(code) => code,
    }
}

fn read(invocation: &mut Invocation<'_>, path: &[u8]) -> Result<Option<Vec<u8>>, Stop> {
    match invocation.read(path)? {
        Ok(text) => Ok(Some(text)),
        Err(error) => {
            let shown = String::from_utf8_lossy(path).into_owned();
            let message = match error {
                fulgurite_trace::file::FileError::IsDirectory => {
                    format!("couldn't edit {shown}: not a regular file")
                }
                error => format!("can't read {shown}: {}", describe(error)),
            };
            invocation.complain(&message)?;
            Ok(None)
        }
    }
}
