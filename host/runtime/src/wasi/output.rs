//! Standard output and error: kept head and tail, or handed to another program.
//!
//! Writing never blocks, fails or traps for want of room: what does not fit is counted and left
//! out in the middle, so that a guest that prints a gigabyte costs no more than one that prints
//! the caps.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use fulgurite_trace::Captured;
use wasmtime_wasi_io::{
    bytes::Bytes,
    poll::Pollable,
    streams::{DynOutputStream, OutputStream, StreamError, StreamResult},
};

use super::pipe::{PipeOutput, PipeWriter, Side};

/// The most a guest may write in one call.
pub(crate) const WRITE_PERMIT: usize = 64 << 10;

/// Where a guest's output goes.
#[derive(Debug)]
pub enum Output {
    /// The first `head` and the last `tail` bytes are kept.
    Capture {
        /// Bytes kept of the beginning.
        head: usize,
        /// Bytes kept of the end.
        tail: usize,
    },
    /// To another program; see [`super::connect`].
    Pipe(PipeWriter),
}

impl Default for Output {
    /// 32 KiB of each end.
    fn default() -> Self {
        Self::Capture { head: 32 << 10, tail: 32 << 10 }
    }
}

/// Head and tail of what was written.
#[derive(Debug)]
pub(crate) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_limit: usize,
    tail_limit: usize,
    total: u64,
}

impl Capture {
    fn new(head_limit: usize, tail_limit: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), head_limit, tail_limit, total: 0 }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.total = self.total.saturating_add(bytes.len() as u64);
        let room = self.head_limit.saturating_sub(self.head.len());
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        let (_, rest) = rest.split_at(rest.len().saturating_sub(self.tail_limit));
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.tail_limit);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    fn captured(&self) -> Captured {
        let mut bytes = self.head.clone();
        let kept = (self.head.len() + self.tail.len()) as u64;
        if let omitted @ 1.. = self.total.saturating_sub(kept) {
            bytes.extend_from_slice(format!("\n[... {omitted} bytes left out ...]\n").as_bytes());
        }
        bytes.extend(&self.tail);
        Captured { bytes, total: self.total }
    }
}

#[derive(Clone)]
enum Target {
    Capture(Arc<Mutex<Capture>>),
    Pipe(Side),
}

/// Where one of the two standard streams leads while the guest runs.
pub(super) struct Sink {
    target: Target,
    /// Closes the pipe when dropped.
    _writer: Option<PipeWriter>,
    /// Whether the output belongs to another sink, which alone reports it.
    shared: bool,
}

impl Sink {
    pub(super) fn new(output: Output) -> Self {
        match output {
            Output::Capture { head, tail } => {
                let capture = Arc::new(Mutex::new(Capture::new(head, tail)));
                Self { target: Target::Capture(capture), _writer: None, shared: false }
            }
            Output::Pipe(writer) => {
                Self { target: Target::Pipe(writer.side()), _writer: Some(writer), shared: false }
            }
        }
    }

    /// A second way to the same place.
    pub(super) fn share(&self) -> Self {
        Self { target: self.target.clone(), _writer: None, shared: true }
    }

    pub(super) fn side(&self) -> Option<Side> {
        match &self.target {
            Target::Capture(_) => None,
            Target::Pipe(side) => Some(side.clone()),
        }
    }

    pub(super) fn stream(&self) -> DynOutputStream {
        match &self.target {
            Target::Capture(capture) => Box::new(CaptureOutput(Arc::clone(capture))),
            Target::Pipe(side) => Box::new(PipeOutput::new(side.clone())),
        }
    }

    pub(super) fn captured(&self) -> Captured {
        match &self.target {
            Target::Capture(capture) if !self.shared => {
                capture.lock().unwrap_or_else(PoisonError::into_inner).captured()
            }
            _ => Captured::default(),
        }
    }
}

struct CaptureOutput(Arc<Mutex<Capture>>);

#[wasmtime_wasi_io::async_trait]
impl Pollable for CaptureOutput {
    async fn ready(&mut self) {}
}

impl OutputStream for CaptureOutput {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        check_permit(&bytes)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_PERMIT)
    }
}

/// Refuses a write that is larger than any permit, as WASI demands.
pub(super) fn check_permit(bytes: &Bytes) -> StreamResult<()> {
    if bytes.len() > WRITE_PERMIT {
        return Err(StreamError::trap("a write larger than check-write permits"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(head: usize, tail: usize, pieces: &[&str]) -> (String, u64) {
        let mut capture = Capture::new(head, tail);
        for piece in pieces {
            capture.write(piece.as_bytes());
        }
        let captured = capture.captured();
        (String::from_utf8(captured.bytes).unwrap(), captured.total)
    }

    #[test]
    fn what_fits_is_kept_whole() {
        assert_eq!(written(3, 3, &["ab", "cd", "ef"]), ("abcdef".into(), 6));
        assert_eq!(written(3, 3, &[]), (String::new(), 0));
    }

    #[test]
    fn middle_is_left_out_and_counted() {
        let (text, total) = written(2, 2, &["abc", "defg", "h"]);
        assert_eq!(text, "ab\n[... 4 bytes left out ...]\ngh");
        assert_eq!(total, 8);
    }

    #[test]
    fn cutting_does_not_depend_on_the_size_of_writes() {
        let text: String = ('a'..='z').cycle().take(1000).collect();
        let whole = written(10, 17, &[&text]);
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let pieces: Vec<&str> = letters.iter().map(String::as_str).collect();
        assert_eq!(whole, written(10, 17, &pieces));
    }

    #[test]
    fn nothing_is_kept_where_nothing_is_wanted() {
        assert_eq!(written(0, 0, &["abc"]), ("\n[... 3 bytes left out ...]\n".into(), 3));
    }

    #[test]
    fn shared_sink_reports_nothing_itself() {
        let sink = Sink::new(Output::default());
        let shared = sink.share();
        shared.stream().write(Bytes::from_static(b"x")).unwrap();
        assert_eq!(sink.captured().bytes, b"x");
        assert_eq!(shared.captured(), Captured::default());
    }
}
