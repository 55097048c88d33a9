//! `xargs`.

use super::options::parse;
use crate::shell::evaluate::{Evaluator, Flow, Step};
use crate::shell::files::describe;
use crate::shell::meter::{self, Stop};
use crate::shell::stream::{Input, Io};

/// Bytes of arguments that one command gets.
const BATCH_BYTES: usize = 128 << 10;

/// A word with every `mark` replaced, of at most `room` bytes.
pub(super) fn replaced(word: &[u8], mark: &[u8], by: &[u8], room: usize) -> Result<Vec<u8>, Stop> {
    let mut result = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some(at) = rest.windows(mark.len().max(1)).position(|window| window == mark) {
        result.extend_from_slice(rest.get(..at).unwrap_or_default());
        result.extend_from_slice(by);
        rest = rest.get(at + mark.len()..).unwrap_or_default();
        if result.len() > room || mark.is_empty() {
            return Err(Stop::Memory(format!("an argument holds at most {room} bytes")));
        }
    }
    result.extend_from_slice(rest);
    Ok(result)
}

/// Items between blanks, with quotes and backslashes as `xargs` takes them.
fn words(text: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut all = Vec::new();
    let mut current: Option<Vec<u8>> = None;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b' ' | b'\t' | b'\n' => all.extend(current.take()),
            b'\\' => {
                let escaped = bytes.next().copied();
                current.get_or_insert_default().extend(escaped);
            }
            quote @ (b'\'' | b'"') => {
                let word = current.get_or_insert_default();
                loop {
                    match bytes.next() {
                        Some(byte) if byte == quote => break,
                        Some(b'\n') | None => {
                            let kind = if *quote == b'"' { "double" } else { "single" };
                            return Err(format!("unmatched {kind} quote"));
                        }
                        Some(byte) => word.push(*byte),
                    }
                }
            }
            other => current.get_or_insert_default().push(*other),
        }
    }
    all.extend(current);
    Ok(all)
}

impl Evaluator {
    pub(crate) async fn xargs(&mut self, arguments: &[Vec<u8>], io: &Io) -> Step {
        let known = [
            "0|null",
            "n|max-args=",
            "I=",
            "i|replace=?",
            "L|max-lines=",
            "d|delimiter=",
            "r|no-run-if-empty",
            "t|verbose",
            "P|max-procs=",
            "a|arg-file=",
            "s|max-chars=",
            "x|exit",
            "p|interactive",
            "E=",
        ];
        let options = match parse(arguments.get(1..).unwrap_or_default(), &known, true) {
            Ok(options) => options,
            Err(mistake) => return self.xargs_fails(io, 2, &mistake),
        };
        for key in ["a", "s", "p", "E", "i"] {
            if options.has(key) {
                return self.xargs_fails(io, 2, &format!("unsupported: -{key}"));
            }
        }
        let number = |key: &str| match options.value(key).map(super::parse_number::<usize>) {
            None => Ok(None),
            Some(Some(0) | None) => Err(format!("invalid number for -{key} option")),
            Some(count) => Ok(count),
        };
        let (each, lines) = match (number("n"), number("L")) {
            (Ok(each), Ok(lines)) => (each, lines),
            (Err(message), _) | (_, Err(message)) => return self.xargs_fails(io, 1, &message),
        };
        let text = match io.stdin.read_all(self.limits.buffer_bytes) {
            Ok(text) => text?,
            Err(error) => return self.xargs_fails(io, 1, describe(error)),
        };
        self.meter.charge_each(text.len(), 4 * meter::BYTE)?;
        let delimiter = match options.value("d") {
            _ if options.has("0") => Some(0),
            None => None,
            Some(b"\\n") => Some(b'\n'),
            Some(b"\\t") => Some(b'\t'),
            Some(b"\\0") => Some(0),
            Some([one]) => Some(*one),
            Some(_) => return self.xargs_fails(io, 1, "invalid input delimiter"),
        };
        let separates = |byte: &&u8| byte.is_ascii_whitespace() || Some(**byte) == delimiter;
        let room = self.limits.buffer_bytes / 64;
        if text.iter().filter(separates).count() > room {
            return Err(Stop::Memory(format!("xargs holds at most {room} arguments")));
        }
        let by_line = |text: &[u8]| -> Vec<Vec<u8>> {
            text.split(|byte| *byte == b'\n')
                .map(|line| {
                    let blanks =
                        line.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
                    line.get(blanks..).unwrap_or_default().to_vec()
                })
                .filter(|line| !line.is_empty())
                .collect()
        };
        // Each batch is what one command gets.
        let mut batches: Vec<Vec<Vec<u8>>> = Vec::new();
        let items = match (delimiter, options.value("I"), lines) {
            (Some(delimiter), ..) => {
                let text = text.strip_suffix(&[delimiter]).unwrap_or(&text);
                match text.is_empty() {
                    true => Vec::new(),
                    false => text.split(|byte| *byte == delimiter).map(<[u8]>::to_vec).collect(),
                }
            }
            (None, Some(_), _) => by_line(&text),
            (None, None, Some(count)) => {
                for group in by_line(&text).chunks(count) {
                    match words(&group.join(&b'\n')) {
                        Ok(words) => batches.push(words),
                        Err(message) => return self.xargs_fails(io, 1, &message),
                    }
                }
                Vec::new()
            }
            (None, None, None) => match words(&text) {
                Ok(words) => words,
                Err(message) => return self.xargs_fails(io, 1, &message),
            },
        };
        let command = match options.operands.is_empty() {
            true => vec![b"echo".to_vec()],
            false => options.operands.clone(),
        };
        let mark = options.value("I").map(<[u8]>::to_vec);
        if mark.is_some() {
            batches = items.into_iter().map(|item| vec![item]).collect();
        } else if batches.is_empty() {
            batches = batched(items, each.unwrap_or(usize::MAX));
            if batches.is_empty() && !options.has("r") && lines.is_none() {
                batches.push(Vec::new());
            }
        }
        let mut status = 0;
        for batch in batches {
            let arguments: Vec<Vec<u8>> = match &mark {
                Some(mark) => {
                    let item = batch.first().map(Vec::as_slice).unwrap_or_default();
                    let room = self.limits.variable_bytes;
                    command
                        .iter()
                        .map(|word| replaced(word, mark, item, room))
                        .collect::<Result<_, _>>()?
                }
                None => command.iter().cloned().chain(batch).collect(),
            };
            let bytes = arguments.iter().map(Vec::len).sum();
            self.check_room(bytes)?;
            self.meter.charge_each(bytes, meter::BYTE)?;
            if options.has("t") {
                let shown: Vec<String> = arguments.iter().map(|word| super::quoted(word)).collect();
                // Showing commands is no part of running them.
                let _ = io.stderr.write(format!("{}\n", shown.join(" ")).as_bytes());
            }
            let inner = Io { stdin: Input::empty(), ..io.clone() };
            if self.run(arguments, &inner).await? == Flow::Exit {
                return Ok(Flow::Exit);
            }
            match self.status {
                0 => {}
                255 => {
                    return self.xargs_fails(io, 124, "a command exited with status 255; aborting");
                }
                126 | 127 => return Ok(Flow::Next),
                _ => status = 123,
            }
        }
        self.status = status;
        Ok(Flow::Next)
    }

    fn xargs_fails(&mut self, io: &Io, status: i32, message: &str) -> Result<Flow, Stop> {
        // The message is lost with its stream; the status is not.
        let _ = io.stderr.write(format!("xargs: {message}\n").as_bytes());
        self.status = status;
        Ok(Flow::Next)
    }
}

/// Items in groups of at most `each`, and of a bounded length.
fn batched(items: Vec<Vec<u8>>, each: usize) -> Vec<Vec<Vec<u8>>> {
    let mut batches: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut bytes = 0;
    for item in items {
        bytes += item.len() + 1;
        match batches.last_mut() {
            Some(batch) if batch.len() < each && bytes <= BATCH_BYTES => batch.push(item),
            _ => {
                bytes = item.len() + 1;
                batches.push(vec![item]);
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_split_and_replaced() {
        let all = words(b" a 'b c' d\\ e \"f\"g\n").unwrap();
        assert_eq!(all, [&b"a"[..], b"b c", b"d e", b"fg"]);
        assert!(words(b"'a").is_err());
        assert_eq!(replaced(b"x{}y{}", b"{}", b"1", 100).unwrap(), b"x1y1");
        assert!(replaced(&b"{}".repeat(100), b"{}", &[b'x'; 100], 1000).is_err());
        assert_eq!(batched(vec![b"a".to_vec(); 5], 2).len(), 3);
    }
}
