//! `env` and `timeout`: commands that run another one.

use super::clock::seconds;
use super::options::parse;
use crate::shell::builtins::assignment;
use crate::shell::evaluate::{Evaluator, Flow, Step};
use crate::shell::meter::Stop;
use crate::shell::stream::{Io, WriteError};
use crate::shell::variables::Variables;

impl Evaluator {
    pub(crate) async fn env(&mut self, arguments: Vec<Vec<u8>>, io: &Io) -> Step {
        let known = ["i|ignore-environment", "u|unset=", "0|null", "S=", "C="];
        let options = match parse(arguments.get(1..).unwrap_or_default(), &known, true) {
            Ok(options) => options,
            Err(mistake) => return self.wrapper_fails(io, 2, "env", &mistake),
        };
        for key in ["0", "S", "C"] {
            if options.has(key) {
                return self.wrapper_fails(io, 2, "env", &format!("unsupported: -{key}"));
            }
        }
        self.meter.charge_each(self.variables.bytes(), 1)?;
        let before = self.variables.clone();
        let result = self.env_inside(&options, io).await;
        self.variables = before;
        result
    }

    async fn env_inside(&mut self, options: &super::options::Options, io: &Io) -> Step {
        if options.has("i") {
            self.variables = Variables::new(self.limits.variable_bytes);
        }
        for name in options.values("u") {
            // What must not change is not changed, and `env` has no word for it.
            let _ = self.variables.unset(&String::from_utf8_lossy(name));
        }
        let mut rest = options.operands.as_slice();
        while let [first, after @ ..] = rest
            && let Some((name, Some(value))) = assignment(first)
        {
            if !self.assign(&name, value, io)? {
                return Ok(Flow::Next);
            }
            self.variables.export(&name, true)?;
            rest = after;
        }
        if !rest.is_empty() {
            return self.run(rest.to_vec(), io).await;
        }
        let mut text = Vec::new();
        for (name, value) in self.variables.exported() {
            text.extend_from_slice(name.as_bytes());
            text.push(b'=');
            text.extend_from_slice(value);
            text.push(b'\n');
        }
        self.meter.charge_each(text.len(), 1)?;
        match io.stdout.write(&text) {
            Err(WriteError::Full(stop)) => return Err(stop),
            Err(WriteError::File(_)) => self.status = 1,
            Ok(()) => self.status = 0,
        }
        Ok(Flow::Next)
    }

    /// Lets a command use only as much fuel as stands for the given time.
    pub(crate) async fn timeout(&mut self, arguments: Vec<Vec<u8>>, io: &Io) -> Step {
        let known = ["k|kill-after=", "s|signal=", "|preserve-status", "|foreground", "v|verbose"];
        let options = match parse(arguments.get(1..).unwrap_or_default(), &known, true) {
            Ok(options) => options,
            Err(mistake) => return self.wrapper_fails(io, 2, "timeout", &mistake),
        };
        let [duration, command @ ..] = options.operands.as_slice() else {
            return self.wrapper_fails(io, 125, "timeout", "missing operand");
        };
        let Some(time) = seconds(duration) else {
            let shown = String::from_utf8_lossy(duration).into_owned();
            let message = format!("invalid time interval '{shown}'");
            return self.wrapper_fails(io, 125, "timeout", &message);
        };
        if command.is_empty() {
            return self.wrapper_fails(io, 125, "timeout", "missing operand");
        }
        let milliseconds = (time * 1000.0).min(1e15) as u64;
        // No time at all means no limit.
        let fuel = match milliseconds {
            0 => u64::MAX,
            milliseconds => milliseconds.saturating_mul(self.limits.fuel_per_millisecond),
        };
        let held = self.meter.narrow(fuel);
        let result = self.run(command.to_vec(), io).await;
        self.meter.widen(held);
        match result {
            Err(Stop::Timeout) if self.meter.left() > 0 => {
                self.status = 124;
                Ok(Flow::Next)
            }
            result => result,
        }
    }

    fn wrapper_fails(&mut self, io: &Io, status: i32, name: &str, message: &str) -> Step {
        // The message is lost with its stream; the status is not.
        let _ = io.stderr.write(format!("{name}: {message}\n").as_bytes());
        self.status = status;
        Ok(Flow::Next)
    }
}
