//! `printf`.

use super::Invocation;
use super::echo::{Escape, escape, unescape};
use crate::shell::meter::{self, Stop};
use crate::shell::scan_byte as byte;

/// Widest field.
const WIDTH: usize = 10_000;

pub(super) fn run(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let arguments = match invocation.arguments {
        [dashes, rest @ ..] if dashes == b"--" => rest,
        all => all,
    };
    let (format, mut rest) = match arguments {
        [] => return invocation.fail(2, "usage: printf format [arguments]"),
        [option, _, _, ..] | [option, _] | [option] if option == b"-v" => {
            return invocation.fail(2, "unsupported: printf -v (use name=$(printf …))");
        }
        [format, rest @ ..] => (format, rest),
    };
    let mut status = 0;
    loop {
        let before = rest.len();
        let mut writer = Writer { invocation, rest, status: 0 };
        let goes_on = writer.format(format)?;
        rest = writer.rest;
        status |= writer.status;
        if !goes_on || rest.is_empty() || rest.len() == before {
            return Ok(status);
        }
    }
}

struct Writer<'a, 'b, 'c> {
    invocation: &'a mut Invocation<'b>,
    rest: &'c [Vec<u8>],
    status: i32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Flags {
    left: bool,
    zero: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
}

impl<'c> Writer<'_, '_, 'c> {
    fn next(&mut self) -> Option<&'c [u8]> {
        let (first, after) = self.rest.split_first()?;
        self.rest = after;
        Some(first)
    }

    /// Writes the format once; `false` when `\c` ends everything.
    fn format(&mut self, format: &[u8]) -> Result<bool, Stop> {
        let mut at = 0;
        while let Some(current) = byte(format, at) {
            self.invocation.meter.charge(meter::BYTE)?;
            at += 1;
            match current {
                b'\\' => match escape(format, at, false) {
                    (Escape::Bytes(bytes), next) => {
                        self.invocation.out(&bytes)?;
                        at = next;
                    }
                    (Escape::End, _) => return Ok(false),
                },
                b'%' if byte(format, at) == Some(b'%') => {
                    self.invocation.out(b"%")?;
                    at += 1;
                }
                b'%' => match self.conversion(format, at)? {
                    Some(next) => at = next,
                    None => return Ok(false),
                },
                other => self.invocation.out(&[other])?,
            }
        }
        Ok(true)
    }

    /// After `%`: writes the conversion; `None` ends everything.
    fn conversion(&mut self, format: &[u8], mut at: usize) -> Result<Option<usize>, Stop> {
        let mut flags = Flags::default();
        while let Some(flag) = byte(format, at) {
            match flag {
                b'-' => flags.left = true,
                b'0' => flags.zero = true,
                b'+' => flags.plus = true,
                b' ' => flags.space = true,
                b'#' => flags.alternate = true,
                _ => break,
            }
            at += 1;
        }
        let (width, next) = self.size(format, at);
        at = next;
        flags.left |= width < 0;
        flags.width = usize::try_from(width.unsigned_abs()).unwrap_or(WIDTH).min(WIDTH);
        if byte(format, at) == Some(b'.') {
            let (precision, next) = self.size(format, at + 1);
            flags.precision = usize::try_from(precision).ok().map(|size| size.min(WIDTH));
            at = next;
        }
        while matches!(byte(format, at), Some(b'l' | b'h' | b'L' | b'q' | b'z' | b'j'))
            && byte(format, at + 1).is_some_and(|next| next.is_ascii_alphabetic())
        {
            at += 1;
        }
        let Some(letter) = byte(format, at) else {
            self.invocation.complain("`%': missing format character")?;
            self.status = 1;
            return Ok(None);
        };
        at += 1;
        match letter {
            b's' => {
                let text = self.next().unwrap_or_default();
                self.text(text, flags)?;
            }
            b'b' => {
                let (text, whole) = unescape(self.next().unwrap_or_default());
                self.text(&text, flags)?;
                if !whole {
                    return Ok(None);
                }
            }
            b'q' => {
                let text = super::quoted(self.next().unwrap_or_default());
                self.text(text.as_bytes(), flags)?;
            }
            b'c' => {
                let text = self.next().unwrap_or_default();
                let flags = Flags { precision: None, ..flags };
                self.text(text.get(..1).unwrap_or_default(), flags)?;
            }
            b'd' | b'i' | b'u' | b'o' | b'x' | b'X' => {
                let argument = self.next();
                let value = self.integer(argument, matches!(letter, b'd' | b'i'))?;
                self.number(letter, value, flags)?;
            }
            b'f' | b'F' | b'e' | b'E' | b'g' | b'G' => {
                let argument = self.next();
                let value = self.float(argument)?;
                self.real(letter, value, flags)?;
            }
            other => {
                let shown = char::from(other).escape_default();
                self.invocation.complain(&format!("`{shown}': invalid format character"))?;
                self.status = 1;
                return Ok(None);
            }
        }
        Ok(Some(at))
    }

    /// Digits, or `*` for the next argument.
    fn size(&mut self, format: &[u8], mut at: usize) -> (i64, usize) {
        if byte(format, at) == Some(b'*') {
            let value = self.next().and_then(super::parse_number::<i64>).unwrap_or(0);
            return (value, at + 1);
        }
        let mut value = 0_i64;
        while let Some(digit) = byte(format, at).filter(u8::is_ascii_digit) {
            value = value.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
            at += 1;
        }
        (value, at)
    }

    fn text(&mut self, text: &[u8], flags: Flags) -> Result<(), Stop> {
        let length = flags.precision.unwrap_or(text.len()).min(text.len());
        self.padded(text.get(..length).unwrap_or_default(), flags)
    }

    fn padded(&mut self, text: &[u8], flags: Flags) -> Result<(), Stop> {
        let padding = vec![b' '; flags.width.saturating_sub(text.len())];
        if flags.left {
            self.invocation.out(text)?;
            self.invocation.out(&padding)
        } else {
            self.invocation.out(&padding)?;
            self.invocation.out(text)
        }
    }

    fn invalid(&mut self, argument: &[u8]) -> Result<(), Stop> {
        self.status = 1;
        let shown = String::from_utf8_lossy(argument).into_owned();
        self.invocation.complain(&format!("{shown}: invalid number"))
    }

    /// The value of an argument, as the bits of 64: of `%u` and its kind those of an unsigned one.
    fn integer(&mut self, argument: Option<&[u8]>, signed: bool) -> Result<i64, Stop> {
        let Some(argument) = argument else { return Ok(0) };
        if let [b'\'' | b'"', character, ..] = argument {
            return Ok(i64::from(*character));
        }
        let text = String::from_utf8_lossy(argument).into_owned();
        let text = text.trim_start();
        let (negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (radix, digits) = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
            Some(digits) => (16, digits),
            None if digits.len() > 1 && digits.starts_with('0') => (8, digits),
            None => (10, digits),
        };
        let valid = digits.chars().take_while(|digit| digit.is_digit(radix)).count();
        let used = digits.get(..valid).unwrap_or_default();
        if valid < digits.len() || (valid == 0 && !argument.is_empty()) {
            self.invalid(argument)?;
        }
        let magnitude = match u64::from_str_radix(used, radix) {
            Ok(magnitude) => Some(magnitude),
            Err(_) if used.is_empty() => Some(0),
            Err(_) => None,
        };
        // As strtoimax and strtoumax: the latter also negates within 64 bits.
        let value = match (magnitude, signed, negative) {
            (Some(magnitude), true, false) => i64::try_from(magnitude).ok(),
            (Some(magnitude), true, true) => 0_i64.checked_sub_unsigned(magnitude),
            (Some(magnitude), false, false) => Some(magnitude as i64),
            (Some(magnitude), false, true) => Some(magnitude.wrapping_neg() as i64),
            (None, ..) => None,
        };
        if let Some(value) = value {
            return Ok(value);
        }
        self.invocation.complain(&format!("warning: {text}: Numerical result out of range"))?;
        Ok(match (signed, negative) {
            (true, false) => i64::MAX,
            (true, true) => i64::MIN,
            (false, _) => u64::MAX as i64,
        })
    }

    fn float(&mut self, argument: Option<&[u8]>) -> Result<f64, Stop> {
        let Some(argument) = argument else { return Ok(0.0) };
        match super::parse_number::<f64>(argument) {
            Some(value) => Ok(value),
            None => {
                self.invalid(argument)?;
                Ok(0.0)
            }
        }
    }

    fn number(&mut self, letter: u8, value: i64, flags: Flags) -> Result<(), Stop> {
        let signed = matches!(letter, b'd' | b'i');
        let digits = match letter {
            b'd' | b'i' => value.unsigned_abs().to_string(),
            b'u' => (value as u64).to_string(),
            b'o' => format!("{value:o}"),
            b'x' => format!("{value:x}"),
            _ => format!("{value:X}"),
        };
        let digits = match flags.precision {
            Some(0) if value == 0 => String::new(),
            Some(precision) => format!("{digits:0>precision$}"),
            None => digits,
        };
        let sign = match (signed, value < 0) {
            (true, true) => "-",
            (true, false) if flags.plus => "+",
            (true, false) if flags.space => " ",
            (false, _) if flags.alternate && value != 0 => match letter {
                b'x' => "0x",
                b'X' => "0X",
                b'o' => "0",
                _ => "",
            },
            _ => "",
        };
        let zeros = match flags.zero && !flags.left && flags.precision.is_none() {
            true => flags.width.saturating_sub(digits.len() + sign.len()),
            false => 0,
        };
        let text = format!("{sign}{}{digits}", "0".repeat(zeros));
        self.padded(text.as_bytes(), flags)
    }

    fn real(&mut self, letter: u8, value: f64, flags: Flags) -> Result<(), Stop> {
        let precision = flags.precision.unwrap_or(6);
        let size = value.abs();
        let digits = match letter {
            _ if !value.is_finite() => format!("{size}").to_lowercase(),
            b'f' | b'F' => format!("{size:.precision$}"),
            b'e' | b'E' => scientific(size, precision),
            _ => general(size, precision.max(1), flags.alternate),
        };
        let digits = if letter.is_ascii_uppercase() { digits.to_uppercase() } else { digits };
        let sign = match (value.is_sign_negative(), flags.plus, flags.space) {
            (true, _, _) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            _ => "",
        };
        let zeros = match flags.zero && !flags.left && value.is_finite() {
            true => flags.width.saturating_sub(digits.len() + sign.len()),
            false => 0,
        };
        let text = format!("{sign}{}{digits}", "0".repeat(zeros));
        self.padded(text.as_bytes(), flags)
    }
}

fn scientific(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let exponent: i32 = exponent.parse().unwrap_or(0);
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        None => text,
    }
}

fn general(value: f64, precision: usize, alternate: bool) -> String {
    let shown = scientific(value, precision - 1);
    let exponent: i64 =
        shown.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let plain = exponent >= -4 && exponent < i64::try_from(precision).unwrap_or(i64::MAX);
    let (digits, suffix) = if plain {
        let places = i64::try_from(precision).unwrap_or(6) - 1 - exponent;
        let places = usize::try_from(places).unwrap_or(0);
        (format!("{value:.places$}"), String::new())
    } else {
        match shown.split_once('e') {
            Some((digits, exponent)) => (digits.to_owned(), format!("e{exponent}")),
            None => (shown, String::new()),
        }
    };
    let digits = match digits.contains('.') && !alternate {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => digits,
    };
    digits + &suffix
}
