//! Sending provisional text to a receiver that may be slow.

use std::collections::VecDeque;

use tokio::sync::mpsc;

use crate::Chunk;

/// Sends chunks without ever waiting. What the receiver has no room for is kept and joined, so
/// that it sees no gaps; a receiver that is gone costs nothing.
pub(crate) struct ChunkSender {
    sender: Option<mpsc::Sender<Chunk>>,
    waiting: VecDeque<Chunk>,
}

impl ChunkSender {
    pub(crate) const fn new(sender: Option<mpsc::Sender<Chunk>>) -> Self {
        Self { sender, waiting: VecDeque::new() }
    }

    /// Sends a chunk, now or with a later one.
    pub(crate) fn send(&mut self, chunk: Chunk) {
        if self.sender.is_none() {
            return;
        }
        match (self.waiting.back_mut(), chunk) {
            (_, Chunk::Text(text) | Chunk::Thinking(text)) if text.is_empty() => return,
            (Some(Chunk::Text(last)), Chunk::Text(text))
            | (Some(Chunk::Thinking(last)), Chunk::Thinking(text)) => last.push_str(&text),
            (_, chunk) => self.waiting.push_back(chunk),
        }
        self.flush();
    }

    /// Sends what still waits, as far as there is room.
    pub(crate) fn flush(&mut self) {
        let Some(sender) = &self.sender else { return };
        while let Some(chunk) = self.waiting.pop_front() {
            match sender.try_send(chunk) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(chunk)) => {
                    self.waiting.push_front(chunk);
                    return;
                }
                Err(mpsc::error::TrySendError::Closed(_)) => {
                    self.sender = None;
                    self.waiting.clear();
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_receiver_sees_joined_chunks_without_gaps() {
        let (sender, mut receiver) = mpsc::channel(1);
        let mut chunks = ChunkSender::new(Some(sender));
        for text in ["a", "b", "c"] {
            chunks.send(Chunk::Text(text.to_owned()));
        }
        chunks.send(Chunk::Thinking("t".to_owned()));
        chunks.send(Chunk::Text(String::new()));
        assert_eq!(receiver.try_recv(), Ok(Chunk::Text("a".to_owned())));
        chunks.flush();
        assert_eq!(receiver.try_recv(), Ok(Chunk::Text("bc".to_owned())));
        chunks.flush();
        assert_eq!(receiver.try_recv(), Ok(Chunk::Thinking("t".to_owned())));
        drop(receiver);
        chunks.send(Chunk::Text("lost".to_owned()));
        assert!(chunks.sender.is_none());
    }
}
