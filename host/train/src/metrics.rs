//! Numbers of each step, as JSON Lines and as TensorBoard event files.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use fulgurite_trace::Timestamp;
use serde::{Deserialize, Serialize};

use crate::tensorboard::EventWriter;

/// Numbers by name; names with the same part before a `/` belong together. Numbers that are not
/// finite are left out when written.
pub type Metrics = BTreeMap<String, f64>;

/// One line of the metrics file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricsLine {
    /// The training step.
    pub step: u64,
    /// When, in milliseconds since 1970.
    pub time: Timestamp,
    /// The numbers.
    pub metrics: Metrics,
}

/// Writes the metrics of a run.
#[derive(Debug)]
pub struct MetricsWriter {
    lines: File,
    written: u64,
    events: EventWriter,
}

/// The name of the JSON Lines file.
pub const LINES: &str = "metrics.jsonl";

impl MetricsWriter {
    /// Continues the metrics in `folder` after their first `written` lines. Later ones are removed:
    /// they were written after the checkpoint from which training goes on, and what they tell of
    /// is done again.
    pub fn open(folder: &Path, written: u64, now: Timestamp) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let path = folder.join(LINES);
        let (written, bytes) = kept(&path, written)?;
        let mut lines = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
        lines.set_len(bytes)?;
        lines.seek(SeekFrom::End(0))?;
        let events = EventWriter::create(&folder.join("tensorboard"), now)?;
        Ok(Self { lines, written, events })
    }

    /// Lines so far, for [`MetricsWriter::open`].
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// Writes the metrics of a step.
    pub fn write(&mut self, step: u64, now: Timestamp, metrics: &Metrics) -> io::Result<()> {
        let finite = || metrics.iter().filter(|(_, value)| value.is_finite());
        let metrics = finite().map(|(name, value)| (name.clone(), *value)).collect();
        let mut line = serde_json::to_vec(&MetricsLine { step, time: now, metrics })?;
        line.push(b'\n');
        self.lines.write_all(&line)?;
        self.written = self.written.saturating_add(1);
        self.events.scalars(now, step, finite().map(|(name, value)| (name.as_str(), *value)))
    }
}

/// Reads the metrics in `folder`; lines that cannot be read end them.
pub fn read(folder: &Path) -> io::Result<Vec<MetricsLine>> {
    let mut all = Vec::new();
    for line in lines(&folder.join(LINES))? {
        let Ok(line) = serde_json::from_slice(&line?) else { break };
        all.push(line);
    }
    Ok(all)
}

fn lines(path: &Path) -> io::Result<impl Iterator<Item = io::Result<Vec<u8>>> + use<>> {
    let file = match File::open(path) {
        Ok(file) => Some(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    Ok(file.into_iter().flat_map(|file| BufReader::new(file).split(b'\n')))
}

/// How many whole lines there are, at most `most`, and their bytes.
fn kept(path: &PathBuf, most: u64) -> io::Result<(u64, u64)> {
    let (mut count, mut bytes) = (0_u64, 0_u64);
    let whole = std::fs::metadata(path).map_or(0, |file| file.len());
    for line in lines(path)? {
        let line = line?;
        let end = bytes.saturating_add(line.len() as u64).saturating_add(1);
        if count >= most || end > whole || serde_json::from_slice::<MetricsLine>(&line).is_err() {
            break;
        }
        (count, bytes) = (count.saturating_add(1), end);
    }
    Ok((count, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(value: f64) -> Metrics {
        [("reward/train".to_owned(), value), ("loss".to_owned(), f64::NAN)].into()
    }

    #[test]
    fn a_run_that_goes_on_removes_what_it_does_again() {
        let folder = tempfile::tempdir().unwrap();
        let now = Timestamp(5);
        let mut writer = MetricsWriter::open(folder.path(), 0, now).unwrap();
        for step in 0..4 {
            writer.write(step, now, &numbers(step as f64)).unwrap();
        }
        writer.lines.write_all(br#"{"step":4,"time":5,"metr"#).unwrap();
        drop(writer);
        let mut writer = MetricsWriter::open(folder.path(), 2, now).unwrap();
        writer.write(2, now, &numbers(20.0)).unwrap();
        let lines = read(folder.path()).unwrap();
        let rewards: Vec<_> =
            lines.iter().map(|line| (line.step, line.metrics["reward/train"])).collect();
        assert_eq!(rewards, [(0, 0.0), (1, 1.0), (2, 20.0)]);
        assert!(!lines[0].metrics.contains_key("loss"), "what is no number is left out");
        let files = std::fs::read_dir(folder.path().join("tensorboard")).unwrap();
        assert_eq!(files.count(), 2);
    }

    #[test]
    fn nothing_there_is_nothing_read() {
        assert_eq!(read(tempfile::tempdir().unwrap().path()).unwrap(), []);
    }
}
