//! Between the contract's exports and the [`Harness`] trait. Only the export macro calls this.

use super::{Description, Episode, Failure, Harness, Outcome, Prompts, Task};
use crate::configuration;

/// The description, with the schema of the configuration filled in.
pub fn describe<H: Harness>() -> Description {
    let mut description = H::describe();
    let names: Vec<&str> = description.prompts.iter().map(|prompt| prompt.name.as_str()).collect();
    description.config_schema = configuration::config_schema::<H::Config>(&names);
    description
}

/// One episode.
pub fn run<H: Harness>(task: Task, config: &str) -> Result<Outcome, Failure> {
    let description = H::describe();
    let names: Vec<&str> = description.prompts.iter().map(|prompt| prompt.name.as_str()).collect();
    let (config, replaced) = configuration::parse::<H::Config>(config, &names)?;
    let prompts = Prompts::new(description.prompts, replaced);
    H::run(Episode { task, config, prompts })
}
