//! Simple commands: finding out what a name is, and running it.

use super::builtins;
use super::evaluate::{Evaluator, Flow, Pending, Step};
use super::meter::{self, Stop};
use super::plan::{Assignment, Redirect, Word};
use super::stream::Io;
use crate::commands::{self, Invocation};

/// Folders whose programs are looked up by name, since the tree holds none of them.
const PROGRAM_FOLDERS: [&[u8]; 4] = [b"/bin/", b"/usr/bin/", b"/usr/local/bin/", b"/sbin/"];

impl Evaluator {
    pub(crate) async fn simple(
        &mut self,
        assignments: &[Assignment],
        words: &[Word],
        redirects: &[Redirect],
        io: &Io,
    ) -> Step {
        self.meter.charge(meter::STEP)?;
        self.substituted = None;
        let arguments = match self.fields(words, io).await {
            Ok(arguments) => arguments,
            Err(interrupt) => return self.interrupted(interrupt, io),
        };
        let inner = match self.redirect(redirects, io).await {
            Ok(inner) => inner,
            Err(interrupt) => return self.redirect_failed(interrupt, io),
        };
        let mut values = Vec::with_capacity(assignments.len());
        for assignment in assignments {
            let mut value = match self.text(&assignment.value, io).await {
                Ok(value) => value,
                Err(interrupt) => return self.interrupted(interrupt, io),
            };
            if assignment.append {
                let mut longer = self.variables.get(&assignment.name).unwrap_or_default().to_vec();
                longer.append(&mut value);
                value = longer;
            }
            if arguments.is_empty() {
                if !self.assign(&assignment.name, value, io)? {
                    return Ok(Flow::Exit);
                }
            } else {
                values.push((assignment.name.clone(), value));
            }
        }
        self.trace(&arguments, assignments, io)?;
        if arguments.is_empty() {
            self.status = self.substituted.unwrap_or(0);
            return Ok(Flow::Next);
        }
        self.with_environment(values, arguments, &inner).await
    }

    fn trace(
        &mut self,
        arguments: &[Vec<u8>],
        assignments: &[Assignment],
        io: &Io,
    ) -> Result<(), Stop> {
        if !self.options.trace {
            return Ok(());
        }
        let mut shown: Vec<String> = Vec::new();
        if arguments.is_empty() {
            for assignment in assignments {
                let value = self.variables.get(&assignment.name).unwrap_or_default();
                shown.push(format!("{}={}", assignment.name, commands::quoted(value)));
            }
        }
        shown.extend(arguments.iter().map(|argument| commands::quoted(argument)));
        self.meter.charge_each(shown.iter().map(String::len).sum(), meter::BYTE)?;
        // A trace that cannot be written changes nothing for the command.
        let _ = io.stderr.write(format!("+ {}\n", shown.join(" ")).as_bytes());
        Ok(())
    }

    /// Runs a command with variables of its own, `NAME=value command`.
    async fn with_environment(
        &mut self,
        values: Vec<(String, Vec<u8>)>,
        arguments: Vec<Vec<u8>>,
        io: &Io,
    ) -> Step {
        if values.is_empty() {
            return self.run(arguments, io).await;
        }
        let mut before = Vec::with_capacity(values.len());
        for (name, value) in values {
            before.push((name.clone(), self.variables.keep(&name)));
            if !self.assign(&name, value, io)? {
                return Ok(Flow::Next);
            }
            self.variables.export(&name, true)?;
        }
        let result = self.run(arguments, io).await;
        // The last one first, in case a name stands twice.
        for (name, kept) in before.into_iter().rev() {
            self.variables.put_back(&name, kept);
        }
        result
    }

    /// Runs a command with its arguments: a function, a command of the shell, one of this crate,
    /// a program, or a script of the tree.
    pub(crate) fn run<'a>(&'a mut self, arguments: Vec<Vec<u8>>, io: &'a Io) -> Pending<'a, Step> {
        Box::pin(async move {
            self.meter.charge(meter::COMMAND)?;
            self.stopped = None;
            let Some(name) = arguments.first().cloned() else {
                self.status = 0;
                return Ok(Flow::Next);
            };
            let shown = String::from_utf8_lossy(&name).into_owned();
            if let Some(body) = self.functions.get(&shown) {
                return self.function(&body, arguments, io).await;
            }
            if let Some(name) = builtins::find(&shown) {
                return self.builtin(name, arguments, io).await;
            }
            if let Some(command) = commands::find(&shown) {
                return self.plain(command, &arguments, io);
            }
            if self.programs.contains(&shown) {
                return self.program(&shown, &arguments, io).await;
            }
            if name.contains(&b'/') {
                return self.path_command(arguments, io).await;
            }
            if let Some(reason) = builtins::missing(&shown) {
                return self.fail(io, 2, &format!("unsupported: {reason}"));
            }
            let shown = shown.escape_default();
            let all = self.names().join(" ");
            self.fail(io, 127, &format!("{shown}: command not found\nwhat exists here: {all}"))
        })
    }

    /// Every name that can be run, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = commands::names().map(str::to_owned).collect();
        names.extend(self.programs.iter().cloned());
        names.sort();
        names.dedup();
        names
    }

    fn plain(&mut self, command: commands::Plain, arguments: &[Vec<u8>], io: &Io) -> Step {
        let mut invocation = Invocation {
            name: arguments.first().map(Vec::as_slice).unwrap_or_default(),
            arguments: arguments.get(1..).unwrap_or_default(),
            files: &self.files,
            meter: &mut self.meter,
            limits: &self.limits,
            variables: &self.variables,
            io,
            slept: &mut self.slept,
            pending: Vec::new(),
            write_failed: None,
        };
        let status = command(&mut invocation)?;
        self.status = invocation.finish(status)?;
        Ok(Flow::Next)
    }

    async fn function(
        &mut self,
        body: &super::plan::Stage,
        mut arguments: Vec<Vec<u8>>,
        io: &Io,
    ) -> Step {
        arguments.remove(0);
        let caller = std::mem::replace(&mut self.positional, arguments);
        let loops = std::mem::take(&mut self.loops);
        self.locals.push(std::collections::BTreeMap::new());
        let result = self.stage(body, io).await;
        for (name, kept) in self.locals.pop().unwrap_or_default() {
            self.variables.put_back(&name, kept);
        }
        self.loops = loops;
        self.positional = caller;
        match result? {
            Flow::Exit => Ok(Flow::Exit),
            _ => Ok(Flow::Next),
        }
    }

    /// A command named by a path: a script of the tree, or a name in one of the usual folders.
    async fn path_command(&mut self, mut arguments: Vec<Vec<u8>>, io: &Io) -> Step {
        let path = arguments.first().cloned().unwrap_or_default();
        let shown = String::from_utf8_lossy(&path).escape_default().to_string();
        match self.files.stat(&path, true) {
            Ok(stat) if stat.kind == fulgurite_trace::file::FileKind::Directory => {
                self.fail(io, 126, &format!("{shown}: Is a directory"))
            }
            Ok(_) => self.script(arguments, io).await,
            Err(error) => {
                let folder = PROGRAM_FOLDERS.iter().find(|folder| path.starts_with(folder));
                match folder.and_then(|folder| path.get(folder.len()..)) {
                    Some(name) if !name.is_empty() && !name.contains(&b'/') => {
                        if let Some(first) = arguments.first_mut() {
                            *first = name.to_vec();
                        }
                        self.run(arguments, io).await
                    }
                    _ => {
                        let reason = super::files::describe(error);
                        self.fail(io, 127, &format!("{shown}: {reason}"))
                    }
                }
            }
        }
    }
}
