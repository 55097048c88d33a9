//! `fulgurite bench`: the figures of this machine.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use fulgurite_episode::{
    Equipment, Programs,
    plan::{PluginPin, RewardPlan},
    run::run as run_episodes,
    summary::{Tally, Verdict},
};
use fulgurite_policy::{Constant, FixedReply, Gate, Policy};
use fulgurite_registry::Kind;
use fulgurite_runtime::{Harness, Reward, Runtime, clock::Cancellation};
use fulgurite_trace::{
    EpisodeRef, QueuedEpisode, RunRecord, Store, Task,
    store::{BenchOptions, bench},
};
use serde::Serialize;
use serde_json::Map;
use tokio::sync::mpsc;

use crate::{host::Host, output::Output, place::Places, scratch, table};

/// Measured by `fulgurite bench episodes`.
#[derive(Debug, Serialize)]
struct EpisodeFigures {
    /// Episodes a second: one scripted turn, one reward, durable trace.
    episodes_per_s: f64,
    /// The same without trace and reward.
    episodes_per_s_bare: f64,
    /// Microseconds to make a store and an instance in it; the middle of 1,000.
    instantiate_us_p50: f64,
    /// The 99th percentile of those.
    instantiate_us_p99: f64,
    /// Milliseconds to load a compiled component from the cache; the middle of 100.
    load_cached_ms: f64,
    /// Resident memory of this process with that many episodes waiting in a model call, in MiB.
    resident_mib_alive: f64,
    /// Resident memory before they began, in MiB.
    resident_mib_before: f64,
    /// Episodes that waited at once.
    alive: u32,
    /// Milliseconds from the first start until all of them waited.
    alive_after_ms: f64,
    /// Milliseconds from their release until all of them had ended.
    finished_after_ms: f64,
    /// Episodes of each measured run.
    episodes: u32,
    /// The same as `episodes_per_s` for the harness in Python, where one was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    python_episodes_per_s: Option<f64>,
    /// The same as `instantiate_us_p50` for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    python_instantiate_us_p50: Option<f64>,
}

/// Episodes alive at once where speed is measured.
const CONCURRENCY: u32 = 64;

pub(crate) async fn episodes(
    episodes: u32,
    alive: u32,
    python: Option<&str>,
    places: &Places,
    output: Output,
) -> Result<()> {
    let host = Host::start(places, alive.max(CONCURRENCY))?;
    let bench = Bench::new(&host, "solve").await?;

    output.remark("measuring instantiation and loading …");
    let mut instantiate = bench.instantiations().await?;
    let mut load = Vec::with_capacity(100);
    for _ in 0..100 {
        let took = host.runtime.time_cached_load(bench.harness.inspection());
        load.push(took.context("the compiled component is not in the cache")?);
    }

    output.remark("measuring episodes without trace and reward …");
    let policy: Arc<dyn Policy> = Arc::new(answer());
    bench.run(Arc::clone(&policy), CONCURRENCY, 500, None, false).await?;
    let bare = bench.run(Arc::clone(&policy), CONCURRENCY, episodes, None, false).await?;
    output.remark("measuring episodes with durable trace and reward …");
    let full = bench.durable(Arc::clone(&policy), episodes, places).await?;
    let python = match python {
        Some(name) => {
            output.remark("measuring the harness in Python …");
            // A runtime of its own: how much stays resident depends on how many may be alive.
            let host = Host::start(places, CONCURRENCY)?;
            let python = Bench::new(&host, name).await?;
            python.run(Arc::clone(&policy), CONCURRENCY, 500, None, false).await?;
            let instantiate = quantile(&mut python.instantiations().await?, 0.5);
            let took = python.durable(policy, episodes, places).await?;
            Some((took, instantiate))
        }
        None => None,
    };

    output.remark(format_args!("measuring {alive} episodes alive at once …"));
    let density = bench.density(alive).await?;
    let figures = EpisodeFigures {
        episodes_per_s: f64::from(episodes) / full.as_secs_f64(),
        episodes_per_s_bare: f64::from(episodes) / bare.as_secs_f64(),
        instantiate_us_p50: quantile(&mut instantiate, 0.5).as_secs_f64() * 1e6,
        instantiate_us_p99: quantile(&mut instantiate, 0.99).as_secs_f64() * 1e6,
        load_cached_ms: quantile(&mut load, 0.5).as_secs_f64() * 1e3,
        resident_mib_alive: density.resident_mib,
        resident_mib_before: density.before_mib,
        alive,
        alive_after_ms: density.alive_after.as_secs_f64() * 1e3,
        finished_after_ms: density.finished_after.as_secs_f64() * 1e3,
        episodes,
        python_episodes_per_s: python.map(|(took, _)| f64::from(episodes) / took.as_secs_f64()),
        python_instantiate_us_p50: python.map(|(_, middle)| middle.as_secs_f64() * 1e6),
    };
    output.result(&figures, flat)
}

pub(crate) async fn store(turns: u32, places: &Places, output: Output) -> Result<()> {
    let folder = places.store.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    let figures = bench(folder, BenchOptions { turns, ..BenchOptions::default() }).await?;
    output.result(&figures, flat)
}

/// One figure a row, under the names of the JSON form.
pub(crate) fn flat<T: Serialize>(figures: &T) -> String {
    let rows = match serde_json::to_value(figures) {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    table::text(
        ["figure", "value"],
        rows.into_iter().map(|(name, value)| {
            let value = match value.as_f64() {
                Some(number) if !value.is_u64() => format!("{number:.2}"),
                _ => value.to_string(),
            };
            [name, value]
        }),
    )
}

fn answer() -> Constant {
    Constant::new("bench", FixedReply::text("```python\n42\n```"))
}

struct Bench {
    runtime: Runtime,
    harness: Harness,
    harness_pin: PluginPin,
    reward: Reward,
    reward_pin: PluginPin,
}

struct Density {
    before_mib: f64,
    resident_mib: f64,
    alive_after: Duration,
    finished_after: Duration,
}

impl Bench {
    async fn new(host: &Host, harness: &str) -> Result<Self> {
        let found = host.find(harness, Kind::Harness)?;
        let scorer = host.find("exact-match", Kind::Reward)?;
        let (harness, _) = host.harness(&found).await?;
        let (reward, _) = host.reward(&scorer).await?;
        Ok(Self {
            runtime: host.runtime.clone(),
            harness,
            harness_pin: found.pin,
            reward,
            reward_pin: scorer.pin,
        })
    }

    fn equipment(
        &self,
        policy: Arc<dyn Policy>,
        concurrency: u32,
        rewarded: bool,
    ) -> Result<Equipment> {
        let task: Task = serde_json::from_value(serde_json::json!({
            "id": "bench", "input": "What is 6 times 7?", "grading": { "answer": "42" },
        }))?;
        Ok(Equipment {
            harness: (self.harness.clone(), "solve".to_owned()),
            rewards: if rewarded { vec![self.reward.clone()] } else { Vec::new() },
            runtime: self.runtime.clone(),
            programs: Programs::default(),
            gateway: scratch::gateway(policy, concurrency)?,
            tasks: vec![Arc::new(task)],
            store: None,
        })
    }

    /// How long 1,000 stores with an instance take to make, each.
    async fn instantiations(&self) -> Result<Vec<Duration>> {
        let mut samples = Vec::with_capacity(1000);
        for _ in 0..1000 {
            samples.push(self.harness.time_instantiation().await?);
        }
        Ok(samples)
    }

    /// How long so many episodes take with a durable trace and a reward.
    async fn durable(
        &self,
        policy: Arc<dyn Policy>,
        episodes: u32,
        places: &Places,
    ) -> Result<Duration> {
        let folder = places.store.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        let scratch = tempfile::tempdir_in(folder).context("no folder for a throw-away store")?;
        let store = Store::open(scratch.path().join("bench.sqlite"))?;
        self.run(policy, CONCURRENCY, episodes, Some(store), true).await
    }

    /// How long so many episodes take.
    async fn run(
        &self,
        policy: Arc<dyn Policy>,
        concurrency: u32,
        episodes: u32,
        store: Option<Store>,
        rewarded: bool,
    ) -> Result<Duration> {
        let mut equipment = self.equipment(policy, concurrency, rewarded)?;
        let plugin = self.reward_pin.clone();
        let reward = RewardPlan { plugin, weight: 1.0, config: Map::new() };
        let rewards = if rewarded { vec![reward] } else { Vec::new() };
        let plan = Arc::new(scratch::plan(self.harness_pin.clone(), rewards, concurrency));
        let queue = (0..episodes).map(|sample| EpisodeRef { task: 0, sample, attempt: 0 });
        if let Some(store) = store {
            let record = RunRecord::new(serde_json::json!({}), serde_json::json!({}));
            let run = record.id.clone();
            store.create_run(record).await?;
            let queued: Vec<_> = queue
                .clone()
                .map(|episode| QueuedEpisode { episode, task_id: "bench".to_owned() })
                .collect();
            store.queue_episodes(&run, &queued).await?;
            equipment.store = Some((store, run));
        }
        let (sender, mut results) = mpsc::channel(1024);
        let began = Instant::now();
        let running = tokio::spawn(run_episodes(
            plan,
            Arc::new(equipment),
            queue,
            Cancellation::new(),
            sender,
        ));
        let mut tally = Tally::default();
        while let Some(result) = results.recv().await {
            if !matches!(result.verdict, Verdict::Scored { .. } | Verdict::Unscored) {
                bail!("an episode of the measurement failed: {result:?}");
            }
            tally.add(&result);
        }
        running.await.context("the measurement ended unexpectedly")??;
        if tally.episodes() != u64::from(episodes) {
            bail!("{} of {episodes} episodes of the measurement ended", tally.episodes());
        }
        Ok(began.elapsed())
    }

    /// Memory with many episodes waiting in a model call.
    async fn density(&self, alive: u32) -> Result<Density> {
        let gate = Arc::new(Gate::new(Arc::new(answer())));
        let before_mib = resident_mib()?;
        let began = Instant::now();
        let run = self.run(Arc::clone(&gate) as Arc<dyn Policy>, alive, alive, None, false);
        let watch = async {
            gate.until_waiting(alive as usize).await;
            let alive_after = began.elapsed();
            let resident_mib = resident_mib();
            gate.release();
            (alive_after, resident_mib)
        };
        let (total, (alive_after, resident_mib)) = tokio::join!(run, watch);
        let finished_after = total?.saturating_sub(alive_after);
        Ok(Density { before_mib, resident_mib: resident_mib?, alive_after, finished_after })
    }
}

fn quantile(samples: &mut [Duration], share: f64) -> Duration {
    samples.sort_unstable();
    let last = samples.len().saturating_sub(1);
    let index = (share * last as f64).round() as usize;
    samples.get(index.min(last)).copied().unwrap_or_default()
}

fn resident_mib() -> Result<f64> {
    memory_mib("VmRSS")
}

/// A figure of this process's memory, by its name in `/proc/self/status`.
pub(crate) fn memory_mib(name: &str) -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status").context("cannot read /proc")?;
    status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().strip_suffix("kB"))
        .and_then(|kib| kib.trim().parse::<f64>().ok())
        .map(|kib| kib / 1024.0)
        .with_context(|| format!("/proc/self/status names no {name}"))
}
