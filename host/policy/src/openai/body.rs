//! Reading an answer's body: bounded in size, and in the time between two pieces.

use std::time::Duration;

use futures::{Stream, stream};
use reqwest::Response;

use super::failure;
use crate::PolicyError;

/// The largest answer that is read.
const MAXIMUM_BODY: usize = 64 << 20;
/// The longest line of an event stream.
const MAXIMUM_LINE: usize = 4 << 20;
/// The largest body of a failure that is read.
const MAXIMUM_FAILURE: usize = 64 << 10;

/// A body and the limits it is read under.
pub(super) struct BodyReader<'a> {
    pub(super) response: Response,
    pub(super) idle: Duration,
    pub(super) place: &'a str,
}

impl BodyReader<'_> {
    async fn next(&mut self) -> Result<Option<impl AsRef<[u8]> + use<>>, PolicyError> {
        match tokio::time::timeout(self.idle, self.response.chunk()).await {
            Err(_) => Err(PolicyError::Timeout),
            Ok(Err(error)) => Err(failure::transport(&error, self.place)),
            Ok(Ok(piece)) => Ok(piece),
        }
    }

    /// The whole body.
    pub(super) async fn whole(mut self) -> Result<Vec<u8>, PolicyError> {
        let mut body = Vec::new();
        while let Some(piece) = self.next().await? {
            body.extend_from_slice(piece.as_ref());
            if body.len() > MAXIMUM_BODY {
                return Err(too_large(self.place));
            }
        }
        Ok(body)
    }

    /// The beginning of a failure's body; a failure while reading it does not matter.
    pub(super) async fn beginning(mut self) -> Vec<u8> {
        let mut body = Vec::new();
        while body.len() < MAXIMUM_FAILURE
            && let Ok(Some(piece)) = self.next().await
        {
            body.extend_from_slice(piece.as_ref());
        }
        body.truncate(MAXIMUM_FAILURE);
        body
    }

    /// The body in pieces. A line must be short, because a reader of lines keeps all of it.
    pub(super) fn pieces(self) -> impl Stream<Item = Result<impl AsRef<[u8]>, PolicyError>> {
        struct State<'a> {
            reader: BodyReader<'a>,
            total: usize,
            line: usize,
        }
        let state = State { reader: self, total: 0, line: 0 };
        stream::try_unfold(state, async |mut state| {
            let Some(piece) = state.reader.next().await? else { return Ok(None) };
            let bytes = piece.as_ref();
            state.total = state.total.saturating_add(bytes.len());
            state.line = match bytes.iter().rposition(|byte| *byte == b'\n') {
                Some(end) => bytes.len() - end - 1,
                None => state.line.saturating_add(bytes.len()),
            };
            if state.total > MAXIMUM_BODY || state.line > MAXIMUM_LINE {
                return Err(too_large(state.reader.place));
            }
            Ok(Some((piece, state)))
        })
    }
}

fn too_large(place: &str) -> PolicyError {
    PolicyError::Internal(format!(
        "the answer of {place} is larger than {} MiB, or one line of it than {} MiB",
        MAXIMUM_BODY >> 20,
        MAXIMUM_LINE >> 20
    ))
}
