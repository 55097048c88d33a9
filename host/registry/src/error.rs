//! What can go wrong, and how to mend it.

use std::{io, path::PathBuf};

use fulgurite_trace::Digest;

use crate::Kind;

/// Why something could not be done. Every text says how to mend it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// The operating system refuses.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was to be done.
        action: &'static str,
        /// To what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Not a name.
    #[error("`{name}` is not a plugin name: {reason}{}", suggest(suggestion.as_deref()))]
    InvalidName {
        /// What was given, shortened and escaped.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
        /// A name that would do.
        suggestion: Option<String>,
    },
    /// Nothing has that name.
    #[error("no plugin is called `{name}`{}", hint(nearest, *file_exists, name))]
    Unknown {
        /// What was asked for.
        name: String,
        /// The names most like it.
        nearest: Vec<String>,
        /// Whether the current folder has a file of that name with `.wasm`.
        file_exists: bool,
    },
    /// It is something else.
    #[error("`{name}` is a {is}, but a {wanted} is needed here; `fulgurite plugin list` shows all")]
    WrongKind {
        /// Its name.
        name: String,
        /// What it is.
        is: Kind,
        /// What was wanted.
        wanted: Kind,
    },
    /// The bytes are not those of the digest.
    #[error(
        "the file of `{name}` was changed: {} has the digest {found}, expected {expected}; add \
         the right file again (`fulgurite plugin add`)",
        path.display()
    )]
    Changed {
        /// Its name.
        name: String,
        /// The file.
        path: PathBuf,
        /// What it should be.
        expected: Digest,
        /// What it is.
        found: Digest,
    },
    /// The name is there, its file is not.
    #[error(
        "the file of `{name}` is gone: {} does not exist; add it again (`fulgurite plugin add`)",
        path.display()
    )]
    Missing {
        /// Its name.
        name: String,
        /// Where it should be.
        path: PathBuf,
    },
    /// The project pins a component that no store has.
    #[error(
        "{} pins `{name}` to {digest}, which is not on this machine\n  mend: add that very file \
         (`fulgurite plugin add FILE --name {name}`), or move the pin to what is registered \
         (`fulgurite plugin pin {name}`)",
        lock_file.display()
    )]
    PinNotFound {
        /// The name.
        name: String,
        /// What it is pinned to.
        digest: Digest,
        /// The lock file.
        lock_file: PathBuf,
    },
    /// A file of this program cannot be read.
    #[error("{} is damaged: {reason}; mend it, or move it away and add the plugins again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file of this program was written by a newer version.
    #[error(
        "{} has format {found}, this program knows {known}; use the newer fulgurite that wrote it",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest known one.
        known: u32,
    },
    /// Larger than a component can sensibly be.
    #[error("{} is too large: at most {most} bytes are read", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        most: u64,
    },
    /// A folder, pipe or device, or a link where none may be.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// What it is.
        path: PathBuf,
    },
    /// Another process holds the store.
    #[error(
        "another fulgurite has been changing the plugins for {seconds} s (it holds {}); wait for \
         it, or end it if it hangs",
        path.display()
    )]
    Busy {
        /// The lock.
        path: PathBuf,
        /// How long it was waited for.
        seconds: u64,
    },
}

fn suggest(suggestion: Option<&str>) -> String {
    suggestion.map(|name| format!("; try `{name}`")).unwrap_or_default()
}

fn hint(nearest: &[String], file_exists: bool, name: &str) -> String {
    if file_exists {
        return format!("; for the file in this folder, write `./{name}.wasm`");
    }
    match nearest {
        [] => "; `fulgurite plugin list` shows what is registered".to_owned(),
        names => format!("; did you mean `{}`?", names.join("` or `")),
    }
}

impl RegistryError {
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}
