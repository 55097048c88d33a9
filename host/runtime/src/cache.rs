//! Compiled components on disk.
//!
//! A file is named by the digest of the component and by everything its code depends on
//! ([`crate::engine::Engine::fingerprint`]), so it never goes stale; it appears by an atomic
//! rename after its bytes are synced, so it never is half there.
//!
//! # Why the files may be trusted
//! Compiled code is run as it is: whoever can write it owns the process. The folder is therefore
//! only used when it belongs to the user of this process and nobody else may enter it (mode
//! 0700), and a file only when it is a regular file of that user that nobody else may write.
//! What stands in such a folder was put there by the same user, who could as well change this
//! program. Only the compiling child of this crate writes there.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io,
    os::unix::fs::{
        DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use fulgurite_trace::Digest;
use nix::{libc, unistd::geteuid};
use tempfile::NamedTempFile;
use wasmtime::component::Component;

use crate::engine::Engine;

/// What the folder may take up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// Bytes of compiled code; beyond them goes what was not used for the longest time.
    pub bytes: u64,
    /// How long code that nobody uses stays.
    pub unused: Duration,
}

impl Default for CacheLimits {
    /// Room for about fifty components of Python, which take 80 MB each.
    fn default() -> Self {
        Self { bytes: 4 << 30, unused: Duration::from_secs(90 * 24 * 3600) }
    }
}

/// What was removed, and what is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Pruned {
    /// Files that are gone.
    pub removed: u64,
    /// Their bytes.
    pub removed_bytes: u64,
    /// Files that stay.
    pub kept: u64,
    /// Their bytes.
    pub kept_bytes: u64,
}

/// Removes compiled code that is beyond the limits. What a running process uses stays usable for
/// it; what is missing later is compiled again. A folder that is not there is an empty one.
pub fn prune(folder: &Path, limits: CacheLimits) -> Result<Pruned, CacheError> {
    if !folder.try_exists().unwrap_or(true) {
        return Ok(Pruned::default());
    }
    Cache::open(folder)?.prune(limits, None)
}

/// The folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// It cannot be made, read or written.
    #[error(
        "the cache folder `{}` cannot be used: {cause}\n  mend: it must be a folder that you may \
         write; move away what is in its place, or set XDG_CACHE_HOME to another one",
        folder.display()
    )]
    Io {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// Others could plant code in it.
    #[error(
        "the cache folder `{}` is not safe: {why}; compiled code in it would be run, so it has to \
         belong to you alone (`chmod 700`), or choose another folder",
        folder.display()
    )]
    Unsafe {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// Names the compiled code of one component for one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) component: Digest,
    pub(crate) fingerprint: Digest,
}

/// The folder of compiled components.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// Makes the folder where there is none, and checks it.
    pub(crate) fn open(folder: &Path) -> Result<Self, CacheError> {
        let fail = |cause| CacheError::Io { folder: folder.to_owned(), cause };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(fail)?;
        // The last component must be the folder itself; a link could be turned elsewhere later.
        let metadata = fs::symlink_metadata(folder).map_err(fail)?;
        let why = if !metadata.is_dir() {
            Some("it is a link or a file")
        } else if metadata.uid() != geteuid().as_raw() {
            Some("it belongs to another user")
        } else if metadata.mode() & 0o077 != 0 {
            Some("others may enter it")
        } else {
            None
        };
        match why {
            Some(why) => Err(CacheError::Unsafe { folder: folder.to_owned(), why }),
            None => Ok(Self { folder: folder.to_owned() }),
        }
    }

    fn path(&self, key: &Key) -> PathBuf {
        let fingerprint = key.fingerprint.short();
        self.folder.join(format!("{}-{fingerprint}.cwasm", key.component.hex()))
    }

    /// The compiled component; none when it is not there, an error when the engine does not take
    /// it, which a new compilation may mend.
    pub(crate) fn load(&self, engine: &Engine, key: &Key) -> Option<Result<Component, String>> {
        let path = self.path(key);
        if !is_ours(&path) {
            return None;
        }
        // SAFETY: the file was written by `Engine::precompile_component` in the compiling child:
        // the folder and the file belong to this user alone, as the module documentation says.
        let loaded = unsafe { Component::deserialize_file(engine.wasm(), &path) };
        touch(&path);
        // Without the outermost words, which name the path.
        Some(loaded.map_err(|error| error.root_cause().to_string()))
    }

    /// A file to compile into. It vanishes unless it is published.
    pub(crate) fn draft(&self) -> Result<NamedTempFile, CacheError> {
        tempfile::Builder::new()
            .prefix(DRAFT)
            .permissions(Permissions::from_mode(0o600))
            .tempfile_in(&self.folder)
            .map_err(|cause| CacheError::Io { folder: self.folder.clone(), cause })
    }

    /// Makes a draft the compiled code of `key`.
    pub(crate) fn publish(&self, draft: NamedTempFile, key: &Key) -> Result<(), CacheError> {
        let publish = || {
            draft.as_file().sync_all()?;
            draft.persist(self.path(key)).map_err(|error| error.error)?;
            File::open(&self.folder)?.sync_all()
        };
        publish().map_err(|cause| CacheError::Io { folder: self.folder.clone(), cause })?;
        // What cannot be pruned now is pruned another time.
        let _ = self.prune(CacheLimits::default(), Some(&self.path(key)));
        Ok(())
    }

    /// Removes what is beyond the limits, but not `keep`. Files that others remove meanwhile are
    /// no error.
    fn prune(&self, limits: CacheLimits, keep: Option<&Path>) -> Result<Pruned, CacheError> {
        let fail = |cause| CacheError::Io { folder: self.folder.clone(), cause };
        let now = SystemTime::now();
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let Ok(metadata) = entry.metadata() else { continue };
            let path = entry.path();
            let is_code = path.extension().is_some_and(|end| end == "cwasm");
            let is_draft = entry.file_name().to_string_lossy().starts_with(DRAFT);
            if !metadata.is_file() || !(is_code || is_draft) {
                continue;
            }
            let used = metadata.modified().unwrap_or(now);
            let unused = now.duration_since(used).unwrap_or_default();
            // A draft that old belongs to a compilation that died.
            let is_stale = unused > if is_draft { STALE_DRAFT } else { limits.unused };
            if is_draft && !is_stale {
                continue;
            }
            files.push((!is_stale, used, metadata.len(), path));
        }
        // The stale ones last, before them those that were not used for long.
        files.sort_by_key(|file| std::cmp::Reverse((file.0, file.1)));
        let mut pruned = Pruned::default();
        for (is_fresh, _, bytes, path) in files {
            let is_kept = keep == Some(&path)
                || (is_fresh && pruned.kept_bytes.saturating_add(bytes) <= limits.bytes);
            if is_kept {
                pruned.kept += 1;
                pruned.kept_bytes = pruned.kept_bytes.saturating_add(bytes);
                continue;
            }
            match fs::remove_file(&path) {
                Ok(()) => {
                    pruned.removed += 1;
                    pruned.removed_bytes = pruned.removed_bytes.saturating_add(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(fail(error)),
            }
        }
        Ok(pruned)
    }
}

/// Files that are compiled into have names with this beginning.
const DRAFT: &str = "draft-";
/// No compilation takes as long.
const STALE_DRAFT: Duration = Duration::from_secs(24 * 3600);
/// How exactly the last use is known.
const TOUCHED: Duration = Duration::from_secs(3600);

/// Notes that the file was used: the time of its last change stands for that of its last use,
/// because the times of reading are not kept on many systems.
fn touch(path: &Path) {
    let Ok(file) = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path) else {
        return;
    };
    let now = SystemTime::now();
    let used = file.metadata().and_then(|metadata| metadata.modified()).unwrap_or(now);
    if now.duration_since(used).is_ok_and(|ago| ago > TOUCHED) {
        // Without it the file only goes earlier.
        let _ = file.set_modified(now);
    }
}

/// Whether it is a regular file of this user that nobody else may write.
fn is_ours(path: &Path) -> bool {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path);
    let Ok(metadata) = opened.and_then(|file| file.metadata()) else { return false };
    metadata.is_file() && metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o022 == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_new_folder_is_for_its_owner_alone() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("a/b");
        Cache::open(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_folder_that_others_can_enter_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("open");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        let error = Cache::open(&folder).unwrap_err();
        assert!(matches!(error, CacheError::Unsafe { .. }), "{error}");
        assert!(error.to_string().contains("chmod 700"), "{error}");
        let link = parent.path().join("link");
        symlink(parent.path(), &link).unwrap();
        assert!(matches!(Cache::open(&link), Err(CacheError::Unsafe { .. })));
    }

    #[test]
    fn what_was_not_used_for_long_goes_first() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("cache");
        assert_eq!(prune(&folder, CacheLimits::default()).unwrap(), Pruned::default());
        let cache = Cache::open(&folder).unwrap();
        let day = Duration::from_secs(24 * 3600);
        let file = |name: &str, bytes: usize, days: u32| {
            let path = folder.join(name);
            fs::write(&path, vec![0; bytes]).unwrap();
            let used = SystemTime::now() - day * days;
            File::options().write(true).open(&path).unwrap().set_modified(used).unwrap();
            path
        };
        let old = file("a.cwasm", 10, 100);
        let before = file("b.cwasm", 10, 3);
        let lately = file("c.cwasm", 10, 2);
        let drafts = (file("draft-1", 10, 2), file("draft-2", 10, 0));
        let other = file("notes.txt", 10, 200);
        let limits = CacheLimits { bytes: 15, ..CacheLimits::default() };
        let pruned = cache.prune(limits, Some(&old)).unwrap();
        // What was just made stays even when it is large.
        let seen = Pruned { removed: 2, removed_bytes: 20, kept: 2, kept_bytes: 20 };
        assert_eq!(pruned, seen);
        assert!(old.exists() && lately.exists() && other.exists() && drafts.1.exists());
        assert!(!before.exists() && !drafts.0.exists());
        touch(&lately);
        let ago = fs::metadata(&lately).unwrap().modified().unwrap().elapsed().unwrap();
        assert!(ago < day);
        let nothing = CacheLimits { bytes: 0, ..CacheLimits::default() };
        assert_eq!(prune(&folder, nothing).unwrap().kept, 0);
    }

    #[test]
    fn a_file_in_the_place_of_the_folder_is_told_with_a_mend() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("file");
        fs::write(&path, "x").unwrap();
        for path in [path.clone(), path.join("below")] {
            let error = Cache::open(&path).unwrap_err().to_string();
            assert!(error.contains("mend: ") && error.contains("XDG_CACHE_HOME"), "{error}");
        }
    }

    #[test]
    fn files_that_others_may_write_and_links_are_not_ours() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("file");
        fs::write(&path, "x").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert!(is_ours(&path));
        fs::set_permissions(&path, Permissions::from_mode(0o620)).unwrap();
        assert!(!is_ours(&path));
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let link = parent.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(!is_ours(&link));
        assert!(!is_ours(&parent.path().join("none")));
    }
}
