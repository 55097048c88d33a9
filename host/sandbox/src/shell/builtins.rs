//! Commands that act on the shell itself, or run other commands.

use super::evaluate::{Evaluator, Flow, Step};
use super::files::describe;
use super::stream::Io;
use super::word::is_name;
use crate::commands;

/// A command of the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Builtin {
    Break,
    Cd,
    Command,
    Continue,
    Declare,
    Env,
    Eval,
    Exec,
    Exit,
    Export,
    Find,
    Let,
    Local,
    Read,
    Readonly,
    Return,
    Set,
    Shell,
    Shift,
    Source,
    Timeout,
    Type,
    Unset,
    Which,
    Xargs,
}

/// Names, sorted.
const NAMES: [(&str, Builtin); 28] = [
    (".", Builtin::Source),
    ("bash", Builtin::Shell),
    ("break", Builtin::Break),
    ("cd", Builtin::Cd),
    ("command", Builtin::Command),
    ("continue", Builtin::Continue),
    ("declare", Builtin::Declare),
    ("env", Builtin::Env),
    ("eval", Builtin::Eval),
    ("exec", Builtin::Exec),
    ("exit", Builtin::Exit),
    ("export", Builtin::Export),
    ("find", Builtin::Find),
    ("let", Builtin::Let),
    ("local", Builtin::Local),
    ("read", Builtin::Read),
    ("readonly", Builtin::Readonly),
    ("return", Builtin::Return),
    ("set", Builtin::Set),
    ("sh", Builtin::Shell),
    ("shift", Builtin::Shift),
    ("source", Builtin::Source),
    ("timeout", Builtin::Timeout),
    ("type", Builtin::Type),
    ("typeset", Builtin::Declare),
    ("unset", Builtin::Unset),
    ("which", Builtin::Which),
    ("xargs", Builtin::Xargs),
];

/// The command of that name.
pub(crate) fn find(name: &str) -> Option<Builtin> {
    let index = NAMES.binary_search_by(|(known, _)| (*known).cmp(name)).ok()?;
    NAMES.get(index).map(|(_, builtin)| *builtin)
}

/// All names.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(name, _)| *name)
}

/// What other shells have and this one does not: worth a plain word instead of "not found".
pub(crate) fn missing(name: &str) -> Option<&'static str> {
    Some(match name {
        "alias" | "unalias" => "alias",
        "bg" | "fg" | "jobs" | "disown" | "wait" | "kill" | "nohup" => {
            "background commands and jobs (everything here runs one after another)"
        }
        "trap" => "trap",
        "getopts" => "getopts",
        "mapfile" | "readarray" => "arrays",
        "pushd" | "popd" | "dirs" => "the folder stack",
        "shopt" => "shopt",
        "umask" | "ulimit" => "process limits and masks",
        _ => return None,
    })
}

impl Evaluator {
    pub(crate) async fn builtin(
        &mut self,
        builtin: Builtin,
        arguments: Vec<Vec<u8>>,
        io: &Io,
    ) -> Step {
        match builtin {
            Builtin::Break => self.leave(&arguments, io, Flow::Break),
            Builtin::Continue => self.leave(&arguments, io, Flow::Continue),
            Builtin::Cd => self.cd(&arguments, io),
            Builtin::Command => self.command(arguments, io).await,
            Builtin::Declare => self.declare(&arguments, io),
            Builtin::Env => self.env(arguments, io).await,
            Builtin::Eval => {
                let text = arguments.get(1..).unwrap_or_default().join(&b' ');
                self.status = 0;
                self.source(&text, io).await
            }
            Builtin::Exec => self.exec(arguments, io).await,
            Builtin::Exit => self.end(&arguments, io, Flow::Exit),
            Builtin::Return => {
                if self.locals.is_empty() {
                    return self.fail(io, 2, "return: can only `return` from a function");
                }
                self.end(&arguments, io, Flow::Return)
            }
            Builtin::Export => self.export(&arguments, io),
            Builtin::Find => self.find_files(&arguments, io).await,
            Builtin::Let => self.let_(&arguments, io),
            Builtin::Local => self.local(&arguments, io),
            Builtin::Read => self.read(&arguments, io),
            Builtin::Readonly => self.readonly(&arguments, io),
            Builtin::Set => self.set(&arguments, io),
            Builtin::Shell => self.shell(arguments, io).await,
            Builtin::Shift => self.shift(&arguments, io),
            Builtin::Source => self.source_file(&arguments, io).await,
            Builtin::Timeout => self.timeout(arguments, io).await,
            Builtin::Type => self.describe_names(&arguments, io, "type"),
            Builtin::Which => self.describe_names(&arguments, io, "which"),
            Builtin::Unset => self.unset(&arguments, io),
            Builtin::Xargs => self.xargs(&arguments, io).await,
        }
    }

    fn leave(&mut self, arguments: &[Vec<u8>], io: &Io, flow: fn(usize) -> Flow) -> Step {
        if self.loops == 0 {
            return self.fail(io, 0, "break and continue are only meaningful in a loop");
        }
        self.status = 0;
        match arguments.get(1) {
            None => Ok(flow(1)),
            Some(levels) => match commands::parse_number::<usize>(levels) {
                Some(levels) if levels > 0 => Ok(flow(levels.min(self.loops))),
                _ => self.fail(io, 1, "break: loop count out of range"),
            },
        }
    }

    fn end(&mut self, arguments: &[Vec<u8>], io: &Io, flow: Flow) -> Step {
        if let Some(status) = arguments.get(1) {
            match commands::parse_number::<i64>(status) {
                Some(status) => self.status = (status & 0xff) as i32,
                None => {
                    let shown = String::from_utf8_lossy(status).into_owned();
                    self.complain(io, &format!("exit: {shown}: numeric argument required"))?;
                    self.status = 2;
                }
            }
        }
        Ok(flow)
    }

    fn cd(&mut self, arguments: &[Vec<u8>], io: &Io) -> Step {
        let home = || self.variables.get("HOME").unwrap_or(b"/").to_vec();
        let operands: Vec<&Vec<u8>> = arguments
            .iter()
            .skip(1)
            .filter(|argument| !matches!(argument.as_slice(), b"-P" | b"-L" | b"--"))
            .collect();
        let target = match operands.as_slice() {
            [] => home(),
            [one] if one.as_slice() == b"-" => match self.variables.get("OLDPWD") {
                Some(old) => old.to_vec(),
                None => return self.fail(io, 1, "cd: OLDPWD not set"),
            },
            [one] => (*one).clone(),
            _ => return self.fail(io, 1, "cd: too many arguments"),
        };
        self.meter.charge(super::meter::ENTRY)?;
        let before = self.files.cwd().as_bytes().to_vec();
        if let Err(error) = self.files.change(&target) {
            let shown = String::from_utf8_lossy(&target).into_owned();
            return self.fail(io, 1, &format!("cd: {shown}: {}", describe(error)));
        }
        let after = self.files.cwd().as_bytes().to_vec();
        if operands.first().is_some_and(|first| first.as_slice() == b"-") {
            let mut line = after.clone();
            line.push(b'\n');
            // That the new folder cannot be shown does not undo the change.
            let _ = io.stdout.write(&line);
        }
        self.assign("OLDPWD", before, io)?;
        self.assign("PWD", after, io)?;
        self.status = 0;
        Ok(Flow::Next)
    }

    async fn exec(&mut self, mut arguments: Vec<Vec<u8>>, io: &Io) -> Step {
        arguments.remove(0);
        if arguments.is_empty() {
            return self.fail(io, 2, "unsupported: exec without a command");
        }
        match self.run(arguments, io).await? {
            Flow::Next => Ok(Flow::Exit),
            flow => Ok(flow),
        }
    }

    async fn command(&mut self, mut arguments: Vec<Vec<u8>>, io: &Io) -> Step {
        match arguments.get(1).map(Vec::as_slice) {
            Some(b"-v" | b"-V") => {
                let names = arguments.split_off(1);
                self.describe_names(&names, io, "command")
            }
            Some(option) if option.starts_with(b"-") && option != b"-p" && option != b"--" => {
                let shown = String::from_utf8_lossy(option).into_owned();
                self.fail(io, 2, &format!("command: {shown}: invalid option"))
            }
            Some(b"-p" | b"--") => {
                arguments.drain(..2);
                self.run(arguments, io).await
            }
            _ => {
                arguments.remove(0);
                self.run(arguments, io).await
            }
        }
    }

    /// `type`, `which` and `command -v`.
    fn describe_names(&mut self, arguments: &[Vec<u8>], io: &Io, how: &str) -> Step {
        let mut missing = false;
        let mut output = String::new();
        let mut complaints = String::new();
        for name in arguments.iter().skip(1).filter(|name| !name.starts_with(b"-")) {
            let shown = String::from_utf8_lossy(name).into_owned();
            let function = self.functions.has(&shown);
            let builtin = find(&shown).is_some() || commands::find(&shown).is_some();
            let program = self.programs.contains(&shown);
            let file = name.contains(&b'/') && self.files.exists(name);
            if !(function || builtin || program || file) {
                missing = true;
                match how {
                    "type" => complaints.push_str(&format!("sh: type: {shown}: not found\n")),
                    "which" => complaints.push_str(&format!("which: no {shown} here\n")),
                    _ => {}
                }
                continue;
            }
            let kind = match (function, builtin) {
                (true, _) => "a function",
                (false, true) => "a shell builtin",
                (false, false) => "a program",
            };
            match how {
                "type" => output.push_str(&format!("{shown} is {kind}\n")),
                "which" if !file => output.push_str(&format!("/usr/bin/{shown}\n")),
                _ => output.push_str(&format!("{shown}\n")),
            }
        }
        // Neither stream failing changes the answer, which is the status.
        let _ = io.stdout.write(output.as_bytes());
        let _ = io.stderr.write(complaints.as_bytes());
        self.status = i32::from(missing);
        Ok(Flow::Next)
    }

    async fn source_file(&mut self, arguments: &[Vec<u8>], io: &Io) -> Step {
        let Some(path) = arguments.get(1) else {
            return self.fail(io, 2, "source: filename argument required");
        };
        let shown = String::from_utf8_lossy(path).into_owned();
        let text = match self.files.read(path, self.limits.buffer_bytes, &mut self.meter)? {
            Ok(text) => text,
            Err(error) => return self.fail(io, 1, &format!("{shown}: {}", describe(error))),
        };
        let own = arguments.get(2..).unwrap_or_default().to_vec();
        let caller = (!own.is_empty()).then(|| std::mem::replace(&mut self.positional, own));
        let result = self.source(&text, io).await;
        if let Some(caller) = caller {
            self.positional = caller;
        }
        match result? {
            Flow::Return => Ok(Flow::Next),
            flow => Ok(flow),
        }
    }
}

/// Splits `NAME=value`; the value is `None` without a `=`.
pub(crate) fn assignment(text: &[u8]) -> Option<(String, Option<Vec<u8>>)> {
    let (name, value) = match text.iter().position(|byte| *byte == b'=') {
        Some(at) => (text.get(..at)?, text.get(at + 1..).map(<[u8]>::to_vec)),
        None => (text, None),
    };
    is_name(name).then(|| (String::from_utf8_lossy(name).into_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_so_that_they_are_found() {
        assert!(NAMES.is_sorted_by_key(|(name, _)| *name));
        assert_eq!(find("cd"), Some(Builtin::Cd));
        assert_eq!(find("nothing"), None);
    }
}
