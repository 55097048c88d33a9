//! The file that `fulgurite train` reads: parsed here, checked once.

use std::{
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use fulgurite_episode::{
    limits::{Bytes, EpisodeLimits},
    plan::HistoryMode,
};
use fulgurite_model::LoraConfig;
use fulgurite_trace::{SampleSettings, Truncation};
use fulgurite_train::{
    TrainSettings,
    run::{Budget, Gathering, RunSettings, WarmStart},
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    args,
    config::{MOST_SAMPLES, RewardConfig, Settings, toml_error},
    exit, relative,
};

/// The whole file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrainConfig {
    /// The model to train, as `--policy` of a run names one that is on this machine.
    pub(crate) policy: String,
    #[serde(default)]
    pub(crate) policy_options: Map<String, Value>,
    /// The harness: registered name or file.
    harness: String,
    #[serde(default)]
    harness_config: Map<String, Value>,
    #[serde(default)]
    rewards: Vec<RewardConfig>,
    /// Tasks to train on.
    tasks: PathBuf,
    /// Held-out tasks.
    pub(crate) validation: Option<PathBuf>,
    /// Where weights, checkpoints and metrics go.
    pub(crate) output: PathBuf,
    #[serde(default)]
    sampling: SamplingConfig,
    /// Episodes of each held-out task.
    #[serde(default = "one")]
    pub(crate) validation_samples: u32,
    #[serde(default)]
    history: HistoryMode,
    /// Episodes alive at once.
    #[serde(default = "concurrency")]
    pub(crate) concurrency: u32,
    #[serde(default)]
    pub(crate) seed: u64,
    #[serde(default)]
    floor: f64,
    #[serde(default = "attempts")]
    attempts: u32,
    #[serde(default)]
    keep_files: Option<Bytes>,
    #[serde(default)]
    limits: EpisodeLimits,
    /// Train a low-rank adapter and leave the weights as they are.
    pub(crate) lora: Option<LoraConfig>,
    /// Write the model with the adapter merged into it as well.
    #[serde(default)]
    pub(crate) merge: bool,
    /// Which turns are trained, and the longest prompt and response of a training row.
    #[serde(default)]
    pub(crate) rows: SampleSettings,
    /// What the first steps imitate.
    warm_start: Option<WarmStart>,
    /// When training ends.
    #[serde(default)]
    budget: Budget,
    /// How groups are gathered.
    #[serde(default)]
    pub(crate) group: Gathering,
    /// Steps between two validations; 0 validates at the start and at the end only.
    #[serde(default)]
    validate_every: u64,
    /// Steps between two checkpoints; 0 writes one at the start and at the end only.
    #[serde(default = "every_step")]
    checkpoint_every: u64,
    /// Checkpoints that are kept.
    #[serde(default = "keep")]
    pub(crate) keep_checkpoints: usize,
    /// The algorithm.
    pub(crate) algorithm: TrainSettings,
}

/// How episodes are sampled while training.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SamplingConfig {
    temperature: f32,
    max_tokens: u32,
    top_k: Option<NonZeroU32>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    /// The temperature of validation; 0 takes the likeliest token.
    validation_temperature: f32,
}

impl Default for SamplingConfig {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            max_tokens: 512,
            top_k: None,
            top_p: None,
            min_p: None,
            validation_temperature: 0.0,
        }
    }
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
    /// Reads a file, and what flags say instead. Paths in the file are relative to it.
    pub(crate) fn read(flags: &args::Train) -> Result<Self> {
        let path = flags.config.as_path();
        let wrong = || exit::Usage(format!("{} is not right", path.display()));
        let text = std::fs::read_to_string(path)
            .with_context(|| exit::Usage(format!("cannot read {}", path.display())))?;
        let mut config: Self =
            toml::from_str(&text).map_err(|error| toml_error(&error)).with_context(wrong)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        config.tasks = folder.join(&config.tasks);
        config.validation = config.validation.map(|path| folder.join(path));
        config.output = match &flags.output {
            Some(output) => output.clone(),
            None => folder.join(&config.output),
        };
        config.seed = flags.seed.unwrap_or(config.seed);
        config.budget.steps = flags.steps.or(config.budget.steps);
        config.policy = relative::policy(folder, &config.policy);
        config.harness = relative::component(folder, &config.harness);
        config.rewards = config.rewards.into_iter().map(|reward| reward.beside(folder)).collect();
        config.check().with_context(wrong)?;
        Ok(config)
    }

    /// How the loop is to run.
    pub(crate) const fn run(&self) -> RunSettings {
        RunSettings {
            budget: self.budget,
            group: self.group,
            warm_start: self.warm_start,
            validate_every: self.validate_every,
            checkpoint_every: self.checkpoint_every,
        }
    }

    /// What an episode of training is, as a run would be asked for it.
    pub(crate) fn episodes(&self) -> Settings {
        let SamplingConfig { temperature, max_tokens, top_k, top_p, min_p, .. } = self.sampling;
        Settings {
            harness: self.harness.clone(),
            harness_config: self.harness_config.clone(),
            rewards: self.rewards.clone(),
            tasks: self.tasks.clone(),
            skip_bad: false,
            policy: self.policy.clone(),
            policy_options: self.policy_options.clone(),
            samples: self.group.episodes,
            concurrency: self.concurrency,
            seed: self.seed,
            temperature,
            truncation: Truncation { top_k, top_p, min_p },
            max_tokens,
            history: self.history,
            floor: self.floor,
            attempts: self.attempts,
            keep_bytes: self.keep_files.unwrap_or(Bytes(0)).0,
            limits: self.limits,
        }
    }

    /// The temperature of validation.
    pub(crate) const fn validation_temperature(&self) -> f32 {
        self.sampling.validation_temperature
    }

    fn check(&self) -> Result<()> {
        let problem = self
            .budget
            .problem()
            .or_else(|| self.group.problem())
            .or_else(|| self.warm_start.and_then(|warm| warm.problem()))
            .or_else(|| self.algorithm.problem())
            .or_else(|| self.lora.as_ref().and_then(|lora| lora.check().err()));
        if let Some(problem) = problem {
            bail!("{problem}");
        }
        if self.rewards.is_empty() {
            bail!(
                "no reward is given\n  mend: add a `[[rewards]]` table; without one there is \
                 nothing to learn from"
            );
        }
        if self.merge && self.lora.is_none() {
            bail!("`merge` is for adapters\n  mend: add a `[lora]` table, or remove `merge`");
        }
        let SamplingConfig { temperature, validation_temperature, .. } = self.sampling;
        if !(temperature > 0.0 && temperature <= 100.0) {
            bail!(
                "`sampling.temperature` is {temperature}; to learn, it must be above 0 and at most \
                 100 (a policy that is greedy never tries anything else)"
            );
        }
        if !(0.0..=100.0).contains(&validation_temperature) {
            bail!("`sampling.validation_temperature` must lie between 0 and 100");
        }
        if !(1..=MOST_SAMPLES).contains(&self.validation_samples) {
            bail!("`validation_samples` must be at least 1 and at most {MOST_SAMPLES}");
        }
        self.episodes().check()
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

    fn flags(config: PathBuf) -> args::Train {
        args::Train { config, resume: false, output: None, seed: None, steps: None }
    }

    fn read(text: &str) -> Result<TrainConfig> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train.toml");
        std::fs::write(&path, text).unwrap();
        let config = TrainConfig::read(&flags(path))?;
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
        let sampled = format!("{FILE}[sampling]\ntop_k = 5\nmax_tokens = 7\n");
        let settings = read(&sampled).unwrap().episodes();
        assert_eq!((settings.max_tokens, settings.truncation.top_k.map(|k| k.get())), (7, Some(5)));
    }

    #[test]
    fn flags_come_before_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train.toml");
        std::fs::write(&path, FILE).unwrap();
        let flags = args::Train {
            output: Some("elsewhere".into()),
            seed: Some(7),
            steps: Some(9),
            ..flags(path)
        };
        let config = TrainConfig::read(&flags).unwrap();
        assert_eq!((config.seed, config.budget.steps), (7, Some(9)));
        assert_eq!(config.output, Path::new("elsewhere"));
        assert!(flags.going_on().ends_with("train.toml --output elsewhere --seed 7 --steps 9"));
    }

    #[test]
    fn everything_that_is_documented_is_read() {
        let algorithms = [
            "estimator = 'grpo'\ncredit = 'outcome'\npolicy = 'reinforce'\nold = 'recompute'",
            "estimator = 'dr-grpo'\naggregation = { constant = { tokens = 512 } }",
            "estimator = 'rloo'\naggregation = 'token-mean'\nparts = 2\npasses = 2",
            "estimator = 'batch'\naggregation = 'sequence-mean'\nmax_staleness = 4",
            "estimator = 'plain'\npolicy = { ppo = { low = 0.2, high = 0.28, dual = 3.0 } }",
            "credit = { turns = { discount = 0.9, total = true } }\nimportance_threshold = 2.0",
            "kl = { coefficient = 0.1, estimator = 'k1', place = 'reward' }\nentropy = 0.01",
            "kl = { coefficient = 0.1, estimator = 'k2', place = 'loss' }\npack_tokens = 4096",
            "groups = { min_episodes = 3, no_variance = 'resample', over_long = 'mask', floor = 0.0 }",
            "groups = { over_long = { penalise = { limit = 9, buffer = 3, penalty = 1.0 } } }",
            "optimizer = { beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1 }",
            "max_gradient_norm = 0.5",
        ];
        for algorithm in algorithms {
            read(&format!("{FILE}{algorithm}\n"))
                .unwrap_or_else(|error| panic!("{algorithm}: {error:#}"));
        }
        let schedule = "{ rate = 1e-3, warm_up = 5, decay = 'cosine', steps = 50, floor = 0.1 }";
        read(&FILE.replace("{ rate = 1e-3 }", schedule)).unwrap();
        let tables = "\
[lora]\nrank = 8\nalpha = 16\ntargets = ['q_proj']\nseed = 1
[warm_start]\nsteps = 2\nfrom = 'best-of'\nkeep = 2\nleast = 0.5
[rows]\nmodel_role = 'policy'\nmax_prompt = 100\nmax_response = 50
[sampling]\ntop_k = 5\ntop_p = 0.9\nmin_p = 0.1\nvalidation_temperature = 0.5
[group]\nepisodes = 4\ngroups = 2\nactive = 6\n";
        let config = read(&format!("{FILE}{tables}")).unwrap();
        assert!(config.run().group.is_asynchronous());
        let top = "merge = true\nvalidation_samples = 2\nfloor = 0.1\nattempts = 2\nkeep_files = '1M'\n\
                   history = 'append-only'\nkeep_checkpoints = 2\nvalidate_every = 3\n";
        read(&format!("{top}{FILE}[lora]\nrank = 8\nalpha = 16\n")).unwrap();
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            (FILE.replace("steps", "step"), "did you mean `steps`"),
            (FILE.replace("steps = 3", ""), "no end"),
            (FILE.replace("rate = 1e-3", "rate = 0.0"), "rate"),
            (FILE.replace("[budget]", "[sampling]\ntemperature = 0.0\n[budget]"), "above 0"),
            (FILE.replace("[budget]", "[sampling]\nmax_tokens = 0\n[budget]"), "max_tokens"),
            (FILE.replace("[budget]", "[sampling]\ntop_l = 1\n[budget]"), "did you mean `top_k`"),
            (format!("merge = true\n{FILE}"), "`merge` is for adapters"),
            (FILE.replace("[budget]", "[group]\nepisodes = 0\n[budget]"), "group.episodes"),
            (FILE.replace("[budget]", "[lora]\nrank = 0\nalpha = 1\n[budget]"), "rank"),
        ];
        for (text, part) in cases {
            let error = format!("{:#}", read(&text).unwrap_err());
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
