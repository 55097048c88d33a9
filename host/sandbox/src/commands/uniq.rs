//! `uniq`.

use super::{Invocation, chomp, split_lines};
use crate::shell::meter::{self, Stop};

pub(super) fn run(invocation: &mut Invocation<'_>) -> Result<i32, Stop> {
    let known = [
        "c|count",
        "d|repeated",
        "u|unique",
        "i|ignore-case",
        "f|skip-fields=",
        "s|skip-chars=",
        "w|check-chars=",
        "D",
    ];
    let Some(options) = invocation.options(&known)? else { return Ok(2) };
    let number = |key: &str| match options.value(key) {
        Some(text) => super::parse_number::<usize>(text).ok_or(()),
        None => Ok(usize::MAX),
    };
    let (Ok(fields), Ok(skipped), Ok(checked)) = (number("f"), number("s"), number("w")) else {
        return invocation.fail(1, "invalid number of fields or characters");
    };
    let unset = |count: usize| if count == usize::MAX { 0 } else { count };
    let (fields, skipped) = (unset(fields), unset(skipped));
    let key = |line: &[u8]| {
        let mut rest = line;
        for _ in 0..fields {
            let blank = rest.iter().position(|byte| !byte.is_ascii_whitespace());
            rest = rest.get(blank.unwrap_or(rest.len())..).unwrap_or_default();
            let word = rest.iter().position(u8::is_ascii_whitespace);
            rest = rest.get(word.unwrap_or(rest.len())..).unwrap_or_default();
        }
        let rest = rest.get(skipped..).unwrap_or_default();
        let mut key = rest.get(..checked.min(rest.len())).unwrap_or_default().to_vec();
        if options.has("i") {
            key.make_ascii_lowercase();
        }
        key
    };
    let (input, output) = match options.operands.as_slice() {
        [] => (b"-".to_vec(), None),
        [input] => (input.clone(), None),
        [input, output] => (input.clone(), Some(output.clone())),
        _ => return invocation.fail(1, "extra operand"),
    };
    let Some(text) = invocation.read_or_complain(&input)? else { return Ok(1) };
    let mut result = Vec::new();
    let mut lines = split_lines(&text).map(chomp).peekable();
    while let Some(line) = lines.next() {
        let wanted = key(line);
        let mut group = vec![line];
        while let Some(next) = lines.next_if(|next| key(next) == wanted) {
            invocation.meter.charge_each(next.len() + 1, 4 * meter::BYTE)?;
            group.push(next);
            invocation.check_lines(group.len())?;
        }
        invocation.meter.charge(meter::LINE)?;
        let repeated = group.len() > 1;
        if options.has("D") {
            if repeated {
                for line in group {
                    result.extend_from_slice(line);
                    result.push(b'\n');
                }
            }
        } else if (repeated || !options.has("d")) && !(repeated && options.has("u")) {
            if options.has("c") {
                result.extend_from_slice(format!("{:7} ", group.len()).as_bytes());
            }
            result.extend_from_slice(line);
            result.push(b'\n');
        }
        invocation.check_room(result.len())?;
    }
    match output {
        None => invocation.out(&result).map(|()| 0),
        Some(path) => match invocation.files.write(&path, &result) {
            Ok(()) => Ok(0),
            Err(error) => {
                invocation.complain_path(&path, error)?;
                Ok(1)
            }
        },
    }
}
