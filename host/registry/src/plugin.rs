//! What is known of a plugin.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use fulgurite_trace::Digest;
use serde::{Deserialize, Serialize};

use crate::{Name, RegistryError, disk};

/// What a component can be used as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// An agent program.
    Harness,
    /// A scorer of finished episodes.
    Reward,
    /// A program for commands in the workspace.
    Program,
}

impl Kind {
    /// The name in files and texts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Harness => "harness",
            Self::Reward => "reward",
            Self::Program => "program",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// What whoever adds a component found in it. This room believes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// What it can be used as.
    pub kind: Kind,
    /// Anything else worth showing (its own name and version, the version of the contract).
    pub metadata: BTreeMap<String, String>,
}

/// Where a plugin is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// For one project. Goes before the user's.
    Project,
    /// For everything the user does.
    User,
}

impl fmt::Display for Scope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Project => "project",
            Self::User => "user",
        })
    }
}

/// How a name stands in the project's lock file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pinned {
    /// Not pinned.
    No,
    /// To what the name points to.
    Here,
    /// To something else.
    Elsewhere(Digest),
}

/// A registered name and what it points to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugin {
    /// The name.
    pub name: Name,
    /// What it can be used as.
    pub kind: Kind,
    /// Of the component's bytes.
    pub digest: Digest,
    /// Bytes.
    pub size: u64,
    /// What was told when it was added.
    pub metadata: BTreeMap<String, String>,
    /// Where it is registered.
    pub scope: Scope,
    /// The stored file.
    pub path: PathBuf,
    /// How the name stands in the project's lock file.
    pub pinned: Pinned,
    /// The project has a plugin of the same name, which goes first.
    pub shadowed: bool,
}

/// Where a resolved component comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A file that the user named.
    File,
    /// A registered name.
    Registered(Scope),
    /// The lock file, by digest.
    Pinned(Scope),
}

/// What `NAME|FILE` means here and now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The registered name, or the file's name as it was given.
    pub name: String,
    /// What it can be used as; not known of files.
    pub kind: Option<Kind>,
    /// Of the component's bytes.
    pub digest: Digest,
    /// Where they are.
    pub path: PathBuf,
    /// Where that comes from.
    pub source: Source,
}

impl Resolved {
    /// The bytes, compared with the digest: whatever happened to the file since.
    pub fn read(&self) -> Result<Vec<u8>, RegistryError> {
        let links = matches!(self.source, Source::File);
        let bytes = disk::read(&self.path, disk::MOST_COMPONENT_BYTES, links)?;
        let found = Digest::of(&bytes);
        if found == self.digest {
            return Ok(bytes);
        }
        Err(RegistryError::Changed {
            name: self.name.clone(),
            path: self.path.clone(),
            expected: self.digest,
            found,
        })
    }
}
