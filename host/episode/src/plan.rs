//! The plan of a run: everything that decides what its episodes do, resolved once and pinned.

use std::path::PathBuf;

use fulgurite_trace::{Digest, Truncation};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::limits::EpisodeLimits;

/// The version of the plugin contract that this host speaks.
pub const CONTRACT: &str = "fulgurite:plugin@0.1.0";

/// A plugin, pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginPin {
    /// The name it goes by in the run.
    pub name: String,
    /// The component's digest.
    pub digest: Digest,
    /// Where it is, when it is a file outside the registry. Not part of what results depend on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
}

/// A reward of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RewardPlan {
    /// The component.
    pub plugin: PluginPin,
    /// Weight in the episode's total.
    pub weight: f64,
    /// Its configuration.
    pub config: Map<String, Value>,
}

/// The tasks of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TasksPin {
    /// The file, as named by the user.
    pub path: PathBuf,
    /// Digest of the tasks read.
    pub digest: Digest,
    /// Number of tasks.
    pub count: u32,
    /// Whether broken rows were left out.
    pub skip_bad: bool,
}

/// How token history follows the chat template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HistoryMode {
    /// The template decides; a new segment starts where it rewrites the past.
    #[default]
    Faithful,
    /// The history only grows.
    AppendOnly,
}

/// Default sampling of the run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SamplingPlan {
    /// Temperature.
    pub temperature: f32,
    /// Longest reply in tokens.
    pub max_tokens: u32,
    /// How the distribution is cut.
    #[serde(default, skip_serializing_if = "Truncation::is_none")]
    pub truncation: Truncation,
}

/// The plan of a run. Kept with its trace; `--resume` runs it again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The plugin contract.
    pub contract: String,
    /// The harness.
    pub harness: PluginPin,
    /// Its configuration.
    pub harness_config: Map<String, Value>,
    /// The rewards.
    pub rewards: Vec<RewardPlan>,
    /// Programs of the wasm lane.
    pub programs: Vec<PluginPin>,
    /// The tasks.
    pub tasks: TasksPin,
    /// The policy, as specified; holds no secret.
    pub policy: String,
    /// How to talk to it; holds no secret.
    #[serde(default)]
    pub policy_options: Map<String, Value>,
    /// What the policy called itself.
    pub policy_name: String,
    /// Sampling, where the harness does not ask otherwise.
    pub sampling: SamplingPlan,
    /// Token history.
    pub history: HistoryMode,
    /// Episodes of each task.
    pub samples: u32,
    /// Episodes alive at once. Does not change what they do.
    pub concurrency: u32,
    /// Seed of everything random.
    pub seed: u64,
    /// Limits.
    pub limits: EpisodeLimits,
    /// The total of an episode that ended through its own fault is at most this, so that looping
    /// or crashing never beats an honest failure.
    pub floor: f64,
    /// Attempts of an episode whose infrastructure fails, the first included.
    pub attempts: u32,
    /// Most bytes that an episode's changed files may take to be kept in the trace store. Does not
    /// change what episodes do.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub keep_bytes: u64,
    /// The folder of the training that the episodes belong to. Not part of what results depend
    /// on: what the policy was at each turn stands with its tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<PathBuf>,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

impl Plan {
    /// The part that results depend on: everything, with paths, concurrency and what is
    /// kept blanked.
    pub fn pinned(&self) -> Value {
        let mut plan = self.clone();
        plan.concurrency = 1;
        plan.keep_bytes = 0;
        plan.training = None;
        plan.tasks.path = PathBuf::new();
        plan.harness.path = None;
        for reward in &mut plan.rewards {
            reward.plugin.path = None;
        }
        serde_json::to_value(plan).unwrap_or_default()
    }
}
