//! Why the store refused or failed.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::{EpisodeRef, lifecycle::IllegalStep};

/// Why the store refused or failed. Each says what is wrong, where, and how to mend it. It can be
/// cloned because one failed batch answers everyone who waited for it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no store.
    #[error("there is no trace store at {path}; a run creates it", path = .path.display())]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A later version of the program wrote it.
    #[error(
        "the trace store {path} has schema version {found}, but this program knows only up to \
         {known}; use the newer program, or point this one at another store",
        path = .path.display()
    )]
    Newer {
        /// The store.
        path: PathBuf,
        /// Its schema version.
        found: u32,
        /// The newest version known here.
        known: u32,
    },
    /// The file is something else.
    #[error(
        "{path} is not a trace store ({detail}); point the program at another path or move the \
         file away",
        path = .path.display()
    )]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// What it looks like.
        detail: String,
    },
    /// The file is damaged.
    #[error(
        "the trace store {path} is damaged ({detail}); keep a copy, save what is readable with \
         `sqlite3 {path} .recover`, and begin a new store",
        path = .path.display()
    )]
    Corrupt {
        /// The store.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// Another process writes to it.
    #[error(
        "the trace store {path} is in use by {holder}; wait for it, stop it, or use another store",
        path = .path.display()
    )]
    Locked {
        /// The store.
        path: PathBuf,
        /// Who holds it, as far as known.
        holder: String,
    },
    /// No space is left.
    #[error(
        "the disk that holds the trace store {path} is full; everything acknowledged so far is \
         safe: free space and resume the run",
        path = .path.display()
    )]
    Full {
        /// The store.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("the trace store {path} cannot be used: {detail}", path = .path.display())]
    Io {
        /// The store.
        path: PathBuf,
        /// What the operating system said.
        detail: String,
    },
    /// It was opened for reading.
    #[error("the trace store {path} was opened for reading only", path = .path.display())]
    ReadOnly {
        /// The store.
        path: PathBuf,
    },
    /// An earlier write failed, and the store stopped there so that nothing is written behind a
    /// hole.
    #[error("the trace store stopped when an earlier write failed: {0}")]
    Stopped(Box<StoreError>),
    /// There is no such run.
    #[error("there is no run `{0}` in the store; `fulgurite trace list` shows those that are")]
    UnknownRun(String),
    /// A run of that id exists and is another one.
    #[error("there is another run `{0}` in the store already; give the new run another id")]
    RunExists(String),
    /// There is no such episode.
    #[error("run `{run}` has no episode with {episode}")]
    UnknownEpisode {
        /// The run.
        run: String,
        /// The episode.
        episode: EpisodeRef,
    },
    /// The run was not graded again that often.
    #[error(
        "run `{run}` has no grading {position}; `fulgurite trace show {run}` shows those there are"
    )]
    UnknownGrading {
        /// The run.
        run: String,
        /// The grading.
        position: u32,
    },
    /// An episode is already there for another task.
    #[error(
        "run `{run}`, {episode} is for task `{recorded}`, not `{asked}`: the task list changed \
         since the run began"
    )]
    OtherTask {
        /// The run.
        run: String,
        /// The episode.
        episode: EpisodeRef,
        /// The task in the store.
        recorded: String,
        /// The task asked for.
        asked: String,
    },
    /// The step is not in the transition table.
    #[error("run `{run}`, {episode}: {source}")]
    Illegal {
        /// The run.
        run: String,
        /// The episode.
        episode: EpisodeRef,
        /// What was asked, and where the attempt stands.
        source: IllegalStep,
    },
    /// Something was to be written to a journal after its end.
    #[error("run `{run}`, {episode}: the journal is closed")]
    JournalClosed {
        /// The run.
        run: String,
        /// The episode.
        episode: EpisodeRef,
    },
    /// A score is not a number.
    #[error("run `{run}`, {episode}: {what} is not finite")]
    NotFinite {
        /// The run.
        run: String,
        /// The episode.
        episode: EpisodeRef,
        /// Which number.
        what: String,
    },
}

impl StoreError {
    /// Whether only this request was refused; otherwise the store as a whole is unusable.
    pub const fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::UnknownRun(_)
                | Self::RunExists(_)
                | Self::UnknownEpisode { .. }
                | Self::UnknownGrading { .. }
                | Self::OtherTask { .. }
                | Self::Illegal { .. }
                | Self::JournalClosed { .. }
                | Self::NotFinite { .. }
        )
    }

    /// What SQLite's error means for the store at `path`.
    pub(crate) fn of_sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        let path = path.to_owned();
        let detail = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::Full { path },
            Some(ErrorCode::NotADatabase) => Self::NotAStore { path, detail },
            Some(ErrorCode::DatabaseCorrupt) => Self::Corrupt { path, detail },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Self::Locked { path, holder: "another program".to_owned() }
            }
            Some(_) => Self::Io { path, detail },
            // Not SQLite itself: a column of the wrong type, a missing row, text that is not
            // UTF-8. The program never writes such rows.
            None => Self::Corrupt { path, detail },
        }
    }

    /// What the operating system's error means for the store at `path`.
    pub(crate) fn of_io(path: &Path, error: &std::io::Error) -> Self {
        let path = path.to_owned();
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self::Full { path }
            }
            std::io::ErrorKind::PermissionDenied => Self::Io {
                path,
                detail: "permission denied; it must belong to the user who runs this program"
                    .to_owned(),
            },
            _ => Self::Io { path, detail: error.to_string() },
        }
    }
}
