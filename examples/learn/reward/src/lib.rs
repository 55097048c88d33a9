//! `machine-tests`: runs the handed-in program on hidden numbers, in the wasm lane, and compares
//! every value on the way with what it should be.
//!
//! The total is 1 for a program that is right. What is partly right earns less: 0.1 for having
//! read the spec, 0.1 for a program that runs, and up to 0.5 for the steps that are right before
//! the first wrong one. Without such a slope a model that knows nothing would learn nothing.

use fulgurite_sdk::reward::*;

#[derive(Deserialize)]
struct Grading {
    /// What the file `spec` says, to see whether it was read.
    spec: String,
    /// Hidden numbers.
    numbers: Vec<i64>,
    /// For each of them, the values after every step.
    values: Vec<Vec<i64>>,
}

struct MachineTests;

impl Reward for MachineTests {
    type Config = NoConfig;

    fn describe() -> Description {
        Description::new("machine-tests", env!("CARGO_PKG_VERSION"))
    }

    fn score(episode: &Episode, _: NoConfig) -> Result<Score, Failure> {
        let grading: Grading = episode.grading()?;
        let read = episode.turns().any(|turn| was_told(&turn, &grading.spec));
        let printed = run(episode, &grading)?;
        let (share, right) = match &printed {
            Some(printed) => leading(printed, &grading.values),
            None => (0.0, false),
        };
        let runs = f64::from(u8::from(printed.is_some()));
        let read = f64::from(u8::from(read));
        let total = if right { 1.0 } else { 0.1 * read + 0.1 * runs + 0.5 * share };
        Ok(Score::new(total)
            .component("read", read)
            .component("runs", runs)
            .component("right", f64::from(u8::from(right))))
    }
}

/// Whether the model was shown this text.
fn was_told(turn: &Turn, text: &str) -> bool {
    turn.messages.iter().flat_map(|message| &message.parts).any(|part| match part {
        Part::Text(shown) => shown.contains(text),
        _ => false,
    })
}

/// What the program prints, if there is one that runs.
fn run(episode: &Episode, grading: &Grading) -> Result<Option<String>, Failure> {
    let program = match episode.read_file("program", 64) {
        Ok(program) if !program.is_empty() => program,
        Ok(_) | Err(ReadError::NotFound | ReadError::NotAFile | ReadError::TooLarge) => {
            return Ok(None);
        }
    };
    let sandbox = Sandbox::open(Base::Empty)?;
    sandbox.put_file("program", &program)?;
    let numbers = grading.numbers.iter().map(i64::to_string);
    let words = ["machine".to_string(), "program".to_string()].into_iter().chain(numbers);
    let output = sandbox.run(Command::argv(words).timeout_ms(1000))?;
    Ok(output.success().then(|| output.stdout_text()))
}

/// The share of steps that are right for every number before the first wrong one, and whether the
/// program is right as a whole.
fn leading(printed: &str, expected: &[Vec<i64>]) -> (f64, bool) {
    let values = |line: &str| -> Vec<String> { line.split(' ').map(str::to_string).collect() };
    let printed: Vec<Vec<String>> = printed.lines().map(values).collect();
    let expected: Vec<Vec<String>> =
        expected.iter().map(|row| row.iter().map(i64::to_string).collect()).collect();
    let right = printed == expected;
    let steps = expected.first().map_or(0, Vec::len);
    let same = |step: &usize| {
        expected.len() == printed.len()
            && expected.iter().zip(&printed).all(|(want, got)| want.get(*step) == got.get(*step))
    };
    let leading = (0..steps).take_while(same).count();
    (if steps == 0 { 0.0 } else { leading as f64 / steps as f64 }, right)
}

fulgurite_sdk::export_reward!(MachineTests);

#[cfg(test)]
mod tests {
    use super::leading;

    #[test]
    fn steps_count_until_the_first_wrong_one() {
        let expected = [vec![4, 8], vec![1, 2]];
        assert_eq!(leading("4 8\n1 2\n", &expected), (1.0, true));
        assert_eq!(leading("4 9\n1 2\n", &expected), (0.5, false));
        assert_eq!(leading("3 8\n1 2\n", &expected), (0.0, false));
        assert_eq!(leading("4 8 9\n1 2 3\n", &expected), (1.0, false));
        assert_eq!(leading("", &expected), (0.0, false));
    }
}
