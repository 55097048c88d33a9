//! `verdict`: the right culprit scores 1, less a little for every search beyond two.

use fulgurite_sdk::reward::*;

#[derive(Deserialize)]
struct Grading {
    culprit: String,
}

struct Verdict;

impl Reward for Verdict {
    type Config = NoConfig;

    fn describe() -> Description {
        Description::new("verdict", env!("CARGO_PKG_VERSION"))
    }

    fn score(episode: &Episode, _: NoConfig) -> Result<Score, Failure> {
        let grading: Grading = episode.grading()?;
        let right = episode.ending().answer.eq_ignore_ascii_case(&grading.culprit);
        let searches = f64::from(episode.turn_count().saturating_sub(3));
        let haste = if right { (1.0 - 0.05 * searches).max(0.5) } else { 0.0 };
        Ok(Score::new(haste).component("right", f64::from(u8::from(right))))
    }
}

fulgurite_sdk::export_reward!(Verdict);
