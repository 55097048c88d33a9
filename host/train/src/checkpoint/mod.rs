//! What a run needs to go on as if it had never stopped, on disk.
//!
//! A checkpoint is a folder `step-N`: the weights (written by whoever knows the model),
//! `optimizer.safetensors`, `state.json`, and `manifest.json` with size and SHA-256 of each of
//! them. It is written under another name, brought to the disk and then renamed, so that a
//! process killed at any instant leaves whole checkpoints only; one whose digests do not match
//! (a disk that lost writes, a file that someone edited) is passed over for an older one.
//! `latest` names the newest.
//!
//! Floating-point numbers live in safetensors only, where they are exact to the bit.

mod disk;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use self::disk::{
    FileRecord, damaged, failed, files_below, is_half_done, json, read_json, record, relative,
    remove, sync_folder, sync_folders, write,
};
use crate::{
    optimizer::{AdamW, AdamWSettings, Moments},
    order::TaskOrder,
    tensors,
};

const STATE: &str = "state.json";
const OPTIMIZER: &str = "optimizer.safetensors";
const MANIFEST: &str = "manifest.json";
const LATEST: &str = "latest";
const FORMAT: u32 = 1;

/// Where a run stands, besides weights and moments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Steps made.
    pub step: u64,
    /// The policy version that the weights are.
    pub version: u64,
    /// Updates that the optimizer made.
    pub updates: u64,
    /// Where the order of tasks stands. Its seed and counts are all the randomness that training
    /// has.
    pub order: TaskOrder,
    /// What the loop has in hand: unfinished groups, those carried over. Numbers in it should be
    /// whole; rewards and tokens are in the store of traces.
    pub queue: serde_json::Value,
}

/// A checkpoint could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The file system.
    #[error("cannot {what} {}: {error}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        error: io::Error,
    },
    /// Something is not what was written.
    #[error("{} is damaged: {problem}", path.display())]
    Damaged {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The weights.
    #[error("the weights cannot be written: {0}")]
    Weights(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// All checkpoints are damaged.
    #[error("none of the {count} checkpoints in {} is whole; the newest: {newest}", folder.display())]
    NoneWhole {
        /// Where they are.
        folder: PathBuf,
        /// How many.
        count: usize,
        /// What is wrong with the newest.
        newest: String,
    },
}

/// The checkpoints of a run.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    folder: PathBuf,
    keep: usize,
}

/// A whole checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// Its folder, which holds the weights too.
    pub folder: PathBuf,
    /// Where the run stands.
    pub state: State,
}

#[derive(Serialize, Deserialize)]
struct Manifest {
    format: u32,
    files: BTreeMap<String, FileRecord>,
}

impl Checkpoints {
    /// The checkpoints in `folder`, of which the newest `keep` (at least two) stay: while a step is
    /// written once more, the one before is what a kill leaves. What a killed process left half done is
    /// removed, so one run has one process at a time.
    pub fn open(folder: &Path, keep: usize) -> Result<Self, CheckpointError> {
        fs::create_dir_all(folder).map_err(failed("make", folder))?;
        for entry in fs::read_dir(folder).map_err(failed("list", folder))? {
            let path = entry.map_err(failed("list", folder))?.path();
            if is_half_done(&path) {
                remove(&path)?;
            }
        }
        Ok(Self { folder: folder.to_owned(), keep: keep.max(2) })
    }

    /// Writes a checkpoint; when this returns it is on the disk. `weights` writes the model's
    /// files into the folder it is given.
    pub fn save(
        &self,
        state: &State,
        optimizer: &AdamW,
        weights: impl FnOnce(&Path) -> Result<(), Box<dyn std::error::Error + Send + Sync>>,
    ) -> Result<PathBuf, CheckpointError> {
        let name = format!("step-{:08}", state.step);
        let target = self.folder.join(&name);
        let half = self.folder.join(format!(".writing-{name}"));
        remove(&half)?;
        fs::create_dir(&half).map_err(failed("make", &half))?;
        weights(&half).map_err(CheckpointError::Weights)?;
        save_moments(&half.join(OPTIMIZER), optimizer)?;
        write(&half.join(STATE), &json(state))?;
        let mut files = BTreeMap::new();
        for path in files_below(&half)? {
            File::open(&path).and_then(|file| file.sync_all()).map_err(failed("sync", &path))?;
            files.insert(relative(&half, &path), record(&path)?);
        }
        write(&half.join(MANIFEST), &json(&Manifest { format: FORMAT, files }))?;
        sync_folders(&half)?;
        // A step made once more after a damaged checkpoint takes its place.
        if target.exists() {
            let old = self.folder.join(format!(".removing-{name}"));
            remove(&old)?;
            fs::rename(&target, &old).map_err(failed("rename", &target))?;
        }
        fs::rename(&half, &target).map_err(failed("rename", &half))?;
        sync_folder(&self.folder)?;
        let pointer = self.folder.join(".writing-latest");
        write(&pointer, name.as_bytes())?;
        fs::rename(&pointer, self.folder.join(LATEST)).map_err(failed("rename", &pointer))?;
        sync_folder(&self.folder)?;
        self.prune(state.step)?;
        Ok(target)
    }

    /// The newest whole checkpoint; none when there are none at all.
    pub fn latest(&self) -> Result<Option<Checkpoint>, CheckpointError> {
        let mut steps = self.steps()?;
        steps.sort_unstable();
        let mut newest = None;
        for step in steps.iter().rev() {
            let folder = self.folder.join(format!("step-{step:08}"));
            match Checkpoint::load(&folder) {
                Ok(checkpoint) => return Ok(Some(checkpoint)),
                Err(error) => {
                    tracing::warn!(%error, "a checkpoint is passed over");
                    newest.get_or_insert(error.to_string());
                }
            }
        }
        match newest {
            None => Ok(None),
            Some(newest) => {
                let (folder, count) = (self.folder.clone(), steps.len());
                Err(CheckpointError::NoneWhole { folder, count, newest })
            }
        }
    }

    fn steps(&self) -> Result<Vec<u64>, CheckpointError> {
        let mut steps = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(failed("list", &self.folder))? {
            let name = entry.map_err(failed("list", &self.folder))?.file_name();
            let step = name.to_str().and_then(|name| name.strip_prefix("step-"));
            steps.extend(step.and_then(|step| step.parse::<u64>().ok()));
        }
        Ok(steps)
    }

    /// Removes what is too old, and later steps than the one just made: a run only goes back to
    /// an earlier step when those are damaged.
    fn prune(&self, current: u64) -> Result<(), CheckpointError> {
        let (mut steps, later): (Vec<u64>, Vec<u64>) =
            self.steps()?.into_iter().partition(|step| *step <= current);
        steps.sort_unstable();
        let surplus = steps.len().saturating_sub(self.keep);
        for step in steps.iter().take(surplus).chain(&later) {
            let name = format!("step-{step:08}");
            let (folder, old) =
                (self.folder.join(&name), self.folder.join(format!(".removing-{name}")));
            fs::rename(&folder, &old).map_err(failed("rename", &folder))?;
            remove(&old)?;
        }
        let replaced = fs::read_dir(&self.folder).map_err(failed("list", &self.folder))?;
        for entry in replaced {
            let path = entry.map_err(failed("list", &self.folder))?.path();
            if is_half_done(&path) {
                remove(&path)?;
            }
        }
        Ok(())
    }
}

impl Checkpoint {
    /// Reads a checkpoint and holds every file against its digest.
    pub fn load(folder: &Path) -> Result<Self, CheckpointError> {
        let manifest: Manifest = read_json(&folder.join(MANIFEST))?;
        if manifest.format != FORMAT {
            return Err(damaged(folder, format!("its format {} is not known", manifest.format)));
        }
        for (name, expected) in &manifest.files {
            let path = folder.join(name);
            if record(&path)? != *expected {
                return Err(damaged(&path, "its digest is not the recorded one".to_owned()));
            }
        }
        for name in [STATE, OPTIMIZER] {
            if !manifest.files.contains_key(name) {
                return Err(damaged(folder, format!("the manifest lacks {name}")));
            }
        }
        Ok(Self { folder: folder.to_owned(), state: read_json(&folder.join(STATE))? })
    }

    /// The optimizer as it was.
    pub fn optimizer(&self, settings: AdamWSettings) -> Result<AdamW, CheckpointError> {
        let path = self.folder.join(OPTIMIZER);
        let mut moments: BTreeMap<String, Moments> = BTreeMap::new();
        for (name, values) in tensors::read(&path).map_err(|problem| damaged(&path, problem))? {
            if let Some(name) = name.strip_prefix("first.") {
                moments.entry(name.to_owned()).or_default().first = values;
            } else if let Some(name) = name.strip_prefix("second.") {
                moments.entry(name.to_owned()).or_default().second = values;
            } else {
                return Err(damaged(&path, format!("`{name}` is no moment")));
            }
        }
        if let Some((name, _)) =
            moments.iter().find(|(_, moments)| moments.first.len() != moments.second.len())
        {
            return Err(damaged(&path, format!("the moments of `{name}` differ in length")));
        }
        Ok(AdamW { settings, step: self.state.updates, moments })
    }
}

fn save_moments(path: &Path, optimizer: &AdamW) -> Result<(), CheckpointError> {
    let first = optimizer.moments.iter().map(|(name, m)| (format!("first.{name}"), &*m.first));
    let second = optimizer.moments.iter().map(|(name, m)| (format!("second.{name}"), &*m.second));
    tensors::write(path, first.chain(second)).map_err(failed("write", path))
}

#[cfg(test)]
mod tests;
