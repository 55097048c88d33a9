//! Reading. Every function takes a connection, so that requests being written can use it too.

use std::{error::Error, str::FromStr};

use rusqlite::{Connection, OptionalExtension, Row, params, types::Type};

use super::{
    apply::{Scored, Trouble, state_at},
    codec,
    error::StoreError,
};
use crate::{
    Digest, Ending, Entry, EpisodeRef, EpisodeSummary, FailureKind, Run, RunRecord, RunStatus,
    Score, ScoreComponent, Timestamp, TurnValue,
};

/// How an attempt ended, with the state of its workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedEnding {
    /// How it ended.
    pub ending: Ending,
    /// Digest of the sealed tree.
    pub tree: Option<Digest>,
    /// The sealed manifest, as it was given to [`crate::EpisodeWriter::end`].
    pub changes: Vec<u8>,
}

const RUN_COLUMNS: &str = "id, status, started_ms, finished_ms, host_commit, machine, tasks, plan, \
                           pinned";

pub(crate) fn run_row(connection: &Connection, run: &str) -> Result<i64, Trouble> {
    connection
        .prepare_cached("SELECT number FROM runs WHERE id = ?1")?
        .query_row([run], |row| row.get(0))
        .optional()?
        .ok_or_else(|| StoreError::UnknownRun(run.to_owned()).into())
}

pub(crate) fn run(connection: &Connection, run: &str) -> Result<Run, Trouble> {
    connection
        .prepare_cached(&format!("SELECT {RUN_COLUMNS} FROM runs WHERE id = ?1"))?
        .query_row([run], run_at)
        .optional()?
        .ok_or_else(|| StoreError::UnknownRun(run.to_owned()).into())
}

pub(crate) fn runs(connection: &Connection) -> Result<Vec<Run>, Trouble> {
    let runs = connection
        .prepare_cached(&format!("SELECT {RUN_COLUMNS} FROM runs ORDER BY started_ms, id"))?
        .query_map([], run_at)?
        .collect::<Result<_, _>>()?;
    Ok(runs)
}

fn run_at(row: &Row<'_>) -> rusqlite::Result<Run> {
    let status: String = row.get(1)?;
    let tasks: Option<String> = row.get(6)?;
    Ok(Run {
        record: RunRecord {
            id: row.get(0)?,
            started_at: timestamp(row.get(2)?),
            commit: row.get(4)?,
            machine: row.get(5)?,
            tasks: tasks.map(|text| parse(6, &text)).transpose()?,
            plan: json(7, row.get_ref(7)?.as_str()?)?,
            pinned: json(8, row.get_ref(8)?.as_str()?)?,
        },
        status: RunStatus::from_name(&status)
            .ok_or_else(|| conversion(1, format!("`{status}` is no status of a run")))?,
        finished_at: row.get::<_, Option<i64>>(3)?.map(timestamp),
    })
}

const EPISODE_COLUMNS: &str = "number, task, sample, attempt, task_id, state, kind, total, reason, \
                               turns, prompt_tokens, completion_tokens, started_ms, ended_ms";

pub(crate) fn episodes(connection: &Connection, run: &str) -> Result<Vec<EpisodeSummary>, Trouble> {
    let row = run_row(connection, run)?;
    let mut summaries = Vec::new();
    let mut select = connection.prepare_cached(&format!(
        "SELECT {EPISODE_COLUMNS} FROM episodes WHERE run = ?1 ORDER BY task, sample, attempt"
    ))?;
    let mut rows = select.query([row])?;
    while let Some(row) = rows.next()? {
        summaries.push(summary_at(connection, row)?);
    }
    Ok(summaries)
}

pub(crate) fn episode(
    connection: &Connection,
    run: &str,
    episode: EpisodeRef,
) -> Result<EpisodeSummary, Trouble> {
    let row = episode_row(connection, run, episode)?;
    let mut select = connection
        .prepare_cached(&format!("SELECT {EPISODE_COLUMNS} FROM episodes WHERE number = ?1"))?;
    Ok(select.query_row([row], |row| summary_at(connection, row))?)
}

fn summary_at(connection: &Connection, row: &Row<'_>) -> rusqlite::Result<EpisodeSummary> {
    let number: i64 = row.get(0)?;
    let kind: Option<String> = row.get(6)?;
    let counted = match row.get::<_, Option<i64>>(9)? {
        Some(turns) => (Some(turns), row.get(10)?, row.get(11)?),
        // Still under way, or interrupted: only the journal knows.
        None => connection
            .prepare_cached(
                "SELECT count(*), sum(prompt_tokens), sum(completion_tokens)
                 FROM entries WHERE episode = ?1 AND kind = 'turn'",
            )?
            .query_row([number], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?,
    };
    let started: Option<i64> = row.get(12)?;
    let ended: Option<i64> = row.get(13)?;
    Ok(EpisodeSummary {
        episode: EpisodeRef { task: row.get(1)?, sample: row.get(2)?, attempt: row.get(3)? },
        task_id: row.get(4)?,
        state: state_at(row, 5)?,
        kind: kind
            .map(|name| {
                FailureKind::from_name(&name)
                    .ok_or_else(|| conversion(6, format!("`{name}` is no failure kind")))
            })
            .transpose()?,
        total: row.get(7)?,
        reason: row.get(8)?,
        turns: natural(counted.0),
        prompt_tokens: natural(counted.1),
        completion_tokens: natural(counted.2),
        wall_ms: started.zip(ended).map(|(started, ended)| natural(Some(ended - started))),
    })
}

pub(crate) fn episode_row(
    connection: &Connection,
    run: &str,
    episode: EpisodeRef,
) -> Result<i64, Trouble> {
    let row = run_row(connection, run)?;
    connection
        .prepare_cached(
            "SELECT number FROM episodes
             WHERE run = ?1 AND task = ?2 AND sample = ?3 AND attempt = ?4",
        )?
        .query_row(params![row, episode.task, episode.sample, episode.attempt], |row| row.get(0))
        .optional()?
        .ok_or_else(|| StoreError::UnknownEpisode { run: run.to_owned(), episode }.into())
}

pub(crate) fn entries(
    connection: &Connection,
    run: &str,
    episode: EpisodeRef,
) -> Result<Vec<Entry>, Trouble> {
    let row = episode_row(connection, run, episode)?;
    let mut select = connection.prepare_cached(
        "SELECT sequence, body, packed FROM entries WHERE episode = ?1 ORDER BY sequence",
    )?;
    let entries = select
        .query_map([row], |row| {
            let body = row.get_ref(1)?.as_blob()?;
            let packed = row.get_ref(2)?.as_blob_or_null()?;
            Ok(Entry {
                sequence: row.get(0)?,
                body: codec::decode(body, packed).map_err(|error| conversion(1, error))?,
            })
        })?
        .collect::<Result<_, _>>()?;
    Ok(entries)
}

pub(crate) fn ending(
    connection: &Connection,
    run: &str,
    episode: EpisodeRef,
) -> Result<Option<SealedEnding>, Trouble> {
    let row = episode_row(connection, run, episode)?;
    let ending = connection
        .prepare_cached("SELECT body, tree, changes FROM endings WHERE episode = ?1")?
        .query_row([row], |row| {
            let tree: Option<String> = row.get(1)?;
            Ok(SealedEnding {
                ending: json(0, row.get_ref(0)?.as_str()?)?,
                tree: tree.map(|text| parse(1, &text)).transpose()?,
                changes: row.get(2)?,
            })
        })
        .optional()?;
    Ok(ending)
}

pub(crate) fn scores(
    connection: &Connection,
    run: &str,
    episode: EpisodeRef,
) -> Result<Vec<Score>, Trouble> {
    let row = episode_row(connection, run, episode)?;
    scores_of(connection, Scored::ByRun, row)
}

/// The scores of an episode's row, in the order in which they were given.
pub(crate) fn scores_of(
    connection: &Connection,
    by: Scored,
    row: i64,
) -> Result<Vec<Score>, Trouble> {
    let (score_table, part_table, grading) = match by {
        Scored::ByRun => ("scores", "score_parts", None),
        Scored::ByGrading(grading) => ("graded_scores", "graded_parts", Some(grading)),
    };
    // The run's own scores have no such column; to them the condition is that there is none.
    let column = if grading.is_some() { "grading" } else { "?2" };
    let mut parts = connection.prepare_cached(&format!(
        "SELECT name, turn, value FROM {part_table}
         WHERE episode = ?1 AND {column} IS ?2 AND position = ?3 ORDER BY part"
    ))?;
    let mut select = connection.prepare_cached(&format!(
        "SELECT position, reward, weight, total, notes FROM {score_table}
         WHERE episode = ?1 AND {column} IS ?2 ORDER BY position"
    ))?;
    let scores = select
        .query_map(params![row, grading], |score| {
            let mut components = Vec::new();
            let mut turns = Vec::new();
            let mut rows = parts.query(params![row, grading, score.get::<_, i64>(0)?])?;
            while let Some(part) = rows.next()? {
                let value = part.get(2)?;
                match (part.get(0)?, part.get(1)?) {
                    (Some(name), None) => components.push(ScoreComponent { name, value }),
                    (None, Some(turn)) => turns.push(TurnValue { turn, value }),
                    _ => return Err(conversion(0, "a part of a score has no place")),
                }
            }
            Ok(Score {
                reward: score.get(1)?,
                weight: score.get(2)?,
                total: score.get(3)?,
                components,
                turns,
                notes: json(4, score.get_ref(4)?.as_str()?)?,
            })
        })?
        .collect::<Result<_, _>>()?;
    Ok(scores)
}

/// The column does not hold what it should.
pub(crate) fn conversion(
    column: usize,
    error: impl Into<Box<dyn Error + Send + Sync>>,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into())
}

pub(crate) fn json<T: serde::de::DeserializeOwned>(
    column: usize,
    text: &str,
) -> rusqlite::Result<T> {
    serde_json::from_str(text).map_err(|error| conversion(column, error))
}

fn parse<T: FromStr<Err: Error + Send + Sync + 'static>>(
    column: usize,
    text: &str,
) -> rusqlite::Result<T> {
    text.parse().map_err(|error| conversion(column, error))
}

pub(crate) fn timestamp(milliseconds: i64) -> Timestamp {
    Timestamp(natural(Some(milliseconds)))
}

pub(crate) fn natural(number: Option<i64>) -> u64 {
    number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}
