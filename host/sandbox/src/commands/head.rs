//! `head` and `tail`.

use super::lines::or_stdin;
use super::options::Options;
use super::{Invocation, split_lines};
use crate::shell::meter::{self, Stop};

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Amount {
    bytes: bool,
    count: usize,
    /// `head -n -3` and `tail -n +3`: counted from the other end.
    other_end: bool,
}

/// `-5`, as older scripts write `-n 5`.
fn modern(arguments: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut modern = Vec::with_capacity(arguments.len() + 1);
    for (index, argument) in arguments.iter().enumerate() {
        let number = argument.strip_prefix(b"-").unwrap_or_default();
        let takes_value = index > 0
            && arguments.get(index - 1).is_some_and(|before| {
                matches!(before.as_slice(), b"-n" | b"-c" | b"--lines" | b"--bytes")
            });
        if !takes_value && !number.is_empty() && number.iter().all(u8::is_ascii_digit) {
            modern.push(b"-n".to_vec());
            modern.push(number.to_vec());
        } else {
            modern.push(argument.clone());
        }
    }
    modern
}

/// A number with `K`, `M` or `b` behind it.
fn number(text: &[u8]) -> Option<usize> {
    let (digits, factor) = match text {
        [digits @ .., b'k' | b'K'] => (digits, 1 << 10),
        [digits @ .., b'M'] => (digits, 1 << 20),
        [digits @ .., b'b'] => (digits, 512),
        digits => (digits, 1),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    super::parse_number::<usize>(digits).map(|number| number.saturating_mul(factor))
}

fn amount(options: &Options, sign: u8) -> Result<Amount, String> {
    let key = options.last(&["n", "c"]).unwrap_or("n");
    let text = options.value(key).unwrap_or(b"10");
    let (other_end, digits) = match text {
        [first, digits @ ..] if *first == sign => (true, digits),
        [b'-' | b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    match number(digits) {
        Some(count) => Ok(Amount { bytes: key == "c", count, other_end }),
        None => {
            let what = if key == "c" { "bytes" } else { "lines" };
            Err(format!("invalid number of {what}: '{}'", String::from_utf8_lossy(text)))
        }
    }
}

fn each(
    invocation: &mut Invocation<'_>,
    sign: u8,
    known: &[&'static str],
    show: fn(&mut Invocation<'_>, &[u8], Amount) -> Result<(), Stop>,
) -> Result<i32, Stop> {
    let arguments = modern(invocation.arguments);
    let options = match super::options::parse(&arguments, known, false) {
        Ok(options) => options,
        Err(mistake) => return invocation.fail(2, &mistake),
    };
    let amount = match amount(&options, sign) {
        Ok(amount) => amount,
        Err(mistake) => return invocation.fail(1, &mistake),
    };
    let headers = match options.last(&["q", "v"]) {
        Some("q") => false,
        Some(_) => true,
        None => options.operands.len() > 1,
    };
    let mut status = 0;
    let mut first = true;
    for path in or_stdin(options.operands) {
        let text = match read(invocation, &path, amount, sign)? {
            Some(text) => text,
            None => {
                status = 1;
                continue;
            }
        };
        if headers {
            let name = if path == b"-" { &b"standard input"[..] } else { &path };
            let gap = if first { "" } else { "\n" };
            invocation.out(format!("{gap}==> ").as_bytes())?;
            invocation.out(name)?;
            invocation.out(b" <==\n")?;
        }
        first = false;
        show(invocation, &text, amount)?;
    }
    Ok(status)
}

/// The operand's bytes; only as many as `head` needs.
fn read(
    invocation: &mut Invocation<'_>,
    path: &[u8],
    amount: Amount,
    sign: u8,
) -> Result<Option<Vec<u8>>, Stop> {
    if sign != b'-' || amount.other_end {
        return invocation.read_or_complain(path);
    }
    invocation.meter.charge(meter::ENTRY)?;
    let input = match invocation.open(path) {
        Ok(input) => input,
        Err(error) => {
            invocation.complain_path(path, error)?;
            return Ok(None);
        }
    };
    let mut text = Vec::new();
    let mut lines = 0;
    while if amount.bytes { text.len() < amount.count } else { lines < amount.count } {
        let room = invocation.limits.buffer_bytes;
        let next = if amount.bytes {
            input.read_chunk()
        } else {
            input.read_line(room).map(Option::unwrap_or_default)
        };
        let next = match next {
            Ok(next) => next,
            Err(error) => {
                invocation.complain_path(path, error)?;
                return Ok(None);
            }
        };
        if next.is_empty() {
            break;
        }
        invocation.meter.charge_each(next.len(), meter::BYTE)?;
        lines += 1;
        text.extend_from_slice(&next);
        invocation.check_room(text.len())?;
    }
    Ok(Some(text))
}

pub(super) fn head(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = ["n|lines=", "c|bytes=", "q|quiet", "v|verbose"];
    each(invocation, b'-', &known, |invocation, text, amount| {
        if amount.bytes {
            let count = match amount.other_end {
                true => text.len().saturating_sub(amount.count),
                false => amount.count.min(text.len()),
            };
            return invocation.out(text.get(..count).unwrap_or_default());
        }
        let count = match amount.other_end {
            true => split_lines(text).count().saturating_sub(amount.count),
            false => amount.count,
        };
        let length = split_lines(text).take(count).map(<[u8]>::len).sum();
        invocation.out(text.get(..length).unwrap_or_default())
    })
}

pub(super) fn tail(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = ["n|lines=", "c|bytes=", "q|quiet", "v|verbose"];
    each(invocation, b'+', &known, |invocation, text, amount| {
        let total = if amount.bytes { text.len() } else { split_lines(text).count() };
        let skipped = match amount.other_end {
            true => amount.count.saturating_sub(1),
            false => total.saturating_sub(amount.count),
        };
        let start = match amount.bytes {
            true => skipped.min(text.len()),
            false => split_lines(text).take(skipped).map(<[u8]>::len).sum(),
        };
        invocation.out(text.get(start..).unwrap_or_default())
    })
}
