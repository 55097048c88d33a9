//! A reward that compares the answer with the task's grading data.

use fulgurite_sdk::reward::*;

#[derive(Deserialize)]
struct Grading {
    answer: String,
}

struct Minimal;

impl Reward for Minimal {
    type Config = NoConfig;

    fn describe() -> Description {
        Description::new("minimal", env!("CARGO_PKG_VERSION"))
    }

    fn score(episode: &Episode, _: NoConfig) -> Result<Score, Failure> {
        let grading: Grading = episode.grading()?;
        Ok((episode.ending().answer.trim() == grading.answer).into())
    }
}

fulgurite_sdk::export_reward!(Minimal);
