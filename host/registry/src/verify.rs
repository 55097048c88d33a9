//! Looking for changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use fulgurite_trace::Digest;

use crate::{Name, Pin, Registry, RegistryError, disk, store::Store};

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// A stored file is not what its digest says.
    Changed {
        /// The names that point to it.
        names: Vec<Name>,
        /// The file.
        path: PathBuf,
        /// What it should be.
        expected: Digest,
        /// What it is.
        found: Digest,
    },
    /// A stored file cannot be read.
    Unreadable {
        /// The names that point to it.
        names: Vec<Name>,
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A name points to a file that is gone.
    Missing {
        /// The names that point to it.
        names: Vec<Name>,
        /// Where it should be.
        path: PathBuf,
    },
    /// The lock file pins something else than what the name points to.
    PinDiffers {
        /// The name.
        name: Name,
        /// What it is pinned to.
        pinned: Digest,
        /// What it points to.
        registered: Digest,
    },
    /// The lock file pins something that no store has.
    PinNotFound {
        /// The name.
        name: Name,
        /// What it is pinned to.
        pinned: Digest,
    },
    /// Others than the user may change or own it.
    Exposed {
        /// The file or folder.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It does not belong into a store.
    Stray {
        /// What it is.
        path: PathBuf,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed { names, path, expected, found } => write!(
                formatter,
                "{} was changed: {} has the digest {found}, expected {expected}; add the right \
                 file again",
                Called(names),
                path.display()
            ),
            Self::Unreadable { names, path, reason } => write!(
                formatter,
                "{} cannot be read: {}: {reason}; add the file again",
                Called(names),
                path.display()
            ),
            Self::Missing { names, path } => write!(
                formatter,
                "{} is gone: {} does not exist; add the file again, or remove the name",
                Called(names),
                path.display()
            ),
            Self::PinDiffers { name, pinned, registered } => write!(
                formatter,
                "`{name}` is pinned to {pinned} by fulgurite.lock, but points to {registered}; \
                 runs use the pin; `fulgurite plugin pin {name}` moves it"
            ),
            Self::PinNotFound { name, pinned } => write!(
                formatter,
                "`{name}` is pinned to {pinned} by fulgurite.lock, which is not on this machine; \
                 add that very file"
            ),
            Self::Exposed { path, mode } => write!(
                formatter,
                "{} can be changed by others (mode {mode:03o}, or not owned by you); make it \
                 yours: chmod go-rwx",
                path.display()
            ),
            Self::Stray { path } => {
                write!(formatter, "{} does not belong there; move it away", path.display())
            }
        }
    }
}

struct Called<'a>(&'a [Name]);

impl fmt::Display for Called<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => formatter.write_str("a component without a name"),
            [first, rest @ ..] => {
                write!(formatter, "`{first}`")?;
                rest.iter().try_for_each(|name| write!(formatter, ", `{name}`"))
            }
        }
    }
}

/// What was looked at and what was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verification {
    /// Stored files that were read.
    pub components: usize,
    /// Names that were looked at.
    pub names: usize,
    /// Pins that were looked at.
    pub pins: usize,
    /// What is not as it should be. Empty: all is well.
    pub problems: Vec<Problem>,
}

impl Registry {
    /// Reads every stored file and compares it with its digest; compares names with files, pins
    /// with names, and looks at permissions. Changes nothing.
    pub fn verify(&self) -> Result<Verification, RegistryError> {
        let mut verification = Verification::default();
        for (_, store) in self.stores() {
            verification.store(store)?;
        }
        let pins = self.lock_file()?.pins;
        verification.pins = pins.len();
        for (name, Pin { digest: pinned, .. }) in pins {
            let registered = self.show(name.as_str()).ok().map(|plugin| plugin.digest);
            if !self.stores().iter().any(|(_, store)| store.has(&pinned)) {
                verification.problems.push(Problem::PinNotFound { name, pinned });
            } else if let Some(registered) = registered
                && registered != pinned
            {
                verification.problems.push(Problem::PinDiffers { name, pinned, registered });
            }
        }
        Ok(verification)
    }
}

impl Verification {
    fn store(&mut self, store: &Store) -> Result<(), RegistryError> {
        self.permissions(store.folder());
        self.permissions(&store.names_path());
        self.permissions(&store.components());
        let mut named = BTreeMap::<Digest, Vec<Name>>::new();
        for (name, pointer) in store.names()? {
            self.names += 1;
            named.entry(pointer.digest).or_default().push(name);
        }
        let stored = self.stored(&store.components())?;
        let all: BTreeSet<Digest> = named.keys().copied().chain(stored).collect();
        for expected in all {
            let names = named.remove(&expected).unwrap_or_default();
            self.component(store.path_of(&expected), names, expected);
        }
        Ok(())
    }

    /// The digests in the names of the files that are there.
    fn stored(&mut self, folder: &Path) -> Result<Vec<Digest>, RegistryError> {
        let mut digests = Vec::new();
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(digests),
            entries => entries.map_err(RegistryError::io("list", folder))?,
        };
        let mut strays = BTreeSet::new();
        for entry in entries {
            let entry = entry.map_err(RegistryError::io("list", folder))?;
            let name = entry.file_name();
            if disk::is_unfinished(&name) {
                continue;
            }
            let digest = name.to_str().and_then(|name| name.strip_suffix(".wasm"));
            match digest.and_then(|hex| hex.parse::<Digest>().ok()) {
                Some(digest) => digests.push(digest),
                None => {
                    strays.insert(entry.path());
                }
            }
        }
        self.problems.extend(strays.into_iter().map(|path| Problem::Stray { path }));
        Ok(digests)
    }

    fn component(&mut self, path: PathBuf, names: Vec<Name>, expected: Digest) {
        if fs::symlink_metadata(&path).is_err() {
            self.problems.push(Problem::Missing { names, path });
            return;
        }
        self.components += 1;
        self.permissions(&path);
        match disk::read(&path, disk::MOST_COMPONENT_BYTES, false) {
            Err(error) => {
                let reason = error.to_string();
                self.problems.push(Problem::Unreadable { names, path, reason });
            }
            Ok(bytes) => {
                let found = Digest::of(bytes);
                if found != expected {
                    self.problems.push(Problem::Changed { names, path, expected, found });
                }
            }
        }
    }

    /// Only the user may be able to change what the user runs.
    fn permissions(&mut self, path: &Path) {
        let Ok(metadata) = fs::symlink_metadata(path) else { return };
        let mode = metadata.mode() & 0o777;
        let foreign = metadata.uid() != nix::unistd::geteuid().as_raw();
        if !metadata.is_symlink() && (mode & 0o022 != 0 || foreign) {
            self.problems.push(Problem::Exposed { path: path.to_owned(), mode });
        }
    }
}
