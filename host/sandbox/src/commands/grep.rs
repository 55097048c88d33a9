//! `grep`: options, files, and what is searched.

use fulgurite_trace::file::FileKind;

use super::Invocation;
use super::grep_output::{Look, Printer};
use super::options::Options;
use super::regular::{self, Regular};
use super::remove::DEPTH;
use crate::shell::files::{base_name, describe, join};
use crate::shell::meter::{self, Stop};
use crate::shell::pattern::Pattern;

/// Most patterns of one search.
const PATTERNS: usize = 16_384;

const KNOWN: [&str; 44] = [
    "E|extended-regexp",
    "F|fixed-strings",
    "G|basic-regexp",
    "P|perl-regexp",
    "e|regexp=",
    "f|file=",
    "i|ignore-case",
    "y",
    "|no-ignore-case",
    "v|invert-match",
    "w|word-regexp",
    "x|line-regexp",
    "c|count",
    "l|files-with-matches",
    "L|files-without-match",
    "m|max-count=",
    "o|only-matching",
    "q|quiet",
    "|silent",
    "s|no-messages",
    "n|line-number",
    "b|byte-offset",
    "H|with-filename",
    "h|no-filename",
    "|label=",
    "A|after-context=",
    "B|before-context=",
    "C|context=",
    "a|text",
    "I",
    "r|recursive",
    "R|dereference-recursive",
    "|include=",
    "|exclude=",
    "|exclude-dir=",
    "|color=?",
    "|colour=?",
    "Z|null",
    "T|initial-tab",
    "z|null-data",
    "U|binary",
    "|line-buffered",
    "d|directories=",
    "|binary-files=",
];

pub(super) fn grep(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    run(invocation, regular::Options::default())
}

pub(super) fn egrep(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    run(invocation, regular::Options { extended: true, ..regular::Options::default() })
}

pub(super) fn fgrep(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    run(invocation, regular::Options { fixed: true, ..regular::Options::default() })
}

/// A number of lines, as GNU's grep reads it.
enum Count {
    /// Numbers that are too large are the largest one.
    Of(usize),
    Negative,
}

fn count(text: &[u8]) -> Option<Count> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = super::parse_number::<usize>(digits).unwrap_or(usize::MAX);
    Some(if negative && number > 0 { Count::Negative } else { Count::Of(number) })
}

/// `-3`, as a context of three lines; but not where it is the value of the option before.
fn modern(arguments: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut options_ended = false;
    let mut is_value = false;
    arguments
        .iter()
        .map(|argument| {
            options_ended |= argument == b"--" && !is_value;
            let digits = argument.strip_prefix(b"-").unwrap_or_default();
            let number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
            let is_context = number && !options_ended && !is_value;
            is_value = !is_value && !options_ended && wants_value(argument);
            if is_context { [b"-C", digits].concat() } else { argument.clone() }
        })
        .collect()
}

/// Whether the next argument belongs to this one.
fn wants_value(argument: &[u8]) -> bool {
    const LONG: [&[u8]; 6] = [
        b"--regexp",
        b"--file",
        b"--max-count",
        b"--after-context",
        b"--before-context",
        b"--context",
    ];
    match argument.strip_prefix(b"-") {
        Some([b'-', ..]) => LONG.contains(&argument),
        // The first letter that takes a value takes the rest, or the next argument.
        Some(letters) => {
            let first = letters.iter().position(|letter| b"efmABC".contains(letter));
            first.is_some_and(|first| first + 1 == letters.len())
        }
        None => false,
    }
}

fn run(invocation: &mut Invocation<'_>, flavour: regular::Options) -> Result<i32, Stop> {
    let arguments = modern(invocation.arguments);
    let options = match super::options::parse(&arguments, &KNOWN, false) {
        Ok(options) => options,
        Err(mistake) => return invocation.fail(2, &mistake),
    };
    for key in ["b", "Z", "T", "z", "d"] {
        if options.has(key) {
            return invocation.fail(2, &format!("unsupported: -{key}"));
        }
    }
    let mut operands = options.operands.clone();
    let patterns = match patterns(invocation, &options, &mut operands)? {
        Ok(patterns) => patterns,
        Err(status) => return Ok(status),
    };
    let flavour = match options.last(&["E", "F", "G", "P"]) {
        Some("E") => regular::Options { extended: true, ..regular::Options::default() },
        Some("F") => regular::Options { fixed: true, ..regular::Options::default() },
        Some("P") => regular::Options { perl: true, ..regular::Options::default() },
        Some(_) => regular::Options::default(),
        None => flavour,
    };
    let fold = matches!(options.last(&["i", "y", "no-ignore-case"]), Some("i" | "y"));
    let flavour = regular::Options {
        ignore_case: fold,
        word: options.has("w"),
        whole: options.has("x"),
        ..flavour
    };
    let borrowed: Vec<&[u8]> = patterns.iter().map(Vec::as_slice).collect();
    let regular = match Regular::any(&borrowed, flavour, invocation.meter)? {
        Ok(regular) => regular,
        Err(message) => return invocation.fail(2, &message),
    };
    let number = |key: &str| match options.value(key) {
        None => Ok(None),
        Some(text) => match (key, count(text)) {
            (_, Some(Count::Of(number))) => Ok(Some(number)),
            // As many as there are.
            ("m", Some(Count::Negative)) => Ok(None),
            ("m", None) => Err("invalid max count".to_owned()),
            _ => {
                let text = String::from_utf8_lossy(text);
                Err(format!("{text}: invalid context length argument"))
            }
        },
    };
    let (around, before, after, most) = match (number("C"), number("B"), number("A"), number("m")) {
        (Ok(around), Ok(before), Ok(after), Ok(most)) => (around, before, after, most),
        (Err(message), ..)
        | (_, Err(message), ..)
        | (_, _, Err(message), _)
        | (.., Err(message)) => return invocation.fail(2, &message),
    };
    let recursive = options.has("r") || options.has("R");
    if operands.is_empty() {
        operands.push(if recursive { b"".to_vec() } else { b"-".to_vec() });
    }
    let several = operands.len() > 1 || recursive;
    let look = Look {
        names: match options.last(&["H", "h"]) {
            Some("H") => true,
            Some(_) => false,
            None => several,
        },
        numbers: options.has("n"),
        only: options.has("o"),
        invert: options.has("v"),
        count: options.has("c"),
        list: options.has("l"),
        list_without: options.has("L"),
        quiet: options.has("q") || options.has("silent"),
        most,
        before: before.or(around).unwrap_or(0),
        after: after.or(around).unwrap_or(0),
        text: options.has("a") || options.value("binary-files") == Some(b"text"),
        skip_binary: options.has("I") || options.value("binary-files") == Some(b"without-match"),
    };
    let patterns = |key: &str| -> Vec<Pattern> {
        options.values(key).map(|pattern| Pattern::new(pattern, false)).collect()
    };
    let mut search = Search {
        options: &options,
        recursive,
        include: patterns("include"),
        exclude: patterns("exclude"),
        exclude_folders: patterns("exclude-dir"),
        printer: Printer::new(regular, look),
        failed: false,
    };
    for operand in &operands {
        search.operand(invocation, operand)?;
        if search.printer.done() {
            break;
        }
    }
    let found = search.printer.found();
    Ok(match (found, search.failed) {
        (true, _) if look.quiet => 0,
        (_, true) => 2,
        (found, false) => i32::from(!found),
    })
}

/// The patterns of `-e`, `-f` or the first operand; each line is one.
fn patterns(
    invocation: &mut Invocation<'_>,
    options: &Options,
    operands: &mut Vec<Vec<u8>>,
) -> Result<Result<Vec<Vec<u8>>, i32>, Stop> {
    let mut texts: Vec<Vec<u8>> = options.values("e").map(<[u8]>::to_vec).collect();
    let mut patterns = Vec::new();
    for path in options.values("f") {
        let Some(text) = invocation.read_or_complain(path)? else { return Ok(Err(2)) };
        // An empty file holds no pattern at all, and matches nothing.
        let lines = super::split_lines(&text).take(PATTERNS + 1);
        patterns.extend(lines.map(super::chomp).map(<[u8]>::to_vec));
    }
    if texts.is_empty() && !options.has("f") {
        if operands.is_empty() {
            return invocation.fail(2, "usage: grep [OPTION]... PATTERNS [FILE]...").map(Err);
        }
        texts.push(operands.remove(0));
    }
    for text in texts {
        let lines = text.split(|byte| *byte == b'\n').take(PATTERNS + 1);
        patterns.extend(lines.map(<[u8]>::to_vec));
    }
    if patterns.len() > PATTERNS {
        return invocation.fail(2, &format!("unsupported: more than {PATTERNS} patterns")).map(Err);
    }
    if patterns.is_empty() {
        // Nothing is longer than a text and its end, so this never matches.
        return Ok(Err(i32::from(!options.has("v"))));
    }
    Ok(Ok(patterns))
}

struct Search<'a> {
    options: &'a Options,
    recursive: bool,
    include: Vec<Pattern>,
    exclude: Vec<Pattern>,
    exclude_folders: Vec<Pattern>,
    printer: Printer,
    failed: bool,
}

impl Search<'_> {
    fn complain(
        &mut self,
        invocation: &mut Invocation<'_>,
        path: &[u8],
        error: fulgurite_trace::file::FileError,
    ) -> Result<(), Stop> {
        self.failed = true;
        if self.options.has("s") {
            return Ok(());
        }
        let shown = String::from_utf8_lossy(path).into_owned();
        invocation.complain(&format!("{shown}: {}", describe(error)))
    }

    fn operand(&mut self, invocation: &mut Invocation<'_>, path: &[u8]) -> Result<(), Stop> {
        invocation.meter.charge(meter::ENTRY)?;
        if path == b"-" {
            return self.file(invocation, path);
        }
        let named = if path.is_empty() { &b"."[..] } else { path };
        match invocation.files.stat(named, true) {
            Ok(stat) if stat.kind == FileKind::Directory => {
                if self.recursive {
                    return self.folder(invocation, path, 0);
                }
                let shown = String::from_utf8_lossy(path).into_owned();
                self.failed = true;
                if !self.options.has("s") {
                    invocation.complain(&format!("{shown}: Is a directory"))?;
                }
                Ok(())
            }
            Ok(_) => {
                if self.wanted(base_name(path)) {
                    self.file(invocation, path)
                } else {
                    Ok(())
                }
            }
            Err(_) if path == b"/dev/null" => self.file(invocation, path),
            Err(error) => self.complain(invocation, path, error),
        }
    }

    fn wanted(&self, name: &[u8]) -> bool {
        let included =
            self.include.is_empty() || self.include.iter().any(|pattern| pattern.matches(name));
        included && !self.exclude.iter().any(|pattern| pattern.matches(name))
    }

    fn folder(
        &mut self,
        invocation: &mut Invocation<'_>,
        path: &[u8],
        depth: usize,
    ) -> Result<(), Stop> {
        if depth > DEPTH {
            return self.complain(invocation, path, fulgurite_trace::file::FileError::NameTooLong);
        }
        let named = if path.is_empty() { &b"."[..] } else { path };
        let entries = match invocation.files.list(named) {
            Ok(entries) => entries,
            Err(error) => return self.complain(invocation, named, error),
        };
        for entry in entries.iter() {
            invocation.meter.charge(meter::ENTRY)?;
            let name = entry.name.as_bytes();
            let inner = join(path, name);
            let kind = match entry.kind {
                // `-r` does not follow links; `-R` does.
                FileKind::Symlink if !self.options.has("R") => continue,
                FileKind::Symlink => match invocation.files.stat(&inner, true) {
                    Ok(stat) => stat.kind,
                    Err(_) => continue,
                },
                kind => kind,
            };
            if kind == FileKind::Directory {
                if !self.exclude_folders.iter().any(|pattern| pattern.matches(name)) {
                    self.folder(invocation, &inner, depth + 1)?;
                }
            } else if self.wanted(name) {
                self.file(invocation, &inner)?;
            }
            if self.printer.done() {
                break;
            }
        }
        Ok(())
    }

    fn file(&mut self, invocation: &mut Invocation<'_>, path: &[u8]) -> Result<(), Stop> {
        match invocation.read(path)? {
            Ok(text) => {
                let name = match path {
                    b"-" => self.options.value("label").unwrap_or(b"(standard input)"),
                    path => path,
                };
                let name = name.to_vec();
                self.printer.file(invocation, &name, &text)
            }
            Err(error) => self.complain(invocation, path, error),
        }
    }
}
