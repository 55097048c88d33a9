//! What `fulgurite train` is asked.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Train {
    /// The configuration, TOML
    #[arg(value_name = "FILE", default_value = "train.toml")]
    pub(crate) config: PathBuf,
    /// Go on after the last checkpoint
    #[arg(long)]
    pub(crate) resume: bool,
    /// Another `output` than the configuration's, relative to the working folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) output: Option<PathBuf>,
    /// Another `seed` than the configuration's
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Another `budget.steps` than the configuration's
    #[arg(long, value_name = "N")]
    pub(crate) steps: Option<u64>,
}

impl Train {
    /// The command that goes on with this training.
    pub(crate) fn going_on(&self) -> String {
        let mut command = format!("fulgurite train --resume {}", self.config.display());
        if let Some(output) = &self.output {
            command += &format!(" --output {}", output.display());
        }
        for (flag, value) in [("seed", self.seed), ("steps", self.steps)] {
            if let Some(value) = value {
                command += &format!(" --{flag} {value}");
            }
        }
        command
    }
}
