//! A lower layer from a folder of the host.

use std::{ffi::OsString, io::Read as _, sync::Arc};

use cap_std::fs::{Dir, DirEntry};

use super::{
    Quota,
    content::Content,
    lower::{Builder, Lower, LowerError, check_name},
    node::{Body, Inode, ROOT},
    quota::MAX_FILE_BYTES,
    snapshot::join,
};

impl Lower {
    /// Reads a folder of the host with all below it, at most as much as `limits` allow (its
    /// handles and memory do not matter here). Refuses what is neither file, folder nor link,
    /// links that lead out of the folder, and names that are not UTF-8. Owners, permissions and
    /// times are left behind; hard links become files of their own.
    ///
    /// Nothing outside the folder is opened, whatever its links say. The folder must not change
    /// meanwhile: what is read is then some mixture, still within the limits.
    pub fn import(folder: &Dir, limits: &Quota) -> Result<Arc<Self>, LowerError> {
        let limits = limits.bounded();
        let mut import =
            Import { builder: Builder::new(), limits, bytes: 0, files: 0, links: Vec::new() };
        import.folder(folder, ROOT, "", 0)?;
        for Link { path, folder, target } in &import.links {
            if import.builder.leads_out(*folder, target) {
                return Err(LowerError::LeadsOut { path: path.clone(), target: target.clone() });
            }
        }
        Ok(import.builder.finish())
    }
}

struct Import {
    builder: Builder,
    limits: Quota,
    bytes: u64,
    files: u64,
    links: Vec<Link>,
}

struct Link {
    path: String,
    folder: Inode,
    target: String,
}

impl Import {
    fn folder(
        &mut self,
        from: &Dir,
        into: Inode,
        above: &str,
        depth: u32,
    ) -> Result<(), LowerError> {
        let read = |source| LowerError::Read { path: shown(above), source };
        let mut entries: Vec<(OsString, DirEntry)> = Vec::new();
        for entry in from.entries().map_err(read)? {
            let entry = entry.map_err(read)?;
            self.count_file(above)?;
            entries.push((entry.file_name(), entry));
        }
        entries.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (name, entry) in entries {
            let path = join(above, &name.to_string_lossy());
            let refuse = |reason| LowerError::Path { path: path.clone(), reason };
            let name = name.to_str().ok_or_else(|| refuse("its name is not UTF-8"))?;
            check_name(name).map_err(refuse)?;
            if name.len() > self.limits.name_bytes as usize {
                return Err(refuse("its name is longer than the limit"));
            }
            if depth >= self.limits.depth {
                return Err(self.too_much(&path, "folders on the way to a file"));
            }
            self.entry(from, &entry, into, name, &path, depth)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        from: &Dir,
        entry: &DirEntry,
        into: Inode,
        name: &str,
        path: &str,
        depth: u32,
    ) -> Result<(), LowerError> {
        let read = |source| LowerError::Read { path: path.to_owned(), source };
        let refuse = |reason| LowerError::Path { path: path.to_owned(), reason };
        let kind = entry.file_type().map_err(read)?;
        if kind.is_dir() {
            let below =
                self.builder.folder(into, name).ok_or_else(|| refuse("it is there twice"))?;
            return self.folder(&entry.open_dir().map_err(read)?, below, path, depth + 1);
        }
        let body = if kind.is_symlink() {
            let target = from.read_link_contents(name).map_err(read)?;
            let target = target.to_str().ok_or_else(|| refuse("its target is not UTF-8"))?;
            self.count_bytes(path, target.len() as u64)?;
            self.links.push(Link {
                path: path.to_owned(),
                folder: into,
                target: target.to_owned(),
            });
            Body::Link(Arc::from(target))
        } else if kind.is_file() {
            let room = self.limits.bytes.saturating_sub(self.bytes).min(MAX_FILE_BYTES);
            let mut bytes = Vec::new();
            let file = entry.open().map_err(read)?;
            file.take(room.saturating_add(1)).read_to_end(&mut bytes).map_err(read)?;
            self.count_bytes(path, bytes.len() as u64)?;
            Body::File(Content::base(&bytes))
        } else {
            return Err(refuse("it is neither a file, a folder nor a link"));
        };
        self.builder.add(into, name, body).ok_or_else(|| refuse("it is there twice"))?;
        Ok(())
    }

    fn count_file(&mut self, path: &str) -> Result<(), LowerError> {
        self.files += 1;
        if self.files > self.limits.files {
            return Err(LowerError::TooMuch {
                path: shown(path),
                what: "entries",
                limit: self.limits.files,
            });
        }
        Ok(())
    }

    fn count_bytes(&mut self, path: &str, bytes: u64) -> Result<(), LowerError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limits.bytes {
            return Err(LowerError::TooMuch {
                path: path.to_owned(),
                what: "bytes",
                limit: self.limits.bytes,
            });
        }
        Ok(())
    }

    fn too_much(&self, path: &str, what: &'static str) -> LowerError {
        LowerError::TooMuch { path: path.to_owned(), what, limit: u64::from(self.limits.depth) }
    }
}

/// The root's path for people.
fn shown(path: &str) -> String {
    if path.is_empty() { ".".to_owned() } else { path.to_owned() }
}
