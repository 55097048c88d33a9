//! A process is killed while it writes, again and again: every turn it was told is durable is
//! there. The page cache survives a killed process; that the power may go as well is proven over
//! a file system that drops unsynced writes, beside the store's code.
//!
//! The child is this very test program, started again with a variable that says where to write.

// Clippy sees tests only inside `#[test]` functions.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
};

use fulgurite_trace::{
    Digest, Ending, EntryBody, EpisodeRef, FailureKind, FinishReason, Message, QueuedEpisode, Role,
    RunRecord, RunStatus, SampledTokens, State, Store, Truncation, Turn, Usage,
    entry::SegmentOrigin,
};

const VARIABLE: &str = "FULGURITE_TEST_KILL_STORE";
const EPISODES: u32 = 8;
const KILLS: u32 = 52;

fn turn(task: u32, index: u32) -> EntryBody {
    let response = (0..64).map(|id| id * 97 + task * 31 + index).collect();
    EntryBody::Turn(Box::new(Turn {
        index,
        conversation: 0,
        segment: 0,
        origin: SegmentOrigin::Opened,
        agent: String::new(),
        model_role: "policy".into(),
        tools: Vec::new(),
        messages: vec![Message::text(Role::User, format!("turn {index} of task {task}"))],
        reply: Message::text(Role::Assistant, "reply"),
        finish: FinishReason::Stop,
        usage: Usage { prompt_tokens: 3, cached_tokens: 0, completion_tokens: 64 },
        tokens: Some(SampledTokens { response, ..SampledTokens::default() }),
        temperature: 1.0,
        truncation: Truncation::default(),
        policy: "script".into(),
        latency_ms: 0,
        retries: 0,
    }))
}

/// The child: writes with several episodes at once and tells its parent, line by line, what is
/// durable. Without the variable it is no test at all.
#[test]
fn child() {
    let Ok(path) = std::env::var(VARIABLE) else { return };
    let tell = |words: String| {
        // One write for each line: lines of several threads do not mix.
        std::io::stdout().write_all(format!("\n@ {words}\n").as_bytes()).unwrap();
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let store = Store::open(path).unwrap();
        let record = RunRecord::new(serde_json::Value::Null, serde_json::Value::Null);
        let run = record.id.clone();
        store.create_run(record).await.unwrap();
        tell(format!("run {run}"));
        let queued: Vec<_> = (0..EPISODES)
            .map(|task| QueuedEpisode {
                episode: EpisodeRef::first(task, 0),
                task_id: task.to_string(),
            })
            .collect();
        store.queue_episodes(&run, &queued).await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..EPISODES {
            let writer = store.start_attempt(&run, EpisodeRef::first(task, 0)).await.unwrap();
            tasks.spawn(async move {
                // Every other episode ends soon; the rest writes until it is killed.
                let most = if task % 2 == 0 { 3 + task } else { u32::MAX };
                for index in 0..most {
                    writer.push(turn(task, index));
                    writer.commit().await.unwrap();
                    tell(format!("turn {task} {index}"));
                }
                let ending = Ending {
                    kind: FailureKind::Completed,
                    outcome: None,
                    message: None,
                    backtrace: Vec::new(),
                    fuel_used: 0,
                    virtual_ms: 0,
                };
                writer.end(ending, Some(Digest::of([])), Vec::new()).await.unwrap();
                writer.score(Vec::new(), f64::from(task)).await.unwrap();
                tell(format!("scored {task}"));
            });
        }
        tasks.join_all().await;
    });
}

/// What a child was told.
#[derive(Debug, Default)]
struct Told {
    run: Option<String>,
    turns: BTreeMap<u32, u32>,
    scored: Vec<u32>,
}

/// Starts a child, kills it once it told `lines` things, and reads on to what it had told by then.
fn kill_after(path: &Path, lines: u32) -> Told {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--nocapture"])
        .env(VARIABLE, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut told = Told::default();
    let mut seen = 0;
    if lines == 0 {
        child.kill().unwrap();
    }
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some(words) = line.strip_prefix("@ ") else { continue };
        let words: Vec<&str> = words.split(' ').collect();
        match words[..] {
            ["run", run] => told.run = Some(run.to_owned()),
            ["turn", task, index] => {
                told.turns.insert(task.parse().unwrap(), index.parse().unwrap());
            }
            ["scored", task] => told.scored.push(task.parse().unwrap()),
            // The last line of a killed child may be cut: it was not told.
            _ => {}
        }
        seen += 1;
        if seen == lines {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    told
}

fn check(store: &Store, told: &Told) {
    let Some(run) = &told.run else { return };
    assert_eq!(store.run(run).unwrap().status, RunStatus::Interrupted);
    for (task, last) in &told.turns {
        let entries = store.entries(run, EpisodeRef::first(*task, 0)).unwrap();
        assert!(entries.len() > *last as usize, "task {task}: turn {last} is lost");
        for (index, entry) in (0..).zip(entries) {
            assert_eq!(entry.sequence, index);
            assert_eq!(entry.body, turn(*task, index));
        }
    }
    for task in &told.scored {
        let summary = store.episode(run, EpisodeRef::first(*task, 0)).unwrap();
        assert_eq!((summary.state, summary.total), (State::Scored, Some(f64::from(*task))));
    }
    let plan = store.resume_plan(run).unwrap();
    let recorded: Vec<u32> = plan.recorded.iter().map(|summary| summary.episode.task).collect();
    assert!(told.scored.iter().all(|task| recorded.contains(task)), "{recorded:?}: {told:?}");
    let mut planned: Vec<u32> = plan.missing.iter().map(|queued| queued.episode.task).collect();
    assert!(told.turns.keys().all(|task| recorded.contains(task) || planned.contains(task)));
    planned.extend(&recorded);
    planned.sort_unstable();
    // They are queued at once, so there are all of them, each once, or none.
    let all: Vec<u32> = (0..EPISODES).collect();
    assert!(planned == all || planned.is_empty(), "{planned:?}");
}

/// Kills children that write to one store, at instants scattered over their lives.
fn kill_many(seed: u32) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("traces.sqlite");
    let mut everything = Vec::new();
    let mut random = seed;
    for number in 0..KILLS {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Some while they open the store, most under load.
        let lines = if number % 13 == 0 { 0 } else { 1 + (random >> 16) % 160 };
        let told = kill_after(&path, lines);
        let store = Store::open(&path).unwrap();
        check(&store, &told);
        everything.push(told);
    }
    let store = Store::open(&path).unwrap();
    store.check().unwrap();
    everything.iter().for_each(|told| check(&store, told));
    let turns: usize = everything.iter().map(|told| told.turns.len()).sum();
    assert!(turns > KILLS as usize, "children were killed under load");
}

#[test]
fn turns_that_were_acknowledged_outlive_their_process() {
    kill_many(1);
}

#[test]
fn and_so_do_those_of_another_store_meanwhile() {
    kill_many(2);
}
