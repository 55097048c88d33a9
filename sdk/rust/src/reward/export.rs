//! Between the contract's exports and the [`Reward`] trait. Only the export macro calls this.

use super::{Description, Episode, Failure, Reward, Score};
use crate::configuration;

/// The description, with the schema of the configuration filled in.
pub fn describe<R: Reward>() -> Description {
    let mut description = R::describe();
    description.config_schema = configuration::config_schema::<R::Config>(&[]);
    description
}

/// One score.
pub fn score<R: Reward>(config: &str) -> Result<Score, Failure> {
    let (config, _) = configuration::parse::<R::Config>(config, &[])?;
    R::score(&Episode::current(), config)
}
