//! `fulgurite.toml` and how flags override it: parsed here, resolved once.

use std::{
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use fulgurite_episode::{
    limits::{Bytes, EpisodeLimits},
    plan::HistoryMode,
};
use fulgurite_trace::Truncation;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{args, nearest, relative};

/// The default name of the configuration file.
const FILE: &str = "fulgurite.toml";

/// More episodes of one task than anyone compares.
pub(crate) const MOST_SAMPLES: u32 = 1_000_000;

/// What an episode's changed files may take to be kept: a repository's worth of edits, but no
/// build folder.
const KEEP_FILES: Bytes = Bytes(16 << 20);

/// `fulgurite.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileConfig {
    harness: Option<String>,
    #[serde(default)]
    harness_config: Map<String, Value>,
    #[serde(default)]
    rewards: Vec<RewardConfig>,
    tasks: Option<PathBuf>,
    skip_bad: Option<bool>,
    policy: Option<String>,
    #[serde(default)]
    policy_options: Map<String, Value>,
    samples: Option<u32>,
    concurrency: Option<u32>,
    seed: Option<u64>,
    temperature: Option<f32>,
    top_k: Option<NonZeroU32>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    max_tokens: Option<u32>,
    history: Option<HistoryMode>,
    floor: Option<f64>,
    attempts: Option<u32>,
    keep_files: Option<Bytes>,
    #[serde(default)]
    limits: EpisodeLimits,
}

/// A reward of the run, not yet found in the registry.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RewardConfig {
    /// Registered name or file.
    pub(crate) plugin: String,
    /// Weight in the total.
    #[serde(default = "one")]
    pub(crate) weight: f64,
    /// Its configuration.
    #[serde(default)]
    pub(crate) config: Map<String, Value>,
}

impl RewardConfig {
    /// As a file in this folder names it.
    pub(crate) fn beside(self, folder: &Path) -> Self {
        Self { plugin: relative::component(folder, &self.plugin), ..self }
    }
}

const fn one() -> f64 {
    1.0
}

/// What a run was asked to do: file and flags together, defaults filled in.
#[derive(Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) harness: String,
    pub(crate) harness_config: Map<String, Value>,
    pub(crate) rewards: Vec<RewardConfig>,
    pub(crate) tasks: PathBuf,
    pub(crate) skip_bad: bool,
    pub(crate) policy: String,
    pub(crate) policy_options: Map<String, Value>,
    pub(crate) samples: u32,
    pub(crate) concurrency: u32,
    pub(crate) seed: u64,
    pub(crate) temperature: f32,
    pub(crate) truncation: Truncation,
    pub(crate) max_tokens: u32,
    pub(crate) history: HistoryMode,
    pub(crate) floor: f64,
    pub(crate) attempts: u32,
    pub(crate) keep_bytes: u64,
    pub(crate) limits: EpisodeLimits,
}

impl Settings {
    /// Reads the configuration file, if there is one, and lets the flags override it.
    pub(crate) fn resolve(flags: &args::Run, project: &Path) -> Result<Self> {
        let (file, folder) = read(flags.config.as_deref(), project)?;
        // Paths in the file are relative to the file; paths in flags to where one stands.
        let from_file = |path: PathBuf| folder.join(path);
        let mut limits = file.limits;
        for text in &flags.limits {
            limits.set(text)?;
        }
        let harness_config = match &flags.harness_config {
            Some(text) => object(text).context("--harness-config")?,
            // What the file says is for the harness that it names.
            None if flags.harness.is_some() && flags.harness != file.harness => Map::new(),
            None => file.harness_config,
        };
        let mut policy_options = relative::policy_options(&folder, file.policy_options);
        for text in &flags.policy_options {
            let (name, value) = policy_option(text)?;
            policy_options.insert(name, value);
        }
        let mut rewards =
            if flags.rewards.is_empty() { file.rewards } else { rewards_of(&flags.rewards)? };
        for text in &flags.reward_configs {
            configure(&mut rewards, text)?;
        }
        if flags.rewards.is_empty() {
            rewards = rewards.into_iter().map(|reward| reward.beside(&folder)).collect();
        }
        let harness = file.harness.map(|name| relative::component(&folder, &name));
        let policy = file.policy.map(|policy| relative::policy(&folder, &policy));
        let settings = Self {
            harness: required(flags.harness.clone().or(harness), "harness")?,
            harness_config,
            rewards,
            tasks: required(flags.tasks.clone().or(file.tasks.map(from_file)), "tasks")?,
            skip_bad: flags.skip_bad || file.skip_bad.unwrap_or_default(),
            policy: required(flags.policy.clone().or(policy), "policy")?,
            policy_options,
            samples: flags.samples.or(file.samples).unwrap_or(1),
            concurrency: flags.concurrency.or(file.concurrency).unwrap_or(64),
            seed: flags.seed.or(file.seed).unwrap_or_default(),
            temperature: flags.temperature.or(file.temperature).unwrap_or(1.0),
            truncation: Truncation {
                top_k: flags.top_k.or(file.top_k),
                top_p: flags.top_p.or(file.top_p),
                min_p: flags.min_p.or(file.min_p),
            },
            max_tokens: flags.max_tokens.or(file.max_tokens).unwrap_or(1024),
            history: flags.history.map(Into::into).or(file.history).unwrap_or_default(),
            floor: file.floor.unwrap_or_default(),
            attempts: file.attempts.unwrap_or(3),
            keep_bytes: flags.keep_files.or(file.keep_files).unwrap_or(KEEP_FILES).0,
            limits,
        };
        settings.check()?;
        Ok(settings)
    }

    /// Whether the values make sense.
    pub(crate) fn check(&self) -> Result<()> {
        for (name, value) in [
            ("samples", self.samples),
            ("concurrency", self.concurrency),
            ("max_tokens", self.max_tokens),
            ("attempts", self.attempts),
        ] {
            if value == 0 {
                bail!("`{name}` is 0; it must be at least 1");
            }
        }
        if self.samples > MOST_SAMPLES {
            bail!("`samples` is {}; it can be {MOST_SAMPLES} at most", self.samples);
        }
        if !(0.0..=100.0).contains(&self.temperature) {
            bail!("`temperature` is {}; it must lie between 0 and 100", self.temperature);
        }
        if let Some(problem) = self.truncation.problem() {
            bail!("{problem}");
        }
        if !self.floor.is_finite() {
            bail!("`floor` is not a finite number");
        }
        for reward in &self.rewards {
            if !reward.weight.is_finite() {
                bail!("the weight of reward `{}` is not a finite number", reward.plugin);
            }
        }
        Ok(())
    }
}

impl From<args::History> for HistoryMode {
    fn from(mode: args::History) -> Self {
        match mode {
            args::History::Faithful => Self::Faithful,
            args::History::AppendOnly => Self::AppendOnly,
        }
    }
}

fn required<T>(value: Option<T>, name: &str) -> Result<T> {
    value.with_context(|| {
        format!("no {name} is given\n  mend: pass --{name} or set `{name}` in {FILE}")
    })
}

/// The configuration, and the folder its paths are relative to.
fn read(path: Option<&Path>, project: &Path) -> Result<(FileConfig, PathBuf)> {
    let of_project = project.join(FILE);
    let path = match path {
        Some(path) => path,
        None if of_project.is_file() => of_project.as_path(),
        None => return Ok((FileConfig::default(), PathBuf::new())),
    };
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    let config = parse(&text).with_context(|| format!("{} is not right", path.display()))?;
    Ok((config, path.parent().unwrap_or(Path::new("")).to_owned()))
}

fn parse(text: &str) -> Result<FileConfig> {
    toml::from_str(text).map_err(|error| toml_error(&error))
}

/// What is wrong with a configuration file, with the nearest known key.
pub(crate) fn toml_error(error: &toml::de::Error) -> anyhow::Error {
    let missing = |name: &str| format!("\n  mend: add {name}");
    let hint = nearest_key(error.message())
        .map(|key| format!("\n  mend: did you mean `{key}`?"))
        .or_else(|| error.message().strip_prefix("missing field ").map(missing));
    // toml's own text shows the line and marks the place.
    anyhow::anyhow!("{}{}", error.to_string().trim_end(), hint.unwrap_or_default())
}

/// The known key nearest to the unknown one that serde complains about.
fn nearest_key(message: &str) -> Option<&str> {
    let mut quoted = message.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    let unknown = quoted.next()?;
    nearest::nearest(unknown, quoted)
}

/// `NAME=VALUE`. A value that is no JSON is text.
pub(crate) fn policy_option(text: &str) -> Result<(String, Value)> {
    let (name, value) = text
        .split_once('=')
        .with_context(|| format!("--policy-option `{text}` is not right: write NAME=VALUE"))?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}

/// Rewards as flags name and configure them.
pub(crate) fn rewards(names: &[String], configs: &[String]) -> Result<Vec<RewardConfig>> {
    let mut rewards = rewards_of(names)?;
    for text in configs {
        configure(&mut rewards, text)?;
    }
    for reward in &rewards {
        if !reward.weight.is_finite() {
            bail!("the weight of reward `{}` is not a finite number", reward.plugin);
        }
    }
    Ok(rewards)
}

fn rewards_of(names: &[String]) -> Result<Vec<RewardConfig>> {
    names.iter().map(|text| reward(text)).collect()
}

/// `NAME|FILE[:WEIGHT]`. A colon that no number follows belongs to the name.
fn reward(text: &str) -> Result<RewardConfig> {
    let (plugin, weight) = match text.rsplit_once(':') {
        Some((plugin, weight)) => match weight.parse::<f64>() {
            Ok(weight) => (plugin, weight),
            Err(_) => (text, 1.0),
        },
        None => (text, 1.0),
    };
    if plugin.is_empty() {
        bail!("the reward `{text}` has no name; write NAME:WEIGHT");
    }
    Ok(RewardConfig { plugin: plugin.to_owned(), weight, config: Map::new() })
}

/// Sets a reward's configuration from `NAME=JSON`.
fn configure(rewards: &mut [RewardConfig], text: &str) -> Result<()> {
    let (name, json) = text
        .split_once('=')
        .with_context(|| format!("--reward-config `{text}` is not right: write NAME=JSON"))?;
    let reward = rewards
        .iter_mut()
        .find(|reward| reward.plugin == name)
        .with_context(|| format!("--reward-config: the run has no reward `{name}`"))?;
    reward.config = object(json).context("--reward-config")?;
    Ok(())
}

/// A JSON object from the command line.
pub(crate) fn object(text: &str) -> Result<Map<String, Value>> {
    serde_json::from_str(text).with_context(|| format!("`{text}` is not a JSON object"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn flags(line: &str) -> args::Run {
        let words = ["fulgurite", "run"].into_iter().chain(line.split_whitespace());
        match args::Arguments::parse_from(words).command {
            args::Command::Run(run) => *run,
            _ => panic!("not a run"),
        }
    }

    #[test]
    fn flags_override_the_file_and_its_paths_are_relative_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        std::fs::write(
            &file,
            "harness = 'coder'\ntasks = 't.jsonl'\npolicy = 'oracle'\nsamples = 2\n\
             [[rewards]]\nplugin = 'tests-pass'\nconfig = { strict = true }\n[limits]\nturns = 5\n",
        )
        .unwrap();
        let line = format!("--config {} -n 3 --limit fuel=1G", file.display());
        let settings = Settings::resolve(&flags(&line), Path::new(".")).unwrap();
        assert_eq!(settings.samples, 3);
        assert_eq!(settings.tasks, folder.path().join("t.jsonl"));
        assert_eq!((settings.limits.turns, settings.limits.fuel), (5, 1_000_000_000));
        assert_eq!(settings.rewards[0].config["strict"], true);
    }

    #[test]
    fn an_unknown_key_is_named_with_its_place_and_the_nearest_one() {
        let error = parse("policy = 'oracle'\nsample = 2\n").unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
        assert!(error.contains("did you mean `samples`?"), "{error}");
        let error = parse("[limits]\nturn = 2\n").unwrap_err().to_string();
        assert!(error.contains("did you mean `turns`?"), "{error}");
    }

    #[test]
    fn what_is_missing_is_said_with_its_flag() {
        let error =
            Settings::resolve(&flags("--harness x --policy oracle"), Path::new(".")).unwrap_err();
        assert!(error.to_string().contains("--tasks"), "{error}");
    }

    #[test]
    fn a_reward_is_configured_by_its_name() {
        let mut rewards = vec![reward("a:0.5").unwrap()];
        configure(&mut rewards, r#"a={"x":1}"#).unwrap();
        assert_eq!(rewards[0].config["x"], 1);
        assert!(configure(&mut rewards, "b={}").is_err());
        assert!(configure(&mut rewards, "a=1").is_err());
    }

    #[test]
    fn a_reward_takes_its_weight_after_the_last_colon() {
        assert_eq!(reward("a").unwrap().weight, 1.0);
        assert_eq!(reward("a:0.25").unwrap().weight, 0.25);
        assert_eq!(reward("c:/x.wasm").unwrap().plugin, "c:/x.wasm");
        assert!(reward(":2").is_err());
    }
}
