//! {{name}}: a reward.
//!
//! Grading data of a task: `{"answer": "..."}`. Design it so that no cheap answer scores well, and
//! let `fulgurite reward check` try some.

use fulgurite_sdk::reward::*;

#[derive(Deserialize)]
struct Grading {
    answer: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Config {
    /// What each turn after the first costs. An episode passes at 1, so any cost makes passing
    /// a matter of the first turn.
    turn_cost: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self { turn_cost: 0.0 }
    }
}

struct Scorer;

impl Reward for Scorer {
    type Config = Config;

    fn describe() -> Description {
        Description::new("{{name}}", env!("CARGO_PKG_VERSION"))
    }

    fn score(episode: &Episode, config: Config) -> Result<Score, Failure> {
        let grading: Grading = episode.grading()?;
        let right = episode.ending().answer.trim() == grading.answer;
        if !right {
            return Ok(Score::new(0.0).component("right", 0.0));
        }
        let turns = f64::from(episode.turn_count().saturating_sub(1));
        // A right answer stays worth more than a wrong one, however long it took.
        Ok(Score::new((1.0 - config.turn_cost * turns).max(0.5)).component("right", 1.0))
    }
}

fulgurite_sdk::export_reward!(Scorer);
