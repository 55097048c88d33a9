//! Random operations on the tree and on the model: the same answers, the same errors, the same
//! use of the quota, the same digest, and the same content in the end.

use std::collections::BTreeMap;

use fulgurite_sandbox::{Lower, Quota, Spill, Tree};
use fulgurite_trace::file::{FileError, FileKind, FileTree, Handle};
use proptest::prelude::*;

use super::{
    model::Model,
    operations::{Operation, any_operation},
};

const QUOTA: Quota =
    Quota { bytes: 300_000, files: 9, handles: 4, depth: 4, name_bytes: 3, memory_bytes: 100_000 };

pub(crate) fn lower_files() -> BTreeMap<String, Vec<u8>> {
    [("a", vec![1; 70_000]), ("b/a", vec![2; 10]), ("b/c/d", vec![]), ("d", vec![3; 65_536])]
        .map(|(path, bytes)| (path.to_owned(), bytes))
        .into()
}

/// The tree, the model, and the handles opened in both.
struct Pair {
    tree: Tree,
    root: Handle,
    model: Model,
    model_root: usize,
    handles: Vec<(Handle, usize)>,
    copied: bool,
}

impl Pair {
    fn new() -> Self {
        let files = lower_files();
        let lower = Lower::from_files(&files).unwrap();
        let spill = Spill::in_folder(std::env::temp_dir());
        let mut pair = Self {
            tree: Tree::with_spill(lower, QUOTA, spill),
            root: Handle(0),
            model: Model::new(&files, QUOTA),
            model_root: 0,
            handles: Vec::new(),
            copied: false,
        };
        pair.open_root();
        pair
    }

    fn open_root(&mut self) {
        self.root = self.tree.root().unwrap();
        let mode = fulgurite_trace::file::OpenMode { read: true, ..Default::default() };
        self.model_root = self.model.open(0, ".", mode).unwrap();
    }

    fn slot(&self, slot: usize) -> Option<(Handle, usize)> {
        self.handles.get(slot % self.handles.len().max(1)).copied()
    }

    fn base(&self, base: Option<usize>) -> (Handle, Option<usize>) {
        match base.and_then(|slot| self.slot(slot)) {
            Some((handle, model)) => (handle, Some(model)),
            None => (self.root, None),
        }
    }

    fn apply(&mut self, operation: &Operation) -> Result<(), TestCaseError> {
        match operation {
            Operation::Open { base, path, mode } => {
                let (base, model_base) = self.base(*base);
                let tree = self.tree.open(base, path, (*mode).into());
                let model = self
                    .model
                    .base(model_base)
                    .and_then(|base| self.model.open(base, path, (*mode).into()));
                prop_assert_eq!(tree.map(drop), model.map(drop));
                if let (Ok(tree), Ok(model)) = (tree, model) {
                    self.handles.push((tree, model));
                }
            }
            Operation::Close { slot } => {
                if let Some(both) = self.slot(*slot) {
                    self.tree.close(both.0);
                    self.model.close(both.1);
                    self.handles.retain(|kept| kept != &both);
                }
            }
            Operation::Read { slot, offset, length } => {
                if let Some((tree, model)) = self.slot(*slot) {
                    let tree = self.tree.read(tree, *offset, *length);
                    prop_assert_eq!(tree, self.model.read(model, *offset, *length));
                }
            }
            Operation::Write { slot, offset, bytes } => {
                if let Some((tree, model)) = self.slot(*slot) {
                    let tree = self.tree.write(tree, *offset, bytes);
                    let offset = *offset;
                    let reaches = if bytes.is_empty() { 0 } else { offset };
                    prop_assert_eq!(
                        tree,
                        self.limited(reaches, |pair| { pair.model.write(model, offset, bytes) })
                    );
                }
            }
            Operation::Append { slot, bytes } => {
                if let Some((tree, model)) = self.slot(*slot) {
                    let tree = self.tree.append(tree, bytes);
                    prop_assert_eq!(tree, self.model.append(model, bytes));
                }
            }
            Operation::SetSize { slot, size } => {
                if let Some((tree, model)) = self.slot(*slot) {
                    let tree = self.tree.set_size(tree, *size);
                    let size = *size;
                    prop_assert_eq!(
                        tree,
                        self.limited(size, |pair| { pair.model.set_size(model, size) })
                    );
                }
            }
            Operation::Stat { slot } => {
                if let Some((tree, model)) = self.slot(*slot) {
                    let stat = self.tree.stat(tree).map(|stat| (stat.kind, stat.size, stat.links));
                    let node = self.model.handle_node(model);
                    prop_assert_eq!(stat, node.map(|node| self.model.stat(node)));
                }
            }
            Operation::StatAt { base, path, follow } => {
                let (base, model_base) = self.base(*base);
                let stat = self.tree.stat_at(base, path, *follow);
                let last = match follow {
                    true => super::model_walk::Last::Always,
                    false => super::model_walk::Last::BeforeSlash,
                };
                let node = self
                    .model
                    .base(model_base)
                    .and_then(|base| self.model.there(&self.model.walk(base, path, last)?));
                let model = node.map(|node| self.model.stat(node));
                prop_assert_eq!(stat.map(|stat| (stat.kind, stat.size, stat.links)), model);
            }
            Operation::ReadDirectory { slot } => {
                if let Some((tree, model)) = self.slot(*slot) {
                    let list = self.tree.read_directory(tree).map(|entries| {
                        entries.iter().map(|entry| (entry.name.clone(), entry.kind)).collect()
                    });
                    let node = self.model.handle_node(model);
                    prop_assert_eq!(list, node.and_then(|node| self.model.list(node)));
                }
            }
            Operation::MakeDirectory { base, path } => {
                let (base, model_base) = self.base(*base);
                let tree = self.tree.create_directory(base, path);
                let model = self.model.base(model_base);
                let model = model.and_then(|base| self.model.make_directory(base, path));
                prop_assert_eq!(tree, model);
            }
            Operation::RemoveDirectory { path } => {
                let tree = self.tree.remove_directory(self.root, path);
                prop_assert_eq!(tree, self.model.remove_directory(path));
            }
            Operation::Unlink { base, path } => {
                let (base, model_base) = self.base(*base);
                let tree = self.tree.unlink(base, path);
                let model = self.model.base(model_base);
                let model = model.and_then(|base| self.model.unlink(base, path));
                prop_assert_eq!(tree, model);
            }
            Operation::Rename { from, to } => {
                let tree = self.tree.rename(self.root, from, self.root, to);
                prop_assert_eq!(tree, self.model.rename(from, to));
            }
            Operation::Symlink { target, path } => {
                let tree = self.tree.symlink(target, self.root, path);
                prop_assert_eq!(tree, self.model.symlink(target, path));
            }
            Operation::Link { from, to } => {
                let tree = self.tree.link(self.root, from, self.root, to);
                prop_assert_eq!(tree, self.model.link(from, to));
            }
            Operation::ReadLink { path } => {
                let tree = self.tree.read_link(self.root, path);
                prop_assert_eq!(tree, self.model.read_link(path));
            }
            Operation::WriteFile { path, bytes } => {
                let tree = self.tree.write_file(path, bytes);
                prop_assert_eq!(tree, self.model.write_file(&from_root(path), bytes));
            }
            Operation::CopyFile { from, to } => {
                let tree = self.tree.copy_file(from, to);
                let model = self.model.content_at(&from_root(from));
                let model = model.and_then(|bytes| self.model.write_file(&from_root(to), &bytes));
                prop_assert_eq!(tree, model);
            }
            Operation::RemoveRecursive { path } => {
                let tree = self.tree.remove_recursive(path);
                prop_assert_eq!(tree, self.model.remove_recursive(&from_root(path)));
            }
            Operation::LayDown { path, bytes } => {
                let tree = self.tree.lay_down(path, bytes);
                prop_assert_eq!(tree, self.model.lay_down(path, bytes));
            }
            Operation::Fork => {
                self.tree = self.tree.fork();
                self.handles.clear();
                self.model.close_all();
                self.open_root();
            }
            Operation::Digest => {
                prop_assert_eq!(self.tree.digest(), Ok(self.model.digest(0)));
            }
        }
        let usage = self.tree.usage();
        // A copy shares its content, which counts for both.
        self.copied |= matches!(operation, Operation::CopyFile { .. });
        prop_assert!(usage.memory_bytes <= QUOTA.memory_bytes || self.copied);
        let counted = fulgurite_sandbox::Usage { memory_bytes: 0, ..usage };
        prop_assert_eq!(counted, self.model.usage());
        Ok(())
    }

    /// The model holds files as they are: beyond the quota of bytes it must not even try.
    fn limited(
        &mut self,
        size: u64,
        change: impl FnOnce(&mut Self) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        if size > QUOTA.bytes {
            // Only the order of refusals remains to be told.
            return change(&mut Self {
                tree: Tree::new(Lower::empty(), QUOTA),
                root: self.root,
                model: self.model.clone(),
                model_root: self.model_root,
                handles: Vec::new(),
                copied: false,
            })
            .and(Err(FileError::NoSpace));
        }
        change(self)
    }

    fn all(&self) -> BTreeMap<String, (FileKind, Vec<u8>)> {
        let snapshot = self.tree.snapshot();
        let entries = snapshot.entries().unwrap().into_iter().map(|(path, stat)| {
            let bytes = match stat.kind {
                FileKind::File => snapshot.read(&path, 0, u64::MAX).unwrap(),
                FileKind::Symlink => snapshot.read_link(&path).unwrap().into_bytes(),
                FileKind::Directory => Vec::new(),
            };
            (path, (stat.kind, bytes))
        });
        entries.collect()
    }
}

/// As the host's methods take paths.
fn from_root(path: &str) -> String {
    match path.trim_start_matches('/') {
        "" => ".".to_owned(),
        path => path.to_owned(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_tree_behaves_as_the_model(
        operations in prop::collection::vec(any_operation(), 1..70),
    ) {
        let mut pair = Pair::new();
        for operation in &operations {
            pair.apply(operation)?;
        }
        prop_assert_eq!(pair.all(), pair.model.all());
        prop_assert_eq!(pair.tree.digest(), Ok(pair.model.digest(0)));
    }
}
