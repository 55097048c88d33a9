//! `length-penalty`: a score of 0 or below that falls with the length of the episode.
//!
//! Add it to another reward with a weight. What the model read is free; what it wrote counts.
//! The penalty has a floor, so that a long solution stays better than none.

use fulgurite_sdk::reward::*;

/// What is counted.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Unit {
    /// Tokens that the policy wrote.
    CompletionTokens,
    /// Calls to the policy.
    Turns,
}

#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Config {
    /// What is counted.
    unit: Unit,
    /// How much costs nothing.
    free: u64,
    /// At how much beyond `free` the whole penalty is reached.
    span: u64,
    /// The whole penalty.
    most: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self { unit: Unit::CompletionTokens, free: 512, span: 4096, most: 1.0 }
    }
}

struct LengthPenalty;

impl Reward for LengthPenalty {
    type Config = Config;

    fn describe() -> Description {
        Description::new("length-penalty", env!("CARGO_PKG_VERSION"))
    }

    fn score(episode: &Episode, config: Config) -> Result<Score, Failure> {
        if !(config.most.is_finite() && config.most >= 0.0) {
            return Err("`most` in the configuration must be a number from 0 on".into());
        }
        if config.span == 0 {
            return Err("`span` in the configuration must be at least 1".into());
        }
        let length = match config.unit {
            Unit::CompletionTokens => episode
                .turns()
                .fold(0u64, |sum, turn| sum.saturating_add(turn.usage.completion_tokens)),
            Unit::Turns => u64::from(episode.turn_count()),
        };
        Ok(Score::new(penalty(&config, length)).component("length", length as f64))
    }
}

fn penalty(config: &Config, length: u64) -> f64 {
    let beyond = length.saturating_sub(config.free);
    if beyond == 0 {
        return 0.0;
    }
    -config.most * (beyond as f64 / config.span as f64).min(1.0)
}

fulgurite_sdk::export_reward!(LengthPenalty);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_penalty_falls_in_a_line_to_its_floor() {
        let config = Config { free: 100, span: 200, most: 0.5, ..Config::default() };
        let at = |length| penalty(&config, length);
        assert_eq!((at(0), at(100), at(200), at(300)), (0.0, 0.0, -0.25, -0.5));
        assert_eq!(at(u64::MAX), -0.5);
    }
}
