//! The user's and the project's plugins, seen together.

use std::path::{Path, PathBuf};

use fulgurite_trace::Digest;

use crate::{
    Description, Kind, LockFile, Name, Pin, Pinned, Plugin, RegistryError, Resolved, Scope, Source,
    disk,
    name::nearest,
    store::{Pointer, Store},
};

/// The user's and the project's plugins. Holds no state: every call reads what is on the disk, so
/// several processes may work at once.
#[derive(Debug, Clone)]
pub struct Registry {
    pub(crate) project: Store,
    pub(crate) user: Store,
    project_folder: PathBuf,
}

/// A plugin was added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// As it is registered now.
    pub plugin: Plugin,
    /// What the name pointed to before, if it was something else.
    pub replaced: Option<Digest>,
}

/// A name was taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Removed {
    /// Where it was registered.
    pub scope: Scope,
    /// What it pointed to.
    pub digest: Digest,
    /// Whether the component is gone, too: no other name pointed to it and the project does not
    /// pin it.
    pub component_removed: bool,
    /// Whether the project's lock file still pins the name.
    pub still_pinned: bool,
}

impl Registry {
    /// The registry of a user (whose store is `plugins` below `user_folder`) at work in a project
    /// (whose store is `.fulgurite/plugins`, and whose lock file is `fulgurite.lock`). Folders are
    /// made when something is written.
    pub fn new(user_folder: impl AsRef<Path>, project_folder: impl Into<PathBuf>) -> Self {
        let project_folder = project_folder.into();
        Self {
            user: Store::new(user_folder.as_ref().join("plugins")),
            project: Store::new(project_folder.join(".fulgurite").join("plugins")),
            project_folder,
        }
    }

    /// Where the project's lock file is, or would be.
    pub fn lock_path(&self) -> PathBuf {
        self.project_folder.join("fulgurite.lock")
    }

    /// The project's pins.
    pub fn lock_file(&self) -> Result<LockFile, RegistryError> {
        LockFile::load(&self.lock_path())
    }

    /// Stores a component and has the name point to it. Pins stay as they are: see
    /// [`Self::pin`].
    pub fn add(
        &self,
        scope: Scope,
        name: &Name,
        bytes: &[u8],
        description: Description,
    ) -> Result<Added, RegistryError> {
        // What can fail without it fails before anything is written.
        let lock = self.lock_file()?;
        let shadowed = scope == Scope::User && self.project.names()?.contains_key(name);
        let (pointer, before) = self.store(scope).add(name, bytes, description)?;
        let replaced =
            before.map(|before| before.digest).filter(|digest| *digest != pointer.digest);
        let plugin = self.plugin(scope, name.clone(), pointer, &lock, shadowed);
        Ok(Added { plugin, replaced })
    }

    /// [`Self::add`] for a file.
    pub fn add_file(
        &self,
        scope: Scope,
        name: &Name,
        file: &Path,
        description: Description,
    ) -> Result<Added, RegistryError> {
        let bytes = disk::read(file, disk::MOST_COMPONENT_BYTES, true)?;
        self.add(scope, name, &bytes, description)
    }

    /// Keeps a component in the project's store under no name, so that what a run pinned stays
    /// when the file it came from is built anew.
    pub fn keep(&self, bytes: &[u8]) -> Result<Digest, RegistryError> {
        let digest = Digest::of(bytes);
        if self.component(&digest).is_none_or(|kept| kept.read().is_err()) {
            self.project.keep(&digest, bytes)?;
        }
        Ok(digest)
    }

    /// The stored component of a digest, whatever its names are, if any.
    pub fn component(&self, digest: &Digest) -> Option<Resolved> {
        let (scope, store) = self.stores().into_iter().find(|(_, store)| store.has(digest))?;
        Some(Resolved {
            name: digest.short(),
            kind: None,
            digest: *digest,
            path: store.path_of(digest),
            source: Source::Pinned(scope),
        })
    }

    /// Removes the project's components that have no name, no pin, and that `needed` does not
    /// want. Answers the digests and bytes of those that are gone.
    pub fn prune(
        &self,
        needed: impl Fn(&Digest) -> bool,
    ) -> Result<Vec<(Digest, u64)>, RegistryError> {
        let lock = self.lock_file()?;
        let pinned = |digest: &Digest| lock.pins.values().any(|pin| pin.digest == *digest);
        self.project.prune(|digest| pinned(digest) || needed(digest))
    }

    /// All plugins, sorted by name; of equal names the project's first.
    pub fn list(&self) -> Result<Vec<Plugin>, RegistryError> {
        let lock = self.lock_file()?;
        let (project, user) = (self.project.names()?, self.user.names()?);
        let users = user.into_iter().map(|(name, pointer)| {
            let shadowed = project.contains_key(&name);
            self.plugin(Scope::User, name, pointer, &lock, shadowed)
        });
        let mut plugins: Vec<Plugin> = users.collect();
        plugins.extend(
            project
                .into_iter()
                .map(|(name, pointer)| self.plugin(Scope::Project, name, pointer, &lock, false)),
        );
        plugins.sort_by(|one, other| (&one.name, one.scope).cmp(&(&other.name, other.scope)));
        Ok(plugins)
    }

    /// The plugin of that name; the project's, if both have one.
    pub fn show(&self, name: &str) -> Result<Plugin, RegistryError> {
        let found = self.list()?.into_iter().find(|plugin| plugin.name.as_str() == name);
        found.map_or_else(|| Err(self.unknown(name)), Ok)
    }

    /// What `NAME|FILE` means. Text with a `/`, or that ends in `.wasm`, is a file. A pinned name
    /// means its pin, any other name what it points to, the project's before the user's.
    pub fn resolve(&self, text: &str, wanted: Option<Kind>) -> Result<Resolved, RegistryError> {
        if is_file(text) {
            return resolve_file(text);
        }
        let name: Name = text.parse()?;
        let resolved = match self.lock_file()?.pins.get(&name) {
            Some(pin) => self.resolve_pin(&name, *pin)?,
            None => self.resolve_name(&name)?,
        };
        match (resolved.kind, wanted) {
            (Some(is), Some(wanted)) if is != wanted => {
                Err(RegistryError::WrongKind { name: resolved.name, is, wanted })
            }
            _ => Ok(resolved),
        }
    }

    fn resolve_pin(&self, name: &Name, pin: Pin) -> Result<Resolved, RegistryError> {
        let Pin { kind, digest } = pin;
        let (scope, store) =
            self.stores().into_iter().find(|(_, store)| store.has(&digest)).ok_or_else(|| {
                RegistryError::PinNotFound {
                    name: name.to_string(),
                    digest,
                    lock_file: self.lock_path(),
                }
            })?;
        Ok(Resolved {
            name: name.to_string(),
            kind: Some(kind),
            digest,
            path: store.path_of(&digest),
            source: Source::Pinned(scope),
        })
    }

    fn resolve_name(&self, name: &Name) -> Result<Resolved, RegistryError> {
        let plugin = self.show(name.as_str())?;
        if !self.store(plugin.scope).has(&plugin.digest) {
            return Err(RegistryError::Missing { name: name.to_string(), path: plugin.path });
        }
        Ok(Resolved {
            name: plugin.name.into(),
            kind: Some(plugin.kind),
            digest: plugin.digest,
            path: plugin.path,
            source: Source::Registered(plugin.scope),
        })
    }

    /// Pins names to what they point to now, also when they were pinned to something else. All or
    /// none.
    pub fn pin(&self, names: &[Name]) -> Result<LockFile, RegistryError> {
        self.change_pins(|lock| {
            for name in names {
                let Plugin { kind, digest, .. } = self.show(name.as_str())?;
                lock.pins.insert(name.clone(), Pin { kind, digest });
            }
            Ok(())
        })
    }

    /// Pins what a run resolved: names without a pin get one, files cannot be pinned and are
    /// passed over.
    pub fn pin_resolved(&self, resolved: &[Resolved]) -> Result<LockFile, RegistryError> {
        let named = |plugin: &&Resolved| matches!(plugin.source, Source::Registered(_));
        if !resolved.iter().any(|plugin| named(&plugin)) {
            return self.lock_file();
        }
        self.change_pins(|lock| {
            for plugin in resolved.iter().filter(named) {
                if let Some(kind) = plugin.kind {
                    let pin = Pin { kind, digest: plugin.digest };
                    lock.pins.entry(plugin.name.parse()?).or_insert(pin);
                }
            }
            Ok(())
        })
    }

    /// Forgets the pin of a name; false when there was none.
    pub fn unpin(&self, name: &Name) -> Result<bool, RegistryError> {
        let mut found = false;
        self.change_pins(|lock| {
            found = lock.pins.remove(name).is_some();
            Ok(())
        })?;
        Ok(found)
    }

    fn change_pins(
        &self,
        change: impl FnOnce(&mut LockFile) -> Result<(), RegistryError>,
    ) -> Result<LockFile, RegistryError> {
        let _turn = disk::take_turn(&self.project_folder.join(".fulgurite"))?;
        let before = self.lock_file()?;
        let mut after = before.clone();
        change(&mut after)?;
        // An unchanged file keeps its time and its owner's formatting.
        if after != before {
            after.save(&self.lock_path())?;
        }
        Ok(after)
    }

    /// Takes a name away: the project's, if both have one. A component that the project pins
    /// stays. Pins of other projects are not known here; they would ask for the file again.
    pub fn remove(&self, name: &Name) -> Result<Removed, RegistryError> {
        let lock = self.lock_file()?;
        for (scope, store) in self.stores() {
            if !store.names()?.contains_key(name) {
                continue;
            }
            let pinned = |digest: &Digest| lock.pins.values().any(|pin| pin.digest == *digest);
            if let Some((pointer, component_removed)) = store.remove(name, pinned)? {
                return Ok(Removed {
                    scope,
                    digest: pointer.digest,
                    component_removed,
                    still_pinned: lock.pins.contains_key(name),
                });
            }
        }
        Err(self.unknown(name.as_str()))
    }

    pub(crate) fn stores(&self) -> [(Scope, &Store); 2] {
        [(Scope::Project, &self.project), (Scope::User, &self.user)]
    }

    const fn store(&self, scope: Scope) -> &Store {
        match scope {
            Scope::Project => &self.project,
            Scope::User => &self.user,
        }
    }

    fn plugin(
        &self,
        scope: Scope,
        name: Name,
        pointer: Pointer,
        lock: &LockFile,
        shadowed: bool,
    ) -> Plugin {
        let Pointer { kind, digest, size, metadata } = pointer;
        let pinned = match lock.pins.get(&name) {
            None => Pinned::No,
            Some(pin) if pin.digest == digest => Pinned::Here,
            Some(pin) => Pinned::Elsewhere(pin.digest),
        };
        let path = self.store(scope).path_of(&digest);
        Plugin { name, kind, digest, size, metadata, scope, path, pinned, shadowed }
    }

    fn unknown(&self, name: &str) -> RegistryError {
        let known: Vec<Name> = self
            .stores()
            .iter()
            .flat_map(|(_, store)| store.names().unwrap_or_default().into_keys())
            .collect();
        RegistryError::Unknown {
            name: name.chars().take(64).collect(),
            nearest: nearest(name, &known),
            file_exists: Path::new(&format!("{name}.wasm")).is_file(),
        }
    }
}

fn is_file(text: &str) -> bool {
    text.contains('/') || Path::new(text).extension().is_some_and(|end| end == "wasm")
}

fn resolve_file(text: &str) -> Result<Resolved, RegistryError> {
    let path = PathBuf::from(text);
    let bytes = disk::read(&path, disk::MOST_COMPONENT_BYTES, true)?;
    let path = std::path::absolute(&path).map_err(RegistryError::io("find", &path))?;
    Ok(Resolved {
        name: text.to_owned(),
        kind: None,
        digest: Digest::of(bytes),
        path,
        source: Source::File,
    })
}
