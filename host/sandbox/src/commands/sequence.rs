//! `seq`.

use super::Invocation;
use crate::shell::meter::{self, Stop};

pub(super) fn seq(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    // Negative numbers are operands, not options.
    let mut arguments = invocation.arguments;
    let mut separator = b"\n".to_vec();
    let mut equal_width = false;
    while let [option, after @ ..] = arguments {
        match option.as_slice() {
            b"-w" | b"--equal-width" => equal_width = true,
            b"-s" => {
                let [value, rest @ ..] = after else {
                    return invocation.fail(2, "option requires an argument -- 's'");
                };
                separator = value.clone();
                arguments = rest;
                continue;
            }
            [b'-', b's', value @ ..] => separator = value.to_vec(),
            [b'-', next, ..] if !next.is_ascii_digit() && *next != b'.' => {
                let shown = String::from_utf8_lossy(option).into_owned();
                return invocation.fail(2, &format!("invalid option {shown}"));
            }
            _ => break,
        }
        arguments = after;
    }
    let mut numbers = Vec::new();
    for argument in arguments {
        match Decimal::parse(argument) {
            Some(number) => numbers.push(number),
            None => {
                let shown = String::from_utf8_lossy(argument).into_owned();
                return invocation.fail(1, &format!("invalid floating point argument: '{shown}'"));
            }
        }
    }
    let one = Decimal { units: 1, places: 0 };
    let (first, step, last) = match numbers.as_slice() {
        [last] => (one, one, *last),
        [first, last] => (*first, one, *last),
        [first, step, last] => (*first, *step, *last),
        [] => return invocation.fail(1, "missing operand"),
        _ => return invocation.fail(1, "extra operand"),
    };
    if step.units == 0 {
        return invocation.fail(1, "invalid Zero increment value: '0'");
    }
    let places = first.places.max(step.places);
    let all = places.max(last.places);
    let (Some(mut next), Some(step), Some(end)) =
        (first.scaled(all), step.scaled(all), last.scaled(all))
    else {
        return invocation.fail(1, "a number is too large");
    };
    let shown = |units: i128| Decimal { units, places: all }.show(places);
    let width = match equal_width {
        true => shown(next).len().max(shown(end).len()),
        false => 0,
    };
    let mut any = false;
    while (step > 0 && next <= end) || (step < 0 && next >= end) {
        invocation.meter.charge(meter::LINE)?;
        if any {
            invocation.out(&separator)?;
        }
        let text = shown(next);
        let padding = "0".repeat(width.saturating_sub(text.len()));
        let text = match text.strip_prefix('-') {
            Some(digits) => format!("-{padding}{digits}"),
            None => padding + &text,
        };
        invocation.out(text.as_bytes())?;
        any = true;
        next += step;
    }
    if any {
        invocation.out(b"\n")?;
    }
    Ok(0)
}

/// A decimal number, exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Decimal {
    units: i128,
    places: u32,
}

impl Decimal {
    fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let valid = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !valid(whole) || !valid(fraction) {
            return None;
        }
        if whole.len() > 19 || fraction.len() > 9 {
            return None;
        }
        let units: i128 = format!("0{whole}{fraction}").parse().ok()?;
        let places = u32::try_from(fraction.len()).ok()?;
        Some(Self { units: if negative { -units } else { units }, places })
    }

    fn scaled(self, places: u32) -> Option<i128> {
        self.units.checked_mul(10_i128.checked_pow(places - self.places)?)
    }

    fn show(self, places: u32) -> String {
        let factor = 10_i128.pow(self.places);
        let sign = if self.units < 0 { "-" } else { "" };
        let size = self.units.unsigned_abs();
        let factor = factor.unsigned_abs();
        let whole = size / factor;
        if places == 0 {
            return format!("{sign}{whole}");
        }
        let digits = format!("{:0width$}", size % factor, width = self.places as usize);
        let digits: String = digits.chars().take(places as usize).collect();
        format!("{sign}{whole}.{digits}")
    }
}
