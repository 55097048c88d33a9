//! How fast the store is on this machine: figures for `fulgurite bench store`.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use serde::Serialize;
use tokio::task::{JoinError, JoinSet};

use super::{Store, StoreError, open::beside};
use crate::{
    Ending, EntryBody, EpisodeRef, EpisodeWriter, FailureKind, FinishReason, Message,
    QueuedEpisode, Role, RunRecord, RunStatus, SampledTokens, Score, Truncation, Turn, Usage,
    VersionSpan, entry::SegmentOrigin,
};

/// Token ids between the history and the reply, of every turn.
const CONTEXT_IDS: u32 = 512;
/// Sampled token ids with log-probabilities, of every turn.
const RESPONSE_IDS: u32 = 64;
/// Turns written one after another, and syncs, for the latencies.
const LONE: u32 = 200;
/// Different turns.
const STOCK: u32 = 64;

/// What to measure with.
#[derive(Debug, Clone, Copy)]
pub struct BenchOptions {
    /// Turns in all, spread over the tasks.
    pub turns: u32,
    /// Episodes that write at the same time; each waits for every turn of its own.
    pub tasks: u32,
    /// Whole episodes in all, spread over the tasks.
    pub episodes: u32,
}

impl Default for BenchOptions {
    fn default() -> Self {
        Self { turns: 60_000, tasks: 256, episodes: 8000 }
    }
}

/// The figures. A turn has 512 context ids, 64 sampled ids, 64 log-probabilities, and text to
/// match.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BenchFigures {
    /// Durable turns a second with many episodes at once.
    pub turns_per_s_durable: f64,
    /// Whole episodes a second, each durably started, with one turn, ended and scored.
    pub episodes_per_s_durable: f64,
    /// Milliseconds until a turn is durable when nobody else writes; the middle of many.
    pub lone_turn_ms_p50: f64,
    /// Milliseconds of one append of the same size and one `fsync` in the same folder.
    pub sync_ms_p50: f64,
    /// Bytes of the file for each turn.
    pub bytes_per_turn: f64,
    /// Turns that were measured.
    pub turns: u32,
    /// Episodes that wrote at the same time.
    pub tasks: u32,
}

/// Measures with a throw-away store in `folder`. Needs a runtime with more than one thread to
/// show what a run would see.
pub async fn bench(folder: &Path, options: BenchOptions) -> Result<BenchFigures, StoreError> {
    let path = folder.join(format!("bench-{}.sqlite", std::process::id()));
    let tidy = Tidy(path.clone());
    let tasks = options.tasks.max(1);
    let each = options.turns.div_ceil(tasks).max(1);

    let store = Store::open(&path)?;
    let run = prepared_run(&store, tasks + 1 + options.episodes).await?;
    // Making turns costs more than recording them, so it is done beforehand.
    let stock: Arc<[Turn]> = (0..STOCK).map(turn).collect();
    let begun = Instant::now();
    let mut writers = JoinSet::new();
    for task in 0..tasks {
        let (store, run, stock) = (store.clone(), run.clone(), Arc::clone(&stock));
        writers.spawn(async move {
            let writer = store.start_attempt(&run, EpisodeRef::first(task, 0)).await?;
            for index in 0..each {
                push(&writer, &stock, task, index);
                writer.commit().await?;
            }
            Ok(())
        });
    }
    finish(&path, writers).await?;
    let turn_seconds = begun.elapsed().as_secs_f64();

    let begun = Instant::now();
    let next = Arc::new(AtomicU32::new(tasks + 1));
    let mut writers = JoinSet::new();
    for _ in 0..tasks {
        let (store, run, stock) = (store.clone(), run.clone(), Arc::clone(&stock));
        let next = Arc::clone(&next);
        writers.spawn(async move {
            loop {
                let task = next.fetch_add(1, Ordering::Relaxed);
                if task > tasks + options.episodes {
                    return Ok(());
                }
                whole_episode(&store, &run, &stock, task).await?;
            }
        });
    }
    finish(&path, writers).await?;
    let episode_seconds = begun.elapsed().as_secs_f64();

    let lone = lone_turns(&store, &run, &stock, tasks).await?;
    let written = tasks * each;
    store.finish_run(&run, RunStatus::Finished).await?;
    drop(store);
    let bytes = fs::metadata(&path).map_err(|error| StoreError::of_io(&path, &error))?.len();
    let sync = syncs(&beside(&path, ".sync"))?;
    drop(tidy);
    Ok(BenchFigures {
        turns_per_s_durable: f64::from(written) / turn_seconds,
        episodes_per_s_durable: f64::from(options.episodes) / episode_seconds,
        lone_turn_ms_p50: middle(lone),
        sync_ms_p50: middle(sync),
        // Exact for any file that fits a disk.
        bytes_per_turn: bytes as f64 / f64::from(written + options.episodes + LONE),
        turns: written,
        tasks,
    })
}

async fn prepared_run(store: &Store, tasks: u32) -> Result<String, StoreError> {
    let record = RunRecord::new(serde_json::Value::Null, serde_json::Value::Null);
    let run = record.id.clone();
    store.create_run(record).await?;
    let episodes: Vec<_> = (0..tasks)
        .map(|task| QueuedEpisode {
            episode: EpisodeRef::first(task, 0),
            task_id: format!("bench/{task}"),
        })
        .collect();
    store.queue_episodes(&run, &episodes).await?;
    Ok(run)
}

async fn finish(
    path: &Path,
    mut writers: JoinSet<Result<(), StoreError>>,
) -> Result<(), StoreError> {
    while let Some(result) = writers.join_next().await {
        // A task that was cancelled or panicked takes the measurement with it.
        let io =
            |error: JoinError| StoreError::Io { path: path.to_owned(), detail: error.to_string() };
        result.map_err(io)??;
    }
    Ok(())
}

async fn whole_episode(
    store: &Store,
    run: &str,
    stock: &[Turn],
    task: u32,
) -> Result<(), StoreError> {
    let writer = store.start_attempt(run, EpisodeRef::first(task, 0)).await?;
    push(&writer, stock, task, 0);
    writer.commit().await?;
    let ending = Ending {
        kind: FailureKind::Completed,
        outcome: None,
        message: None,
        backtrace: Vec::new(),
        fuel_used: 0,
        virtual_ms: 0,
    };
    writer.end(ending, None, Vec::new()).await?;
    let score = Score {
        reward: "bench".to_owned(),
        weight: 1.0,
        total: 1.0,
        components: Vec::new(),
        turns: Vec::new(),
        notes: Vec::new(),
    };
    writer.score(vec![score], 1.0).await
}

async fn lone_turns(
    store: &Store,
    run: &str,
    stock: &[Turn],
    task: u32,
) -> Result<Vec<Duration>, StoreError> {
    let writer = store.start_attempt(run, EpisodeRef::first(task, 0)).await?;
    let mut times = Vec::new();
    for index in 0..LONE {
        let begun = Instant::now();
        push(&writer, stock, task, index);
        writer.commit().await?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

fn push(writer: &EpisodeWriter, stock: &[Turn], task: u32, index: u32) {
    // Neighbours in time write different turns.
    let at = usize::try_from((task.wrapping_mul(7) + index) % STOCK).unwrap_or(0);
    if let Some(turn) = stock.get(at) {
        let mut turn = turn.clone();
        turn.index = index;
        writer.push(EntryBody::Turn(Box::new(turn)));
    }
}

fn syncs(path: &Path) -> Result<Vec<Duration>, StoreError> {
    let io = |error| StoreError::of_io(path, &error);
    let mut file = File::create(path).map_err(io)?;
    let mut times = Vec::new();
    for _ in 0..LONE {
        let begun = Instant::now();
        file.write_all(&[7; 16 * 1024]).and_then(|()| file.sync_all()).map_err(io)?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

fn middle(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
}

/// A turn as a coding agent makes them. Ids and words are scattered, so that nothing compresses
/// better than it would in earnest.
fn turn(seed: u32) -> Turn {
    let mut state = u64::from(seed);
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut ids = |count: u32| -> Vec<u32> {
        (0..count).map(|_| u32::try_from(random() % 151_936).unwrap_or(0)).collect()
    };
    let (context, response) = (ids(CONTEXT_IDS), ids(RESPONSE_IDS));
    let text = |ids: &[u32]| -> String { ids.iter().map(|id| format!("{id:x} ")).collect() };
    let messages = vec![Message::text(Role::User, text(&context))];
    let reply = Message::text(Role::Assistant, text(&response));
    let log_probabilities = response.iter().map(|id| -(*id as f32) / 50_000.0).collect();
    Turn {
        index: 0,
        conversation: 0,
        segment: 0,
        origin: SegmentOrigin::Opened,
        agent: String::new(),
        model_role: "policy".to_owned(),
        tools: Vec::new(),
        messages,
        reply,
        finish: FinishReason::Stop,
        usage: Usage {
            prompt_tokens: u64::from(CONTEXT_IDS),
            cached_tokens: 0,
            completion_tokens: u64::from(RESPONSE_IDS),
        },
        tokens: Some(SampledTokens {
            context,
            response,
            log_probabilities,
            untruncated: Vec::new(),
            versions: vec![VersionSpan { start: 0, version: 0 }],
        }),
        temperature: 1.0,
        truncation: Truncation::default(),
        policy: "bench".to_owned(),
        latency_ms: 0,
        retries: 0,
    }
}

/// Removes the throw-away store, however the measurement ends.
struct Tidy(std::path::PathBuf);

impl Drop for Tidy {
    fn drop(&mut self) {
        for suffix in ["", "-wal", "-shm", ".lock", ".sync"] {
            // Most of them are gone already.
            let _ = fs::remove_file(beside(&self.0, suffix));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_small_measurement_gives_figures_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let options = BenchOptions { turns: 64, tasks: 8, episodes: 20 };
        let figures = bench(folder.path(), options).await.unwrap();
        assert!(figures.turns_per_s_durable > 0.0);
        assert!(figures.episodes_per_s_durable > 0.0);
        assert!(figures.lone_turn_ms_p50 > 0.0);
        assert!(figures.bytes_per_turn > f64::from(3 * CONTEXT_IDS));
        assert_eq!((figures.turns, figures.tasks), (64, 8));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
