//! Reading with bounds and writing without halves.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{ErrorKind, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::fcntl::OFlag;

use crate::RegistryError;

/// The largest component that is stored or read.
pub(crate) const MOST_COMPONENT_BYTES: u64 = 512 * 1024 * 1024;
/// The largest index or lock file.
pub(crate) const MOST_TEXT_BYTES: u64 = 16 * 1024 * 1024;
/// Files that are being written have names with this beginning.
pub(crate) const UNFINISHED: &str = ".new-";

const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The whole file. Pipes and devices are not waited for; links are followed where that is allowed.
pub(crate) fn read(path: &Path, most: u64, links: bool) -> Result<Vec<u8>, RegistryError> {
    let flags = if links { OFlag::O_NONBLOCK } else { OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW };
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path);
    let file = match file {
        Err(error) if error.raw_os_error() == Some(nix::libc::ELOOP) => {
            return Err(RegistryError::NotAFile { path: path.to_owned() });
        }
        file => file.map_err(RegistryError::io("open", path))?,
    };
    let metadata = file.metadata().map_err(RegistryError::io("look at", path))?;
    if !metadata.is_file() {
        return Err(RegistryError::NotAFile { path: path.to_owned() });
    }
    let too_large = || RegistryError::TooLarge { path: path.to_owned(), most };
    if metadata.len() > most {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
    // It may grow while it is read.
    let read = file.take(most.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(RegistryError::io("read", path))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > most {
        return Err(too_large());
    }
    Ok(bytes)
}

/// The text of a file, or none when there is no file.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>, RegistryError> {
    let bytes = match read(path, MOST_TEXT_BYTES, true) {
        Err(RegistryError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            return Ok(None);
        }
        bytes => bytes?,
    };
    String::from_utf8(bytes).map(Some).map_err(|_| RegistryError::Damaged {
        path: path.to_owned(),
        reason: "it is not UTF-8 text".to_owned(),
    })
}

/// Puts a file in place: whoever looks sees the old one or the whole new one, also after a crash.
pub(crate) fn write(path: &Path, bytes: &[u8], private: bool) -> Result<(), RegistryError> {
    let failed = |action| RegistryError::io(action, path);
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(UNFINISHED)
        .permissions(Permissions::from_mode(PRIVATE_FILE))
        .tempfile_in(folder)
        .map_err(failed("write"))?;
    file.write_all(bytes).map_err(failed("write"))?;
    if !private {
        let mode = Permissions::from_mode(0o644);
        file.as_file().set_permissions(mode).map_err(failed("write"))?;
    }
    file.as_file().sync_all().map_err(failed("sync"))?;
    file.persist(path).map_err(|error| failed("replace")(error.error))?;
    sync_folder(folder)
}

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), RegistryError> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(RegistryError::io("sync", folder))
}

/// Makes a folder for its owner alone, with what is missing above it.
pub(crate) fn create_folder(folder: &Path) -> Result<(), RegistryError> {
    DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE_FOLDER)
        .create(folder)
        .map_err(RegistryError::io("create the folder", folder))
}

/// The turn of one writer; ends when dropped, also by the end of the process.
#[derive(Debug)]
pub(crate) struct Turn {
    _file: File,
}

/// Waits for its turn, but not for ever.
pub(crate) fn take_turn(folder: &Path) -> Result<Turn, RegistryError> {
    create_folder(folder)?;
    let path = folder.join("lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(PRIVATE_FILE)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(&path)
        .map_err(RegistryError::io("open", &path))?;
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Turn { _file: file }),
            Err(TryLockError::WouldBlock) if begun.elapsed() < PATIENCE => {
                thread::sleep(LOOK_AGAIN);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(RegistryError::Busy { path, seconds: PATIENCE.as_secs() });
            }
            Err(TryLockError::Error(source)) => {
                return Err(RegistryError::Io { action: "lock", path, source });
            }
        }
    }
}

/// Removes what writers that died have left. Only in one's turn.
pub(crate) fn remove_unfinished(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| is_unfinished(&entry.file_name())) {
        // What cannot be removed does no harm.
        let _ = fs::remove_file(entry.path());
    }
}

pub(crate) fn is_unfinished(name: &std::ffi::OsStr) -> bool {
    name.to_string_lossy().starts_with(UNFINISHED)
}
