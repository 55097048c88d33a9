//! Tests of the store over real files.

mod contents;
mod crash;
mod faulty;
mod journal;
mod life;
mod opening;

use tempfile::TempDir;

use super::*;
use crate::{FailureKind, example};

/// A fresh folder with a store and one run of two tasks with two samples each.
struct Scene {
    // Dropped in this order: the store closes before its folder goes.
    store: Store,
    run: String,
    folder: TempDir,
}

impl Scene {
    async fn new() -> Self {
        Self::with(StoreOptions::default()).await
    }

    async fn with(options: StoreOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open_with(folder.path().join("traces.sqlite"), options).unwrap();
        let run = begin_run(&store).await;
        Self { store, run, folder }
    }

    async fn start(&self, episode: EpisodeRef) -> EpisodeWriter {
        self.store.start_attempt(&self.run, episode).await.unwrap()
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("traces.sqlite")
    }

    /// Closes the store and opens it again.
    fn reopen(self) -> Self {
        let Self { store, run, folder } = self;
        drop(store);
        let store = Store::open(folder.path().join("traces.sqlite")).unwrap();
        Self { store, run, folder }
    }
}

async fn begin_run(store: &Store) -> String {
    let record = RunRecord::new(
        serde_json::json!({ "concurrency": 4, "pinned": true }),
        serde_json::json!({ "harness": "sha256:00", "limits": { "turns": 9, "fuel": 1 } }),
    );
    let run = record.id.clone();
    store.create_run(record).await.unwrap();
    store.queue_episodes(&run, &episodes(2, 2)).await.unwrap();
    run
}

fn episodes(tasks: u32, samples: u32) -> Vec<QueuedEpisode> {
    (0..tasks)
        .flat_map(|task| (0..samples).map(move |sample| (task, sample)))
        .map(|(task, sample)| QueuedEpisode {
            episode: EpisodeRef::first(task, sample),
            task_id: format!("task/{task}"),
        })
        .collect()
}
