//! The file that `fulgurite train` reads: parsed here, checked once.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use fulgurite_episode::{limits::EpisodeLimits, plan::HistoryMode};
use fulgurite_train::{
    run::{Budget, Gathering, RunSettings},
    settings::TrainSettings,
};
use fulgurite_trace::samples::SampleSettings;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    config::{RewardConfig, toml_error},
    exit,
};

/// The whole file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrainConfig {
    /// The model to train, as `--policy` of a run names one that is on this machine.
    pub(crate) policy: String,
    /// The harness: registered name or file.
    pub(crate) harness: String,
    #[serde(default)]
    pub(crate) harness_config: Map<String, Value>,
    pub(crate) rewards: Vec<RewardConfig>,
    /// Tasks to train on.
    pub(crate) tasks: PathBuf,
    /// Held-out tasks.
    pub(crate) validation: Option<PathBuf>,
    /// Where weights, checkpoints and metrics go.
    pub(crate) output: PathBuf,
    #[serde(default)]
    pub(crate) sampling: SamplingConfig,
    /// Episodes of each held-out task.
    #[serde(default = "one")]
    pub(crate) validation_samples: u32,
    #[serde(default)]
    pub(crate) history: HistoryMode,
    /// Episodes alive at once.
    #[serde(default = "concurrency")]
    pub(crate) concurrency: u32,
    #[serde(default)]
    pub(crate) seed: u64,
    #[serde(default)]
    pub(crate) floor: f64,
    #[serde(default = "attempts")]
    pub(crate) attempts: u32,
    #[serde(default)]
    pub(crate) limits: EpisodeLimits,
    /// Train a low-rank adapter and leave the weights as they are.
    pub(crate) lora: Option<LoraConfig>,
    /// Which turns are trained, and the longest prompt and response of a training row.
    #[serde(default)]
    pub(crate) rows: SampleSettings,
    /// When training ends.
    #[serde(default)]
    pub(crate) budget: Budget,
    /// How groups are gathered.
    #[serde(default)]
    pub(crate) group: Gathering,
    /// Steps between two validations; 0 validates at the start and at the end only.
    #[serde(default)]
    pub(crate) validate_every: u64,
    /// Steps between two checkpoints; 0 writes one at the end only.
    #[serde(default = "every_step")]
    pub(crate) checkpoint_every: u64,
    /// The algorithm.
    pub(crate) algorithm: TrainSettings,
    /// Checkpoints that are kept.
    #[serde(default = "keep")]
    pub(crate) keep_checkpoints: usize,
}

/// How episodes are sampled while training.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SamplingConfig {
    pub(crate) temperature: f32,
    pub(crate) max_tokens: u32,
    /// The temperature of validation; 0 takes the likeliest token.
    pub(crate) validation_temperature: f32,
}

impl Default for SamplingConfig {
    fn default() -> Self {
        Self { temperature: 1.0, max_tokens: 512, validation_temperature: 0.0 }
    }
}

/// A low-rank adapter.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoraConfig {
    pub(crate) rank: usize,
    pub(crate) alpha: f64,
    /// Names of matrices, as PEFT's `target_modules`; all of attention and feed-forward when
    /// absent.
    pub(crate) targets: Option<Vec<String>>,
}

const fn one() -> u32 {
    1
}

const fn concurrency() -> u32 {
    64
}

const fn attempts() -> u32 {
    3
}

const fn keep() -> usize {
    3
}

const fn every_step() -> u64 {
    1
}

impl TrainConfig {
    /// Reads a file. Paths in it are relative to it.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| exit::Usage(format!("cannot read {}", path.display())))?;
        let mut config: Self = toml::from_str(&text)
            .map_err(|error| toml_error(&error))
            .with_context(|| exit::Usage(format!("{} is not right", path.display())))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        config.tasks = folder.join(&config.tasks);
        config.validation = config.validation.map(|path| folder.join(path));
        config.output = folder.join(&config.output);
        config.policy = within(folder, &config.policy);
        if config.harness.ends_with(".wasm") {
            config.harness = folder.join(&config.harness).to_string_lossy().into_owned();
        }
        for reward in &mut config.rewards {
            if reward.plugin.ends_with(".wasm") {
                reward.plugin = folder.join(&reward.plugin).to_string_lossy().into_owned();
            }
        }
        config.check().with_context(|| exit::Usage(format!("{} is not right", path.display())))?;
        Ok(config)
    }

    /// How the loop is to run.
    pub(crate) const fn run(&self) -> RunSettings {
        RunSettings {
            budget: self.budget,
            group: self.group,
            validate_every: self.validate_every,
            checkpoint_every: self.checkpoint_every,
        }
    }

    fn check(&self) -> Result<()> {
        let problem = self
            .budget
            .problem()
            .or_else(|| self.group.problem())
            .or_else(|| self.algorithm.problem());
        if let Some(problem) = problem {
            bail!("{problem}");
        }
        if self.rewards.is_empty() {
            bail!("no reward is given\n  mend: add a `[[rewards]]` table; nothing else can be learnt from");
        }
        for reward in &self.rewards {
            if !reward.weight.is_finite() {
                bail!("the weight of reward `{}` is not a finite number", reward.plugin);
            }
        }
        let SamplingConfig { temperature, max_tokens, validation_temperature } = self.sampling;
        if !(temperature > 0.0 && temperature <= 100.0) {
            bail!(
                "`sampling.temperature` is {temperature}; to learn, it must be above 0 (a greedy \
                 policy never tries anything else)"
            );
        }
        if !(0.0..=100.0).contains(&validation_temperature) {
            bail!("`sampling.validation_temperature` must lie between 0 and 100");
        }
        for (name, value) in [
            ("sampling.max_tokens", max_tokens),
            ("concurrency", self.concurrency),
            ("attempts", self.attempts),
            ("validation_samples", self.validation_samples),
        ] {
            if value == 0 {
                bail!("`{name}` is 0; it must be at least 1");
            }
        }
        if let Some(lora) = &self.lora
            && (lora.rank == 0 || !lora.alpha.is_finite())
        {
            bail!("`lora.rank` must be at least 1 and `lora.alpha` a number");
        }
        Ok(())
    }
}

/// A policy whose file is named relative to the configuration.
fn within(folder: &Path, policy: &str) -> String {
    match policy.split_once(':') {
        Some((kind @ ("gguf" | "folder" | "tiny"), path)) => {
            format!("{kind}:{}", folder.join(path).display())
        }
        _ => policy.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
policy = 'tiny:tiny.toml'
harness = 'apprentice.wasm'
tasks = 'tasks.jsonl'
output = 'out'
[[rewards]]
plugin = 'machine-tests'
[budget]
steps = 3
[algorithm]
schedule = { rate = 1e-3 }
";

    fn read(text: &str) -> Result<TrainConfig> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train.toml");
        std::fs::write(&path, text).unwrap();
        let config = TrainConfig::read(&path)?;
        assert!(config.tasks.starts_with(folder.path()));
        assert!(config.policy.starts_with("tiny:/"), "{}", config.policy);
        Ok(config)
    }

    #[test]
    fn a_short_file_is_enough() {
        let config = read(FILE).unwrap();
        assert_eq!(config.rewards[0].plugin, "machine-tests");
        assert_eq!(config.checkpoint_every, 1);
        assert!(config.harness.ends_with("/apprentice.wasm"));
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            (FILE.replace("steps", "step"), "unknown field `step`"),
            (FILE.replace("steps = 3", ""), "no end"),
            (FILE.replace("rate = 1e-3", "rate = 0.0"), "learning rate"),
            (FILE.replace("[budget]", "[sampling]\ntemperature = 0.0\n[budget]"), "above 0"),
        ];
        for (text, part) in cases {
            let error = format!("{:#}", read(&text).unwrap_err());
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
