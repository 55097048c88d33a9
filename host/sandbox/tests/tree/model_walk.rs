//! The model's path resolution: over a list of names, with the folders on the way on a stack.

use fulgurite_trace::file::{FileError, FileKind};

use super::model::{Model, Node};

/// Where a path ended.
#[derive(Debug, Clone)]
pub(crate) enum End {
    Name { folder: usize, name: String, node: Option<usize>, slash: bool },
    Dot { folder: usize, double: bool },
}

/// Follow the last link: never, only before a `/` at the end, only without one, or always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    Never,
    BeforeSlash,
    WithoutSlash,
    Always,
}

impl Model {
    /// The node at an end. A file's path must not end in `/`.
    pub(crate) fn there(&self, end: &End) -> Result<usize, FileError> {
        match end {
            End::Name { node: Some(node), slash: true, .. }
                if self.kind(*node) == FileKind::File =>
            {
                Err(FileError::NotDirectory)
            }
            End::Name { node, .. } => node.ok_or(FileError::NotFound),
            End::Dot { folder, .. } => Ok(*folder),
        }
    }

    pub(crate) fn walk(&self, base: usize, path: &str, last: Last) -> Result<End, FileError> {
        if path.is_empty() {
            return Err(FileError::NotFound);
        }
        if path.starts_with('/') {
            return Err(FileError::NotPermitted);
        }
        let slash = path.ends_with('/');
        let mut stack = self.path_to(base).unwrap_or_else(|| vec![base]);
        let split = |path: &str| -> Vec<String> {
            path.split('/').filter(|name| !name.is_empty()).map(str::to_owned).collect()
        };
        let mut names = split(path);
        names.reverse();
        let mut slash = slash;
        let mut followed = 0;
        while let Some(name) = names.pop() {
            let is_last = names.is_empty();
            let folder = *stack.last().unwrap();
            match name.as_str() {
                "." => {
                    if is_last {
                        return Ok(End::Dot { folder, double: false });
                    }
                    continue;
                }
                ".." => {
                    if stack == [0] {
                        return Err(FileError::NotPermitted);
                    }
                    stack.pop();
                    let folder = *stack.last().ok_or(FileError::NotFound)?;
                    if is_last {
                        return Ok(End::Dot { folder, double: true });
                    }
                    continue;
                }
                _ => {}
            }
            if name.len() > self.quota.name_bytes as usize {
                return Err(FileError::NameTooLong);
            }
            let node = self.entries(folder).get(&name).map(|entry| entry.node);
            let Some(found) = node else {
                if is_last {
                    return Ok(End::Name { folder, name, node: None, slash });
                }
                return Err(FileError::NotFound);
            };
            match &self.nodes[found].node {
                Node::Link(target)
                    if !is_last
                        || last == Last::Always
                        || (last == Last::BeforeSlash && slash)
                        || (last == Last::WithoutSlash && !slash) =>
                {
                    followed += 1;
                    if followed > 40 {
                        return Err(FileError::Loop);
                    }
                    slash |= is_last && target.ends_with('/');
                    names.extend(split(target).into_iter().rev());
                }
                _ if is_last => {
                    return Ok(End::Name { folder, name, node: Some(found), slash });
                }
                Node::Folder(_) => stack.push(found),
                _ => return Err(FileError::NotDirectory),
            }
        }
        unreachable!("a path that is not empty has a last name")
    }
}
