//! A sealed tree apart: its manifest, and the contents by their digests.

use std::{collections::BTreeMap, sync::Arc};

use fulgurite_trace::{
    Digest,
    file::{FileError, FileKind},
};

use super::{Change, ChangeKind, Manifest, SealError, Sealed};
use crate::tree::{
    Body, Content, Lower, MAX_HOST_PATH_BYTES, Quota, Room, Spill, Tree,
    lay_down::{Placed, Placement},
};

impl Sealed {
    /// The contents of every file that was added or modified, and the targets of such links, each
    /// once, by digest; `None` when they take more than `limit` bytes together.
    pub fn contents(&self, limit: u64) -> Result<Option<BTreeMap<Digest, Vec<u8>>>, FileError> {
        let there =
            self.manifest.changes.iter().filter(|change| change.kind != ChangeKind::Removed);
        let mut wanted = BTreeMap::new();
        for change in there {
            if let Some(digest) = change.digest {
                wanted.entry(digest).or_insert(change);
            }
        }
        let total = wanted.values().fold(0_u64, |sum, change| sum.saturating_add(change.size));
        if total > limit {
            return Ok(None);
        }
        let layer = &self.snapshot.layer;
        let mut contents = BTreeMap::new();
        for (digest, change) in wanted {
            let node = layer.node(layer.find_unfollowed(&change.path)?)?;
            let bytes = match &node.body {
                Body::File(content) => content.read(0, content.size())?,
                Body::Link(target) => target.as_bytes().to_vec(),
                Body::Folder(_) => continue,
            };
            contents.insert(digest, bytes);
        }
        Ok(Some(contents))
    }

    /// The sealed tree of a manifest, over the same lower layer, with contents that `find` looks
    /// up. `quota` bounds what they may take; it should be the one the tree had. What does not
    /// give the manifest's tree again is refused, so hostile contents cannot pass for others.
    pub fn from_contents<E>(
        manifest: &Manifest,
        lower: Arc<Lower>,
        quota: Quota,
        mut find: impl FnMut(&Digest) -> Result<Vec<u8>, E>,
    ) -> Result<Result<Self, E>, SealError> {
        if manifest.lower != lower.digest() {
            let (expected, given) = (manifest.lower, lower.digest());
            return Err(SealError::OtherLower { expected, given });
        }
        let (removed, made): (Vec<_>, Vec<_>) =
            manifest.changes.iter().partition(|change| change.kind == ChangeKind::Removed);
        let mut placed = Vec::with_capacity(manifest.changes.len());
        // First what goes, from below.
        for Change { path, .. } in removed.into_iter().rev() {
            placed.push(Placed { path: path.clone(), what: Placement::Nothing });
        }
        let mut make = Make { quota, spill: Spill::shared(), bytes: 0, resident: 0 };
        for Change { path, entry, digest, .. } in made {
            let what = match (entry, digest) {
                (FileKind::Directory, _) => Placement::Folder,
                (_, None) => return Err(SealError::Damaged("a file or link has no digest")),
                (FileKind::File, Some(digest)) => match find(digest) {
                    Ok(bytes) => Placement::File(make.content(&bytes)?),
                    Err(error) => return Ok(Err(error)),
                },
                (FileKind::Symlink, Some(digest)) => match find(digest) {
                    Ok(bytes) => Placement::Link(target(bytes)?),
                    Err(error) => return Ok(Err(error)),
                },
            };
            placed.push(Placed { path: path.clone(), what });
        }
        let tree = Tree::new(lower, quota);
        tree.place_all(placed).map_err(|(path, source)| SealError::Apply { path, source })?;
        let sealed = tree.seal()?;
        if sealed.manifest.tree != manifest.tree {
            return Err(SealError::Damaged("its contents do not give the tree it was made from"));
        }
        Ok(Ok(sealed))
    }
}

fn target(bytes: Vec<u8>) -> Result<Arc<str>, SealError> {
    match String::from_utf8(bytes) {
        Ok(text) if text.len() <= MAX_HOST_PATH_BYTES => Ok(Arc::from(text)),
        _ => Err(SealError::Damaged("the target of a link is no path")),
    }
}

struct Make {
    quota: Quota,
    spill: Arc<Spill>,
    bytes: u64,
    resident: u64,
}

impl Make {
    fn content(&mut self, bytes: &[u8]) -> Result<Content, SealError> {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.bytes > self.quota.bytes {
            return Err(SealError::TooLarge { what: "bytes", limit: self.quota.bytes });
        }
        let room =
            Room { others: self.resident, limit: self.quota.memory_bytes, spill: &self.spill };
        let mut content = Content::default();
        content.write(0, bytes, &room)?;
        self.resident = self.resident.saturating_add(content.resident());
        Ok(content)
    }
}
