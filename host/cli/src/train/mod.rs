//! `fulgurite train`: episodes, samples, updates, validation and checkpoints from one file.

mod config;
mod player;
mod report;
mod trainee;
mod watch;

use std::{fs::File, path::Path, sync::Arc};

use anyhow::{Context as _, Result, bail};
use fulgurite_episode::{
    dataset,
    plan::{Plan, SamplingPlan, TasksPin},
};
use fulgurite_policy::{Oracle, Policy, Tutor};
use fulgurite_runtime::clock::Cancellation;
use fulgurite_trace::{RunStatus, Store, Task, Timestamp};
use fulgurite_train::{
    Trainer,
    checkpoint::{Checkpoint, Checkpoints},
    metrics::MetricsWriter,
    order::TaskOrder,
    run::{End, Kept, Loop, MOST_EMPTY_STEPS, Spent, WarmSource},
};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::{
    args, exit,
    output::Output,
    place::Places,
    run::{
        cpu_time,
        equip::{self, Equipped},
        listen, record,
    },
};
use config::TrainConfig;
use player::{Cast, Left, Player};
use trainee::Trainee;
use watch::Watch;

/// Trains what the configuration describes, from the beginning or from the last checkpoint.
pub(crate) async fn run(flags: &args::Train, places: &Places, output: Output) -> Result<()> {
    let config = TrainConfig::read(flags)?;
    let _lock = lock(&config.output)?;
    let checkpoints =
        Checkpoints::open(&config.output.join("checkpoints"), config.keep_checkpoints)?;
    let checkpoint = checkpoints.latest()?;
    match &checkpoint {
        Some(_) if !flags.resume => bail!(exit::Usage(format!(
            "{} holds a training already\n  mend: go on with it by --resume, or name another \
             `output`",
            config.output.display()
        ))),
        None if flags.resume => {
            output.remark("nothing to resume yet: training starts from the beginning");
        }
        _ => {}
    }
    let opened = {
        let (config, checkpoint) = (config.clone(), checkpoint.clone());
        tokio::task::spawn_blocking(move || Trainee::open(&config, checkpoint.as_ref()))
    };
    let Trainee { policy, learner } = opened.await.context("the model could not be opened")??;
    let policy: Arc<dyn Policy> = policy;
    let mut equipped =
        equip::equip(config.episodes(), Some(Arc::clone(&policy)), places, output).await?;
    equipped.plan.training = Some(config.output.clone());
    let store = Store::open(&places.store)?;
    let (kept, left) = begin(&config, checkpoint.as_ref(), &store, &equipped.plan).await?;
    let step = checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.state.step);
    if step > 0 {
        output.remark(format_args!("going on after step {step}"));
    }
    let order = match &checkpoint {
        Some(checkpoint) => checkpoint.state.order,
        None => TaskOrder::new(config.seed, equipped.plan.tasks.count),
    };
    let trainer = trainer(&config, checkpoint.as_ref())?;
    let metrics = MetricsWriter::open(&config.output, kept.lines, Timestamp::now())
        .with_context(|| format!("cannot write the metrics in {}", config.output.display()))?;
    let stop = Cancellation::new();
    let how = flags.going_on();
    let listening = tokio::spawn(listen(stop.clone(), how.clone(), output));
    let run = kept.run.clone();
    let player = player(&config, equipped, &policy, (store.clone(), run.clone()), left, &stop)?;
    let mut watch = Watch::new(&config, step, kept.spent.wall(), output);
    let training = Loop {
        trainer,
        learner,
        episodes: Arc::new(player),
        order,
        kept,
        settings: config.run(),
        checkpoints: checkpoints.clone(),
        metrics,
        cpu: cpu_time,
    };
    let ended = training.run(|| stop.is_cancelled(), |event| watch.tell(&event)).await;
    watch.finish();
    let status = match &ended {
        Ok(ended) if ended.end != End::Stopped => RunStatus::Finished,
        _ => RunStatus::Interrupted,
    };
    let recorded = store.finish_run(&run, status).await;
    let ended = ended.map_err(|error| {
        anyhow::Error::new(error)
            .context(format!("training stopped; the last checkpoint is whole, go on with: {how}"))
    })?;
    recorded?;
    let latest = checkpoints.latest()?.context("no checkpoint was written")?;
    let exported = trainee::export(&config, &latest.folder, ended.learner.model())?;
    listening.abort();
    let told = report::Told { run: &run, config: &config, exported: &exported };
    report::show(&told, &ended, output)?;
    if ended.end == End::Stopped {
        bail!(exit::Interrupted(format!("training was stopped; go on with: {how}")));
    }
    if ended.end == End::Nothing {
        bail!(
            "{MOST_EMPTY_STEPS} steps in a row had nothing to learn from: every group was dropped\n  \
             mend: see `dropped/…` in the metrics; a task that always or never passes teaches \
             nothing, more episodes a group or a reward with parts may help"
        );
    }
    let Spent { dropped, alarms, .. } = ended.spent;
    if dropped > 0 || alarms > 0 {
        bail!(exit::Episodes(format!(
            "training has ended, but not all episodes count: {dropped} dropped (the infrastructure \
             failed), {alarms} broken (a reward, or a harness before it reached the model)\n  mend: \
             look at them with: fulgurite trace list {run}"
        )));
    }
    Ok(())
}

/// One process at a time trains into a folder. Held until the file is closed, however the process
/// ends.
fn lock(output: &Path) -> Result<File> {
    let place = || format!("cannot write in {}", output.display());
    std::fs::create_dir_all(output).with_context(place)?;
    let file = File::create(output.join(".lock")).with_context(place)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => bail!(exit::Usage(format!(
            "another process trains into {}\n  mend: wait for it, or name another `output`",
            output.display()
        ))),
        Err(std::fs::TryLockError::Error(error)) => Err(error).with_context(place),
    }
}

/// The run that episodes are recorded in: a new one, or that of the checkpoint.
async fn begin(
    config: &TrainConfig,
    checkpoint: Option<&Checkpoint>,
    store: &Store,
    plan: &Plan,
) -> Result<(Kept, Left)> {
    let Some(checkpoint) = checkpoint else {
        let run = record(store, plan).await?;
        let kept = Kept::new(run, config.group.episodes);
        return Ok((kept, Left::default()));
    };
    let kept = Kept::read(&checkpoint.state)?;
    let recorded: Plan = serde_json::from_value(store.run(&kept.run)?.record.plan)
        .with_context(|| format!("the plan of run {} cannot be read", kept.run))?;
    let changed = changed(&recorded.pinned(), &plan.pinned());
    if !changed.is_empty() {
        bail!(exit::Usage(format!(
            "the training began with other values of: {}\n  mend: restore them, or train into \
             another folder",
            changed.join(", ")
        )));
    }
    let left = Left::of(&store.resume_run(&kept.run).await?);
    Ok((kept, left))
}

/// Names of what differs between two plans.
fn changed(before: &Value, now: &Value) -> Vec<String> {
    // It may be named from another folder; what it calls itself tells models apart.
    let same = ["policy"];
    let Some(before) = before.as_object() else { return Vec::new() };
    let differs = |name: &str| before.get(name) != now.get(name) && !same.contains(&name);
    let shown = |name: &str| match name {
        "policy_name" => "`policy`".to_owned(),
        _ => format!("`{name}`"),
    };
    let mut names: Vec<String> =
        before.keys().filter(|name| differs(name)).map(|name| shown(name)).collect();
    names.sort_unstable();
    names
}

fn trainer(config: &TrainConfig, checkpoint: Option<&Checkpoint>) -> Result<Trainer> {
    let (settings, inspection) = (config.algorithm.clone(), config.output.join("inspection"));
    Ok(match checkpoint {
        Some(checkpoint) => Trainer::resume(settings, checkpoint, inspection)?,
        None => Trainer::new(settings, 0, inspection)?,
    })
}

fn player(
    config: &TrainConfig,
    equipped: Equipped,
    policy: &Arc<dyn Policy>,
    (store, run): (Store, String),
    left: Left,
    stop: &Cancellation,
) -> Result<Player> {
    let validation = validation(config, &equipped, policy)?;
    let in_store = |mut equipped: Equipped| {
        equipped.equipment.store = Some((store.clone(), run.clone()));
        Cast::new(equipped)
    };
    let wants_references =
        config.run().warm_start.is_some_and(|warm| warm.from == WarmSource::References);
    let references = if wants_references {
        let tasks = &equipped.equipment.tasks;
        equip::check_references(tasks, &equipped.equipment.harness.1)?;
        let tutor = Tutor::of(&**policy, Oracle::new(tasks.iter().map(AsRef::as_ref)));
        let tutor: Arc<dyn Policy> =
            Arc::new(tutor.context("references need a policy with tokens")?);
        let by = equipped.by(equipped.plan.clone(), tasks.clone(), &tutor)?;
        Some(in_store(by))
    } else {
        None
    };
    let room = Semaphore::new(usize::try_from(config.concurrency).unwrap_or(usize::MAX));
    Ok(Player {
        training: in_store(equipped),
        references,
        validation,
        version: policy.version(),
        policy: Arc::clone(policy),
        rows: config.rows.clone(),
        left,
        room,
        stop: stop.clone(),
        store,
        run,
    })
}

/// The held-out tasks, with their own sampling.
fn validation(
    config: &TrainConfig,
    equipped: &Equipped,
    policy: &Arc<dyn Policy>,
) -> Result<Option<Equipped>> {
    let Some(path) = &config.validation else { return Ok(None) };
    let dataset = dataset::read(path, false)?;
    let plan = Plan {
        tasks: TasksPin {
            path: path.canonicalize().unwrap_or_else(|_| path.clone()),
            digest: dataset.digest,
            count: u32::try_from(dataset.tasks.len()).context("too many tasks")?,
            skip_bad: false,
        },
        sampling: SamplingPlan {
            temperature: config.validation_temperature(),
            truncation: fulgurite_trace::Truncation::default(),
            ..equipped.plan.sampling
        },
        samples: config.validation_samples,
        ..equipped.plan.clone()
    };
    let tasks: Vec<Arc<Task>> = dataset.tasks.into_iter().map(Arc::new).collect();
    Ok(Some(equipped.by(plan, tasks, policy)?))
}
