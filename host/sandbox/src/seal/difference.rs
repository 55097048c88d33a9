//! Which entries of two layers differ. Folders with the same digest are not looked into.

use fulgurite_trace::file::{FileError, FileKind};

use super::{Change, ChangeKind};
use crate::tree::{Entry, Inode, Layer, ROOT, join};

/// The changes from one layer to another, sorted by path.
pub(crate) fn between(lower: &Layer, upper: &Layer) -> Result<Vec<Change>, FileError> {
    let mut difference = Difference { lower, upper, changes: Vec::new() };
    difference.folders(ROOT, ROOT, "")?;
    difference.changes.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(difference.changes)
}

struct Difference<'a> {
    lower: &'a Layer,
    upper: &'a Layer,
    changes: Vec<Change>,
}

impl Difference<'_> {
    fn folders(&mut self, lower: Inode, upper: Inode, above: &str) -> Result<(), FileError> {
        if self.lower.digest(lower)? == self.upper.digest(upper)? {
            return Ok(());
        }
        let (before, after) = (self.lower.folder(lower)?, self.upper.folder(upper)?);
        for (name, was) in before.entries.iter() {
            let path = join(above, name);
            match after.entries.get(name) {
                Some(is) => self.entries(*was, *is, path)?,
                None => self.all(self.lower, *was, path, ChangeKind::Removed)?,
            }
        }
        for (name, is) in
            after.entries.iter().filter(|(name, _)| !before.entries.contains_key(*name))
        {
            self.all(self.upper, *is, join(above, name), ChangeKind::Added)?;
        }
        Ok(())
    }

    fn entries(&mut self, was: Entry, is: Entry, path: String) -> Result<(), FileError> {
        match (was.kind, is.kind) {
            (FileKind::Directory, FileKind::Directory) => self.folders(was.inode, is.inode, &path),
            (was_kind, is_kind) if was_kind == is_kind => {
                if self.lower.digest(was.inode)? != self.upper.digest(is.inode)? {
                    self.one(self.upper, is, path, ChangeKind::Modified)?;
                }
                Ok(())
            }
            _ => {
                self.below(self.lower, was, &path, ChangeKind::Removed)?;
                self.below(self.upper, is, &path, ChangeKind::Added)?;
                self.one(self.upper, is, path, ChangeKind::Modified)
            }
        }
    }

    fn all(
        &mut self,
        layer: &Layer,
        entry: Entry,
        path: String,
        kind: ChangeKind,
    ) -> Result<(), FileError> {
        self.below(layer, entry, &path, kind)?;
        self.one(layer, entry, path, kind)
    }

    fn below(
        &mut self,
        layer: &Layer,
        entry: Entry,
        path: &str,
        kind: ChangeKind,
    ) -> Result<(), FileError> {
        if entry.kind == FileKind::Directory {
            for (name, below) in layer.folder(entry.inode)?.entries.iter() {
                self.all(layer, *below, join(path, name), kind)?;
            }
        }
        Ok(())
    }

    fn one(
        &mut self,
        layer: &Layer,
        entry: Entry,
        path: String,
        kind: ChangeKind,
    ) -> Result<(), FileError> {
        let digest = match entry.kind {
            FileKind::Directory => None,
            FileKind::File | FileKind::Symlink => Some(layer.digest(entry.inode)?),
        };
        let size = layer.node(entry.inode)?.size();
        self.changes.push(Change { path, kind, entry: entry.kind, size, digest });
        Ok(())
    }
}
