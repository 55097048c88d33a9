//! From settings, or from the plan of an earlier run, to everything loaded.

use std::{num::NonZeroU32, sync::Arc};

use anyhow::{Context as _, Result, bail};
use fulgurite_episode::{
    Equipment,
    dataset::{self, Dataset},
    plan::{CONTRACT, HistoryMode, Plan, RewardPlan, SamplingPlan, TasksPin},
};
use fulgurite_gateway::{
    Budgets, Gateway, History, Retries, SamplingDefaults, Settings as GatewaySettings,
};
use fulgurite_policy::Policy;
use fulgurite_registry::Kind;
use fulgurite_runtime::Reward;
use fulgurite_trace::{EpisodeRef, QueuedEpisode, Store, Task};

use crate::{
    config::Settings,
    exit,
    host::{Found, Host},
    output::Output,
    place::Places,
    policy, schema,
};

/// A plan and everything that it needs.
pub(crate) struct Equipped {
    pub(crate) plan: Plan,
    pub(crate) equipment: Equipment,
    /// Model roles that the harness asks for.
    roles: Vec<String>,
}

impl Equipped {
    /// The same harness, rewards and programs by another plan, which may name other tasks,
    /// sampling or limits, and with another policy. Recorded nowhere yet.
    pub(crate) fn by(
        &self,
        plan: Plan,
        tasks: Vec<Arc<Task>>,
        policy: &Arc<dyn Policy>,
    ) -> Result<Self> {
        let Equipment { harness, rewards, runtime, programs, .. } = &self.equipment;
        let equipment = Equipment {
            harness: harness.clone(),
            rewards: rewards.clone(),
            runtime: runtime.clone(),
            programs: programs.clone(),
            gateway: gateway(&plan, &self.roles, policy)?,
            tasks,
            store: None,
        };
        Ok(Self { plan, equipment, roles: self.roles.clone() })
    }

    /// Records the run's episodes in a store.
    pub(crate) fn record_in(&mut self, store: Store, run: String) -> Result<()> {
        self.equipment.store = Some((store, run));
        Ok(())
    }
}

/// Finds and loads what the settings name, and pins it. A policy that is given is taken for the
/// one that the settings name.
pub(crate) async fn equip(
    settings: Settings,
    policy: Option<Arc<dyn Policy>>,
    places: &Places,
    output: Output,
) -> Result<Equipped> {
    let dataset = dataset::read(&settings.tasks, settings.skip_bad)?;
    for bad in &dataset.skipped {
        output.remark(format_args!("left out: {bad}"));
    }
    let host = Host::start(places, settings.concurrency)?;
    let harness = host.find(&settings.harness, Kind::Harness)?;
    let mut rewards = Vec::new();
    for reward in &settings.rewards {
        rewards.push(host.find(&reward.plugin, Kind::Reward)?);
    }
    let (programs, _) = host.programs(None).await?;
    let plan = Plan {
        contract: CONTRACT.to_owned(),
        harness: harness.pin.clone(),
        harness_config: settings.harness_config,
        rewards: settings
            .rewards
            .into_iter()
            .zip(&rewards)
            .map(|(reward, found)| RewardPlan {
                plugin: found.pin.clone(),
                weight: reward.weight,
                config: reward.config,
            })
            .collect(),
        programs,
        tasks: TasksPin {
            path: settings.tasks.canonicalize().unwrap_or(settings.tasks),
            digest: dataset.digest,
            count: u32::try_from(dataset.tasks.len()).context("too many tasks")?,
            skip_bad: settings.skip_bad,
        },
        policy: settings.policy,
        policy_options: settings.policy_options,
        policy_name: String::new(),
        sampling: SamplingPlan {
            temperature: settings.temperature,
            max_tokens: settings.max_tokens,
            truncation: settings.truncation,
        },
        history: settings.history,
        samples: settings.samples,
        concurrency: settings.concurrency,
        seed: settings.seed,
        limits: settings.limits,
        floor: settings.floor,
        attempts: settings.attempts,
        keep_bytes: settings.keep_bytes,
        training: None,
    };
    let equipped = load(&host, (plan, dataset), &harness, &rewards, policy).await?;
    // Only what is fit to run is kept.
    let files = std::iter::once(&harness).chain(&rewards);
    let Plan { programs, .. } = &equipped.plan;
    let used = files.clone().map(|found| &found.pin).chain(programs);
    host.keep(files, used, output)?;
    Ok(equipped)
}

/// The tasks of an earlier run, unchanged.
pub(crate) fn tasks_again(plan: &Plan) -> Result<Dataset> {
    let dataset = dataset::read(&plan.tasks.path, plan.tasks.skip_bad)?;
    if dataset.digest != plan.tasks.digest {
        bail!(
            "the task file {} has changed since the run began\n  mend: restore it, or start a new \
             run",
            plan.tasks.path.display()
        );
    }
    Ok(dataset)
}

/// Loads exactly what an earlier run's plan pins.
pub(crate) async fn equip_again(plan: Plan, places: &Places, output: Output) -> Result<Equipped> {
    let dataset = tasks_again(&plan)?;
    output.remark(format_args!("policy: {}", plan.policy));
    let host = Host::start(places, plan.concurrency)?;
    let harness = host.pinned(&plan.harness)?;
    let rewards: Vec<Found> =
        plan.rewards.iter().map(|reward| host.pinned(&reward.plugin)).collect::<Result<_>>()?;
    load(&host, (plan, dataset), &harness, &rewards, None).await
}

async fn load(
    host: &Host,
    (mut plan, dataset): (Plan, Dataset),
    harness: &Found,
    rewards: &[Found],
    policy: Option<Arc<dyn Policy>>,
) -> Result<Equipped> {
    let (harness, description) = host.harness(harness).await?;
    let (plugin, name) = (format!("the harness `{}`", plan.harness.name), &plan.harness.name);
    schema::check(&plugin, name, &description.config_schema, &plan.harness_config)?;
    let loaded = load_rewards(host, rewards, &plan.rewards).await?;
    let (_, programs) = host.programs(Some(&plan.programs)).await?;
    let tasks: Vec<Arc<Task>> = dataset.tasks.into_iter().map(Arc::new).collect();
    if plan.policy == "oracle" {
        check_references(&tasks, &description.name)?;
    }
    let policy = match policy {
        Some(policy) => policy,
        None => policy::open(&plan.policy, &plan.policy_options, &tasks).await?,
    };
    let name = policy.info().name.clone();
    if !plan.policy_name.is_empty() && plan.policy_name != name {
        bail!(exit::Policy(format!(
            "the run was made with the policy {}, and this is {name}\n  mend: restore the model, \
             or start a new run",
            plan.policy_name
        )));
    }
    plan.policy_name = name;
    let mut roles = description.model_roles.clone();
    roles.push("policy".to_owned());
    roles.sort();
    roles.dedup();
    let gateway = gateway(&plan, &roles, &policy)?;
    let equipment = Equipment {
        harness: (harness, description.name),
        rewards: loaded,
        runtime: host.runtime.clone(),
        programs,
        gateway,
        tasks,
        store: None,
    };
    Ok(Equipped { plan, equipment, roles })
}

/// The way to a policy, in all roles.
fn gateway(plan: &Plan, roles: &[String], policy: &Arc<dyn Policy>) -> Result<Gateway> {
    let mut gateway = Gateway::builder(gateway_settings(plan));
    for role in roles {
        gateway = gateway.policy(role.clone(), Arc::clone(policy));
    }
    Ok(gateway.build()?)
}

/// Loads rewards and sees that each takes its configuration.
pub(crate) async fn load_rewards(
    host: &Host,
    found: &[Found],
    plans: &[RewardPlan],
) -> Result<Vec<Reward>> {
    let mut loaded = Vec::new();
    for (found, plan) in found.iter().zip(plans) {
        let (component, description) = host.reward(found).await?;
        let name = &plan.plugin.name;
        let plugin = format!("the reward `{name}`");
        schema::check(&plugin, name, &description.config_schema, &plan.config)?;
        loaded.push(component);
    }
    Ok(loaded)
}

/// Found here, once, rather than in every episode.
pub(crate) fn check_references(tasks: &[Arc<Task>], harness: &str) -> Result<()> {
    let known = |task: &&Arc<Task>| {
        ["text", "native"].iter().any(|format| task.references_for(harness, format).is_some())
    };
    match tasks.iter().filter(|task| !known(task)).count() {
        0 => Ok(()),
        lacking => bail!(exit::Usage(format!(
            "{lacking} of {} tasks have no reference replies for the harness `{harness}`\n  \
             mend: add `references` to the task file under that name, or do without the policy \
             `oracle` (in training: without a warm start from references)",
            tasks.len()
        ))),
    }
}

fn gateway_settings(plan: &Plan) -> GatewaySettings {
    let default = GatewaySettings::default();
    GatewaySettings {
        history: match plan.history {
            HistoryMode::Faithful => History::Faithful,
            HistoryMode::AppendOnly => History::AppendOnly,
        },
        sampling: SamplingDefaults {
            max_tokens: NonZeroU32::new(plan.sampling.max_tokens)
                .unwrap_or(default.sampling.max_tokens),
            temperature: plan.sampling.temperature,
            truncation: plan.sampling.truncation,
            ..default.sampling.clone()
        },
        budgets: Budgets {
            tokens: Some(plan.limits.tokens),
            turns: Some(u32::try_from(plan.limits.turns).unwrap_or(u32::MAX)),
        },
        concurrency: NonZeroU32::new(plan.concurrency).unwrap_or(default.concurrency),
        retries: Retries {
            attempts: policy::calls(&plan.policy_options).unwrap_or(default.retries.attempts),
            ..default.retries
        },
        seed: plan.seed,
        ..default
    }
}

/// Every first attempt of a run, task by task.
pub(crate) fn episodes(equipped: &Equipped) -> Vec<QueuedEpisode> {
    let mut episodes = Vec::new();
    for (index, task) in (0_u32..).zip(&equipped.equipment.tasks) {
        for sample in 0..equipped.plan.samples {
            let episode = EpisodeRef { task: index, sample, attempt: 0 };
            episodes.push(QueuedEpisode { episode, task_id: task.id.clone() });
        }
    }
    episodes
}
