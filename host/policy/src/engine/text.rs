//! The text of a reply while it is written: whole characters, stop strings, chunks.

use crate::{
    Chunk,
    chat::{THINK_CLOSE, THINK_OPEN, TOOL_CALL_OPEN},
    chunks::ChunkSender,
};

/// What the text at its end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nothing but blanks so far.
    Start,
    Thinking,
    Text,
    /// Tool calls are not streamed.
    Calls,
}

/// A reply's text.
pub(super) struct ReplyText {
    text: String,
    /// Bytes of a character that is not complete.
    partial: Vec<u8>,
    stops: Vec<String>,
    tools: bool,
    place: Place,
    /// How much of the text was sent or passed over.
    sent: usize,
}

impl ReplyText {
    pub(super) fn new(stops: &[String], tools: bool) -> Self {
        Self {
            text: String::new(),
            partial: Vec::new(),
            stops: stops.to_vec(),
            tools,
            place: Place::Start,
            sent: 0,
        }
    }

    /// Adds the bytes of a token. `true` when a stop string is complete: it and what follows is
    /// cut off, and nothing more may be added.
    pub(super) fn push(&mut self, bytes: &[u8], chunks: &mut ChunkSender) -> bool {
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let mut from = self.text.len().saturating_sub(longest);
        while !self.text.is_char_boundary(from) {
            from -= 1;
        }
        self.partial.extend_from_slice(bytes);
        self.take_complete();
        let added = self.text.get(from..).unwrap_or_default();
        let stop = self.stops.iter().filter_map(|stop| added.find(stop.as_str())).min();
        if let Some(stop) = stop {
            self.text.truncate(from + stop);
            self.partial.clear();
            return true;
        }
        self.send(self.text.len() - self.undecided(), chunks);
        false
    }

    /// The whole text, after the rest of it is sent.
    pub(super) fn finish(mut self, chunks: &mut ChunkSender) -> String {
        self.text.push_str(&String::from_utf8_lossy(&self.partial));
        self.send(self.text.len(), chunks);
        chunks.flush();
        self.text
    }

    /// Moves whole characters from `partial` to the text; bytes that can be part of none become
    /// U+FFFD.
    fn take_complete(&mut self) {
        let mut kept = 0;
        for part in self.partial.utf8_chunks() {
            self.text.push_str(part.valid());
            kept += part.valid().len();
            let invalid = part.invalid();
            if invalid.is_empty() {
                continue;
            }
            if kept + invalid.len() == self.partial.len() && may_grow(invalid) {
                break;
            }
            self.text.push(char::REPLACEMENT_CHARACTER);
            kept += invalid.len();
        }
        self.partial.drain(..kept);
    }

    /// How many bytes at the end may yet turn out to begin a stop string or marker.
    fn undecided(&self) -> usize {
        let stops = self.stops.iter().map(String::as_str);
        let markers = [THINK_OPEN, THINK_CLOSE, TOOL_CALL_OPEN];
        stops.chain(markers).map(|word| overlap(&self.text, word)).max().unwrap_or(0)
    }

    /// Sends the text up to `end`.
    fn send(&mut self, end: usize, chunks: &mut ChunkSender) {
        while let Some(rest) = self.text.get(self.sent..end).filter(|rest| !rest.is_empty()) {
            match self.place {
                Place::Start => {
                    let blanks = rest.len() - rest.trim_start().len();
                    if blanks == rest.len() {
                        return;
                    }
                    if rest.trim_start().starts_with(THINK_OPEN) {
                        self.sent += blanks + THINK_OPEN.len();
                        self.place = Place::Thinking;
                    } else {
                        self.place = Place::Text;
                    }
                }
                Place::Thinking => match rest.find(THINK_CLOSE) {
                    Some(close) => {
                        chunks.send(Chunk::Thinking(rest.get(..close).unwrap_or_default().into()));
                        self.sent += close + THINK_CLOSE.len();
                        self.place = Place::Text;
                    }
                    None => {
                        chunks.send(Chunk::Thinking(rest.to_owned()));
                        self.sent = end;
                    }
                },
                Place::Text => {
                    let call = rest.find(TOOL_CALL_OPEN).filter(|_| self.tools);
                    let until = call.unwrap_or(rest.len());
                    chunks.send(Chunk::Text(rest.get(..until).unwrap_or_default().to_owned()));
                    self.sent += until;
                    if call.is_some() {
                        self.place = Place::Calls;
                    }
                }
                Place::Calls => return,
            }
        }
    }
}

/// Whether more bytes could complete these to a character.
fn may_grow(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// The longest end of `text` that is a beginning of `word`, but not all of it.
fn overlap(text: &str, word: &str) -> usize {
    (1..word.len().min(text.len() + 1))
        .rev()
        .find(|length| {
            word.as_bytes().get(..*length).is_some_and(|begin| text.as_bytes().ends_with(begin))
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    /// Pushes the pieces until one stops; gives the text, whether it stopped, and the chunks.
    fn written(pieces: &[&[u8]], stops: &[&str], tools: bool) -> (String, bool, Vec<Chunk>) {
        let (sender, mut receiver) = mpsc::channel(1000);
        let mut chunks = ChunkSender::new(Some(sender));
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let mut text = ReplyText::new(&stops, tools);
        let stopped = pieces.iter().any(|piece| text.push(piece, &mut chunks));
        let text = text.finish(&mut chunks);
        let mut received = Vec::new();
        while let Ok(chunk) = receiver.try_recv() {
            received.push(chunk);
        }
        (text, stopped, received)
    }

    fn joined(chunks: &[Chunk]) -> (String, String) {
        let mut joined = (String::new(), String::new());
        for chunk in chunks {
            match chunk {
                Chunk::Thinking(text) => joined.0.push_str(text),
                Chunk::Text(text) => joined.1.push_str(text),
            }
        }
        joined
    }

    #[test]
    fn characters_are_sent_whole() {
        let euro = "€".as_bytes();
        let (text, _, chunks) =
            written(&[b"a", &euro[..1], &euro[1..2], &euro[2..], b"b"], &[], false);
        assert_eq!(text, "a€b");
        assert_eq!(joined(&chunks).1, "a€b");
        let (text, _, _) = written(&[b"\xff", b"x", &euro[..2]], &[], false);
        assert_eq!(text, "\u{FFFD}x\u{FFFD}");
    }

    #[test]
    fn stop_strings_are_cut_and_never_sent() {
        let pieces: [&[u8]; 6] = [b"one ", b"E", b"N", b"E", b"ND", b" two"];
        let (text, stopped, chunks) = written(&pieces, &["END", "XYZ"], false);
        assert!(stopped);
        assert_eq!(text, "one EN");
        assert_eq!(joined(&chunks).1, "one EN");
        let (text, stopped, chunks) = written(&[b"one EN"], &["END"], false);
        assert!(!stopped);
        assert_eq!((text.as_str(), joined(&chunks).1.as_str()), ("one EN", "one EN"));
        let (text, _, _) = written(&[b"aSTOPbHALT"], &["HALT", "STOP"], false);
        assert_eq!(text, "a", "the first in the text counts");
    }

    #[test]
    fn thinking_and_tool_calls_are_told_apart() {
        let reply = "\n<think>hm, <b></think>look:<tool_call>{}</tool_call>";
        for size in [1, 2, 7, 100] {
            let pieces: Vec<&[u8]> = reply.as_bytes().chunks(size).collect();
            let (text, _, chunks) = written(&pieces, &[], true);
            assert_eq!(text, reply);
            assert_eq!(joined(&chunks), ("hm, <b>".to_owned(), "look:".to_owned()), "{size}");
            let (_, _, chunks) = written(&pieces, &[], false);
            assert_eq!(joined(&chunks).1, "look:<tool_call>{}</tool_call>");
        }
    }

    proptest::proptest! {
        #[test]
        fn however_it_is_cut_the_text_is_the_same(text in ".{0,40}", size in 1usize..6) {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            let (written, _, chunks) = written(&pieces, &["\u{1}never"], false);
            proptest::prop_assert_eq!(&written, &text);
            let (thinking, sent) = joined(&chunks);
            if thinking.is_empty() && !text.contains("<think>") && !text.trim().is_empty() {
                proptest::prop_assert_eq!(&sent, &text);
            }
        }
    }
}
