//! Opening a store's file: folder, permissions, lock, settings, version.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rusqlite::{Connection, OpenFlags, params};

use super::{Tuning, error::StoreError, schema};
use crate::{RunStatus, Timestamp};

const HEADER: &[u8] = b"SQLite format 3\0";
/// Entries with token arrays take two to four kilobytes: pages of 16 KiB waste less of them at
/// page ends than the usual 4 KiB, and cost fewer checksums in the log.
const PAGE_BYTES: u32 = 16 * 1024;
/// How long a read waits while another process recovers or checkpoints.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the lock is tried again: longer than any look at it takes.
const LOOKS_PASS: Duration = Duration::from_millis(100);

/// The one writing connection, and the lock that keeps it the only one.
#[derive(Debug)]
pub(crate) struct Writing {
    pub(crate) connection: Connection,
    pub(crate) lock: File,
}

/// Opens or creates the store at `path` for writing.
pub(crate) fn for_writing(path: &Path, tuning: &Tuning) -> Result<Writing, StoreError> {
    let io = |error: io::Error| StoreError::of_io(path, &error);
    let folder = folder_of(path);
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(io)?;
    let lock = take_lock(path)?;
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        // The new name must survive a power cut before anything behind it is acknowledged.
        Ok(_) => File::open(&folder).and_then(|folder| folder.sync_all()).map_err(io)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check_header(path)?,
        Err(error) => return Err(io(error)),
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = connect(path, flags, tuning)?;
    schema::version(&connection, path)?;
    let sqlite = |error| StoreError::of_sqlite(path, &error);
    connection.pragma_update(None, "page_size", PAGE_BYTES).map_err(sqlite)?;
    // The switch to write-ahead logging is itself made under a rollback journal. `extra` syncs the
    // folder after that journal is gone: were it to come back with the power, it would roll the
    // main file back to nothing, and the log would be thrown away as one of another database.
    connection.pragma_update(None, "synchronous", "extra").map_err(sqlite)?;
    let journal: String = connection
        .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))
        .map_err(sqlite)?;
    if journal != "wal" {
        return Err(StoreError::Io {
            path: path.to_owned(),
            detail: format!(
                "its file system does not allow write-ahead logging (journal mode `{journal}`); \
                 use a local disk"
            ),
        });
    }
    connection.pragma_update(None, "synchronous", tuning.synchronous).map_err(sqlite)?;
    // Checkpoints are made by the writer between batches, when nobody waits for it.
    connection.pragma_update(None, "wal_autocheckpoint", 0).map_err(sqlite)?;
    connection
        .pragma_update(None, "journal_size_limit", 4 * tuning.checkpoint_bytes)
        .map_err(sqlite)?;
    connection.pragma_update(None, "cache_size", -16_384).map_err(sqlite)?;
    // The writer checks what it refers to by itself.
    connection.pragma_update(None, "foreign_keys", false).map_err(sqlite)?;
    if let Some(pages) = tuning.max_pages {
        connection
            .pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
            .map_err(sqlite)?;
    }
    connection.set_prepared_statement_cache_capacity(64);
    schema::migrate(&mut connection, path)?;
    // Whoever was at these runs is gone: the lock is ours.
    connection
        .execute(
            "UPDATE runs SET status = ?1, finished_ms = ?2 WHERE status = ?3",
            params![
                RunStatus::Interrupted.name(),
                milliseconds(Timestamp::now()),
                RunStatus::Running.name()
            ],
        )
        .map_err(sqlite)?;
    Ok(Writing { connection, lock })
}

/// Opens the store at `path` for reading; another process may be writing.
pub(crate) fn for_reading(path: &Path, tuning: &Tuning) -> Result<Connection, StoreError> {
    if !path.try_exists().map_err(|error| StoreError::of_io(path, &error))? {
        return Err(StoreError::Missing { path: path.to_owned() });
    }
    check_header(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = connect(path, flags, tuning)?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

/// Milliseconds as SQLite keeps integers.
pub(crate) fn milliseconds(moment: Timestamp) -> i64 {
    i64::try_from(moment.0).unwrap_or(i64::MAX)
}

fn connect(path: &Path, flags: OpenFlags, tuning: &Tuning) -> Result<Connection, StoreError> {
    let connection = match tuning.vfs {
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs),
        None => Connection::open_with_flags(path, flags),
    };
    let connection = connection.map_err(|error| StoreError::of_sqlite(path, &error))?;
    connection.busy_timeout(PATIENCE).map_err(|error| StoreError::of_sqlite(path, &error))?;
    Ok(connection)
}

/// A file that is no database is better told by its first bytes than by what SQLite thinks.
fn check_header(path: &Path) -> Result<(), StoreError> {
    let io = |error: io::Error| StoreError::of_io(path, &error);
    let not_a_store =
        |detail: &str| StoreError::NotAStore { path: path.to_owned(), detail: detail.to_owned() };
    if fs::metadata(path).map_err(io)?.is_dir() {
        return Err(not_a_store("it is a folder"));
    }
    let mut start = Vec::new();
    let file = File::open(path).map_err(io)?;
    file.take(HEADER.len() as u64).read_to_end(&mut start).map_err(io)?;
    // An empty file is a store that was being created when the host died.
    if start.is_empty() || start == HEADER {
        Ok(())
    } else {
        Err(not_a_store("it does not begin like a SQLite database"))
    }
}

/// The lock is a file beside the store, because SQLite's own locks come and go with transactions.
/// The operating system gives it back when the process dies, however it dies.
fn take_lock(path: &Path) -> Result<File, StoreError> {
    let lock_path = beside(path, ".lock");
    let io = |error: io::Error| StoreError::of_io(&lock_path, &error);
    let mut lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&lock_path)
        .map_err(io)?;
    let begun = Instant::now();
    let locked = loop {
        match lock.try_lock() {
            // Whoever only looks whether a writer is there holds the lock for an instant.
            Err(TryLockError::WouldBlock) if begun.elapsed() < LOOKS_PASS => {
                std::thread::sleep(Duration::from_millis(5));
            }
            locked => break locked,
        }
    };
    match locked {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let known = (&lock).take(20).read_to_string(&mut text).is_ok();
            let holder = match text.trim().parse::<u32>() {
                Ok(process) if known => format!("another fulgurite process ({process})"),
                _ => "another fulgurite process".to_owned(),
            };
            return Err(StoreError::Locked { path: path.to_owned(), holder });
        }
        Err(TryLockError::Error(error)) => return Err(io(error)),
    }
    lock.set_len(0).map_err(io)?;
    writeln!(lock, "{}", std::process::id()).map_err(io)?;
    Ok(lock)
}

/// Whether a process has the store open for writing.
pub(crate) fn has_writer(path: &Path) -> bool {
    match File::open(beside(path, ".lock")) {
        // Given back when the file is closed, at once.
        Ok(lock) => lock.try_lock_shared().is_err(),
        // No writer without a lock file; one that cannot be looked at may be held.
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// `path` with something appended to its last component.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
