//! The commands that exist without any program: what a coding agent uses daily.
//!
//! A command sees an [`Invocation`] and nothing else: its arguments, the file tree, its streams
//! and the meter. It answers a status, or [`Stop`] when it has to end with the whole line.
//! Options that a command does not have end it with status 2 and are named.

mod clock;
mod compare;
mod copy;
mod cut;
mod diff;
mod digest;
mod echo;
mod environment;
mod find;
mod find_run;
mod find_values;
mod format;
mod grep;
mod grep_output;
mod head;
mod lines;
mod list;
mod make;
mod options;
mod patch;
mod patch_apply;
mod patch_parse;
mod paths;
mod printf;
pub(crate) mod regular;
mod regular_set;
mod regular_translate;
mod remove;
mod sed;
mod sed_address;
mod sed_parse;
mod sed_replace;
mod sed_run;
mod sed_script;
mod sed_substitute;
mod sequence;
mod sort;
mod sort_order;
pub(crate) mod test;
mod translate;
mod uniq;
mod wrappers;
mod xargs;

use fulgurite_trace::file::FileError;

use crate::lane::CommandLimits;
use crate::shell::files::{Files, describe};
use crate::shell::meter::{self, Meter, Stop};
use crate::shell::stream::{CHUNK, Input, Io, WriteError};
use crate::shell::variables::Variables;

/// A command: reads its invocation, answers its status.
pub(crate) type Plain = fn(&mut Invocation<'_>) -> Result<i32, Stop>;

/// Names, sorted.
const COMMANDS: [(&str, Plain); 49] = [
    (":", |_| Ok(0)),
    ("[", test::run),
    ("basename", paths::basename),
    ("cat", lines::cat),
    ("chmod", make::chmod),
    ("cmp", compare::cmp),
    ("comm", compare::comm),
    ("cp", copy::cp),
    ("cut", cut::run),
    ("date", clock::date),
    ("diff", diff::run),
    ("dirname", paths::dirname),
    ("echo", echo::run),
    ("egrep", grep::egrep),
    ("false", |_| Ok(1)),
    ("fgrep", grep::fgrep),
    ("grep", grep::grep),
    ("head", head::head),
    ("ln", make::ln),
    ("ls", list::ls),
    ("mkdir", make::mkdir),
    ("mv", copy::mv),
    ("nl", format::nl),
    ("paste", format::paste),
    ("patch", patch::run),
    ("printenv", environment::printenv),
    ("printf", printf::run),
    ("pwd", paths::pwd),
    ("readlink", paths::readlink),
    ("realpath", paths::realpath),
    ("rev", lines::rev),
    ("rm", remove::rm),
    ("rmdir", remove::rmdir),
    ("sed", sed::run),
    ("seq", sequence::seq),
    ("sha256sum", digest::sha256),
    ("sleep", clock::sleep),
    ("sort", sort::run),
    ("tac", lines::tac),
    ("tail", head::tail),
    ("tee", lines::tee),
    ("test", test::run),
    ("touch", make::touch),
    ("tr", translate::run),
    ("true", |_| Ok(0)),
    ("uname", environment::uname),
    ("uniq", uniq::run),
    ("wc", lines::wc),
    ("whoami", environment::whoami),
];

/// The command of that name.
pub(crate) fn find(name: &str) -> Option<Plain> {
    let index = COMMANDS.binary_search_by(|(known, _)| (*known).cmp(name)).ok()?;
    COMMANDS.get(index).map(|(_, command)| *command)
}

/// Names of all commands, those of the shell included.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|(name, _)| *name).chain(crate::shell::builtins::names())
}

/// One call of a command.
pub(crate) struct Invocation<'a> {
    /// The name it was called by.
    pub(crate) name: &'a [u8],
    pub(crate) arguments: &'a [Vec<u8>],
    pub(crate) files: &'a Files,
    pub(crate) meter: &'a mut Meter,
    pub(crate) limits: &'a CommandLimits,
    pub(crate) variables: &'a Variables,
    pub(crate) io: &'a Io,
    /// Milliseconds that `sleep` let pass.
    pub(crate) slept: &'a mut u64,
    pub(crate) pending: Vec<u8>,
    pub(crate) write_failed: Option<FileError>,
}

impl Invocation<'_> {
    /// The name it was called by, for messages.
    pub(crate) fn shown_name(&self) -> String {
        String::from_utf8_lossy(self.name).into_owned()
    }

    /// Writes to standard output.
    pub(crate) fn out(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.meter.charge_each(bytes.len(), meter::BYTE)?;
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= CHUNK { self.flush() } else { Ok(()) }
    }

    /// Writes a line to standard output.
    pub(crate) fn line(&mut self, text: &[u8]) -> Result<(), Stop> {
        self.out(text)?;
        self.out(b"\n")
    }

    fn flush(&mut self) -> Result<(), Stop> {
        let bytes = std::mem::take(&mut self.pending);
        match self.io.stdout.write(&bytes) {
            Ok(()) => Ok(()),
            Err(WriteError::Full(stop)) => Err(stop),
            Err(WriteError::File(error)) => {
                self.write_failed.get_or_insert(error);
                Ok(())
            }
        }
    }

    /// Writes to standard error, after everything that was written to standard output.
    pub(crate) fn err(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.flush()?;
        self.meter.charge_each(bytes.len(), meter::BYTE)?;
        match self.io.stderr.write(bytes) {
            Err(WriteError::Full(stop)) => Err(stop),
            Ok(()) | Err(WriteError::File(_)) => Ok(()),
        }
    }

    /// Writes `name: message` to standard error.
    pub(crate) fn complain(&mut self, message: &str) -> Result<(), Stop> {
        let line = format!("{}: {message}\n", self.shown_name());
        self.err(line.as_bytes())
    }

    /// Complains and answers `status`.
    pub(crate) fn fail(&mut self, status: i32, message: &str) -> Result<i32, Stop> {
        self.complain(message)?;
        Ok(status)
    }

    /// Complains about a path.
    pub(crate) fn complain_path(&mut self, path: &[u8], error: FileError) -> Result<(), Stop> {
        self.complain(&format!("{}: {}", String::from_utf8_lossy(path), describe(error)))
    }

    /// Opens an operand, `-` being standard input.
    pub(crate) fn open(&mut self, path: &[u8]) -> Result<Input, FileError> {
        match path {
            b"-" | b"/dev/stdin" => Ok(self.io.stdin.clone()),
            path => self.files.input(path),
        }
    }

    /// All bytes of an operand, `-` being standard input; charged.
    pub(crate) fn read(&mut self, path: &[u8]) -> Result<Result<Vec<u8>, FileError>, Stop> {
        self.meter.charge(meter::ENTRY)?;
        let input = match self.open(path) {
            Ok(input) => input,
            Err(error) => return Ok(Err(error)),
        };
        match input.read_all(self.limits.buffer_bytes) {
            Ok(bytes) => {
                let bytes = bytes?;
                self.meter.charge_each(bytes.len(), meter::BYTE)?;
                Ok(Ok(bytes))
            }
            Err(error) => Ok(Err(error)),
        }
    }

    /// All bytes of an operand, or `None` after complaining about it.
    pub(crate) fn read_or_complain(&mut self, path: &[u8]) -> Result<Option<Vec<u8>>, Stop> {
        match self.read(path)? {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) => {
                self.complain_path(path, error)?;
                Ok(None)
            }
        }
    }

    /// Stops when a command holds more than it may.
    pub(crate) fn check_room(&self, bytes: usize) -> Result<(), Stop> {
        let room = self.limits.buffer_bytes;
        if bytes > room {
            return Err(Stop::Memory(format!("a command holds at most {room} bytes")));
        }
        Ok(())
    }

    /// Stops when a command holds more lines than it may; holding a line costs more than its text.
    pub(crate) fn check_lines(&self, lines: usize) -> Result<(), Stop> {
        let room = self.limits.buffer_bytes / 16;
        if lines > room {
            return Err(Stop::Memory(format!("a command holds at most {room} lines")));
        }
        Ok(())
    }

    /// All lines of a text, each with its newline if it has one.
    pub(crate) fn all_lines<'t>(&self, text: &'t [u8]) -> Result<Vec<&'t [u8]>, Stop> {
        self.check_lines(split_lines(text).count())?;
        Ok(split_lines(text).collect())
    }

    /// Writes what is left, and answers the final status.
    pub(crate) fn finish(mut self, status: i32) -> Result<i32, Stop> {
        self.flush()?;
        match self.write_failed.take() {
            Some(error) => {
                self.complain(&format!("write error: {}", describe(error)))?;
                Ok(if status == 0 { 1 } else { status })
            }
            None => Ok(status),
        }
    }
}

/// A decimal number.
pub(crate) fn parse_number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// Lines, each with its newline if it has one.
pub(crate) fn split_lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
}

/// A line without its newline.
pub(crate) fn chomp(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// Text as a shell would read it back.
pub(crate) fn quoted(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "@%+=:,./-_".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_so_that_they_are_found() {
        assert!(COMMANDS.is_sorted_by_key(|(name, _)| *name));
        assert!(find("cat").is_some());
        assert!(find("nothing").is_none());
        let mut all: Vec<_> = names().collect();
        all.sort();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count, "a name stands twice");
    }

    #[test]
    fn quoting_can_be_read_back() {
        assert_eq!(quoted(b"a-b.c"), "a-b.c");
        assert_eq!(quoted(b""), "''");
        assert_eq!(quoted(b"it's"), "'it'\\''s'");
    }
}
