//! Sealed trees: what changed, and the same tree again from the changes and from the bytes.

use std::{collections::BTreeMap, sync::Arc};

use fulgurite_sandbox::{ChangeKind, Lower, Quota, SealError, Sealed, Tree};
use fulgurite_trace::{
    Digest,
    file::{FileError, FileKind},
};
use proptest::prelude::*;

use super::operations::{Operation, any_operation};

fn lower() -> Arc<Lower> {
    Lower::from_files(&super::random::lower_files()).unwrap()
}

#[test]
fn the_manifest_lists_what_differs() {
    let tree = Tree::new(lower(), Quota::default());
    assert!(tree.seal().unwrap().manifest().changes.is_empty());
    tree.append_file("b/a", b"!").unwrap();
    tree.write_file("d", &[3; 65_536]).unwrap(); // The same as before.
    tree.remove_recursive("b/c").unwrap();
    tree.write_file("b/c", b"a file now").unwrap();
    tree.remove_file("a").unwrap();
    tree.create_directories("a/x").unwrap();
    tree.symlink_path("x", "a/l").unwrap();
    tree.write_file("a-b", b"").unwrap();
    let sealed = tree.seal().unwrap();
    let seen: Vec<_> = sealed
        .manifest()
        .changes
        .iter()
        .map(|change| (change.path.as_str(), change.kind, change.entry, change.size))
        .collect();
    assert_eq!(
        seen,
        [
            ("a", ChangeKind::Modified, FileKind::Directory, 0),
            ("a-b", ChangeKind::Added, FileKind::File, 0),
            ("a/l", ChangeKind::Added, FileKind::Symlink, 1),
            ("a/x", ChangeKind::Added, FileKind::Directory, 0),
            ("b/a", ChangeKind::Modified, FileKind::File, 11),
            ("b/c", ChangeKind::Modified, FileKind::File, 10),
            ("b/c/d", ChangeKind::Removed, FileKind::File, 0),
        ]
    );
    let digest = |path: &str| {
        let changes = &sealed.manifest().changes;
        changes.iter().find(|change| change.path == path).unwrap().digest
    };
    assert_eq!(digest("b/c"), Some(Digest::of(b"a file now")));
    assert_eq!(digest("a/l"), Some(Digest::of(b"x")));
    assert_eq!(digest("a/x"), None);
    assert_eq!(sealed.manifest().tree, tree.digest().unwrap());

    // What comes after does not change it.
    tree.remove_recursive("b").unwrap();
    assert_eq!(sealed.read("b/c", 2, 4).unwrap(), b"file");
    assert_eq!(sealed.read("a/l", 0, 4), Err(FileError::Loop));

    let json = serde_json::to_string(sealed.manifest()).unwrap();
    assert!(json.contains(r#""path":"a/l","kind":"added","entry":"symlink""#), "{json}");
    assert_eq!(
        serde_json::from_str::<fulgurite_sandbox::Manifest>(&json).unwrap(),
        *sealed.manifest()
    );
}

#[test]
fn moved_contents_of_the_lower_layer_cost_nothing_in_the_bytes() {
    let content: Vec<u8> =
        (0..16_000_u32).flat_map(|number| *Digest::of(number.to_le_bytes()).as_bytes()).collect();
    let files = BTreeMap::from([("folder/data".to_owned(), content.clone())]);
    let lower = Lower::from_files(&files).unwrap();
    let tree =
        Tree::new(Arc::clone(&lower), Quota { files: 2, bytes: 600_000, ..Quota::default() });
    tree.rename_path("folder", "moved").unwrap();
    let bytes = tree.seal().unwrap().to_bytes().unwrap();
    assert!(bytes.len() < 300, "{}", bytes.len());
    // One name in the tree, two in the changes; it must come back all the same.
    let again = Sealed::from_bytes(&bytes, lower, tree.quota()).unwrap();
    assert_eq!(again.read("moved/data", 0, u64::MAX).unwrap(), content);
    // The same new content twice is stored once.
    let tree = Tree::new(Lower::empty(), Quota::default());
    tree.write_file("one", &content).unwrap();
    let one = tree.seal().unwrap().to_bytes().unwrap().len();
    tree.copy_file("one", "two").unwrap();
    let two = tree.seal().unwrap().to_bytes().unwrap().len();
    assert!(one > content.len() && two < one + 100, "{one} {two}");
}

#[test]
fn changes_are_laid_over_another_tree_without_following_its_links() {
    let tree = Tree::new(lower(), Quota::default());
    tree.write_file("b/new", b"changed").unwrap();
    let sealed = tree.seal().unwrap();
    let other = Tree::new(Lower::empty(), Quota::default());
    other.make_directory("target").unwrap();
    other.symlink_path("target", "b").unwrap();
    sealed.apply_to(&other).unwrap();
    assert_eq!(other.read_file("b/new", 100).unwrap(), b"changed");
    assert_eq!(other.list("target").unwrap().len(), 0);
}

#[test]
fn a_graded_tree_is_the_same_from_memory_and_from_bytes() {
    let tree = Tree::new(lower(), Quota::default());
    tree.write_file("one", b"1").unwrap();
    tree.link_path("one", "two").unwrap();
    let sealed = tree.seal().unwrap();
    let bytes = sealed.to_bytes().unwrap();
    let again = Sealed::from_bytes(&bytes, lower(), Quota::default()).unwrap();
    for sealed in [&sealed, &again] {
        let graded = sealed.tree(Quota::default()).unwrap();
        graded.append_file("one", b"!").unwrap();
        assert_eq!(graded.read_file("two", 10).unwrap(), b"1");
    }
    assert_eq!(bytes, again.to_bytes().unwrap(), "the bytes are canonical");
}

#[test]
fn a_full_workspace_leaves_its_grader_as_much_room_as_any_other() {
    let quota = Quota { bytes: 1000, files: 3, ..Quota::default() };
    let tree = Tree::new(Lower::empty(), quota);
    tree.write_file("a", &[1; 1000]).unwrap();
    tree.write_file("b", b"").unwrap();
    tree.write_file("c", b"").unwrap();
    assert_eq!(tree.lay_down("d", b""), Err(FileError::NoSpace), "it is full");
    let graded = tree.seal().unwrap().tree(quota).unwrap();
    graded.lay_down("folder/driver", &[2; 1000]).unwrap();
    graded.lay_down("verdict", b"").unwrap();
    assert_eq!(graded.lay_down("more", b""), Err(FileError::NoSpace), "three names");
    assert_eq!(graded.lay_down("verdict", b"!"), Err(FileError::NoSpace), "a thousand bytes");
    assert_eq!((graded.usage().files, graded.usage().bytes), (6, 2000));
    assert_eq!((graded.quota().files, graded.quota().bytes), (6, 2000));
}

#[test]
fn bytes_over_other_files_are_refused() {
    let bytes = Tree::new(lower(), Quota::default()).seal().unwrap().to_bytes().unwrap();
    let error = Sealed::from_bytes(&bytes, Lower::empty(), Quota::default()).unwrap_err();
    assert!(matches!(error, SealError::OtherLower { .. }));
}

#[test]
fn bytes_beyond_the_quota_are_refused() {
    let tree = Tree::new(Lower::empty(), Quota::default());
    tree.write_file("zeros", &vec![0; 5_000_000]).unwrap();
    tree.write_file("more", b"").unwrap();
    let bytes = tree.seal().unwrap().to_bytes().unwrap();
    assert!(bytes.len() < 2000, "zeros are packed");
    for quota in
        [Quota { bytes: 4_999_999, ..Quota::default() }, Quota { files: 1, ..Quota::default() }]
    {
        let error = Sealed::from_bytes(&bytes, Lower::empty(), quota).unwrap_err();
        assert!(matches!(error, SealError::TooLarge { .. }), "{error}");
    }
    let exact = Quota { bytes: 5_000_000, files: 2, ..Quota::default() };
    Sealed::from_bytes(&bytes, Lower::empty(), exact).unwrap();
}

/// The tree again from its manifest and its contents.
fn from_contents(sealed: &Sealed, quota: Quota) -> Result<Sealed, SealError> {
    let contents = sealed.contents(u64::MAX).unwrap().unwrap();
    for (digest, bytes) in &contents {
        assert_eq!(Digest::of(bytes), *digest);
    }
    let find = |digest: &Digest| contents.get(digest).cloned().ok_or(*digest);
    let lower = Arc::clone(sealed.lower());
    Sealed::from_contents(sealed.manifest(), lower, quota, find)
        .map(|found| found.expect("every content is there"))
}

#[test]
fn contents_are_kept_once_within_a_limit_and_cannot_pass_for_others() {
    let tree = Tree::new(lower(), Quota::default());
    tree.write_file("one", b"same").unwrap();
    tree.write_file("two", b"same").unwrap();
    tree.symlink_path("one", "link").unwrap();
    tree.remove_file("a").unwrap();
    let sealed = tree.seal().unwrap();
    let contents = sealed.contents(7).unwrap().unwrap();
    let mut kept: Vec<_> = contents.values().map(Vec::as_slice).collect();
    kept.sort();
    assert_eq!(kept, [&b"one"[..], b"same"]);
    assert_eq!(sealed.contents(6).unwrap(), None, "four bytes and three are more than six");
    let again = from_contents(&sealed, Quota::default()).unwrap();
    assert_eq!(again.read("two", 0, 9).unwrap(), b"same");

    let manifest = sealed.manifest();
    let find = |forge: bool| {
        let contents = contents.clone();
        move |digest: &Digest| match (forge, contents.get(digest)) {
            (false, Some(bytes)) => Ok(bytes.clone()),
            (true, Some(bytes)) => Ok(bytes.iter().rev().copied().collect()),
            (_, None) => Err("missing"),
        }
    };
    let open = |lower, find: &dyn Fn(&Digest) -> Result<Vec<u8>, &'static str>, quota| {
        Sealed::from_contents(manifest, lower, quota, find)
    };
    let forged = open(lower(), &find(true), Quota::default()).unwrap_err();
    assert!(matches!(forged, SealError::Damaged(_)), "{forged}");
    let other = open(Lower::empty(), &find(false), Quota::default()).unwrap_err();
    assert!(matches!(other, SealError::OtherLower { .. }), "{other}");
    let tight = Quota { bytes: 7, ..Quota::default() };
    let large = open(lower(), &find(false), tight).unwrap_err();
    assert!(matches!(large, SealError::TooLarge { .. }), "{large}");
    let missing = open(lower(), &|_| Err("missing"), Quota::default()).unwrap();
    assert_eq!(missing.err(), Some("missing"));
}

fn apply(tree: &Tree, operation: &Operation) {
    // Whether an operation can be done does not matter here.
    let _ = match operation {
        Operation::MakeDirectory { path, .. } => tree.make_directory(path),
        Operation::Unlink { path, .. } => tree.remove_file(path),
        Operation::Rename { from, to } => tree.rename_path(from, to),
        Operation::Symlink { target, path } => tree.symlink_path(target, path),
        Operation::Link { from, to } => tree.link_path(from, to),
        Operation::WriteFile { path, bytes } => tree.write_file(path, bytes),
        Operation::Open { path, .. } => tree.write_file(path, path.as_bytes()),
        Operation::CopyFile { from, to } => tree.copy_file(from, to),
        Operation::RemoveRecursive { path } | Operation::RemoveDirectory { path } => {
            tree.remove_recursive(path)
        }
        Operation::LayDown { path, bytes } => tree.lay_down(path, bytes),
        _ => Ok(()),
    };
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..Default::default() })]

    #[test]
    fn sealing_and_applying_gives_the_same_tree(
        operations in prop::collection::vec(any_operation(), 1..60),
    ) {
        let quota = Quota { memory_bytes: 50_000, ..Quota::default() };
        let lower = lower();
        let tree = Tree::new(Arc::clone(&lower), quota);
        for operation in &operations {
            apply(&tree, operation);
        }
        let sealed = tree.seal().unwrap();
        let digest = tree.digest().unwrap();
        prop_assert!(sealed.manifest().changes.is_sorted_by(|one, other| one.path < other.path));
        prop_assert_eq!(sealed.tree(quota).unwrap().digest().unwrap(), digest);
        let bytes = sealed.to_bytes().unwrap();
        let again = Sealed::from_bytes(&bytes, lower, quota).unwrap();
        prop_assert_eq!(again.manifest(), sealed.manifest());
        prop_assert_eq!(again.snapshot().digest().unwrap(), digest);
        let again = from_contents(&sealed, quota).unwrap();
        prop_assert_eq!(again.manifest(), sealed.manifest());
        prop_assert_eq!(again.tree(quota).unwrap().digest().unwrap(), digest);
    }

    #[test]
    fn damaged_bytes_are_refused(
        operations in prop::collection::vec(any_operation(), 5..30),
        at in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
        cut in any::<prop::sample::Index>(),
    ) {
        let tree = Tree::new(lower(), Quota::default());
        for operation in &operations {
            apply(&tree, operation);
        }
        let bytes = tree.seal().unwrap().to_bytes().unwrap();
        let digest = tree.digest().unwrap();
        let mut flipped = bytes.clone();
        flipped[at.index(bytes.len())] ^= flip;
        // Some bits of the compressed form carry no meaning; what is accepted is the same tree.
        if let Ok(sealed) = Sealed::from_bytes(&flipped, lower(), Quota::default()) {
            prop_assert_eq!(sealed.snapshot().digest().unwrap(), digest);
        }
        let cut = &bytes[..cut.index(bytes.len())];
        prop_assert!(Sealed::from_bytes(cut, lower(), Quota::default()).is_err());
    }
}
