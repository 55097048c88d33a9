//! `cmp` and `comm`.

use std::cmp::Ordering;

use super::{Invocation, chomp, split_lines};
use crate::shell::meter::{self, Stop};

pub(super) fn cmp(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let Some(options) = invocation.options(&["s|quiet", "l|verbose", "b"])? else { return Ok(2) };
    let (left, right) = match options.operands.as_slice() {
        [left] => (left, b"-".to_vec()),
        [left, right] => (left, right.clone()),
        _ => return invocation.fail(2, "two files are needed"),
    };
    let (Some(one), Some(two)) =
        (invocation.read_or_complain(left)?, invocation.read_or_complain(&right)?)
    else {
        return Ok(2);
    };
    let quiet = options.has("s");
    let mut line = 1;
    let mut differ = false;
    for (index, (first, second)) in one.iter().zip(&two).enumerate() {
        if first != second {
            if quiet {
                return Ok(1);
            }
            if !options.has("l") {
                let left = String::from_utf8_lossy(left).into_owned();
                let right = String::from_utf8_lossy(&right).into_owned();
                let text = format!("{left} {right} differ: char {}, line {line}", index + 1);
                return invocation.line(text.as_bytes()).map(|()| 1);
            }
            differ = true;
            invocation.line(format!("{:4} {first:3o} {second:3o}", index + 1).as_bytes())?;
        }
        line += usize::from(*first == b'\n');
    }
    match one.len().cmp(&two.len()) {
        Ordering::Equal => Ok(i32::from(differ)),
        order => {
            let (shorter, bytes) = match order {
                Ordering::Less => (left.as_slice(), one.len()),
                _ => (right.as_slice(), two.len()),
            };
            if !quiet {
                let shown = String::from_utf8_lossy(shorter).into_owned();
                invocation.complain(&format!("EOF on {shown} after byte {bytes}"))?;
            }
            Ok(1)
        }
    }
}

pub(super) fn comm(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let Some(options) = invocation.options(&["1", "2", "3"])? else { return Ok(2) };
    let [left, right] = options.operands.as_slice() else {
        return invocation.fail(1, "two files are needed");
    };
    let (Some(one), Some(two)) =
        (invocation.read_or_complain(left)?, invocation.read_or_complain(right)?)
    else {
        return Ok(1);
    };
    let shown = |column: &str| !options.has(column);
    let mut lefts = split_lines(&one).map(chomp).peekable();
    let mut rights = split_lines(&two).map(chomp).peekable();
    loop {
        invocation.meter.charge(meter::LINE)?;
        let order = match (lefts.peek(), rights.peek()) {
            (None, None) => return Ok(0),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(left), Some(right)) => left.cmp(right),
        };
        let first = usize::from(shown("1"));
        let second = first + usize::from(shown("2"));
        let (line, column, tabs) = match order {
            Ordering::Less => (lefts.next(), "1", 0),
            Ordering::Greater => (rights.next(), "2", first),
            Ordering::Equal => {
                rights.next();
                (lefts.next(), "3", second)
            }
        };
        if shown(column) {
            invocation.out(&b"\t".repeat(tabs))?;
            invocation.line(line.unwrap_or_default())?;
        }
    }
}
