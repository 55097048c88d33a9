//! `machine PROGRAM NUMBER …`: runs a program of one-letter operators on each number and prints
//! the values after every step, one line a number.
//!
//! `+` adds one, `-` negates, `*` doubles, `^` squares, `/` halves.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(path) = arguments.next() else {
        eprintln!("usage: machine PROGRAM NUMBER ...");
        return ExitCode::from(2);
    };
    let program = match std::fs::read_to_string(&path) {
        Ok(program) => program,
        Err(error) => {
            eprintln!("machine: {path}: {error}");
            return ExitCode::from(2);
        }
    };
    for argument in arguments {
        let Ok(number) = argument.parse::<i64>() else {
            eprintln!("machine: `{argument}` is no whole number");
            return ExitCode::from(2);
        };
        match run(&program, number) {
            Some(values) => println!("{}", values.join(" ")),
            None => {
                eprintln!("machine: the program cannot be run");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// The value after each step; nothing for an unknown operator or a number that grows too large.
fn run(program: &str, number: i64) -> Option<Vec<String>> {
    let mut value = number;
    let step = |operator| {
        value = match operator {
            '+' => value.checked_add(1)?,
            '-' => value.checked_neg()?,
            '*' => value.checked_mul(2)?,
            '^' => value.checked_mul(value)?,
            '/' => value.div_euclid(2),
            _ => return None,
        };
        Some(value.to_string())
    };
    program.chars().map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::run;

    #[test]
    fn every_step_is_shown() {
        assert_eq!(run("+*", 3).unwrap(), ["4", "8"]);
        assert_eq!(run("-/^", 5).unwrap(), ["-5", "-3", "9"]);
        assert_eq!(run("", 5).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_cannot_be_run_gives_nothing() {
        assert_eq!(run("x", 1), None);
        assert_eq!(run("^^", i64::from(i32::MAX)), None);
    }
}
