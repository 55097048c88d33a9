//! The loop: it learns, ends when its budget does, carries groups over, and goes on from wherever
//! it was killed as if nothing had happened.

// Clippy sees tests only inside `#[test]` functions.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

mod support;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use fulgurite_model::{Packed, TokenScore};
use fulgurite_trace::{EpisodeRef, Timestamp};
use fulgurite_train::{
    Group, GroupEpisode, Learner, TrainSettings, Trainer,
    checkpoint::Checkpoints,
    group::NoVariance,
    learner::{Change, LearnerError, Loss},
    metrics::{self, Metrics, MetricsWriter},
    order::TaskOrder,
    run::{
        Budget, Counts, End, Ended, Episodes, EpisodesError, Event, Gathering, GroupRequest, Kept,
        Loop, Played, RunError, RunSettings, Save, Speaker, Validated, WarmSource, WarmStart,
    },
    schedule::Schedule,
};
use support::{QUESTIONS, Table, groups, play, share_right};
use tokio::sync::Notify;

/// The table as what samples and what is trained.
#[derive(Debug, Clone)]
struct Shared(Arc<Mutex<Table>>);

impl Shared {
    fn table(&self) -> Table {
        self.0.lock().unwrap().clone()
    }
}

impl Save for Shared {
    fn save(&self, folder: &Path) -> Result<(), LearnerError> {
        self.table().save(folder)
    }
}

impl Learner for Shared {
    fn vocabulary(&self) -> usize {
        self.0.lock().unwrap().vocabulary()
    }

    fn score(&self, packed: &Packed) -> Result<Vec<TokenScore>, LearnerError> {
        self.0.lock().unwrap().score(packed)
    }

    fn score_reference(&self, packed: &Packed) -> Result<Vec<TokenScore>, LearnerError> {
        self.0.lock().unwrap().score_reference(packed)
    }

    fn backward(&mut self, packed: &Packed, loss: &mut Loss<'_>) -> Result<(), LearnerError> {
        self.0.lock().unwrap().backward(packed, loss)
    }

    fn gradient_norm(&self) -> Result<f64, LearnerError> {
        self.0.lock().unwrap().gradient_norm()
    }

    fn update(&mut self, version: u64, change: &mut Change<'_>) -> Result<(), LearnerError> {
        self.0.lock().unwrap().update(version, change)
    }

    fn clear_gradients(&mut self) -> Result<(), LearnerError> {
        self.0.lock().unwrap().clear_gradients()
    }
}

/// What outlives a killed process: recorded episodes.
type Store = Arc<Mutex<BTreeMap<EpisodeRef, GroupEpisode>>>;

/// Plays with the table; at the call with the number `kill` the process is killed.
struct Source {
    table: Shared,
    store: Store,
    calls: AtomicU64,
    kill: Option<u64>,
    killed: Arc<Notify>,
    /// How often an episode was played and not found.
    played: Arc<Mutex<BTreeMap<EpisodeRef, u32>>>,
    /// Asked for in this order.
    asked: Arc<Mutex<Vec<(u32, Speaker)>>>,
    /// Groups of this task take longer.
    slow: Option<u32>,
    /// Groups of this task are never complete.
    endless: Option<u32>,
    gave_up: tokio::sync::Semaphore,
    /// All rewards are the same.
    flat: bool,
    fails: bool,
}

impl Source {
    async fn perhaps_die(&self) {
        if Some(self.calls.fetch_add(1, Ordering::SeqCst)) == self.kill {
            self.killed.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl Episodes for Source {
    async fn play(&self, request: GroupRequest, speaker: Speaker) -> Result<Played, EpisodesError> {
        if self.fails {
            return Err(EpisodesError::Failed("the disk is full".into()));
        }
        self.asked.lock().unwrap().push((request.task, speaker));
        if self.slow == Some(request.task) {
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        if self.endless == Some(request.task) {
            let _ = self.gave_up.acquire().await;
            return Err(EpisodesError::Stopped);
        }
        let mut episodes = Vec::new();
        for episode in request.episodes() {
            self.perhaps_die().await;
            let known = self.store.lock().unwrap().get(&episode).cloned();
            let mut outcome = known.unwrap_or_else(|| {
                *self.played.lock().unwrap().entry(episode).or_default() += 1;
                play(&self.table.table(), episode, 0.0, 7)
            });
            if self.flat {
                outcome.grade.as_mut().unwrap().total = 0.0;
            }
            self.store.lock().unwrap().insert(episode, outcome.clone());
            episodes.push(outcome);
        }
        let totals = episodes.iter().map(|episode| episode.grade.as_ref().unwrap().total);
        let counts = Counts {
            episodes: episodes.len() as u64,
            scored: episodes.len() as u64,
            reward: totals.sum(),
            sampled_tokens: 4 * episodes.len() as u64,
            ..Counts::default()
        };
        Ok(Played { request, group: Group { task: request.task, episodes }, counts })
    }

    async fn validate(&self, step: u64) -> Result<Option<Validated>, EpisodesError> {
        self.perhaps_die().await;
        let share = share_right(&groups(&self.table.table(), 32, 99, |_| 0.0));
        let counts = Counts { episodes: 1, scored: 1, reward: share, ..Counts::default() };
        Ok(Some(Validated { counts, run: format!("validation-{step}") }))
    }

    fn give_up(&self) {
        self.gave_up.close();
    }
}

/// A training, and what it leaves behind when its process dies.
struct Bench {
    folder: tempfile::TempDir,
    store: Store,
    settings: RunSettings,
    algorithm: TrainSettings,
    played: Arc<Mutex<BTreeMap<EpisodeRef, u32>>>,
    asked: Arc<Mutex<Vec<(u32, Speaker)>>>,
    slow: Option<u32>,
    endless: Option<u32>,
    flat: bool,
    fails: bool,
}

impl Bench {
    fn new(settings: RunSettings) -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            store: Store::default(),
            settings,
            algorithm: TrainSettings {
                max_gradient_norm: None,
                ..TrainSettings::new(Schedule::constant(0.1))
            },
            played: Arc::default(),
            asked: Arc::default(),
            slow: None,
            endless: None,
            flat: false,
            fails: false,
        }
    }

    /// A process that trains, killed at a call; what came of it unless it was killed.
    async fn process(
        &self,
        kill: Option<u64>,
        stop_after: Option<u64>,
    ) -> Option<Result<Ended<Shared>, RunError>> {
        let checkpoints = Checkpoints::open(&self.folder.path().join("checkpoints"), 2).unwrap();
        let checkpoint = checkpoints.latest().unwrap();
        let inspection = self.folder.path().join("inspection");
        let mut table = Table::new(1);
        let (trainer, order, kept) = match &checkpoint {
            None => (
                Trainer::new(self.algorithm.clone(), 0, inspection).unwrap(),
                TaskOrder::new(5, QUESTIONS),
                Kept::new("run".to_owned(), self.settings.group.episodes),
            ),
            Some(checkpoint) => {
                table.load(&checkpoint.folder, checkpoint.state.version);
                (
                    Trainer::resume(self.algorithm.clone(), checkpoint, inspection).unwrap(),
                    checkpoint.state.order,
                    Kept::read(&checkpoint.state).unwrap(),
                )
            }
        };
        let table = Shared(Arc::new(Mutex::new(table)));
        let killed = Arc::new(Notify::new());
        let episodes = Arc::new(Source {
            table: table.clone(),
            store: self.store.clone(),
            calls: AtomicU64::new(0),
            kill,
            killed: killed.clone(),
            played: self.played.clone(),
            asked: self.asked.clone(),
            slow: self.slow,
            endless: self.endless,
            gave_up: tokio::sync::Semaphore::new(0),
            flat: self.flat,
            fails: self.fails,
        });
        let lines = kept.lines;
        let training = Loop {
            trainer,
            learner: table,
            episodes,
            order,
            kept,
            settings: self.settings,
            checkpoints,
            metrics: MetricsWriter::open(self.folder.path(), lines, Timestamp(1)).unwrap(),
            cpu: || Duration::from_millis(3),
        };
        let steps = AtomicU64::new(0);
        let stop = || stop_after.is_some_and(|most| steps.load(Ordering::SeqCst) >= most);
        let run = training.run(stop, |event| {
            if let Event::Step { .. } = event {
                steps.fetch_add(1, Ordering::SeqCst);
            }
        });
        tokio::select! {
            ended = run => Some(ended),
            () = killed.notified() => None,
        }
    }

    async fn trains(&self) -> Ended<Shared> {
        self.process(None, None).await.unwrap().unwrap()
    }

    /// The numbers of each step that follow from the weights and episodes alone.
    fn numbers(&self) -> Vec<(u64, Metrics)> {
        let mut lines = metrics::read(self.folder.path()).unwrap();
        let repeats = |name: &str| !name.starts_with("time/") && !name.starts_with("speed/");
        for line in &mut lines {
            line.metrics.retain(|name, _| repeats(name));
        }
        lines.into_iter().map(|line| (line.step, line.metrics)).collect()
    }
}

fn settings(steps: u64) -> RunSettings {
    RunSettings {
        budget: Budget { steps: Some(steps), ..Budget::default() },
        group: Gathering { episodes: 4, groups: 2, active: None },
        warm_start: None,
        validate_every: 2,
        checkpoint_every: 1,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_learns_until_the_budget_ends() {
    let bench = Bench::new(RunSettings { validate_every: 50, ..settings(150) });
    let ended = bench.trains().await;
    assert_eq!((ended.end, ended.step), (End::Budget, 150));
    let lines = metrics::read(bench.folder.path()).unwrap();
    let validations: Vec<(u64, f64)> = lines
        .iter()
        .filter_map(|line| Some((line.step, *line.metrics.get("validation/reward")?)))
        .collect();
    assert_eq!(validations.iter().map(|one| one.0).collect::<Vec<_>>(), [0, 50, 100, 150]);
    assert!(validations[0].1 < 0.2 && validations[3].1 > 0.8, "{validations:?}");
    assert_eq!(ended.spent.episodes, 150 * 8 + 4);
    assert!(ended.spent.trained_tokens > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_where_the_wanted_reward_is_reached_or_tokens_are_used_up() {
    let budget = Budget { steps: Some(1000), reward: Some(0.5), ..Budget::default() };
    let bench = Bench::new(RunSettings { budget, ..settings(0) });
    let ended = bench.trains().await;
    assert_eq!(ended.end, End::Reward);
    assert!(ended.step < 1000);
    let again = bench.trains().await;
    assert_eq!((again.end, again.step), (End::Reward, ended.step), "good enough is good enough");
    let budget = Budget { tokens: Some(100), ..Budget::default() };
    let ended = Bench::new(RunSettings { budget, ..settings(0) }).trains().await;
    // 32 tokens a step.
    assert_eq!((ended.end, ended.step), (End::Budget, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_anywhere_it_goes_on_as_if_it_had_not_been() {
    let whole = Bench::new(settings(4));
    let expected = whole.trains().await.learner.table();
    let mut kill = 0;
    loop {
        let bench = Bench::new(settings(4));
        if bench.process(Some(kill), None).await.is_some() {
            break;
        }
        // Killed once more, in another place.
        bench.process(Some(3), None).await;
        let ended = bench.trains().await;
        assert_eq!(ended.learner.table().values, expected.values, "killed at {kill}");
        assert!(bench.numbers() == whole.numbers(), "killed at {kill}");
        assert_eq!(ended.step, 4);
        let most = bench.played.lock().unwrap().values().copied().max();
        assert_eq!(most, Some(1), "what was recorded is not played again; killed at {kill}");
        kill += 1;
    }
    assert!(kill >= 4 * 8 + 3, "every episode and every validation was a place to die: {kill}");
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_after_the_last_checkpoint_are_made_again() {
    let sparse = RunSettings { checkpoint_every: 3, ..settings(7) };
    let whole = Bench::new(sparse);
    let expected = whole.trains().await.learner.table();
    for kill in [20, 30, 45, 58] {
        let bench = Bench::new(sparse);
        assert!(bench.process(Some(kill), None).await.is_none());
        let ended = bench.trains().await;
        assert_eq!(ended.learner.table().values, expected.values, "killed at {kill}");
        assert!(bench.numbers() == whole.numbers(), "killed at {kill}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_it_goes_on_later() {
    let expected = Bench::new(settings(5)).trains().await.learner.table();
    let bench = Bench::new(settings(5));
    let ended = bench.process(None, Some(2)).await.unwrap().unwrap();
    assert_eq!((ended.end, ended.step), (End::Stopped, 2));
    let ended = bench.trains().await;
    assert_eq!((ended.end, ended.step), (End::Budget, 5));
    assert_eq!(ended.learner.table().values, expected.values);
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_that_are_slow_are_carried_over_updates_and_restarts() {
    let group = Gathering { episodes: 4, groups: 2, active: Some(4) };
    let mut bench = Bench::new(RunSettings { group, ..settings(12) });
    bench.slow = Some(0);
    let ended = bench.process(None, Some(6)).await.unwrap().unwrap();
    assert_eq!(ended.end, End::Stopped);
    let ended = bench.trains().await;
    assert_eq!(ended.step, 12);
    let lines = metrics::read(bench.folder.path()).unwrap();
    let oldest = lines.iter().filter_map(|line| line.metrics.get("age/max")).copied();
    assert!(oldest.fold(0.0, f64::max) >= 1.0, "no group was carried over an update");
    assert!(bench.played.lock().unwrap().values().all(|times| *times == 1));
    // Each step took two groups of four, none of them twice.
    let played: f64 = lines.iter().filter_map(|line| line.metrics.get("episodes/played")).sum();
    assert!((played - 12.0 * 8.0).abs() < 1e-9, "{played}");
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_that_no_update_takes_do_not_delay_the_end() {
    let group = Gathering { episodes: 4, groups: 2, active: Some(4) };
    let mut bench = Bench::new(RunSettings { group, ..settings(2) });
    bench.endless = Some(0);
    let ended = tokio::time::timeout(Duration::from_secs(60), bench.trains()).await.unwrap();
    assert_eq!((ended.end, ended.step), (End::Budget, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn asynchronous_training_learns_too() {
    let group = Gathering { episodes: 4, groups: 2, active: Some(4) };
    let bench = Bench::new(RunSettings { group, validate_every: 0, ..settings(150) });
    let ended = bench.trains().await;
    let share = share_right(&groups(&ended.learner.table(), 64, 3, |_| 0.0));
    assert!(share > 0.8, "{share}");
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_without_variance_are_sampled_again_or_end_training() {
    let mut bench = Bench::new(RunSettings { validate_every: 0, ..settings(1000) });
    bench.flat = true;
    bench.algorithm.groups.no_variance = NoVariance::Resample;
    let ended = bench.trains().await;
    assert_eq!((ended.end, ended.step), (End::Nothing, 50));
    let asked = bench.asked.lock().unwrap().clone();
    let tasks: Vec<u32> = asked.iter().map(|(task, _)| *task).collect();
    let (first, second) = (&tasks[..2], &tasks[2..4]);
    let sorted = |tasks: &[u32]| {
        let mut tasks = tasks.to_vec();
        tasks.sort_unstable();
        tasks
    };
    assert_eq!(sorted(first), sorted(second), "the same tasks come once more");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_steps_imitate_where_that_is_asked_for() {
    let warm = WarmStart { steps: 30, from: WarmSource::BestOf, keep: 1, least: 0.2, rate: None };
    let bench = Bench::new(RunSettings { warm_start: Some(warm), ..settings(30) });
    let ended = bench.trains().await;
    let share = share_right(&groups(&ended.learner.table(), 64, 3, |_| 0.0));
    assert!(share > 0.5, "{share}");
    let lines = metrics::read(bench.folder.path()).unwrap();
    assert!(lines.iter().all(|line| !line.metrics.contains_key("policy/ratio")));
    let warm =
        WarmStart { steps: 2, from: WarmSource::References, keep: 1, least: 0.0, rate: None };
    let bench = Bench::new(RunSettings { warm_start: Some(warm), ..settings(4) });
    bench.trains().await;
    let speakers: Vec<Speaker> = bench.asked.lock().unwrap().iter().map(|one| one.1).collect();
    assert_eq!(speakers[..4], [Speaker::References; 4]);
    assert_eq!(speakers[4..], [Speaker::Policy; 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_episodes_from_being_played_ends_training() {
    let mut bench = Bench::new(settings(4));
    bench.fails = true;
    let error = bench.process(None, None).await.unwrap().unwrap_err();
    let told = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    assert!(told.contains("disk is full"), "{told}");
}
