//! Scores that a recorded run was given later, beside its own.

use rusqlite::{Connection, OptionalExtension, params};

use super::{
    apply::{self, Scored, Trouble},
    error::StoreError,
    open::milliseconds,
    read::{self, json, natural, timestamp},
};
use crate::{EpisodeRef, Graded, Grading, Timestamp};

/// Begins a grading of a run; answers its number within the run.
pub(crate) fn begin(connection: &Connection, run: &str, plan: &str) -> Result<u32, Trouble> {
    let row = read::run_row(connection, run)?;
    let position: u32 = connection
        .prepare_cached("SELECT coalesce(max(position), 0) + 1 FROM gradings WHERE run = ?1")?
        .query_row([row], |row| row.get(0))?;
    connection
        .prepare_cached(
            "INSERT INTO gradings (run, position, graded_ms, plan) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![row, position, milliseconds(Timestamp::now()), plan])?;
    Ok(position)
}

/// Records what an episode was given. A second record of the same episode replaces nothing.
pub(crate) fn record(
    connection: &Connection,
    run: &str,
    position: u32,
    graded: &Graded,
) -> Result<(), Trouble> {
    let grading = row(connection, run, position)?;
    let episode = read::episode_row(connection, run, graded.episode)?;
    let inserted = connection
        .prepare_cached(
            "INSERT INTO graded (grading, episode, total, reason) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (grading, episode) DO NOTHING",
        )?
        .execute(params![grading, episode, graded.total, graded.reason])?;
    if inserted == 1 {
        apply::insert_scores(connection, Scored::ByGrading(grading), episode, &graded.scores)?;
    }
    Ok(())
}

fn row(connection: &Connection, run: &str, position: u32) -> Result<i64, Trouble> {
    let row = read::run_row(connection, run)?;
    connection
        .prepare_cached("SELECT number FROM gradings WHERE run = ?1 AND position = ?2")?
        .query_row(params![row, position], |row| row.get(0))
        .optional()?
        .ok_or_else(|| StoreError::UnknownGrading { run: run.to_owned(), position }.into())
}

/// Every grading of a run, oldest first.
pub(crate) fn all(connection: &Connection, run: &str) -> Result<Vec<Grading>, Trouble> {
    let row = read::run_row(connection, run)?;
    let gradings = connection
        .prepare_cached(
            "SELECT position, graded_ms, plan, count(graded.total), avg(graded.total)
             FROM gradings LEFT JOIN graded ON graded.grading = gradings.number
             WHERE run = ?1 GROUP BY gradings.number ORDER BY position",
        )?
        .query_map([row], |row| {
            Ok(Grading {
                position: row.get(0)?,
                graded_at: timestamp(row.get(1)?),
                plan: json(2, row.get_ref(2)?.as_str()?)?,
                graded: natural(row.get(3)?),
                mean: row.get(4)?,
            })
        })?
        .collect::<Result<_, _>>()?;
    Ok(gradings)
}

/// What a grading gave, by task, sample and attempt.
pub(crate) fn graded(
    connection: &Connection,
    run: &str,
    position: u32,
) -> Result<Vec<Graded>, Trouble> {
    let grading = row(connection, run, position)?;
    let mut select = connection.prepare_cached(
        "SELECT episodes.number, task, sample, attempt, graded.total, graded.reason
         FROM graded JOIN episodes ON episodes.number = graded.episode
         WHERE grading = ?1 ORDER BY task, sample, attempt",
    )?;
    let mut rows = select.query([grading])?;
    let mut graded = Vec::new();
    while let Some(row) = rows.next()? {
        let (task, sample, attempt) = (row.get(1)?, row.get(2)?, row.get(3)?);
        graded.push(Graded {
            episode: EpisodeRef { task, sample, attempt },
            total: row.get(4)?,
            reason: row.get(5)?,
            scores: read::scores_of(connection, Scored::ByGrading(grading), row.get(0)?)?,
        });
    }
    Ok(graded)
}
