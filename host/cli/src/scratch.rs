//! Episodes outside of a recorded run: for measurements and for trying rewards.

use std::{num::NonZeroU32, path::PathBuf, sync::Arc};

use anyhow::Result;
use fulgurite_episode::{
    limits::EpisodeLimits,
    plan::{CONTRACT, HistoryMode, Plan, PluginPin, RewardPlan, SamplingPlan, TasksPin},
};
use fulgurite_gateway::{Budgets, Gateway, Settings};
use fulgurite_policy::Policy;
use fulgurite_trace::{Digest, Truncation};
use serde_json::Map;

/// A plan with every setting at its default.
pub(crate) fn plan(harness: PluginPin, rewards: Vec<RewardPlan>, concurrency: u32) -> Plan {
    let tasks =
        TasksPin { path: PathBuf::new(), digest: Digest::of([]), count: 0, skip_bad: false };
    Plan {
        contract: CONTRACT.to_owned(),
        harness,
        harness_config: Map::new(),
        rewards,
        programs: Vec::new(),
        tasks,
        policy: String::new(),
        policy_options: Map::new(),
        policy_name: String::new(),
        sampling: SamplingPlan {
            temperature: 1.0,
            max_tokens: 1024,
            truncation: Truncation::default(),
        },
        history: HistoryMode::Faithful,
        samples: 1,
        concurrency,
        seed: 0,
        limits: EpisodeLimits::default(),
        floor: 0.0,
        attempts: 1,
        keep_bytes: 0,
        training: None,
    }
}

/// A gateway to one policy, with that many calls at once.
pub(crate) fn gateway(policy: Arc<dyn Policy>, concurrency: u32) -> Result<Gateway> {
    let default = Settings::default();
    let settings = Settings {
        concurrency: NonZeroU32::new(concurrency).unwrap_or(default.concurrency),
        budgets: Budgets { tokens: None, turns: Some(256) },
        ..default
    };
    Ok(Gateway::builder(settings).policy("policy", policy).build()?)
}
