//! The tables of a store and how older ones become newer ones.
//!
//! `user_version` counts the migrations a store has seen. A released migration is never edited;
//! a change is a new one at the end of the list.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::error::StoreError;

/// Marks a SQLite file as a trace store: `FULG`.
pub(crate) const APPLICATION_ID: i32 = 0x4655_4c47;

/// The migrations; the position in the list plus one is the version each leads to.
pub(crate) const MIGRATIONS: &[&str] = &[
    // 1: the tables. Entries are numbered rows in the order of writing, so that every batch is
    // appended at the end of one tree; the order within an episode comes from the index.
    "CREATE TABLE runs (
        number      INTEGER PRIMARY KEY,
        id          TEXT    NOT NULL UNIQUE,
        status      TEXT    NOT NULL,
        started_ms  INTEGER NOT NULL,
        finished_ms INTEGER,
        host_commit TEXT,
        machine     TEXT,
        tasks       TEXT,
        plan        TEXT    NOT NULL
    ) STRICT;
    CREATE TABLE episodes (
        number            INTEGER PRIMARY KEY,
        run               INTEGER NOT NULL REFERENCES runs (number),
        task              INTEGER NOT NULL,
        sample            INTEGER NOT NULL,
        attempt           INTEGER NOT NULL,
        task_id           TEXT    NOT NULL,
        state             TEXT    NOT NULL,
        kind              TEXT,
        total             REAL,
        reason            TEXT,
        started_ms        INTEGER,
        ended_ms          INTEGER,
        UNIQUE (run, task, sample, attempt)
    ) STRICT;
    CREATE TABLE entries (
        number            INTEGER PRIMARY KEY,
        episode           INTEGER NOT NULL REFERENCES episodes (number),
        sequence          INTEGER NOT NULL,
        kind              TEXT    NOT NULL,
        prompt_tokens     INTEGER,
        completion_tokens INTEGER,
        body              BLOB    NOT NULL,
        packed            BLOB
    ) STRICT;
    CREATE UNIQUE INDEX entries_by_episode ON entries (episode, sequence);
    CREATE TABLE endings (
        episode INTEGER PRIMARY KEY REFERENCES episodes (number),
        body    TEXT NOT NULL,
        tree    TEXT,
        changes BLOB NOT NULL
    ) STRICT;
    CREATE TABLE scores (
        episode  INTEGER NOT NULL REFERENCES episodes (number),
        position INTEGER NOT NULL,
        reward   TEXT    NOT NULL,
        weight   REAL    NOT NULL,
        total    REAL    NOT NULL,
        notes    TEXT    NOT NULL,
        PRIMARY KEY (episode, position)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE score_parts (
        episode  INTEGER NOT NULL REFERENCES episodes (number),
        position INTEGER NOT NULL,
        part     INTEGER NOT NULL,
        name     TEXT,
        turn     INTEGER,
        value    REAL    NOT NULL,
        PRIMARY KEY (episode, position, part)
    ) STRICT, WITHOUT ROWID;",
    // 2: the part of the plan that belongs to the canonical form stands apart; totals of an
    // ended episode are kept with it, so that listing a run does not read its journal.
    "ALTER TABLE runs ADD COLUMN pinned TEXT NOT NULL DEFAULT 'null';
    ALTER TABLE episodes ADD COLUMN turns INTEGER;
    ALTER TABLE episodes ADD COLUMN prompt_tokens INTEGER;
    ALTER TABLE episodes ADD COLUMN completion_tokens INTEGER;
    UPDATE episodes SET (turns, prompt_tokens, completion_tokens) = (
        SELECT count(*), coalesce(sum(prompt_tokens), 0), coalesce(sum(completion_tokens), 0)
        FROM entries WHERE entries.episode = episodes.number AND entries.kind = 'turn'
    ) WHERE state NOT IN ('queued', 'running');",
    // 3: what files of sealed workspaces hold, once each; and scores that a recorded run was
    // given later, by other rewards.
    "CREATE TABLE contents (
        number INTEGER PRIMARY KEY,
        digest BLOB    NOT NULL UNIQUE,
        size   INTEGER NOT NULL,
        form   BLOB    NOT NULL
    ) STRICT;
    CREATE TABLE gradings (
        number     INTEGER PRIMARY KEY,
        run        INTEGER NOT NULL REFERENCES runs (number),
        position   INTEGER NOT NULL,
        graded_ms  INTEGER NOT NULL,
        plan       TEXT    NOT NULL,
        UNIQUE (run, position)
    ) STRICT;
    CREATE TABLE graded (
        grading INTEGER NOT NULL REFERENCES gradings (number),
        episode INTEGER NOT NULL REFERENCES episodes (number),
        total   REAL,
        reason  TEXT,
        PRIMARY KEY (grading, episode)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE graded_scores (
        grading  INTEGER NOT NULL REFERENCES gradings (number),
        episode  INTEGER NOT NULL REFERENCES episodes (number),
        position INTEGER NOT NULL,
        reward   TEXT    NOT NULL,
        weight   REAL    NOT NULL,
        total    REAL    NOT NULL,
        notes    TEXT    NOT NULL,
        PRIMARY KEY (grading, episode, position)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE graded_parts (
        grading  INTEGER NOT NULL REFERENCES gradings (number),
        episode  INTEGER NOT NULL REFERENCES episodes (number),
        position INTEGER NOT NULL,
        part     INTEGER NOT NULL,
        name     TEXT,
        turn     INTEGER,
        value    REAL    NOT NULL,
        PRIMARY KEY (grading, episode, position, part)
    ) STRICT, WITHOUT ROWID;",
];

/// The version this program writes.
pub(crate) const CURRENT: u32 = MIGRATIONS.len() as u32;

/// The version of a store, after making sure that it is one. 0 is an empty file.
pub(crate) fn version(connection: &Connection, path: &Path) -> Result<u32, StoreError> {
    let sqlite = |error| StoreError::of_sqlite(path, &error);
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let application = pragma("application_id").map_err(sqlite)?;
    let version = pragma("user_version").map_err(sqlite)?;
    let tables: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(sqlite)?;
    if application == i64::from(APPLICATION_ID) {
        let found = u32::try_from(version).unwrap_or(u32::MAX);
        if found > CURRENT {
            return Err(StoreError::Newer { path: path.to_owned(), found, known: CURRENT });
        }
        return Ok(found);
    }
    if application == 0 && version == 0 && tables == 0 {
        return Ok(0);
    }
    Err(StoreError::NotAStore {
        path: path.to_owned(),
        detail: "a SQLite database of another program".to_owned(),
    })
}

/// Brings a store to the current version. Each migration is one transaction together with its
/// version number, so a crash leaves a store of some whole version.
pub(crate) fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let sqlite = |error| StoreError::of_sqlite(path, &error);
    let from = version(connection, path)?;
    for (target, migration) in (1_u32..).zip(MIGRATIONS).skip(usize::try_from(from).unwrap_or(0)) {
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sqlite)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(sqlite)?;
        transaction.execute_batch(migration).map_err(sqlite)?;
        transaction.pragma_update(None, "user_version", target).map_err(sqlite)?;
        transaction.commit().map_err(sqlite)?;
    }
    Ok(())
}
