//! The judge's verdict, and what it is worth.

use fulgurite_sdk::reward::{Failure, Output, Sandbox, Score, Stop, clip};
use serde::Deserialize;

use crate::VERDICT;

/// The largest verdict that is read.
const VERDICT_BYTES: u32 = 4 << 20;
/// What the host says of a command that the wall clock stopped.
const WALL_CLOCK: &str = "wall-clock";
/// How much of a text goes into a note.
const NOTE_BYTES: usize = 2_000;

/// What the judge wrote. Without `total` it wrote nothing.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Verdict {
    passed: u32,
    total: u32,
    failures: Vec<(String, String)>,
    mistake: Option<String>,
}

impl Verdict {
    /// Reads the verdict and holds it against the judge's exit status. An error is a mistake in
    /// the task or the set-up; whatever the work did leads to a verdict.
    pub(crate) fn read(tests: &Sandbox, judged: &Output) -> Result<Self, Failure> {
        let text = tests.read_file(VERDICT, VERDICT_BYTES)?;
        let verdict: Verdict = serde_json::from_slice(&text)
            .map_err(|error| Failure::new(format!("the verdict is not readable: {error}")))?;
        verdict.checked(judged)
    }

    fn checked(self, judged: &Output) -> Result<Self, Failure> {
        if judged.metadata.iter().any(|(name, _)| name == WALL_CLOCK) {
            // Its clock stands still while the work computes, and what the work feeds it costs
            // fuel, which would have stopped it long before.
            return Err(Failure::new(
                "the wall clock stopped the tests before their fuel was used up: the machine is \
                 overloaded; grade the episode again",
            ));
        }
        if judged.stopped.is_some() {
            // Only the work can make the judge run away: it fed it too much.
            return Ok(Verdict { passed: 0, ..self });
        }
        if let Some(mistake) = self.mistake {
            return Err(Failure::new(format!("the task's tests are wrong: {mistake}")));
        }
        let all = self.total > 0 && self.passed == self.total;
        match (judged.status, self.total) {
            (0, 1..) if all => Ok(self),
            (1, 1..) if self.passed < self.total => Ok(self),
            (status, _) => Err(Failure::new(format!(
                "the tests could not be run (exit status {status}): {}",
                clip(&judged.stderr_text(), NOTE_BYTES)
            ))),
        }
    }

    /// The score.
    pub(crate) fn into_score(self, partial: bool, judged: &Output, worked: &Output) -> Score {
        let share =
            if self.total == 0 { 0.0 } else { f64::from(self.passed) / f64::from(self.total) };
        let all = self.total > 0 && self.passed == self.total;
        let total = if partial { share } else { f64::from(u8::from(all)) };
        let mut score = Score::new(total)
            .component("passed", f64::from(self.passed))
            .component("total", f64::from(self.total));
        for (who, output) in [("the tests were", judged), ("the work was", worked)] {
            if let Some(stop) = output.stopped {
                score = score.note("stopped", format!("{who} stopped: {}", words(stop)));
                break;
            }
        }
        if !self.failures.is_empty() {
            let lines: Vec<String> =
                self.failures.iter().map(|(test, why)| format!("{test}: {why}")).collect();
            score = score.note("failures", clip(&lines.join("\n"), NOTE_BYTES));
        }
        let printed = worked.stderr_text();
        if !all && !printed.is_empty() {
            score = score.note("printed", clip(&printed, NOTE_BYTES));
        }
        score
    }
}

fn words(stop: Stop) -> &'static str {
    match stop {
        Stop::Timeout => "too slow",
        Stop::Memory => "out of memory",
        Stop::Trap => "crashed",
    }
}

#[cfg(test)]
mod tests {
    use fulgurite_sdk::reward::Metadata;

    use super::*;

    fn output(status: i32, stopped: Option<Stop>) -> Output {
        let mut output: Output = Output {
            status,
            stopped,
            stdout: captured(),
            stderr: captured(),
            metadata: Metadata::new(),
        };
        output.stderr.bytes = b"said".to_vec();
        output
    }

    fn captured() -> fulgurite_sdk::reward::Captured {
        fulgurite_sdk::reward::Captured { bytes: Vec::new(), total: 0 }
    }

    fn verdict(passed: u32, total: u32) -> Verdict {
        Verdict { passed, total, ..Verdict::default() }
    }

    #[test]
    fn status_and_verdict_must_agree() {
        assert!(verdict(2, 2).checked(&output(0, None)).is_ok());
        assert!(verdict(1, 2).checked(&output(1, None)).is_ok());
        assert!(verdict(2, 2).checked(&output(1, None)).is_err());
        assert!(verdict(1, 2).checked(&output(0, None)).is_err());
        assert!(verdict(0, 0).checked(&output(0, None)).is_err());
        assert!(verdict(0, 0).checked(&output(127, None)).is_err());
    }

    #[test]
    fn a_judge_that_was_stopped_passes_nothing() {
        let verdict = verdict(2, 2).checked(&output(124, Some(Stop::Timeout))).unwrap();
        assert_eq!(verdict.passed, 0);
        let none = Verdict::default().checked(&output(137, Some(Stop::Memory))).unwrap();
        let score = none.into_score(true, &output(137, Some(Stop::Memory)), &output(0, None));
        assert_eq!(score.total, 0.0);
    }

    #[test]
    fn the_wall_clock_fails_the_work_and_excuses_the_tests() {
        let stopped = || {
            let mut output = output(124, Some(Stop::Timeout));
            output.metadata.push((WALL_CLOCK.to_string(), "true".to_string()));
            output
        };
        let failure = verdict(2, 2).checked(&stopped()).unwrap_err();
        assert!(failure.message.contains("overloaded"), "{failure:?}");
        // The tests saw the work go, and say so.
        let judged = output(1, None);
        let score = verdict(1, 2).checked(&judged).unwrap().into_score(false, &judged, &stopped());
        assert_eq!(score.total, 0.0);
        assert!(score.notes.iter().any(|(_, note)| note.contains("too slow")), "{score:?}");
    }

    #[test]
    fn a_mistake_is_no_score() {
        let wrong = Verdict { mistake: Some("no check".into()), ..Verdict::default() };
        assert!(wrong.checked(&output(3, None)).unwrap_err().message.contains("no check"));
    }

    #[test]
    fn parts_count_only_where_asked() {
        let (judged, worked) = (output(1, None), output(0, None));
        assert_eq!(verdict(1, 2).into_score(false, &judged, &worked).total, 0.0);
        assert_eq!(verdict(1, 2).into_score(true, &judged, &worked).total, 0.5);
        assert_eq!(verdict(2, 2).into_score(false, &judged, &worked).total, 1.0);
    }
}
