//! TensorBoard event files, scalars only.
//!
//! A file is a sequence of records: length (u64, little-endian), masked CRC-32C of the length,
//! the bytes, masked CRC-32C of the bytes (TensorFlow's `lib/io/record_writer.h`). Each record is
//! an `Event` message of protocol buffers (`util/event.proto`): `wall_time` = 1 (double),
//! `step` = 2 (int64), `file_version` = 3 (string), `summary` = 5; a `Summary` holds `value` = 1,
//! repeated, each with `tag` = 1 (string) and `simple_value` = 2 (float). That little is written
//! here by hand; the crates that offer it bring image codecs along.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use fulgurite_trace::Timestamp;

/// Writes one event file.
#[derive(Debug)]
pub struct EventWriter {
    file: File,
    path: PathBuf,
}

impl EventWriter {
    /// Begins a new file in `folder`, which is made when it is not there. Files of earlier
    /// processes stay; TensorBoard reads all of them.
    pub fn create(folder: &Path, now: Timestamp) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        for attempt in 0_u32.. {
            // TensorBoard asks for `tfevents` in the name and reads files in the order of names.
            let seconds = now.0 / 1000;
            let process = std::process::id();
            let path = folder
                .join(format!("events.out.tfevents.{seconds:010}.fulgurite.{process}.{attempt}"));
            let file = match OpenOptions::new().create_new(true).append(true).open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            };
            let mut writer = Self { file, path };
            let mut event = header(now, 0);
            bytes(&mut event, 3, b"brain.Event:2");
            writer.record(&event)?;
            return Ok(writer);
        }
        Err(io::Error::other("every name for an event file is taken"))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the scalars of a step in one record.
    #[allow(clippy::cast_possible_truncation)]
    pub fn scalars<'a>(
        &mut self,
        now: Timestamp,
        step: u64,
        scalars: impl IntoIterator<Item = (&'a str, f64)>,
    ) -> io::Result<()> {
        let mut summary = Vec::new();
        for (tag, number) in scalars {
            let mut value = Vec::new();
            bytes(&mut value, 1, tag.as_bytes());
            key(&mut value, 2, 5);
            value.extend((number as f32).to_le_bytes());
            bytes(&mut summary, 1, &value);
        }
        let mut event = header(now, step);
        bytes(&mut event, 5, &summary);
        self.record(&event)
    }

    fn record(&mut self, data: &[u8]) -> io::Result<()> {
        let length = (data.len() as u64).to_le_bytes();
        let mut record = Vec::with_capacity(data.len().saturating_add(16));
        record.extend(length);
        record.extend(masked(&length).to_le_bytes());
        record.extend(data);
        record.extend(masked(data).to_le_bytes());
        // One call, so that a reader rarely meets half a record.
        self.file.write_all(&record)
    }
}

#[allow(clippy::cast_precision_loss)]
fn header(now: Timestamp, step: u64) -> Vec<u8> {
    let mut event = Vec::new();
    key(&mut event, 1, 1);
    event.extend((now.0 as f64 / 1000.0).to_le_bytes());
    // Zero is what is read where nothing is written.
    if step > 0 {
        key(&mut event, 2, 0);
        number(&mut event, step);
    }
    event
}

/// CRCs of data that holds CRCs are masked.
fn masked(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn key(to: &mut Vec<u8>, field: u64, wire: u64) {
    number(to, field << 3 | wire);
}

fn bytes(to: &mut Vec<u8>, field: u64, value: &[u8]) {
    key(to, field, 2);
    number(to, value.len() as u64);
    to.extend(value);
}

/// A variable-length integer.
fn number(to: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        to.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made and read back by TensorBoard 2.21 (`tests/golden/events.py`).
    const BY_TENSORBOARD: &str = include_str!("../tests/golden/events.hex");

    fn write() -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let now = Timestamp(1_796_051_820_500);
        let mut writer = EventWriter::create(folder.path(), now).unwrap();
        writer.scalars(now, 0, [("reward/train", 0.25), ("loss", -1.5)]).unwrap();
        writer.scalars(now, 300, [("reward/train", 0.75)]).unwrap();
        std::fs::read(writer.path()).unwrap()
    }

    #[test]
    fn the_file_is_the_one_that_tensorboard_writes() {
        let hex: String = write().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, BY_TENSORBOARD.trim());
    }

    #[test]
    fn another_process_or_start_gets_another_file() {
        let folder = tempfile::tempdir().unwrap();
        let one = EventWriter::create(folder.path(), Timestamp(1)).unwrap();
        let other = EventWriter::create(folder.path(), Timestamp(1)).unwrap();
        assert_ne!(one.path(), other.path());
    }
}
