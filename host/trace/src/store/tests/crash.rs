//! The power goes: for every chosen instant of a recorded workload, the disk is put together as
//! it may have been left, the store must open with everything that was acknowledged, and the run
//! must be resumed to its end with exactly what is missing.

use std::fs;

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
    AllQueued,
    Turns { task: u32, count: u32 },
    Reached { task: u32, state: State },
}

/// Promises, as they were made.
struct Promises {
    log: &'static Log,
    made: Mutex<Vec<Promise>>,
}

impl Promises {
    /// Notes one among what happened below.
    fn note(&self, promise: Promise) {
        let mut made = self.made.lock().unwrap();
        self.log.push(Event::Acknowledged(u32::try_from(made.len()).unwrap()));
        made.push(promise);
    }
}

/// A workload, as it was seen from below.
struct Recording {
    run: String,
    events: Vec<Event>,
    promises: Vec<Promise>,
}

/// Several episodes write at once, the store is closed and opened in between, and checkpoints
/// come often.
async fn record(vfs: &'static str, log: &'static Log, synchronous: &'static str) -> Recording {
    let folder = tempfile::tempdir().unwrap();
    let tuning =
        Tuning { vfs: Some(vfs), synchronous, checkpoint_bytes: 60_000, ..Tuning::default() };
    let options = StoreOptions { tuning, ..StoreOptions::default() };
    let promises = Arc::new(Promises { log, made: Mutex::default() });
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
                promises.note(Promise::AllQueued);
                id
            }
        };
        let mut tasks = tokio::task::JoinSet::new();
        for task in (0..EPISODES).filter(|task| task % 2 == half) {
            let writer = store.start_attempt(&run, EpisodeRef::first(task, 0)).await.unwrap();
            let promises = Arc::clone(&promises);
            tasks.spawn(async move {
                for index in 0..TURNS {
                    writer.push(EntryBody::Turn(Box::new(turn(task, index))));
                    writer.commit().await.unwrap();
                    promises.note(Promise::Turns { task, count: index + 1 });
                }
                let ending = example::ending(FailureKind::Completed);
                writer.end(ending, None, Vec::new()).await.unwrap();
                promises.note(Promise::Reached { task, state: State::Ended });
                writer.score(vec![example::score("r", 1.0)], 0.5).await.unwrap();
                promises.note(Promise::Reached { task, state: State::Scored });
            });
        }
        tasks.join_all().await;
    }
    let promises = promises.made.lock().unwrap().clone();
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
    async fn crash(&self, instant: usize, survivors: Survivors) -> Result<(), String> {
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
        self.all_kept(&store, events)?;
        self.resumed(&store).await?;
        // Nor does resuming lose anything.
        self.all_kept(&store, events)
    }

    fn all_kept(&self, store: &Store, events: &[Event]) -> Result<(), String> {
        events.iter().try_for_each(|event| match event {
            Event::Acknowledged(number) => self.kept(store, self.promises[*number as usize]),
            _ => Ok(()),
        })
    }

    /// Takes the run up again, as `fulgurite run --resume` does, and brings it to its end.
    async fn resumed(&self, store: &Store) -> Result<(), String> {
        let told = |error: StoreError| error.to_string();
        if store.run(&self.run).is_err() {
            // The power went before there was a run, and so before any promise.
            return Ok(());
        }
        let before = store.episodes(&self.run).map_err(told)?;
        let missing: Vec<EpisodeRef> = (0..EPISODES)
            .filter_map(|task| {
                let first = EpisodeRef::first(task, 0);
                let left = before.iter().find(|summary| summary.episode == first);
                match left.map(|summary| summary.state) {
                    Some(State::Scored) => None,
                    Some(State::Queued) | None => Some(first),
                    // What it did is not known to its end.
                    Some(_) => Some(first.next_attempt()),
                }
            })
            .collect();
        store.queue_episodes(&self.run, &episodes(EPISODES, 1)).await.map_err(told)?;
        let plan = store.resume_run(&self.run).await.map_err(told)?;
        let planned: Vec<EpisodeRef> = plan.missing.iter().map(|queued| queued.episode).collect();
        if planned != missing {
            return Err(format!("{missing:?} are missing, but {planned:?} were planned"));
        }
        for episode in planned {
            let writer = store.start_attempt(&self.run, episode).await.map_err(told)?;
            let ending = example::ending(FailureKind::Completed);
            writer.end(ending, None, Vec::new()).await.map_err(told)?;
            writer.score(vec![example::score("r", 1.0)], 1.0).await.map_err(told)?;
        }
        let after = store.episodes(&self.run).map_err(told)?;
        let scored = after.iter().filter(|summary| summary.state == State::Scored);
        let scored: Vec<u32> = scored.map(|summary| summary.episode.task).collect();
        if scored != (0..EPISODES).collect::<Vec<_>>() {
            return Err(format!("after resuming, {scored:?} are scored"));
        }
        Ok(())
    }

    fn kept(&self, store: &Store, promise: Promise) -> Result<(), String> {
        let broken = |detail: String| Err(format!("{promise:?} was broken: {detail}"));
        match promise {
            Promise::AllQueued => match store.episodes(&self.run) {
                Ok(queued) if queued.len() >= EPISODES as usize => Ok(()),
                Ok(queued) => broken(format!("{} episodes are left", queued.len())),
                Err(error) => broken(error.to_string()),
            },
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
                .await
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
    for instant in recording.instants(50) {
        if recording.crash(instant, Survivors::None).await.is_err() {
            return;
        }
    }
    panic!("`synchronous = normal` must be caught");
}
