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
};

use fulgurite_trace::Digest;
use nix::{libc, unistd::geteuid};
use tempfile::NamedTempFile;
use wasmtime::component::Component;

use crate::engine::Engine;

/// The folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// It cannot be made, read or written.
    #[error("the cache folder `{}` cannot be used: {cause}", folder.display())]
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
        // Without the outermost words, which name the path.
        Some(loaded.map_err(|error| error.root_cause().to_string()))
    }

    /// A file to compile into. It vanishes unless it is published.
    pub(crate) fn draft(&self) -> Result<NamedTempFile, CacheError> {
        tempfile::Builder::new()
            .prefix("draft-")
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
        publish().map_err(|cause| CacheError::Io { folder: self.folder.clone(), cause })
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
