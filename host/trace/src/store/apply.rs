//! What each request writes. A request is checked before it writes anything, so that a refused
//! one leaves the rest of its batch untouched.

use std::str::FromStr;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{
    codec::EncodedEntry,
    contents,
    error::StoreError,
    grade,
    job::{Answer, Change, Target, Work},
    open::milliseconds,
    read,
};
use crate::{
    EpisodeRef, QueuedEpisode, ResumePlan, RunRecord, RunStatus, Score, State, Timestamp,
    lifecycle::Step, writer::JournalCounts,
};

/// A request was refused, or the store failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    Refused(StoreError),
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

/// Writes one request within the batch's transaction.
pub(crate) fn apply(connection: &Connection, work: &Work) -> Result<Answer, Trouble> {
    match work {
        Work::CreateRun(record) => create_run(connection, record).map(|()| Answer::Done),
        Work::FinishRun { run, status } => {
            set_status(connection, read::run_row(connection, run)?, *status)?;
            Ok(Answer::Done)
        }
        Work::ResumeRun { run } => resume(connection, run).map(Answer::Resume),
        Work::Queue { run, episodes } => queue(connection, run, episodes).map(|()| Answer::Done),
        Work::Start(target) => {
            let row = match start(connection, target) {
                Ok(row) => Ok(row),
                Err(Trouble::Refused(error)) => Err(error),
                Err(Trouble::Sqlite(error)) => return Err(error.into()),
            };
            // A target is started once, before anything else is asked of it.
            let _ = target.row.set(row);
            Ok(Answer::Done)
        }
        Work::Keep(contents) => {
            contents.iter().try_for_each(|content| contents::put(connection, content))?;
            Ok(Answer::Done)
        }
        Work::BeginGrading { run, plan } => {
            grade::begin(connection, run, plan).map(Answer::Grading)
        }
        Work::Grade { run, position, graded } => {
            grade::record(connection, run, *position, graded).map(|()| Answer::Done)
        }
        Work::Journal { target, entries, change } => {
            journal(connection, target, entries, change.as_ref()).map(|()| Answer::Done)
        }
    }
}

fn create_run(connection: &Connection, record: &RunRecord) -> Result<(), Trouble> {
    match read::run(connection, &record.id) {
        Ok(run) if run.record == *record => return Ok(()),
        Ok(_) => return Err(StoreError::RunExists(record.id.clone()).into()),
        Err(Trouble::Refused(StoreError::UnknownRun(_))) => {}
        Err(trouble) => return Err(trouble),
    }
    connection
        .prepare_cached(
            "INSERT INTO runs
                (id, status, started_ms, host_commit, machine, tasks, plan, pinned)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            record.id,
            RunStatus::Running.name(),
            milliseconds(record.started_at),
            record.commit,
            record.machine,
            record.tasks.map(|digest| digest.to_string()),
            record.plan.to_string(),
            record.pinned.to_string(),
        ])?;
    Ok(())
}

fn set_status(connection: &Connection, row: i64, status: RunStatus) -> rusqlite::Result<()> {
    let finished = (status != RunStatus::Running).then(|| milliseconds(Timestamp::now()));
    connection
        .prepare_cached("UPDATE runs SET status = ?2, finished_ms = ?3 WHERE number = ?1")?
        .execute(params![row, status.name(), finished])?;
    Ok(())
}

fn queue(connection: &Connection, run: &str, episodes: &[QueuedEpisode]) -> Result<(), Trouble> {
    let row = read::run_row(connection, run)?;
    let mut recorded = connection.prepare_cached(
        "SELECT task_id FROM episodes WHERE run = ?1 AND task = ?2 AND sample = ?3 LIMIT 1",
    )?;
    for QueuedEpisode { episode, task_id } in episodes {
        let known: Option<String> = recorded
            .query_row(params![row, episode.task, episode.sample], |row| row.get(0))
            .optional()?;
        match known {
            Some(recorded) if recorded != *task_id => {
                let asked = task_id.clone();
                let (run, episode) = (run.to_owned(), *episode);
                return Err(StoreError::OtherTask { run, episode, recorded, asked }.into());
            }
            _ => {}
        }
    }
    for QueuedEpisode { episode, task_id } in episodes {
        insert_queued(connection, row, *episode, task_id)?;
    }
    Ok(())
}

/// Does nothing when the attempt is there already.
fn insert_queued(
    connection: &Connection,
    run: i64,
    episode: EpisodeRef,
    task_id: &str,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO episodes (run, task, sample, attempt, task_id, state)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (run, task, sample, attempt) DO NOTHING",
        )?
        .execute(params![
            run,
            episode.task,
            episode.sample,
            episode.attempt,
            task_id,
            State::Queued.name()
        ])?;
    Ok(())
}

/// Cancels what was interrupted and queues its next attempts.
fn resume(connection: &Connection, run: &str) -> Result<ResumePlan, Trouble> {
    let row = read::run_row(connection, run)?;
    let attempts = read::episodes(connection, run)?;
    for attempt in &attempts {
        if matches!(attempt.state, State::Running | State::Ended) {
            let to = attempt.state.after(Step::Cancel).map_err(|source| StoreError::Illegal {
                run: run.to_owned(),
                episode: attempt.episode,
                source,
            })?;
            connection
                .prepare_cached(
                    "UPDATE episodes SET state = ?5, reason = 'interrupted'
                     WHERE run = ?1 AND task = ?2 AND sample = ?3 AND attempt = ?4",
                )?
                .execute(params![
                    row,
                    attempt.episode.task,
                    attempt.episode.sample,
                    attempt.episode.attempt,
                    to.name()
                ])?;
        }
    }
    let plan = ResumePlan::of(attempts);
    for QueuedEpisode { episode, task_id } in &plan.missing {
        insert_queued(connection, row, *episode, task_id)?;
    }
    set_status(connection, row, RunStatus::Running)?;
    Ok(plan)
}

fn start(connection: &Connection, target: &Target) -> Result<i64, Trouble> {
    let (row, state) = connection
        .prepare_cached(
            "SELECT episodes.number, episodes.state
             FROM episodes JOIN runs ON runs.number = episodes.run
             WHERE runs.id = ?1 AND task = ?2 AND sample = ?3 AND attempt = ?4",
        )?
        .query_row(
            params![target.run, target.episode.task, target.episode.sample, target.episode.attempt],
            |row| Ok((row.get::<_, i64>(0)?, state_at(row, 1)?)),
        )
        .optional()?
        .ok_or_else(|| unknown(target))?;
    let to = step(target, state, Step::Start)?;
    connection
        .prepare_cached("UPDATE episodes SET state = ?2, started_ms = ?3 WHERE number = ?1")?
        .execute(params![row, to.name(), milliseconds(Timestamp::now())])?;
    Ok(row)
}

fn journal(
    connection: &Connection,
    target: &Target,
    entries: &[EncodedEntry],
    change: Option<&Change>,
) -> Result<(), Trouble> {
    let row = match target.row.get() {
        Some(Ok(row)) => *row,
        Some(Err(error)) => return Err(error.clone().into()),
        None => return Err(unknown(target).into()),
    };
    if entries.is_empty() && change.is_none() {
        return Ok(());
    }
    let state = connection
        .prepare_cached("SELECT state FROM episodes WHERE number = ?1")?
        .query_row([row], |row| state_at(row, 0))?;
    if !entries.is_empty() && !state.is_open() {
        let (run, episode) = (target.run.clone(), target.episode);
        return Err(StoreError::JournalClosed { run, episode }.into());
    }
    let to = match change {
        Some(change) => Some(step(target, state, step_of(change))?),
        None => None,
    };
    insert_entries(connection, row, entries)?;
    match (change, to) {
        (Some(change), Some(to)) if to != state => record(connection, row, to, change),
        _ => Ok(()),
    }
}

fn insert_entries(
    connection: &Connection,
    row: i64,
    entries: &[EncodedEntry],
) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO entries
            (episode, sequence, kind, prompt_tokens, completion_tokens, body, packed)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    for entry in entries {
        insert.execute(params![
            row,
            entry.sequence,
            entry.kind,
            entry.usage.map(|usage| integer(usage.prompt_tokens)),
            entry.usage.map(|usage| integer(usage.completion_tokens)),
            entry.body,
            entry.packed,
        ])?;
    }
    Ok(())
}

const fn step_of(change: &Change) -> Step {
    match change {
        Change::End { .. } => Step::End,
        Change::Score { .. } => Step::Score,
        Change::Fail { .. } => Step::Fail,
        Change::Drop { .. } => Step::Drop,
        Change::Cancel { .. } => Step::Cancel,
    }
}

fn record(connection: &Connection, row: i64, to: State, change: &Change) -> Result<(), Trouble> {
    match change {
        Change::End { kind, ending, tree, changes, counts } => {
            close(connection, row, to, Some(kind.name()), None, counts)?;
            connection
                .prepare_cached(
                    "INSERT INTO endings (episode, body, tree, changes) VALUES (?1, ?2, ?3, ?4)",
                )?
                .execute(params![row, ending, tree.map(|tree| tree.to_string()), changes])?;
        }
        Change::Score { scores, total } => {
            connection
                .prepare_cached("UPDATE episodes SET state = ?2, total = ?3 WHERE number = ?1")?
                .execute(params![row, to.name(), total])?;
            insert_scores(connection, Scored::ByRun, row, scores)?;
        }
        Change::Fail { reason, retry, counts } => {
            close(connection, row, to, None, Some(reason), counts)?;
            if *retry {
                queue_next(connection, row)?;
            }
        }
        Change::Drop { reason, counts } => {
            close(connection, row, to, None, Some(reason), counts)?;
        }
        Change::Cancel { counts } => close(connection, row, to, None, None, counts)?,
    }
    Ok(())
}

/// Leaves the running state, or the ended one: what was recorded before is kept.
fn close(
    connection: &Connection,
    row: i64,
    to: State,
    kind: Option<&str>,
    reason: Option<&str>,
    counts: &JournalCounts,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE episodes SET
                state = ?2, kind = coalesce(kind, ?3), reason = ?4,
                turns = ?5, prompt_tokens = ?6, completion_tokens = ?7,
                ended_ms = coalesce(ended_ms, ?8)
             WHERE number = ?1",
        )?
        .execute(params![
            row,
            to.name(),
            kind,
            reason,
            integer(counts.turns),
            integer(counts.prompt_tokens),
            integer(counts.completion_tokens),
            milliseconds(Timestamp::now()),
        ])?;
    Ok(())
}

fn queue_next(connection: &Connection, row: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO episodes (run, task, sample, attempt, task_id, state)
             SELECT run, task, sample, attempt + 1, task_id, ?2 FROM episodes WHERE number = ?1
             ON CONFLICT (run, task, sample, attempt) DO NOTHING",
        )?
        .execute(params![row, State::Queued.name()])?;
    Ok(())
}

/// Whose scores they are: the run's own, or those of a later grading.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scored {
    ByRun,
    ByGrading(i64),
}

pub(crate) fn insert_scores(
    connection: &Connection,
    by: Scored,
    row: i64,
    scores: &[Score],
) -> Result<(), Trouble> {
    let (score_table, part_table, grading) = match by {
        Scored::ByRun => (
            "scores (episode, position, reward, weight, total, notes)",
            "score_parts (episode, position, part, name, turn, value)",
            "",
        ),
        Scored::ByGrading(_) => (
            "graded_scores (episode, position, reward, weight, total, notes, grading)",
            "graded_parts (episode, position, part, name, turn, value, grading)",
            ", ?7",
        ),
    };
    let score_text = format!("INSERT INTO {score_table} VALUES (?1, ?2, ?3, ?4, ?5, ?6{grading})");
    let part_text = format!("INSERT INTO {part_table} VALUES (?1, ?2, ?3, ?4, ?5, ?6{grading})");
    for (position, score) in (0_i64..).zip(scores) {
        let notes = serde_json::to_string(&score.notes)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        let Score { reward, weight, total, .. } = score;
        let mut insert = connection.prepare_cached(&score_text)?;
        match by {
            Scored::ByRun => {
                insert.execute(params![row, position, reward, weight, total, notes])?
            }
            Scored::ByGrading(grading) => {
                insert.execute(params![row, position, reward, weight, total, notes, grading])?
            }
        };
        let named = score.components.iter().map(|part| (Some(&part.name), None, part.value));
        let turns = score.turns.iter().map(|turn| (None, Some(turn.turn), turn.value));
        let mut insert = connection.prepare_cached(&part_text)?;
        for (part, (name, turn, value)) in (0_i64..).zip(named.chain(turns)) {
            match by {
                Scored::ByRun => insert.execute(params![row, position, part, name, turn, value])?,
                Scored::ByGrading(grading) => {
                    insert.execute(params![row, position, part, name, turn, value, grading])?
                }
            };
        }
    }
    Ok(())
}

fn step(target: &Target, from: State, step: Step) -> Result<State, StoreError> {
    from.after(step).map_err(|source| StoreError::Illegal {
        run: target.run.clone(),
        episode: target.episode,
        source,
    })
}

fn unknown(target: &Target) -> StoreError {
    StoreError::UnknownEpisode { run: target.run.clone(), episode: target.episode }
}

/// A column that names a state.
pub(crate) fn state_at(row: &Row<'_>, column: usize) -> rusqlite::Result<State> {
    let name: String = row.get(column)?;
    State::from_str(&name).map_err(|error| read::conversion(column, error))
}

/// Numbers as SQLite keeps them.
fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
