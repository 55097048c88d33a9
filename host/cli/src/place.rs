//! Where things are kept on this machine.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::args::Global;

/// Folders of this user and project.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// Plugins: `$FULGURITE_HOME`, else `fulgurite` in the user's data folder.
    pub(crate) home: PathBuf,
    /// Compiled code and fetched files: `fulgurite` in the user's cache folder.
    pub(crate) cache: PathBuf,
    /// The project: the nearest folder upwards with a `fulgurite.toml`, `fulgurite.lock` or
    /// `.fulgurite`, else the current one.
    pub(crate) project: PathBuf,
    /// The trace store.
    pub(crate) store: PathBuf,
}

impl Places {
    pub(crate) fn find(global: &Global) -> Result<Self> {
        let here = std::env::current_dir().context("the current folder cannot be found")?;
        let project = project(&here);
        let variable = std::env::var_os("FULGURITE_HOME").filter(|home| !home.is_empty());
        let home = match global.home.clone().or(variable.map(PathBuf::from)) {
            Some(home) => home,
            None => user_folder("XDG_DATA_HOME", ".local/share")?,
        };
        let store = match &global.store {
            Some(store) => store.clone(),
            None => project.join(".fulgurite").join("traces.sqlite"),
        };
        Ok(Self { home, cache: user_folder("XDG_CACHE_HOME", ".cache")?, project, store })
    }

    /// Compiled code.
    pub(crate) fn compiled(&self) -> PathBuf {
        self.cache.join("compiled")
    }

    /// Files that set-up fetched.
    pub(crate) fn artifact(&self, name: &str) -> PathBuf {
        match std::env::var_os("FULGURITE_ARTIFACTS") {
            Some(folder) => Path::new(&folder).join(name),
            None => self.cache.join("artifacts").join(name),
        }
    }
}

fn project(here: &Path) -> PathBuf {
    let marks = ["fulgurite.toml", "fulgurite.lock", ".fulgurite"];
    here.ancestors()
        .find(|folder| marks.iter().any(|mark| folder.join(mark).exists()))
        .unwrap_or(here)
        .to_owned()
}

fn user_folder(variable: &str, fallback: &str) -> Result<PathBuf> {
    let folder = match std::env::var_os(variable).map(PathBuf::from) {
        // The XDG specification: relative paths are to be ignored.
        Some(folder) if folder.is_absolute() => folder,
        _ => {
            let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
            Path::new(&home.context("HOME is not set; set it, or pass --home")?).join(fallback)
        }
    };
    Ok(folder.join("fulgurite"))
}
