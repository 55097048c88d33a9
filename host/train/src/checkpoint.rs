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

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use fulgurite_trace::Digest;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::Digest as _;

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

#[derive(PartialEq, Serialize, Deserialize)]
struct FileRecord {
    size: u64,
    digest: Digest,
}

impl Checkpoints {
    /// The checkpoints in `folder`, of which the newest `keep` (at least one) stay. What a killed
    /// process left half done is removed, so one run has one process at a time.
    pub fn open(folder: &Path, keep: usize) -> Result<Self, CheckpointError> {
        fs::create_dir_all(folder).map_err(failed("make", folder))?;
        for entry in fs::read_dir(folder).map_err(failed("list", folder))? {
            let path = entry.map_err(failed("list", folder))?.path();
            if is_half_done(&path) {
                remove(&path)?;
            }
        }
        Ok(Self { folder: folder.to_owned(), keep: keep.max(1) })
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

fn is_half_done(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with(".writing-") || name.starts_with(".removing-")
}

fn remove(path: &Path) -> Result<(), CheckpointError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(entry) if entry.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed.map_err(failed("remove", path))
}

fn write(path: &Path, data: &[u8]) -> Result<(), CheckpointError> {
    let written = File::create(path).and_then(|mut file| {
        file.write_all(data)?;
        file.sync_all()
    });
    written.map_err(failed("write", path))
}

/// Files of a folder and the folders in it, sorted.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(failed("list", &folder))? {
            let path = entry.map_err(failed("list", &folder))?.path();
            if path.is_dir() { &mut folders } else { &mut files }.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn sync_folders(folder: &Path) -> Result<(), CheckpointError> {
    for entry in fs::read_dir(folder).map_err(failed("list", folder))? {
        let path = entry.map_err(failed("list", folder))?.path();
        if path.is_dir() {
            sync_folders(&path)?;
        }
    }
    sync_folder(folder)
}

fn sync_folder(folder: &Path) -> Result<(), CheckpointError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("sync", folder))
}

fn relative(folder: &Path, path: &Path) -> String {
    let relative = path.strip_prefix(folder).unwrap_or(path);
    relative
        .components()
        .map(|part| part.as_os_str().to_string_lossy())
        .collect::<Vec<_>>()
        .join("/")
}

fn record(path: &Path) -> Result<FileRecord, CheckpointError> {
    let mut file = File::open(path).map_err(failed("open", path))?;
    let mut hasher = sha2::Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut size = 0_u64;
    loop {
        let count = file.read(&mut buffer).map_err(failed("read", path))?;
        let Some(part) = buffer.get(..count).filter(|part| !part.is_empty()) else { break };
        hasher.update(part);
        size = size.saturating_add(part.len() as u64);
    }
    Ok(FileRecord { size, digest: Digest::from_bytes(hasher.finalize().into()) })
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // Plain data with text keys always serialises.
    serde_json::to_vec_pretty(value).unwrap_or_default()
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, CheckpointError> {
    let data = fs::read(path).map_err(failed("read", path))?;
    serde_json::from_slice(&data).map_err(|error| damaged(path, error.to_string()))
}

fn failed<'a>(
    what: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> CheckpointError + 'a {
    move |error| CheckpointError::Io { what, path: path.to_owned(), error }
}

fn damaged(path: &Path, problem: String) -> CheckpointError {
    CheckpointError::Damaged { path: path.to_owned(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(step: u64) -> State {
        let order = TaskOrder::new(5, 10);
        State { step, version: step, updates: step, order, queue: serde_json::json!([step]) }
    }

    fn optimizer(step: u64) -> AdamW {
        let mut optimizer = AdamW::new(AdamWSettings::default());
        for _ in 0..step {
            let mut update = optimizer.begin(0.1, 1.0);
            update.apply("layers.0.weight", &mut [1.0, 2.0], &[0.1, -0.7], true).unwrap();
        }
        optimizer
    }

    fn save(checkpoints: &Checkpoints, step: u64) -> PathBuf {
        checkpoints
            .save(&state(step), &optimizer(step), |folder| {
                fs::create_dir(folder.join("adapter"))?;
                fs::write(folder.join("adapter/weights"), step.to_string())?;
                Ok(())
            })
            .unwrap()
    }

    #[test]
    fn what_is_saved_is_loaded_to_the_bit_and_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(folder.path(), 2).unwrap();
        assert_eq!(checkpoints.latest().unwrap(), None);
        for step in [1, 2, 9, 10] {
            save(&checkpoints, step);
        }
        let latest = checkpoints.latest().unwrap().unwrap();
        assert_eq!(latest.state, state(10));
        assert_eq!(latest.optimizer(AdamWSettings::default()).unwrap(), optimizer(10));
        assert_eq!(fs::read_to_string(latest.folder.join("adapter/weights")).unwrap(), "10");
        assert_eq!(fs::read_to_string(folder.path().join(LATEST)).unwrap(), "step-00000010");
        let mut names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["latest", "step-00000009", "step-00000010"]);
    }

    #[test]
    fn whatever_is_damaged_the_older_one_is_taken() {
        for name in [STATE, OPTIMIZER, MANIFEST, "adapter/weights"] {
            for way in 0..3 {
                let folder = tempfile::tempdir().unwrap();
                let checkpoints = Checkpoints::open(folder.path(), 3).unwrap();
                save(&checkpoints, 1);
                let newest = save(&checkpoints, 2);
                let path = newest.join(name);
                let mut data = fs::read(&path).unwrap();
                match way {
                    0 => fs::remove_file(&path).unwrap(),
                    1 => fs::write(&path, &data[..data.len() / 2]).unwrap(),
                    _ => {
                        let middle = data.len() / 2;
                        data[middle] ^= 1;
                        fs::write(&path, data).unwrap();
                    }
                }
                let latest = checkpoints.latest().unwrap().unwrap();
                assert_eq!(latest.state.step, 1, "{name} {way}");
                // The step is made once more.
                save(&checkpoints, 2);
                assert_eq!(checkpoints.latest().unwrap().unwrap().state.step, 2);
            }
        }
    }

    #[test]
    fn a_run_that_went_back_keeps_what_it_makes() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(folder.path(), 2).unwrap();
        for step in [3, 4, 5] {
            save(&checkpoints, step);
        }
        for step in [4, 5] {
            fs::remove_file(folder.path().join(format!("step-{step:08}")).join(STATE))
                .unwrap_or(());
        }
        save(&checkpoints, 3);
        assert_eq!(checkpoints.latest().unwrap().unwrap().state.step, 3);
        assert_eq!(checkpoints.steps().unwrap(), [3]);
    }

    #[test]
    fn nothing_whole_is_an_error_and_not_a_new_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(folder.path(), 3).unwrap();
        fs::write(save(&checkpoints, 1).join(STATE), "{}").unwrap();
        let error = checkpoints.latest().unwrap_err().to_string();
        assert!(error.contains("none of the 1 checkpoints"), "{error}");
    }

    #[test]
    fn weights_that_cannot_be_written_leave_what_was() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(folder.path(), 3).unwrap();
        save(&checkpoints, 1);
        let full = |_: &Path| Err("disk full".into());
        checkpoints.save(&state(2), &optimizer(2), full).unwrap_err();
        let again = Checkpoints::open(folder.path(), 3).unwrap();
        assert_eq!(again.latest().unwrap().unwrap().state.step, 1);
        assert!(!folder.path().join(".writing-step-00000002").exists());
    }
}
