//! The compact form of a sealed tree.
//!
//! After a magic line, one zstd stream of: the digest of the lower layer, that of the tree, the
//! number of changes, and the changes in an order in which they can be made. Numbers are
//! little-endian. A change is a tag, its path, and what is there: nothing for removed entries
//! and folders, a link's target, or for files the content's digest. Content follows only when
//! neither the lower layer nor an earlier change has it.
//!
//! The manifest is not stored: it is found anew, and the tree must have the stored digest.

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    sync::Arc,
};

use fulgurite_trace::{Digest, file::FileError};

use super::{SealError, Sealed};
use crate::tree::{
    Content, Lower, MAX_HOST_PATH_BYTES, Quota, Room, Spill, Tree,
    lay_down::{Placed, Placement},
};

const MAGIC: &[u8] = b"fulgurite sealed tree 1\n";
/// Window of the compression, as a power of two: bounds what hostile bytes can make us allocate.
const WINDOW_LOG: u32 = 23;
const LEVEL: i32 = 3;

const REMOVED: u8 = b'-';
const FOLDER: u8 = b'd';
const LINK: u8 = b'l';
/// A file whose content the lower layer or an earlier change has.
const FILE_KNOWN: u8 = b'k';
/// A file whose content follows.
const FILE: u8 = b'f';

impl Sealed {
    /// The compact form for a store: what the lower layer does not hold.
    pub fn to_bytes(&self) -> Result<Vec<u8>, SealError> {
        // Only a broken spill file can fail here: the target is memory.
        self.encode().map_err(|_| SealError::Contents(FileError::Io))
    }

    fn encode(&self) -> io::Result<Vec<u8>> {
        let placed = self.placed().map_err(io::Error::other)?;
        let mut to = zstd::stream::write::Encoder::new(MAGIC.to_vec(), LEVEL)?;
        to.window_log(WINDOW_LOG)?;
        to.write_all(self.manifest.lower.as_bytes())?;
        to.write_all(self.manifest.tree.as_bytes())?;
        to.write_all(&(placed.len() as u64).to_le_bytes())?;
        let mut known: HashMap<Digest, ()> = HashMap::new();
        for Placed { path, what } in placed {
            match what {
                Placement::Nothing => write_text(&mut to, REMOVED, &path)?,
                Placement::Folder => write_text(&mut to, FOLDER, &path)?,
                Placement::Link(target) => {
                    write_text(&mut to, LINK, &path)?;
                    to.write_all(&(target.len() as u32).to_le_bytes())?;
                    to.write_all(target.as_bytes())?;
                }
                Placement::File(content) => {
                    let digest = self.digest_of(&path).map_err(io::Error::other)?;
                    let is_known = known.insert(digest, ()).is_some()
                        || self.lower().content(&digest).is_some();
                    write_text(&mut to, if is_known { FILE_KNOWN } else { FILE }, &path)?;
                    to.write_all(digest.as_bytes())?;
                    if !is_known {
                        to.write_all(&content.size().to_le_bytes())?;
                        let mut written = Ok(());
                        let read = content.pieces(0, content.size(), |piece| {
                            if written.is_ok() {
                                written = to.write_all(piece);
                            }
                        });
                        read.map_err(io::Error::other)?;
                        written?;
                    }
                }
            }
        }
        to.finish()
    }

    fn digest_of(&self, path: &str) -> Result<Digest, FileError> {
        let layer = &self.snapshot.layer;
        layer.digest(layer.find_unfollowed(path)?)
    }

    /// Reads what [`Sealed::to_bytes`] wrote, over the same lower layer. `quota` bounds what the
    /// bytes may unfold to; it should be the one the tree had.
    pub fn from_bytes(bytes: &[u8], lower: Arc<Lower>, quota: Quota) -> Result<Self, SealError> {
        let body =
            bytes.strip_prefix(MAGIC).ok_or(SealError::Damaged("it does not begin as one"))?;
        let mut from = zstd::stream::read::Decoder::with_buffer(body).map_err(damaged)?;
        from.window_log_max(WINDOW_LOG).map_err(damaged)?;
        let mut decode = Decode {
            from,
            lower: &lower,
            quota,
            spill: Spill::shared(),
            bytes: 0,
            resident: 0,
            known: HashMap::new(),
        };
        let (expected, tree_digest) = (decode.digest()?, decode.digest()?);
        if expected != lower.digest() {
            return Err(SealError::OtherLower { expected, given: lower.digest() });
        }
        let placed = decode.changes()?;
        let tree = Tree::new(Arc::clone(&lower), quota);
        tree.place_all(placed).map_err(|(path, source)| SealError::Apply { path, source })?;
        let sealed = tree.seal()?;
        if sealed.manifest.tree != tree_digest {
            return Err(SealError::Damaged("its contents do not give the tree it was made from"));
        }
        Ok(sealed)
    }
}

fn write_text(to: &mut impl Write, tag: u8, text: &str) -> io::Result<()> {
    to.write_all(&[tag])?;
    to.write_all(&(text.len() as u32).to_le_bytes())?;
    to.write_all(text.as_bytes())
}

fn damaged(_: io::Error) -> SealError {
    SealError::Damaged("it ends too early or is not compressed data")
}

struct Decode<'a, R> {
    from: R,
    lower: &'a Lower,
    quota: Quota,
    spill: Arc<Spill>,
    bytes: u64,
    resident: u64,
    known: HashMap<Digest, Content>,
}

impl<R: Read> Decode<'_, R> {
    fn changes(&mut self) -> Result<Vec<Placed>, SealError> {
        let count = u64::from_le_bytes(self.array()?);
        // Everything below can be gone and as much again be new or moved, besides the quota.
        let limit = self.lower.len().saturating_mul(2).saturating_add(self.quota.files);
        if count > limit {
            return Err(SealError::TooLarge { what: "changes", limit });
        }
        let mut placed = Vec::new();
        for _ in 0..count {
            let [tag] = self.array()?;
            let path = self.text()?;
            let what = match tag {
                REMOVED => Placement::Nothing,
                FOLDER => Placement::Folder,
                LINK => Placement::Link(Arc::from(self.text()?)),
                FILE_KNOWN => {
                    let digest = self.digest()?;
                    let content =
                        self.known.get(&digest).or_else(|| self.lower.content(&digest)).cloned();
                    Placement::File(
                        content
                            .ok_or(SealError::Damaged("it refers to content it does not have"))?,
                    )
                }
                FILE => {
                    let digest = self.digest()?;
                    let content = self.content()?;
                    self.known.insert(digest, content.clone());
                    Placement::File(content)
                }
                _ => return Err(SealError::Damaged("it holds a change of no known kind")),
            };
            placed.push(Placed { path, what });
        }
        match self.from.read(&mut [0]) {
            Ok(0) => Ok(placed),
            _ => Err(SealError::Damaged("something follows its end")),
        }
    }

    fn content(&mut self) -> Result<Content, SealError> {
        let size = u64::from_le_bytes(self.array()?);
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > self.quota.bytes {
            return Err(SealError::TooLarge { what: "bytes", limit: self.quota.bytes });
        }
        let room =
            Room { others: self.resident, limit: self.quota.memory_bytes, spill: &self.spill };
        let mut content = Content::default();
        let mut piece = [0; 16 << 10];
        while content.size() < size {
            let wanted = usize::try_from(size - content.size()).unwrap_or(usize::MAX);
            let wanted = wanted.min(piece.len());
            let piece = piece.get_mut(..wanted).unwrap_or_default();
            self.from.read_exact(piece).map_err(damaged)?;
            content.write(content.size(), piece, &room)?;
        }
        self.resident = self.resident.saturating_add(content.resident());
        Ok(content)
    }

    fn text(&mut self) -> Result<String, SealError> {
        let length = u32::from_le_bytes(self.array()?) as usize;
        if length > MAX_HOST_PATH_BYTES {
            return Err(SealError::Damaged("it holds a path or link that is too long"));
        }
        let mut bytes = vec![0; length];
        self.from.read_exact(&mut bytes).map_err(damaged)?;
        String::from_utf8(bytes).map_err(|_| SealError::Damaged("a path or link is not UTF-8"))
    }

    fn digest(&mut self) -> Result<Digest, SealError> {
        Ok(Digest::from_bytes(self.array()?))
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<[u8; LENGTH], SealError> {
        let mut array = [0; LENGTH];
        self.from.read_exact(&mut array).map_err(damaged)?;
        Ok(array)
    }
}
