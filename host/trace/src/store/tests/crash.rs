//! The power goes: for every chosen instant of a recorded workload, the disk is put together as
//! it may have been left, and the store must open with everything that was acknowledged.

use std::{
    collections::BTreeMap,
    fs,
    sync::atomic::{AtomicU32, Ordering},
};

use super::{
    faulty::{Event, Log, Survivors, disk_after},
    *,
};
use crate::{EntryBody, State};

const FILE: &str = "traces.sqlite";
const EPISODES: u32 = 6;
const TURNS: u32 = 12;

/// What an acknowledgement promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Promise {
    Turns { task: u32, count: u32 },
    Reached { task: u32, state: State },
}

/// A workload, as it was seen from below.
struct Recording {
    run: String,
    events: Vec<Event>,
    promises: BTreeMap<u32, Promise>,
}

/// Several episodes write at once, the store is closed and opened in between, and checkpoints
/// come often.
async fn record(vfs: &'static str, log: &'static Log, synchronous: &'static str) -> Recording {
    let folder = tempfile::tempdir().unwrap();
    let tuning =
        Tuning { vfs: Some(vfs), synchronous, checkpoint_bytes: 60_000, ..Tuning::default() };
    let options = StoreOptions { tuning, ..StoreOptions::default() };
    let promises: Arc<Mutex<BTreeMap<u32, Promise>>> = Arc::default();
    let next = Arc::new(AtomicU32::new(0));
    let mut run = None;
    for half in 0..2 {
        let store = Store::open_with(folder.path().join(FILE), options.clone()).unwrap();
        let run = match &run {
            Some(run) => String::clone(run),
            None => {
                let record = RunRecord::new(serde_json::Value::Null, serde_json::Value::Null);
                run = Some(record.id.clone());
                let id = record.id.clone();
                store.create_run(record).await.unwrap();
                store.queue_episodes(&id, &episodes(EPISODES, 1)).await.unwrap();
                id
            }
        };
        let mut tasks = tokio::task::JoinSet::new();
        for task in (0..EPISODES).filter(|task| task % 2 == half) {
            let writer = store.start_attempt(&run, EpisodeRef::first(task, 0)).await.unwrap();
            let (promises, next) = (Arc::clone(&promises), Arc::clone(&next));
            tasks.spawn(async move {
                let promise = |promise| {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    promises.lock().unwrap().insert(number, promise);
                    log.push(Event::Acknowledged(number));
                };
                for index in 0..TURNS {
                    writer.push(EntryBody::Turn(Box::new(turn(task, index))));
                    writer.commit().await.unwrap();
                    promise(Promise::Turns { task, count: index + 1 });
                }
                let ending = example::ending(FailureKind::Completed);
                writer.end(ending, None, Vec::new()).await.unwrap();
                promise(Promise::Reached { task, state: State::Ended });
                writer.score(vec![example::score("r", 1.0)], 0.5).await.unwrap();
                promise(Promise::Reached { task, state: State::Scored });
            });
        }
        tasks.join_all().await;
    }
    let promises = promises.lock().unwrap().clone();
    Recording { run: run.unwrap(), events: log.events(), promises }
}

fn turn(task: u32, index: u32) -> crate::Turn {
    let mut turn = example::turn(index, &format!("turn {index} of task {task}"));
    turn.tokens.as_mut().unwrap().context =
        (0..400).map(|id: u32| id.wrapping_mul(2_654_435_761) ^ task << 8 ^ index).collect();
    turn
}

impl Recording {
    /// What went wrong when the power goes before event number `instant`.
    fn crash(&self, instant: usize, survivors: Survivors) -> Result<(), String> {
        let events = &self.events[..instant];
        // The disk after the crash is made up already: memory does for it, and needs no syncs.
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        for (name, bytes) in disk_after(events, survivors) {
            if name == FILE || name.starts_with(&format!("{FILE}-")) {
                fs::write(folder.path().join(name), bytes).unwrap();
            }
        }
        let store = Store::open(folder.path().join(FILE)).map_err(|error| error.to_string())?;
        store.check().map_err(|error| error.to_string())?;
        for event in events {
            let Event::Acknowledged(number) = event else { continue };
            self.kept(&store, self.promises[number])?;
        }
        Ok(())
    }

    fn kept(&self, store: &Store, promise: Promise) -> Result<(), String> {
        let broken = |detail: String| Err(format!("{promise:?} was broken: {detail}"));
        match promise {
            Promise::Turns { task, count } => {
                let entries = match store.entries(&self.run, EpisodeRef::first(task, 0)) {
                    Ok(entries) => entries,
                    Err(error) => return broken(error.to_string()),
                };
                if entries.len() < count as usize {
                    return broken(format!("{} turns are left", entries.len()));
                }
                for (index, entry) in (0..).zip(entries) {
                    let expected = EntryBody::Turn(Box::new(turn(task, index)));
                    if entry.sequence != index || entry.body != expected {
                        return broken(format!("turn {index} is another"));
                    }
                }
                Ok(())
            }
            Promise::Reached { task, state } => {
                match store.episode(&self.run, EpisodeRef::first(task, 0)) {
                    Ok(summary) if summary.state >= state => Ok(()),
                    Ok(summary) => broken(format!("it is {}", summary.state)),
                    Err(error) => broken(error.to_string()),
                }
            }
        }
    }

    /// Instants right before and after syncs and acknowledgements, and some in between.
    fn instants(&self, every: usize) -> Vec<usize> {
        let edge = |event: &Event| matches!(event, Event::Sync { .. } | Event::Acknowledged(_));
        let mut instants: Vec<usize> = self
            .events
            .iter()
            .enumerate()
            .filter(|(at, event)| edge(event) || at % every == 0)
            .flat_map(|(at, _)| [at, at + 1])
            .collect();
        instants.dedup();
        instants
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_power_goes() {
    let (vfs, log) = faulty::register("faulty-full");
    let recording = record(vfs, log, "full").await;
    let instants = recording.instants(9);
    let checkpoints = |event: &&Event| matches!(event, Event::Sync { file } if file == FILE);
    assert!(recording.events.iter().filter(checkpoints).count() > 3, "checkpoints are covered");
    assert!(instants.len() > 150, "{} instants", instants.len());
    let mut tried = 0;
    for (number, instant) in (0_u64..).zip(&instants) {
        // Every instant loses everything unsynced; the other two kinds of disk take turns.
        let other = if number % 4 == 0 {
            Survivors::All
        } else {
            Survivors::Some(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        };
        for survivors in [Survivors::None, other] {
            recording
                .crash(*instant, survivors)
                .unwrap_or_else(|error| panic!("before event {instant}, {survivors:?}: {error}"));
            tried += 1;
        }
    }
    assert!(tried > 300);
}

/// The test above must be able to fail: without a sync at each commit it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_check_catches_a_store_that_syncs_too_late() {
    let (vfs, log) = faulty::register("faulty-normal");
    let recording = record(vfs, log, "normal").await;
    let lost = recording
        .instants(50)
        .into_iter()
        .any(|instant| recording.crash(instant, Survivors::None).is_err());
    assert!(lost, "`synchronous = normal` must be caught");
}
