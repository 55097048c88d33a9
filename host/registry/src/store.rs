//! One folder of components and names.
//!
//! ```text
//! names.toml          names and what they point to
//! sha256/DIGEST.wasm  components
//! lock                held by whoever writes
//! ```

use std::{
    collections::BTreeMap,
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use fulgurite_trace::Digest;
use serde::{Deserialize, Serialize};

use crate::{Description, Kind, Name, RegistryError, disk};

const FORMAT: u32 = 1;

/// One store.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    folder: PathBuf,
}

/// What a name points to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pointer {
    pub(crate) kind: Kind,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) metadata: BTreeMap<String, String>,
}

pub(crate) type Names = BTreeMap<Name, Pointer>;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamesFile {
    format: u32,
    #[serde(default)]
    plugin: Names,
}

impl Store {
    pub(crate) const fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn components(&self) -> PathBuf {
        self.folder.join("sha256")
    }

    pub(crate) fn names_path(&self) -> PathBuf {
        self.folder.join("names.toml")
    }

    pub(crate) fn path_of(&self, digest: &Digest) -> PathBuf {
        self.components().join(format!("{}.wasm", digest.hex()))
    }

    /// Whether there is a file for the digest; its bytes are another matter.
    pub(crate) fn has(&self, digest: &Digest) -> bool {
        fs::symlink_metadata(self.path_of(digest)).is_ok_and(|file| file.is_file())
    }

    pub(crate) fn names(&self) -> Result<Names, RegistryError> {
        let path = self.names_path();
        let Some(text) = disk::read_text(&path)? else { return Ok(Names::new()) };
        let file = parse_versioned::<NamesFile>(&path, &text, "format", FORMAT)?;
        Ok(file.plugin)
    }

    fn save(&self, plugin: Names) -> Result<(), RegistryError> {
        let path = self.names_path();
        let text = toml::to_string(&NamesFile { format: FORMAT, plugin });
        let text = text.map_err(|error| RegistryError::Damaged {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        disk::write(&path, text.as_bytes(), true)
    }

    /// Stores the bytes and has the name point to them. Answers what it pointed to before.
    pub(crate) fn add(
        &self,
        name: &Name,
        bytes: &[u8],
        description: Description,
    ) -> Result<(Pointer, Option<Pointer>), RegistryError> {
        let _turn = self.take_turn()?;
        let mut names = self.names()?;
        let digest = Digest::of(bytes);
        self.put(&digest, bytes)?;
        let Description { kind, metadata } = description;
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let pointer = Pointer { kind, digest, size, metadata };
        let before = names.insert(name.clone(), pointer.clone());
        if before.as_ref() != Some(&pointer) {
            self.save(names)?;
        }
        Ok((pointer, before))
    }

    /// Stores the bytes under no name.
    pub(crate) fn keep(&self, digest: &Digest, bytes: &[u8]) -> Result<(), RegistryError> {
        let _turn = self.take_turn()?;
        self.put(digest, bytes)
    }

    /// Only in one's turn.
    fn put(&self, digest: &Digest, bytes: &[u8]) -> Result<(), RegistryError> {
        let path = self.path_of(digest);
        // A stored file that was changed is mended by adding the right one.
        let stored = disk::read(&path, disk::MOST_COMPONENT_BYTES, false);
        if stored.is_ok_and(|stored| stored == bytes) {
            return Ok(());
        }
        disk::write(&path, bytes, true)
    }

    /// Removes components that no name points to and `needed` does not want. Answers what is
    /// gone, with its bytes.
    pub(crate) fn prune(
        &self,
        needed: impl Fn(&Digest) -> bool,
    ) -> Result<Vec<(Digest, u64)>, RegistryError> {
        if !self.components().is_dir() {
            return Ok(Vec::new());
        }
        let _turn = self.take_turn()?;
        let names = self.names()?;
        let folder = self.components();
        let mut gone = Vec::new();
        let failed = |action| RegistryError::io(action, &folder);
        for entry in fs::read_dir(&folder).map_err(failed("list"))? {
            let entry = entry.map_err(failed("list"))?;
            let name = entry.file_name();
            let hex = name.to_str().and_then(|name| name.strip_suffix(".wasm"));
            let Some(digest) = hex.and_then(|hex| hex.parse::<Digest>().ok()) else { continue };
            if names.values().any(|pointer| pointer.digest == digest) || needed(&digest) {
                continue;
            }
            let size = entry.metadata().map_or(0, |metadata| metadata.len());
            fs::remove_file(entry.path()).map_err(RegistryError::io("remove", entry.path()))?;
            gone.push((digest, size));
        }
        gone.sort();
        disk::sync_folder(&folder)?;
        Ok(gone)
    }

    /// Takes the name away, and the component when no other name points to it and `keep` does
    /// not want it. Answers whether the component is gone, too; none when there is no such name.
    pub(crate) fn remove(
        &self,
        name: &Name,
        keep: impl FnOnce(&Digest) -> bool,
    ) -> Result<Option<(Pointer, bool)>, RegistryError> {
        let _turn = self.take_turn()?;
        let mut names = self.names()?;
        let Some(pointer) = names.remove(name) else { return Ok(None) };
        let digest = pointer.digest;
        let needed = names.values().any(|other| other.digest == digest) || keep(&digest);
        self.save(names)?;
        if needed {
            return Ok(Some((pointer, false)));
        }
        let path = self.path_of(&digest);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(RegistryError::Io { action: "remove", path, source: error })
            }
            _ => {
                disk::sync_folder(&self.components())?;
                Ok(Some((pointer, true)))
            }
        }
    }

    fn take_turn(&self) -> Result<disk::Turn, RegistryError> {
        let turn = disk::take_turn(&self.folder)?;
        disk::create_folder(&self.components())?;
        disk::remove_unfinished(&self.folder);
        disk::remove_unfinished(&self.components());
        Ok(turn)
    }
}

/// Reads TOML that carries its format's number under `key`. The number is judged first: a file of
/// a newer version is no damaged file.
pub(crate) fn parse_versioned<T: serde::de::DeserializeOwned>(
    path: &Path,
    text: &str,
    key: &str,
    known: u32,
) -> Result<T, RegistryError> {
    let damaged = |reason: String| RegistryError::Damaged { path: path.to_owned(), reason };
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| damaged(error.to_string().trim_end().to_owned()))?;
    let found = table.get(key).and_then(toml::Value::as_integer);
    let found = found.and_then(|found| u32::try_from(found).ok());
    match found {
        None => return Err(damaged(format!("it has no valid `{key}` number"))),
        Some(found) if found > known => {
            return Err(RegistryError::Newer { path: path.to_owned(), found, known });
        }
        Some(_) => {}
    }
    toml::from_str(text).map_err(|error| damaged(error.to_string().trim_end().to_owned()))
}
