//! Walks a plan. One stage of a pipeline runs after another, never at the same time, so that the
//! order of everything that a line does is fixed.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;

use fulgurite_trace::CommandStop;
use fulgurite_trace::file::FileTree;

use super::expand::Interrupt;
use super::files::Files;
use super::functions::Functions;
use super::meter::{self, Meter, Stop};
use super::plan::{AndOr, Command, Joint, List, Pipeline, Stage};
use super::stream::{Input, Io, Sink, WriteError};
use super::variables::{Kept, Readonly, Variables};
use crate::lane::{CommandLimits, ProgramRunner};

/// A future that calls itself again has to be boxed.
pub(crate) type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Deepest nesting of lists, functions, scripts and substitutions while running. Each level takes
/// up to 16 KiB of stack when built without optimisation; threads have 2 MiB.
const DEPTH: usize = 48;
/// Fuel between two pauses, so that one command does not hold a thread for long.
const PAUSE: u64 = 5_000_000;

/// What comes after a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Next,
    Break(usize),
    Continue(usize),
    Return,
    Exit,
}

pub(crate) type Step = Result<Flow, Stop>;

/// Options of `set`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    pub(crate) exit_on_error: bool,
    pub(crate) no_unset: bool,
    pub(crate) pipe_fail: bool,
    pub(crate) trace: bool,
    pub(crate) no_glob: bool,
}

impl Options {
    /// What `$-` shows.
    pub(crate) fn letters(self) -> String {
        let all = [
            (self.exit_on_error, 'e'),
            (self.no_glob, 'f'),
            (self.no_unset, 'u'),
            (self.trace, 'x'),
        ];
        all.iter().filter(|(on, _)| *on).map(|(_, letter)| *letter).collect()
    }
}

/// A shell while it runs one command.
pub(crate) struct Evaluator {
    pub(crate) runner: Arc<dyn ProgramRunner>,
    pub(crate) programs: Arc<BTreeSet<String>>,
    pub(crate) limits: Arc<CommandLimits>,
    pub(crate) meter: Meter,
    pub(crate) files: Files,
    pub(crate) variables: Variables,
    pub(crate) positional: Vec<Vec<u8>>,
    /// `$0`.
    pub(crate) script: Vec<u8>,
    pub(crate) functions: Functions,
    /// The values that `local` hid, innermost function last.
    pub(crate) locals: Vec<BTreeMap<String, Kept>>,
    pub(crate) options: Options,
    /// `$?`.
    pub(crate) status: i32,
    /// The status of the last `$( )`, while a command without a name is expanded.
    pub(crate) substituted: Option<i32>,
    /// Set when the last program was stopped; the shell itself goes on.
    pub(crate) stopped: Option<CommandStop>,
    /// Milliseconds that `sleep` let pass.
    pub(crate) slept: u64,
    pub(crate) loops: usize,
    /// How many conditions are being evaluated around this command: `set -e` waits.
    conditions: usize,
    depth: usize,
    paused_at: u64,
}

/// What a subshell must not change.
struct Saved {
    files: Files,
    variables: Variables,
    positional: Vec<Vec<u8>>,
    functions: Functions,
    options: Options,
    loops: usize,
}

impl Evaluator {
    pub(crate) fn new(
        runner: Arc<dyn ProgramRunner>,
        tree: Arc<dyn FileTree>,
        limits: CommandLimits,
    ) -> Result<Self, fulgurite_trace::file::FileError> {
        Ok(Self {
            programs: Arc::new(runner.programs().into_iter().collect()),
            runner,
            meter: Meter::new(limits.fuel),
            files: Files::new(tree)?,
            variables: Variables::new(limits.variable_bytes),
            limits: Arc::new(limits),
            positional: Vec::new(),
            script: b"sh".to_vec(),
            functions: Functions::default(),
            locals: Vec::new(),
            options: Options::default(),
            status: 0,
            substituted: None,
            stopped: None,
            slept: 0,
            loops: 0,
            conditions: 0,
            depth: 0,
            paused_at: 0,
        })
    }

    /// Runs commands one after another.
    pub(crate) fn list<'a>(&'a mut self, list: &'a List, io: &'a Io) -> Pending<'a, Step> {
        Box::pin(async move {
            if self.depth >= DEPTH {
                return Err(Stop::Memory(format!(
                    "commands, functions and substitutions nest at most {DEPTH} deep"
                )));
            }
            self.depth += 1;
            let mut result = Ok(Flow::Next);
            for item in &list.0 {
                result = self.and_or(item, io).await;
                if result != Ok(Flow::Next) {
                    break;
                }
                self.pause().await;
            }
            self.depth -= 1;
            result
        })
    }

    /// Lets others run now and then.
    pub(crate) async fn pause(&mut self) {
        if self.meter.used() - self.paused_at > PAUSE {
            self.paused_at = self.meter.used();
            tokio::task::yield_now().await;
        }
    }

    async fn and_or(&mut self, item: &AndOr, io: &Io) -> Step {
        let guarded = |last: bool| usize::from(!last);
        let mut last = item.rest.is_empty();
        self.conditions += guarded(last);
        let mut result = self.pipeline(&item.first, io).await;
        self.conditions -= guarded(last);
        let mut negated = item.first.negated;
        for (index, (joint, pipeline)) in item.rest.iter().enumerate() {
            if result != Ok(Flow::Next) {
                return result;
            }
            let wanted = match joint {
                Joint::And => self.status == 0,
                Joint::Or => self.status != 0,
            };
            if !wanted {
                last = false;
                continue;
            }
            last = index + 1 == item.rest.len();
            self.conditions += guarded(last);
            result = self.pipeline(pipeline, io).await;
            self.conditions -= guarded(last);
            negated = pipeline.negated;
        }
        let failed = result == Ok(Flow::Next) && self.status != 0 && last && !negated;
        if failed && self.options.exit_on_error && self.conditions == 0 {
            return Ok(Flow::Exit);
        }
        result
    }

    async fn pipeline(&mut self, pipeline: &Pipeline, io: &Io) -> Step {
        self.conditions += usize::from(pipeline.negated);
        let result = match pipeline.stages.as_slice() {
            [stage] => self.stage(stage, io).await,
            stages => self.stages(stages, io).await.map(|()| Flow::Next),
        };
        self.conditions -= usize::from(pipeline.negated);
        if pipeline.negated && result == Ok(Flow::Next) {
            self.status = i32::from(self.status == 0);
        }
        result
    }

    async fn stages(&mut self, stages: &[Stage], io: &Io) -> Result<(), Stop> {
        let mut stdin = io.stdin.clone();
        let mut failed = 0;
        for (index, stage) in stages.iter().enumerate() {
            let last = index + 1 == stages.len();
            let stdout = match last {
                true => io.stdout.clone(),
                false => Sink::buffer(self.limits.buffer_bytes, "a pipe"),
            };
            let inner = Io { stdin, stdout: stdout.clone(), stderr: io.stderr.clone() };
            let saved = self.save()?;
            let result = self.stage(stage, &inner).await;
            self.restore(saved);
            result?;
            if self.status != 0 {
                failed = self.status;
            }
            // The last stage writes to what the whole pipeline writes to, which stays.
            stdin = if last { Input::empty() } else { Input::bytes(stdout.take_buffer()) };
        }
        if self.options.pipe_fail && failed != 0 {
            self.status = failed;
        }
        Ok(())
    }

    fn save(&mut self) -> Result<Saved, Stop> {
        let bytes = self.variables.bytes() + self.functions.bytes();
        self.meter.charge(meter::STEP + bytes as u64)?;
        Ok(Saved {
            files: self.files.clone(),
            variables: self.variables.clone(),
            positional: self.positional.clone(),
            functions: self.functions.clone(),
            options: self.options,
            loops: std::mem::take(&mut self.loops),
        })
    }

    fn restore(&mut self, saved: Saved) {
        self.files = saved.files;
        self.variables = saved.variables;
        self.positional = saved.positional;
        self.functions = saved.functions;
        self.options = saved.options;
        self.loops = saved.loops;
    }

    /// Runs a list so that nothing but its status and its files is seen outside.
    pub(crate) async fn subshell(&mut self, list: &List, io: &Io) -> Result<(), Stop> {
        let saved = self.save()?;
        let result = self.list(list, io).await;
        self.restore(saved);
        result.map(|_| ())
    }

    /// Says why a word could not be expanded; the shell then ends.
    pub(crate) fn interrupted(&mut self, interrupt: Interrupt, io: &Io) -> Step {
        match interrupt {
            Interrupt::Stop(stop) => Err(stop),
            Interrupt::Fail { message, status } => {
                self.complain(io, &message)?;
                self.status = status;
                Ok(Flow::Exit)
            }
        }
    }

    /// Writes a message of the shell itself.
    pub(crate) fn complain(&mut self, io: &Io, message: &str) -> Result<(), Stop> {
        self.meter.charge_each(message.len(), meter::LINE)?;
        match io.stderr.write(format!("sh: {message}\n").as_bytes()) {
            Err(WriteError::Full(stop)) => Err(stop),
            Ok(()) | Err(WriteError::File(_)) => Ok(()),
        }
    }

    /// A message and the status of a command that failed.
    pub(crate) fn fail(&mut self, io: &Io, status: i32, message: &str) -> Step {
        self.complain(io, message)?;
        self.status = status;
        Ok(Flow::Next)
    }

    pub(crate) async fn stage(&mut self, stage: &Stage, io: &Io) -> Step {
        if let Command::Simple { assignments, words } = &stage.command {
            return self.simple(assignments, words, &stage.redirects, io).await;
        }
        if stage.redirects.is_empty() {
            return self.compound(&stage.command, io).await;
        }
        match self.redirect(&stage.redirects, io).await {
            Ok(inner) => self.compound(&stage.command, &inner).await,
            Err(interrupt) => self.redirect_failed(interrupt, io),
        }
    }

    async fn compound(&mut self, command: &Command, io: &Io) -> Step {
        self.meter.charge(meter::STEP)?;
        match command {
            Command::Simple { .. } => Ok(Flow::Next),
            Command::Group(list) => self.list(list, io).await,
            Command::Subshell(list) => {
                self.subshell(list, io).await?;
                Ok(Flow::Next)
            }
            Command::For { variable, words, body } => {
                self.each(variable, words.as_deref(), body, io).await
            }
            Command::ArithmeticFor { start, condition, step, body } => {
                let parts = (start.as_ref(), condition.as_ref(), step.as_ref());
                self.count(parts, body, io).await
            }
            Command::While { condition, until, body } => {
                self.repeat(condition, *until, body, io).await
            }
            Command::If { branches, otherwise } => {
                for (condition, body) in branches {
                    match self.condition_list(condition, io).await? {
                        Flow::Next => {}
                        flow => return Ok(flow),
                    }
                    if self.status == 0 {
                        return self.list(body, io).await;
                    }
                }
                self.status = 0;
                match otherwise {
                    Some(body) => self.list(body, io).await,
                    None => Ok(Flow::Next),
                }
            }
            Command::Case { word, arms } => self.case(word, arms, io).await,
            Command::Arithmetic(expression) => match self.number(expression, io).await {
                Ok(value) => {
                    self.status = i32::from(value == 0);
                    Ok(Flow::Next)
                }
                Err(Interrupt::Stop(stop)) => Err(stop),
                Err(Interrupt::Fail { message, .. }) => self.fail(io, 1, &message),
            },
            Command::Condition(condition) => match self.condition(condition, io).await {
                Ok(holds) => {
                    self.status = i32::from(!holds);
                    Ok(Flow::Next)
                }
                Err(Interrupt::Stop(stop)) => Err(stop),
                Err(Interrupt::Fail { message, status }) => self.fail(io, status, &message),
            },
            Command::Function { name, body, size } => {
                self.functions.define(name, body, *size, self.limits.variable_bytes)?;
                self.status = 0;
                Ok(Flow::Next)
            }
        }
    }

    pub(crate) async fn condition_list(&mut self, list: &List, io: &Io) -> Step {
        self.conditions += 1;
        let result = self.list(list, io).await;
        self.conditions -= 1;
        result
    }

    /// Sets a variable; says so when it must not change.
    pub(crate) fn assign(&mut self, name: &str, value: Vec<u8>, io: &Io) -> Result<bool, Stop> {
        self.meter.charge_each(value.len() + 1, 10 * meter::BYTE)?;
        match self.variables.set(name, value)? {
            Ok(()) => Ok(true),
            Err(Readonly) => {
                self.complain(io, &format!("{name}: readonly variable"))?;
                self.status = 1;
                Ok(false)
            }
        }
    }
}
