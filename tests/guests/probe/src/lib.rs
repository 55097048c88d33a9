//! A harness that does what its configuration says, however bad: `{"do": "loop"}`.
//!
//! The values of `do` are in the tables of `model.rs`, `files.rs` and `limits.rs`; with `input` the
//! task's input is the configuration. Where there is something to report, the answer is JSON or
//! plain text.

mod files;
mod limits;
mod model;

use std::collections::BTreeMap;

use fulgurite_sdk::harness::*;

/// What to do, and with what.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The deed.
    #[serde(rename = "do")]
    pub deed: String,
    /// How often, for deeds that repeat.
    pub count: u64,
    /// How much, in bytes or milliseconds.
    pub size: u64,
    /// A text to answer, send or write.
    pub text: String,
    /// A path to read, write or list.
    pub path: String,
    /// Shell lines to run.
    pub lines: Vec<String>,
    /// Files to write: path to contents.
    pub files: BTreeMap<String, String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            deed: "turn".to_string(),
            count: 1,
            size: 0,
            text: String::new(),
            path: String::new(),
            lines: Vec::new(),
            files: BTreeMap::new(),
        }
    }
}

struct Probe;

impl Harness for Probe {
    type Config = Config;

    fn describe() -> Description {
        Description::new("probe", env!("CARGO_PKG_VERSION"))
            .prompt("system", "You are being probed.")
            .wants(Capability::Exec)
            .wants(Capability::Workspace)
    }

    fn run(mut episode: Episode<Config>) -> Result<Outcome, Failure> {
        // Many deeds in one run: every task brings its own.
        if episode.config.deed == "input" {
            episode.config = serde_json::from_str(&episode.task.input)
                .map_err(|error| Failure::from(format!("the input is no deed: {error}")))?;
        }
        model::run(&episode)
            .or_else(|| files::run(&episode))
            .or_else(|| limits::run(&episode))
            .unwrap_or_else(
                || Err(format!("nothing to do called `{}`", episode.config.deed).into()),
            )
    }
}

fulgurite_sdk::export_harness!(Probe);
