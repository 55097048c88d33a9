//! Files and folders that are on the disk when a call returns, and what was written of them.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use fulgurite_trace::Digest;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::Digest as _;

use super::CheckpointError;

/// What a file has to be.
#[derive(PartialEq, Serialize, Deserialize)]
pub(super) struct FileRecord {
    size: u64,
    digest: Digest,
}

pub(super) fn is_half_done(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with(".writing-") || name.starts_with(".removing-")
}

pub(super) fn remove(path: &Path) -> Result<(), CheckpointError> {
    let removed = match fs::symlink_metadata(path) {
        Ok(entry) if entry.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed.map_err(failed("remove", path))
}

pub(super) fn write(path: &Path, data: &[u8]) -> Result<(), CheckpointError> {
    let written = File::create(path).and_then(|mut file| {
        file.write_all(data)?;
        file.sync_all()
    });
    written.map_err(failed("write", path))
}

/// Files of a folder and the folders in it, sorted.
pub(super) fn files_below(folder: &Path) -> Result<Vec<PathBuf>, CheckpointError> {
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

pub(super) fn sync_folders(folder: &Path) -> Result<(), CheckpointError> {
    for entry in fs::read_dir(folder).map_err(failed("list", folder))? {
        let path = entry.map_err(failed("list", folder))?.path();
        if path.is_dir() {
            sync_folders(&path)?;
        }
    }
    sync_folder(folder)
}

pub(super) fn sync_folder(folder: &Path) -> Result<(), CheckpointError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("sync", folder))
}

pub(super) fn relative(folder: &Path, path: &Path) -> String {
    let relative = path.strip_prefix(folder).unwrap_or(path);
    relative
        .components()
        .map(|part| part.as_os_str().to_string_lossy())
        .collect::<Vec<_>>()
        .join("/")
}

pub(super) fn record(path: &Path) -> Result<FileRecord, CheckpointError> {
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

pub(super) fn json(value: &impl Serialize) -> Vec<u8> {
    // Plain data with text keys always serialises.
    serde_json::to_vec_pretty(value).unwrap_or_default()
}

pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, CheckpointError> {
    let data = fs::read(path).map_err(failed("read", path))?;
    serde_json::from_slice(&data).map_err(|error| damaged(path, error.to_string()))
}

pub(super) fn failed<'a>(
    what: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> CheckpointError + 'a {
    move |error| CheckpointError::Io { what, path: path.to_owned(), error }
}

pub(super) fn damaged(path: &Path, problem: String) -> CheckpointError {
    CheckpointError::Damaged { path: path.to_owned(), problem }
}
