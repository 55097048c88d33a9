//! Snapshots and forks are independent of what comes after; digests tell contents and nothing
//! else.

use std::{collections::BTreeMap, sync::Arc};

use fulgurite_sandbox::{Lower, Quota, Sealed, Snapshot, Tree};
use fulgurite_trace::{
    Digest,
    file::{FileError, FileTree, OpenMode},
};

fn lower() -> Arc<Lower> {
    let files = BTreeMap::from([
        ("readme".to_owned(), b"read me".to_vec()),
        ("src/main".to_owned(), vec![7; 200_000]),
    ]);
    Lower::from_files(&files).unwrap()
}

fn tree() -> Tree {
    Tree::new(lower(), Quota::default())
}

#[test]
fn writes_do_not_reach_snapshots_forks_or_the_lower_layer() {
    let lower = lower();
    let tree = Tree::new(Arc::clone(&lower), Quota::default());
    tree.write_file("new", b"one").unwrap();
    let snapshot = tree.snapshot();
    let fork = tree.fork();
    tree.write_file("new", b"two").unwrap();
    tree.append_file("src/main", b"more").unwrap();
    tree.remove_file("readme").unwrap();
    fork.write_file("forked", b"").unwrap();

    assert_eq!(snapshot.read("new", 0, 10).unwrap(), b"one");
    assert_eq!(snapshot.stat("src/main").unwrap().size, 200_000);
    assert_eq!(fork.read_file("new", 10).unwrap(), b"one");
    assert_eq!(fork.read_file("readme", 10).unwrap(), b"read me");
    assert_eq!(tree.stat_path("forked", true), Err(FileError::NotFound));
    let pristine = Snapshot::pristine(&lower);
    assert_eq!(pristine.digest().unwrap(), lower.digest());
    assert_eq!(pristine.stat("new"), Err(FileError::NotFound));
    assert_eq!(pristine.read("readme", 5, 10).unwrap(), b"me");

    let again = Tree::from_snapshot(snapshot, Quota::default());
    assert_eq!(
        again.digest().unwrap(),
        Tree::digest(&{
            let tree = Tree::new(lower, Quota::default());
            tree.write_file("new", b"one").unwrap();
            tree
        })
        .unwrap()
    );
    assert_eq!(again.usage().bytes, 3);
}

#[test]
fn what_is_only_held_open_is_not_in_a_snapshot() {
    let tree = tree();
    let root = tree.root().unwrap();
    let mode = OpenMode { create: true, write: true, ..OpenMode::default() };
    let held = tree.open(root, "held", mode).unwrap();
    tree.write(held, 0, &[1; 100]).unwrap();
    tree.unlink(root, "held").unwrap();
    let fork = tree.fork();
    assert_eq!(fork.usage().bytes, 0);
    assert_eq!(fork.stat(held), Err(FileError::BadHandle));
    assert_eq!(tree.usage().bytes, 100);
}

#[test]
fn the_digest_tells_content_and_nothing_else() {
    let tree = tree();
    let before = tree.digest().unwrap();
    assert_eq!(before, tree.lower().digest());
    assert_eq!(
        Tree::new(Lower::empty(), Quota::default()).digest().unwrap(),
        Lower::empty().digest()
    );

    tree.touch("readme").unwrap();
    assert_eq!(tree.digest().unwrap(), before, "times do not count");
    let mut seen = vec![before];
    let mut step = |change: &dyn Fn() -> Result<(), FileError>| {
        change().unwrap();
        let digest = tree.digest().unwrap();
        assert!(!seen.contains(&digest));
        seen.push(digest);
    };
    step(&|| tree.write_file("src/new", b"1"));
    step(&|| tree.write_file("src/new", b"2"));
    step(&|| tree.make_directory("empty"));
    step(&|| tree.symlink_path("src", "link"));
    step(&|| tree.rename_path("src/new", "src/old"));
    step(&|| tree.link_path("src/old", "src/older"));
    step(&|| tree.append_file("src/older", b"!"));
    // Back to where it was, by another way.
    tree.remove_recursive("src/old").unwrap();
    tree.remove_recursive("src/older").unwrap();
    tree.remove_empty_directory("empty").unwrap();
    tree.remove_file("link").unwrap();
    assert_eq!(tree.digest().unwrap(), before);
}

#[test]
fn the_digest_tells_of_changes_by_every_name_of_a_file() {
    let tree = tree();
    tree.create_directories("one/deep").unwrap();
    tree.create_directories("two").unwrap();
    tree.write_file("one/deep/name", b"0").unwrap();
    tree.link_path("one/deep/name", "two/name").unwrap();
    tree.link_path("one/deep/name", "one/deep/twin").unwrap();
    let mut last = tree.digest().unwrap();
    let agrees = |last: &mut Digest| {
        let digest = tree.digest().unwrap();
        assert_ne!(digest, *last);
        let sealed = tree.seal().unwrap().to_bytes().unwrap();
        // Reading it back hashes everything anew.
        let again = Sealed::from_bytes(&sealed, lower(), Quota::default()).unwrap();
        assert_eq!(again.snapshot().digest().unwrap(), digest);
        *last = digest;
    };
    tree.write_file("two/name", b"1").unwrap();
    agrees(&mut last);
    tree.write_file("one/deep/name", b"2").unwrap();
    agrees(&mut last);
    tree.remove_file("one/deep/name").unwrap();
    agrees(&mut last);
    tree.write_file("two/name", b"3").unwrap();
    agrees(&mut last);
    tree.remove_file("two/name").unwrap();
    agrees(&mut last);
    tree.write_file("one/deep/twin", b"4").unwrap();
    agrees(&mut last);
}

#[test]
fn a_digest_taken_from_a_snapshot_does_not_pass_for_a_later_content() {
    // The snapshot shares nodes with the tree, and remembers digests in them while the tree
    // goes on: none of them may be taken for the tree's.
    let tree = tree();
    tree.create_directories("a/b").unwrap();
    tree.write_file("a/b/c", b"old").unwrap();
    let snapshot = tree.snapshot();
    tree.write_file("a/b/c", b"new").unwrap();
    let old = snapshot.digest().unwrap();
    let new = tree.digest().unwrap();
    assert_ne!(old, new);

    let fresh = Tree::new(lower(), Quota::default());
    fresh.create_directories("a/b").unwrap();
    fresh.write_file("a/b/c", b"new").unwrap();
    assert_eq!(new, fresh.digest().unwrap());

    // The same with the snapshot read between the write and the next one.
    let second = tree.snapshot();
    tree.append_file("a/b/c", b"er").unwrap();
    second.digest().unwrap();
    tree.append_file("a/b/c", b"!").unwrap();
    fresh.write_file("a/b/c", b"newer!").unwrap();
    assert_eq!(tree.digest().unwrap(), fresh.digest().unwrap());
}

#[test]
fn times_are_logical() {
    let tree = tree();
    let epoch = tree.stat_path("readme", true).unwrap().times.modified;
    tree.write_file("a", b"").unwrap();
    let first = tree.stat_path("a", true).unwrap().times.modified;
    tree.append_file("a", b"x").unwrap();
    let second = tree.stat_path("a", true).unwrap().times.modified;
    assert!(epoch < first && first < second);
    assert_eq!(first % 1_000_000_000, 0);
    let before = tree.stat_path("a", true).unwrap();
    tree.read_file("a", 10).unwrap();
    assert_eq!(tree.stat_path("a", true).unwrap(), before);
    let root = tree.root().unwrap();
    assert!(tree.stat(root).unwrap().times.modified > epoch);
    tree.set_times(root, None, Some(5)).unwrap();
    assert_eq!(tree.stat(root).unwrap().times.modified, 5);
}

#[test]
fn snapshots_follow_no_links() {
    let tree = tree();
    tree.symlink_path("readme", "link").unwrap();
    tree.symlink_path("src", "folder").unwrap();
    let snapshot = tree.snapshot();
    assert_eq!(snapshot.read("link", 0, 10), Err(FileError::Loop));
    assert_eq!(snapshot.read("folder/main", 0, 10), Err(FileError::Loop));
    assert_eq!(snapshot.read("src/../readme", 0, 10), Err(FileError::NotPermitted));
    assert_eq!(snapshot.read("readme/x", 0, 10), Err(FileError::NotDirectory));
    assert_eq!(snapshot.read("src", 0, 10), Err(FileError::IsDirectory));
    assert_eq!(snapshot.read_link("/link").unwrap(), "readme");
    let paths: Vec<String> = snapshot.entries().unwrap().into_iter().map(|entry| entry.0).collect();
    assert_eq!(paths, ["folder", "link", "readme", "src", "src/main"]);
    let names = snapshot.list("/").unwrap();
    assert_eq!(names.first().unwrap().name, "folder");
}

#[test]
fn canonical_paths_have_no_links_or_dots() {
    let tree = tree();
    tree.symlink_path("src", "link").unwrap();
    for (path, canonical) in [
        ("", "/"),
        ("/", "/"),
        ("link", "/src"),
        ("link/../link/main", "/src/main"),
        ("src/.", "/src"),
    ] {
        assert_eq!(tree.canonical(path).unwrap(), canonical);
    }
    assert_eq!(tree.canonical("missing"), Err(FileError::NotFound));
}
