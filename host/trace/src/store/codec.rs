//! How an entry is laid down.
//!
//! The body is the entry's JSON with its bulk taken out: token ids, log-probabilities, standard
//! streams and metric values are packed apart (see [`super::packed`]). JSON was chosen over a
//! positional format because a store must be readable for years: fields and cases can be added
//! with defaults, old rows stay valid, and any SQLite shell shows what happened. What is large or
//! must be exact to the bit is not in it, so neither its size nor its number parsing matters.
//!
//! A body begins with `{`, or with the byte 1 when it is compressed.

use crate::{EntryBody, Usage};

use super::{
    compress,
    packed::{Packer, Unpacker},
};

const COMPRESSED: u8 = 1;

/// An entry as it is written.
#[derive(Debug, Clone)]
pub(crate) struct EncodedEntry {
    pub(crate) sequence: u32,
    pub(crate) kind: &'static str,
    /// Of turns.
    pub(crate) usage: Option<Usage>,
    pub(crate) body: Vec<u8>,
    pub(crate) packed: Option<Vec<u8>>,
    /// Bytes before compression: what limits count, so that little on disk is never much in
    /// memory.
    pub(crate) full_bytes: usize,
}

impl EncodedEntry {
    /// Bytes it takes, about.
    pub(crate) fn size(&self) -> usize {
        self.body.len() + self.packed.as_ref().map_or(0, Vec::len) + 32
    }
}

/// The name of an entry's kind, as in its JSON.
pub(crate) const fn kind_of(body: &EntryBody) -> &'static str {
    match body {
        EntryBody::Turn(_) => "turn",
        EntryBody::TurnFailed { .. } => "turn-failed",
        EntryBody::Command { .. } => "command",
        EntryBody::Event { .. } => "event",
        EntryBody::Metric { .. } => "metric",
        EntryBody::Denied { .. } => "denied",
        EntryBody::Output { .. } => "output",
        EntryBody::Truncated { .. } => "truncated",
    }
}

/// Packs an entry. Its sequence number is given later.
pub(crate) fn encode(mut entry: EntryBody) -> EncodedEntry {
    let kind = kind_of(&entry);
    let usage = match &entry {
        EntryBody::Turn(turn) => Some(turn.usage),
        _ => None,
    };
    let packed = take_bulk(&mut entry);
    let json = serde_json::to_vec(&entry).unwrap_or_else(|error| {
        // Plain data with text keys always serialises; a note beats a hole in the journal.
        let fields = [["error", &error.to_string()]];
        serde_json::json!({ "event": { "name": "not-serialisable", "fields": fields } })
            .to_string()
            .into_bytes()
    });
    let full_bytes = json.len() + packed.as_ref().map_or(0, Vec::len);
    let body = match compress::deflate(&json) {
        Some(smaller) => std::iter::once(COMPRESSED).chain(smaller).collect(),
        None => json,
    };
    EncodedEntry { sequence: 0, kind, usage, body, packed, full_bytes }
}

/// Unpacks an entry.
pub(crate) fn decode(body: &[u8], packed: Option<&[u8]>) -> Result<EntryBody, String> {
    let mut entry: EntryBody = match body.split_first() {
        Some((&COMPRESSED, form)) => serde_json::from_slice(&compress::inflate(form)?),
        _ => serde_json::from_slice(body),
    }
    .map_err(|error| error.to_string())?;
    put_bulk(&mut entry, packed)?;
    Ok(entry)
}

/// Moves the bulky and the exact parts of an entry into their packed form.
fn take_bulk(entry: &mut EntryBody) -> Option<Vec<u8>> {
    match entry {
        EntryBody::Turn(turn) => {
            let tokens = turn.tokens.as_mut()?;
            let context = std::mem::take(&mut tokens.context);
            let response = std::mem::take(&mut tokens.response);
            let log_probabilities = std::mem::take(&mut tokens.log_probabilities);
            let mut packer = Packer::with_capacity(32 + 3 * context.len() + 7 * response.len());
            packer.ids(&context).ids(&response).singles(&log_probabilities);
            let untruncated = std::mem::take(&mut tokens.untruncated);
            if !untruncated.is_empty() {
                packer.singles(&untruncated);
            }
            Some(packer.finish())
        }
        EntryBody::Command { request, output, .. } => {
            let stdin = std::mem::take(&mut request.stdin);
            let stdout = std::mem::take(&mut output.stdout.bytes);
            let stderr = std::mem::take(&mut output.stderr.bytes);
            let mut packer = Packer::with_capacity(32 + stdin.len() + stdout.len() + stderr.len());
            packer.bytes(&stdin).bytes(&stdout).bytes(&stderr);
            Some(packer.finish())
        }
        EntryBody::Metric { value, .. } => {
            let mut packer = Packer::with_capacity(16);
            packer.double(std::mem::take(value));
            Some(packer.finish())
        }
        EntryBody::TurnFailed { .. }
        | EntryBody::Event { .. }
        | EntryBody::Denied { .. }
        | EntryBody::Output { .. }
        | EntryBody::Truncated { .. } => None,
    }
}

/// The reverse of [`take_bulk`].
fn put_bulk(entry: &mut EntryBody, packed: Option<&[u8]>) -> Result<(), String> {
    let unpacker = || Unpacker::new(packed.unwrap_or_default());
    let rest = match entry {
        EntryBody::Turn(turn) => {
            let Some(tokens) = turn.tokens.as_mut() else { return Ok(()) };
            let mut unpacker = unpacker()?;
            tokens.context = unpacker.ids()?;
            tokens.response = unpacker.ids()?;
            tokens.log_probabilities = unpacker.singles()?;
            // Traces of whole distributions, and those from before there was a choice, lack it.
            if !unpacker.is_empty() {
                tokens.untruncated = unpacker.singles()?;
            }
            unpacker
        }
        EntryBody::Command { request, output, .. } => {
            let mut unpacker = unpacker()?;
            request.stdin = unpacker.bytes()?;
            output.stdout.bytes = unpacker.bytes()?;
            output.stderr.bytes = unpacker.bytes()?;
            unpacker
        }
        EntryBody::Metric { value, .. } => {
            let mut unpacker = unpacker()?;
            *value = unpacker.double()?;
            unpacker
        }
        EntryBody::TurnFailed { .. }
        | EntryBody::Event { .. }
        | EntryBody::Denied { .. }
        | EntryBody::Output { .. }
        | EntryBody::Truncated { .. } => return Ok(()),
    };
    if rest.is_empty() {
        Ok(())
    } else {
        Err("packed data has more sections than expected".to_owned())
    }
}
