//! Commands that change variables and options: `export`, `unset`, `set`, …

use super::arithmetic::{self, Failure};
use super::builtins::assignment;
use super::evaluate::{Evaluator, Flow, Step};
use super::files::describe;
use super::meter::{self, Stop};
use super::stream::Io;
use super::variables::Readonly;
use super::word::is_name;
use crate::commands;

impl Evaluator {
    fn done(&mut self) -> Step {
        self.status = 0;
        Ok(Flow::Next)
    }

    pub(crate) fn not_a_name(&mut self, io: &Io, command: &str, text: &[u8]) -> Step {
        let shown = String::from_utf8_lossy(text).into_owned();
        self.fail(io, 1, &format!("{command}: `{shown}': not a valid identifier"))
    }

    /// Sets every `NAME=value` of `arguments` and does `then` for every name.
    fn declare_each(
        &mut self,
        arguments: &[Vec<u8>],
        io: &Io,
        command: &str,
        then: impl Fn(&mut Self, &str) -> Result<(), Stop>,
    ) -> Step {
        self.status = 0;
        for argument in arguments {
            let Some((name, value)) = assignment(argument) else {
                self.not_a_name(io, command, argument)?;
                continue;
            };
            if let Some(value) = value
                && !self.assign(&name, value, io)?
            {
                continue;
            }
            then(self, &name)?;
        }
        Ok(Flow::Next)
    }

    pub(crate) fn export(&mut self, arguments: &[Vec<u8>], io: &Io) -> Step {
        let mut rest = arguments.get(1..).unwrap_or_default();
        let mut on = true;
        while let [option, after @ ..] = rest {
            match option.as_slice() {
                b"-n" => on = false,
                b"-p" | b"--" => {}
                option if option.starts_with(b"-") => {
                    let shown = String::from_utf8_lossy(option).into_owned();
                    return self.fail(io, 2, &format!("export: {shown}: invalid option"));
                }
                _ => break,
            }
            rest = after;
        }
        if rest.is_empty() {
            let mut text = Vec::new();
            for (name, value) in self.variables.exported() {
                let value = commands::quoted(value);
                text.extend_from_slice(format!("export {name}={value}\n").as_bytes());
            }
            return self.print(&text, io);
        }
        let rest = rest.to_vec();
        self.declare_each(&rest, io, "export", |shell, name| shell.variables.export(name, on))
    }

    fn print(&mut self, text: &[u8], io: &Io) -> Step {
        self.meter.charge_each(text.len(), meter::BYTE)?;
        match io.stdout.write(text) {
            Ok(()) => self.done(),
            Err(super::stream::WriteError::Full(stop)) => Err(stop),
            Err(super::stream::WriteError::File(error)) => {
                self.fail(io, 1, &format!("write error: {}", describe(error)))
            }
        }
    }

    pub(crate) fn readonly(&mut self, arguments: &[Vec<u8>], io: &Io) -> Step {
        let rest = arguments.get(1..).unwrap_or_default().to_vec();
        self.declare_each(&rest, io, "readonly", |shell, name| shell.variables.protect(name))
    }

    pub(crate) fn declare(&mut self, arguments: &[Vec<u8>], io: &Io) -> Step {
        let (mut export, mut protect) = (false, false);
        let mut rest = arguments.get(1..).unwrap_or_default();
        while let [option, after @ ..] = rest
            && let [b'-', letters @ ..] = option.as_slice()
        {
            for letter in letters {
                match letter {
                    b'x' => export = true,
                    b'r' => protect = true,
                    other => {
                        let letter = char::from(*other);
                        return self.fail(io, 2, &format!("unsupported: declare -{letter}"));
                    }
                }
            }
            rest = after;
        }
        let rest = rest.to_vec();
        self.declare_each(&rest, io, "declare", |shell, name| {
            if export {
                shell.variables.export(name, true)?;
            }
            if protect {
                shell.variables.protect(name)?;
            }
            Ok(())
        })
    }

    pub(crate) fn local(&mut self, arguments: &[Vec<u8>], io: &Io) -> Step {
        if self.locals.is_empty() {
            return self.fail(io, 1, "local: can only be used in a function");
        }
        let rest = arguments.get(1..).unwrap_or_default().to_vec();
        if let Some(option) = rest.iter().find(|argument| argument.starts_with(b"-")) {
            let shown = String::from_utf8_lossy(option).into_owned();
            return self.fail(io, 2, &format!("unsupported: local {shown}"));
        }
        for argument in &rest {
            let Some((name, value)) = assignment(argument) else {
                return self.not_a_name(io, "local", argument);
            };
            let size = self.variables.get(&name).map_or(0, <[u8]>::len);
            self.meter.charge_each(size, meter::BYTE)?;
            let kept = self.variables.keep(&name);
            if let Some(locals) = self.locals.last_mut() {
                locals.entry(name.clone()).or_insert(kept);
            }
            match value {
                Some(value) => {
                    self.assign(&name, value, io)?;
                }
                None => {
                    // A variable that must not change stays what it is.
                    let _ = self.variables.unset(&name);
                }
            }
        }
        self.done()
    }

    pub(crate) fn unset(&mut self, arguments: &[Vec<u8>], io: &Io) -> Step {
        self.status = 0;
        let mut functions = false;
        for argument in arguments.iter().skip(1) {
            match argument.as_slice() {
                b"-f" => functions = true,
                b"-v" => functions = false,
                name if is_name(name) => {
                    let name = String::from_utf8_lossy(name).into_owned();
                    let known = self.variables.get(&name).is_some();
                    if functions || (!known && self.functions.has(&name)) {
                        self.functions.remove(&name);
                    } else if self.variables.unset(&name) == Err(Readonly) {
                        let message = format!("unset: {name}: cannot unset: readonly variable");
                        self.fail(io, 1, &message)?;
                    }
                }
                other => {
                    let other = other.to_vec();
                    self.not_a_name(io, "unset", &other)?;
                }
            }
        }
        Ok(Flow::Next)
    }

    /// Turns an option of `set` on or off; `false` when there is none of that letter.
    pub(crate) fn set_letter(&mut self, letter: u8, on: bool) -> bool {
        match letter {
            b'e' => self.options.exit_on_error = on,
            b'u' => self.options.no_unset = on,
            b'x' => self.options.trace = on,
            b'f' => self.options.no_glob = on,
            // What these would change does not exist here.
            b'b' | b'h' | b'm' | b'B' | b'E' => {}
            _ => return false,
        }
        true
    }

    pub(crate) fn set_long(&mut self, name: &[u8], on: bool) -> bool {
        match name {
            b"errexit" => self.set_letter(b'e', on),
            b"nounset" => self.set_letter(b'u', on),
            b"xtrace" => self.set_letter(b'x', on),
            b"noglob" => self.set_letter(b'f', on),
            b"pipefail" => {
                self.options.pipe_fail = on;
                true
            }
            b"errtrace" | b"posix" | b"monitor" | b"braceexpand" | b"hashall" => true,
            _ => false,
        }
    }

    pub(crate) fn set(&mut self, arguments: &[Vec<u8>], io: &Io) -> Step {
        let mut rest = arguments.get(1..).unwrap_or_default();
        if rest.is_empty() {
            let mut text = Vec::new();
            for (name, value) in self.variables.all() {
                let value = commands::quoted(value);
                text.extend_from_slice(format!("{name}={value}\n").as_bytes());
            }
            return self.print(&text, io);
        }
        while let [option, after @ ..] = rest {
            match option.as_slice() {
                b"--" => {
                    self.positional = after.to_vec();
                    return self.done();
                }
                [sign @ (b'-' | b'+'), letters @ ..] if !letters.is_empty() => {
                    let on = *sign == b'-';
                    let mut after = after;
                    for letter in letters {
                        if *letter == b'o' {
                            let (name, next) = match after {
                                [name, next @ ..] => (name.clone(), next),
                                [] => return self.fail(io, 2, "set: -o needs a name"),
                            };
                            after = next;
                            if !self.set_long(&name, on) {
                                let shown = String::from_utf8_lossy(&name).into_owned();
                                return self.fail(io, 2, &format!("unsupported: set -o {shown}"));
                            }
                        } else if !self.set_letter(*letter, on) {
                            let letter = char::from(*letter);
                            return self.fail(io, 2, &format!("unsupported: set -{letter}"));
                        }
                    }
                    rest = after;
                }
                _ => {
                    self.positional = rest.to_vec();
                    return self.done();
                }
            }
        }
        self.done()
    }

    pub(crate) fn shift(&mut self, arguments: &[Vec<u8>], io: &Io) -> Step {
        let count = match arguments.get(1) {
            None => 1,
            Some(text) => match commands::parse_number::<usize>(text) {
                Some(count) => count,
                None => return self.fail(io, 1, "shift: numeric argument required"),
            },
        };
        if count > self.positional.len() {
            self.status = 1;
            return Ok(Flow::Next);
        }
        self.positional.drain(..count);
        self.done()
    }

    pub(crate) fn let_(&mut self, arguments: &[Vec<u8>], io: &Io) -> Step {
        let mut value = 0;
        for expression in arguments.iter().skip(1) {
            self.meter.charge_each(expression.len() + 1, meter::STEP)?;
            value = match arithmetic::evaluate(expression, &mut self.variables) {
                Ok(value) => value,
                Err(Failure::Stop(stop)) => return Err(stop),
                Err(Failure::Message(message)) => {
                    return self.fail(io, 1, &format!("let: {message}"));
                }
            };
        }
        self.status = i32::from(value == 0);
        Ok(Flow::Next)
    }
}
