//! Contents of sealed workspaces, each kept once.
//!
//! A content is a row under its SHA-256 digest; an episode's manifest names the digests. Samples
//! of one task often leave the same files behind, and those cost nothing more. A form begins with
//! the byte 0 before plain bytes, or 1 before compressed ones.

use rusqlite::{Connection, OptionalExtension, params};

use super::{apply::Trouble, compress, read::conversion};
use crate::Digest;

const PLAIN: u8 = 0;
const COMPRESSED: u8 = 1;

/// A content as it is written.
#[derive(Debug, Clone)]
pub(crate) struct EncodedContent {
    digest: Digest,
    /// Bytes before compression.
    size: u64,
    form: Vec<u8>,
}

impl EncodedContent {
    pub(crate) fn new(digest: Digest, bytes: &[u8]) -> Self {
        let (tag, body) = match compress::deflate(bytes) {
            Some(smaller) => (COMPRESSED, smaller),
            None => (PLAIN, bytes.to_vec()),
        };
        let form = std::iter::once(tag).chain(body).collect();
        Self { digest, size: bytes.len() as u64, form }
    }

    /// Bytes it takes, about.
    pub(crate) fn len(&self) -> usize {
        self.form.len() + 64
    }
}

/// Keeps a content, unless it is there.
pub(crate) fn put(connection: &Connection, content: &EncodedContent) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO contents (digest, size, form) VALUES (?1, ?2, ?3)
             ON CONFLICT (digest) DO NOTHING",
        )?
        .execute(params![
            content.digest.as_bytes(),
            i64::try_from(content.size).unwrap_or(i64::MAX),
            content.form
        ])?;
    Ok(())
}

/// A content, if it is kept. What is not what its digest says is damage.
pub(crate) fn get(connection: &Connection, digest: &Digest) -> Result<Option<Vec<u8>>, Trouble> {
    let bytes = connection
        .prepare_cached("SELECT form FROM contents WHERE digest = ?1")?
        .query_row([digest.as_bytes()], |row| {
            let form = row.get_ref(0)?.as_blob()?;
            let bytes = match form.split_first() {
                Some((&PLAIN, bytes)) => bytes.to_vec(),
                Some((&COMPRESSED, form)) => {
                    compress::inflate(form).map_err(|error| conversion(0, error))?
                }
                _ => return Err(conversion(0, "a content has no known form")),
            };
            if Digest::of(&bytes) == *digest {
                Ok(bytes)
            } else {
                Err(conversion(0, format!("a content is not what its digest {digest} says")))
            }
        })
        .optional()?;
    Ok(bytes)
}
