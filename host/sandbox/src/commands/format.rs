//! `nl` and `paste`.

use super::lines::or_stdin;
use super::{Invocation, chomp, split_lines};
use crate::shell::meter::{self, Stop};

pub(super) fn nl(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = ["b|body-numbering=", "w|number-width=", "s|number-separator=", "v=", "i="];
    let Some(options) = invocation.options(&known)? else { return Ok(2) };
    let all = match options.value("b") {
        None | Some(b"t") => false,
        Some(b"a") => true,
        Some(b"n") => return invocation.fail(2, "unsupported: -b n"),
        Some(_) => return invocation.fail(2, "unsupported: -b with an expression"),
    };
    let number = |key: &str, default: i64| match options.value(key) {
        Some(text) => integer(text).map_err(|why| {
            let what = match key {
                "v" => "starting line number",
                "i" => "line number increment",
                _ => "line number field width",
            };
            format!("invalid {what}: '{}'{why}", String::from_utf8_lossy(text))
        }),
        None => Ok(default),
    };
    let (first, step, width) = match (number("v", 1), number("i", 1), number("w", 6)) {
        (Ok(first), Ok(step), Ok(width)) => (first, step, width),
        (Err(message), ..) | (_, Err(message), _) | (.., Err(message)) => {
            return invocation.fail(1, &message);
        }
    };
    if width < 1 {
        let message =
            format!("invalid line number field width: '{width}': Numerical result out of range");
        return invocation.fail(1, &message);
    }
    let mut next = Some(first);
    let width = usize::try_from(width.min(100)).unwrap_or(6);
    let separator = options.value("s").unwrap_or(b"\t").to_vec();
    let mut status = 0;
    for path in or_stdin(options.operands) {
        let Some(text) = invocation.read_or_complain(&path)? else {
            status = 1;
            continue;
        };
        for line in split_lines(&text) {
            invocation.meter.charge(meter::LINE)?;
            let line = chomp(line);
            if all || !line.is_empty() {
                let Some(number) = next else {
                    return invocation.fail(1, "line number overflow");
                };
                invocation.out(format!("{number:width$}").as_bytes())?;
                invocation.out(&separator)?;
                next = number.checked_add(step);
            } else {
                invocation.out(&b" ".repeat(width + separator.len()))?;
            }
            invocation.line(line)?;
        }
    }
    Ok(status)
}

/// A whole number, or what follows the complaint about it.
fn integer(text: &[u8]) -> Result<i64, &'static str> {
    let digits = match text {
        [b'-' | b'+', digits @ ..] => digits,
        digits => digits,
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err("");
    }
    super::parse_number(text).ok_or(": Value too large for defined data type")
}

pub(super) fn paste(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let Some(options) = invocation.options(&["d|delimiters=", "s|serial"])? else { return Ok(2) };
    let delimiters = delimiters(options.value("d").unwrap_or(b"\t"));
    let mut texts = Vec::new();
    // Which text each operand takes its lines from: every `-` takes turns at standard input.
    let mut sources = Vec::new();
    let mut standard = None;
    for path in or_stdin(options.operands.clone()) {
        if path == b"-"
            && let Some(source) = standard
        {
            sources.push(source);
            continue;
        }
        let Some(text) = invocation.read_or_complain(&path)? else { return Ok(1) };
        if path == b"-" {
            standard = Some(texts.len());
        }
        sources.push(texts.len());
        texts.push(text);
        invocation.check_room(texts.iter().map(Vec::len).sum())?;
    }
    let between = |index: usize| delimiters.iter().cycle().nth(index % delimiters.len().max(1));
    if options.has("s") {
        for text in &texts {
            for (index, line) in split_lines(text).enumerate() {
                invocation.meter.charge(meter::LINE)?;
                if index > 0
                    && let Some(Some(delimiter)) = between(index - 1)
                {
                    invocation.out(&[*delimiter])?;
                }
                invocation.out(chomp(line))?;
            }
            invocation.out(b"\n")?;
        }
        return Ok(0);
    }
    let mut lines: Vec<_> = texts.iter().map(|text| split_lines(text)).collect();
    loop {
        let row: Vec<Option<&[u8]>> =
            sources.iter().map(|source| lines.get_mut(*source).and_then(Iterator::next)).collect();
        if row.iter().all(Option::is_none) {
            return Ok(0);
        }
        for (index, cell) in row.iter().enumerate() {
            invocation.meter.charge(meter::LINE)?;
            if index > 0
                && let Some(Some(delimiter)) = between(index - 1)
            {
                invocation.out(&[*delimiter])?;
            }
            invocation.out(chomp(cell.unwrap_or_default()))?;
        }
        invocation.out(b"\n")?;
    }
}

/// The delimiters of `paste -d`; `\0` is none at all.
fn delimiters(text: &[u8]) -> Vec<Option<u8>> {
    let mut all = Vec::new();
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        all.push(match byte {
            b'\\' => match bytes.next() {
                Some(b'n') => Some(b'\n'),
                Some(b't') => Some(b'\t'),
                Some(b'0') => None,
                other => other.copied(),
            },
            other => Some(*other),
        });
    }
    if all.is_empty() { vec![None] } else { all }
}
