//! Quotas are exact, and contents beyond the memory go to disk and come back.

use std::{collections::BTreeMap, sync::Arc};

use fulgurite_sandbox::{Lower, Quota, Spill, Tree, Usage};
use fulgurite_trace::file::{FileError, FileTree, OpenMode};

const CREATE: OpenMode = OpenMode {
    create: true,
    exclusive: false,
    truncate: false,
    directory: false,
    follow: true,
    read: true,
    write: true,
};

fn quota() -> Quota {
    Quota { bytes: 1000, files: 5, handles: 3, depth: 3, ..Quota::default() }
}

#[test]
fn bytes_are_counted_to_the_last() {
    let tree = Tree::new(Lower::empty(), quota());
    tree.write_file("a", &[1; 1000]).unwrap();
    assert_eq!(tree.append_file("a", &[1]), Err(FileError::NoSpace));
    assert_eq!(tree.write_file("b", &[1]), Err(FileError::NoSpace));
    assert_eq!(tree.stat_path("b", false), Err(FileError::NotFound));
    assert_eq!(tree.symlink_path("a", "l"), Err(FileError::NoSpace));
    tree.write_file("a", &[2; 999]).unwrap();
    tree.symlink_path("a", "l").unwrap();
    assert_eq!(tree.usage().bytes, 1000);
    tree.remove_file("a").unwrap();
    assert_eq!(tree.usage().bytes, 1);
    // A hole counts like bytes.
    let root = tree.root().unwrap();
    let file = tree.open(root, "hole", CREATE).unwrap();
    assert_eq!(tree.set_size(file, 1000), Err(FileError::NoSpace));
    tree.set_size(file, 999).unwrap();
    assert_eq!(tree.write(file, 999, &[0]), Err(FileError::NoSpace));
    assert_eq!(tree.stat(file).unwrap().size, 999, "a failed write changes nothing");
    assert_eq!(tree.write(file, u64::MAX, &[0]), Err(FileError::NoSpace));
    assert_eq!(tree.set_size(file, u64::MAX), Err(FileError::NoSpace));
}

#[test]
fn removed_files_count_until_they_are_closed() {
    let tree = Tree::new(Lower::empty(), quota());
    let root = tree.root().unwrap();
    let file = tree.open(root, "a", CREATE).unwrap();
    tree.write(file, 0, &[1; 700]).unwrap();
    tree.unlink(root, "a").unwrap();
    assert_eq!(tree.usage(), Usage { bytes: 700, files: 0, handles: 2, memory_bytes: 700 });
    assert_eq!(tree.read(file, 690, 100).unwrap(), [1; 10]);
    tree.write(file, 700, &[2; 10]).unwrap();
    assert_eq!(tree.stat(file).unwrap().links, 0);
    assert_eq!(tree.write_file("b", &[1; 400]), Err(FileError::NoSpace));
    tree.close(file);
    assert_eq!(tree.usage(), Usage { bytes: 0, files: 0, handles: 1, memory_bytes: 0 });
    tree.write_file("b", &[1; 400]).unwrap();
}

#[test]
fn names_are_counted_to_the_last() {
    let tree = Tree::new(Lower::empty(), quota());
    for path in ["a", "b"] {
        tree.make_directory(path).unwrap();
    }
    tree.write_file("a/c", b"").unwrap();
    tree.link_path("a/c", "a/d").unwrap();
    tree.symlink_path("x", "l").unwrap();
    for refused in [
        tree.make_directory("c"),
        tree.write_file("c", b""),
        tree.link_path("a/c", "c"),
        tree.symlink_path("x", "c"),
    ] {
        assert_eq!(refused, Err(FileError::NoSpace));
    }
    // Moving needs no further name.
    tree.rename_path("a/d", "e").unwrap();
    tree.remove_recursive("a").unwrap();
    assert_eq!(tree.usage().files, 3);
}

#[test]
fn a_name_that_takes_another_s_place_fits_into_a_full_quota() {
    let files = BTreeMap::from([("lower".to_owned(), vec![1])]);
    let quota = Quota { files: 1, ..quota() };
    let tree = Tree::new(Lower::from_files(&files).unwrap(), quota);
    tree.write_file("upper", &[2]).unwrap();
    assert_eq!(tree.rename_path("lower", "moved"), Err(FileError::NoSpace));
    tree.rename_path("lower", "upper").unwrap();
    assert_eq!(tree.read_file("upper", 10).unwrap(), [1]);
    assert_eq!(tree.usage().files, 1);
}

#[test]
fn the_lower_layer_counts_only_when_changed() {
    let files = BTreeMap::from([
        ("big".to_owned(), vec![0; 900]),
        ("folder/one".to_owned(), vec![1; 10]),
        ("folder/two".to_owned(), vec![2; 10]),
    ]);
    let tree = Tree::new(Lower::from_files(&files).unwrap(), quota());
    assert_eq!(tree.usage(), Usage::default());
    tree.append_file("folder/one", &[1]).unwrap();
    assert_eq!(tree.usage().bytes, 11, "the whole file counts");
    assert_eq!(tree.usage().memory_bytes, 11);
    tree.rename_path("folder", "moved").unwrap();
    assert_eq!(tree.usage().files, 1, "a moved folder is one name");
    tree.remove_file("big").unwrap();
    assert_eq!(tree.usage().bytes, 11, "removing gives nothing back");
    tree.remove_recursive("moved").unwrap();
    assert_eq!(tree.usage(), Usage::default());
}

#[test]
fn handles_are_counted_to_the_last() {
    let tree = Tree::new(Lower::empty(), quota());
    let root = tree.root().unwrap();
    let one = tree.open(root, "a", CREATE).unwrap();
    tree.root().unwrap();
    assert_eq!(tree.root(), Err(FileError::TooManyHandles));
    assert_eq!(tree.open(root, "b", CREATE), Err(FileError::TooManyHandles));
    assert_eq!(tree.stat_path("b", false), Err(FileError::NotFound), "nothing was made");
    tree.close(one);
    tree.close(one);
    assert_eq!(tree.read(one, 0, 1), Err(FileError::BadHandle));
    tree.open(root, "b", CREATE).unwrap();
}

#[test]
fn depth_is_held_when_folders_move() {
    let tree = Tree::new(Lower::empty(), Quota { files: 100, ..quota() });
    tree.create_directories("a/b/c").unwrap();
    assert_eq!(tree.make_directory("a/b/c/d"), Err(FileError::NameTooLong));
    assert_eq!(tree.write_file("a/b/c/d", b""), Err(FileError::NameTooLong));
    tree.create_directories("x/y").unwrap();
    assert_eq!(tree.rename_path("x", "a/b/x"), Err(FileError::NameTooLong));
    assert_eq!(tree.rename_path("x", "a/x"), Ok(()));
    tree.rename_path("a/x", "x").unwrap();
    // When the deep part is gone, the rest may go deeper.
    tree.remove_empty_directory("x/y").unwrap();
    tree.rename_path("x", "a/b/x").unwrap();
    tree.write_file("y", b"").unwrap();
    tree.make_directory("z").unwrap();
    tree.rename_path("y", "z/y").unwrap();
    assert_eq!(tree.rename_path("z", "a/b/z"), Err(FileError::NameTooLong), "files count too");
}

#[test]
fn no_quota_allows_a_tree_too_deep_to_walk() {
    let quota = Quota { depth: u32::MAX, files: u64::MAX, ..Quota::default() };
    let tree = Tree::new(Lower::empty(), quota);
    let root = tree.root().unwrap();
    let mut folder = root;
    let mut depth = 0;
    let directory = OpenMode { directory: true, read: true, ..OpenMode::default() };
    while tree.create_directory(folder, "n").is_ok() {
        folder = tree.open(folder, "n", directory).unwrap();
        depth += 1;
    }
    assert_eq!(depth, 256);
    tree.digest().unwrap();
    assert_eq!(tree.seal().unwrap().manifest().changes.len(), 256);
    tree.remove_recursive("n").unwrap();
}

#[test]
fn contents_beyond_the_memory_go_to_disk_and_come_back() {
    let spill = Spill::in_folder(std::env::temp_dir());
    let quota = Quota { memory_bytes: 100_000, ..Quota::default() };
    let tree = Tree::with_spill(Lower::empty(), quota, Arc::clone(&spill));
    let content: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
    tree.write_file("big", &content).unwrap();
    assert!(tree.usage().memory_bytes <= 100_000);
    assert!(spill.slots_in_use() >= 13);
    assert_eq!(tree.read_file("big", u64::MAX).unwrap(), content);

    // A fork shares the slots; what it writes is its own.
    let fork = tree.fork();
    let before = spill.slots_in_use();
    let root = fork.root().unwrap();
    let file = fork.open(root, "big", CREATE).unwrap();
    fork.write(file, 500_000, b"fork").unwrap();
    assert_eq!(spill.slots_in_use(), before + 1);
    fork.write(file, 500_002, b"ged").unwrap();
    assert_eq!(spill.slots_in_use(), before + 1, "its own slot is written in place");
    fork.write(file, 999_990, b"0123456789abc").unwrap();
    assert_eq!(fork.read(file, 500_000, 5).unwrap(), b"foged");
    assert_eq!(fork.read(file, 999_985, 100).unwrap()[5..], *b"0123456789abc");
    assert_eq!(tree.read_file("big", u64::MAX).unwrap(), content);

    // Cutting and growing on disk shows zeros, not what stood there.
    fork.set_size(file, 700_001).unwrap();
    fork.write(file, 700_100, b"x").unwrap();
    let tail = fork.read(file, 700_000, 101).unwrap();
    assert_eq!((tail[0], &tail[1..100], tail[100]), (content[700_000], &[0; 99][..], b'x'));

    drop(fork);
    tree.remove_file("big").unwrap();
    assert_eq!(spill.slots_in_use(), 0);
}

#[test]
fn what_was_cut_off_does_not_come_back() {
    let quota = Quota { memory_bytes: 150_000, ..Quota::default() };
    let tree = Tree::with_spill(Lower::empty(), quota, Spill::in_folder(std::env::temp_dir()));
    let root = tree.root().unwrap();
    for (name, size) in [("in memory", 100_000), ("on disk", 300_000)] {
        let file = tree.open(root, name, CREATE).unwrap();
        tree.write(file, 0, &vec![7; size]).unwrap();
        for cut in [70_000, 65_536, 65_535, 10, 0] {
            tree.set_size(file, cut).unwrap();
            tree.set_size(file, size as u64).unwrap();
            let bytes = tree.read(file, 0, u64::MAX).unwrap();
            let (kept, new) = bytes.split_at(cut as usize);
            assert!(kept.iter().all(|byte| *byte == 7), "{name} {cut}");
            assert!(new.iter().all(|byte| *byte == 0), "{name} {cut}");
        }
        assert_eq!(bytes_in_memory(&tree), 0, "{name}");
        tree.close(file);
        tree.remove_file(name).unwrap();
    }
    // A fork's cut is its own, and as final.
    tree.write_file("shared", &[7; 100]).unwrap();
    let fork = tree.fork();
    let root_of_fork = fork.root().unwrap();
    let file = fork.open(root_of_fork, "shared", CREATE).unwrap();
    fork.set_size(file, 10).unwrap();
    fork.set_size(file, 20).unwrap();
    assert_eq!(fork.read(file, 5, 10).unwrap(), [7, 7, 7, 7, 7, 0, 0, 0, 0, 0]);
    assert_eq!(tree.read_file("shared", 200).unwrap(), [7; 100]);
    tree.remove_file("shared").unwrap();
    // Cutting gives memory back at once.
    let file = tree.open(root, "in memory", CREATE).unwrap();
    tree.write(file, 0, &[7; 140_000]).unwrap();
    assert_eq!(bytes_in_memory(&tree), 140_000);
    tree.set_size(file, 65_537).unwrap();
    assert_eq!(bytes_in_memory(&tree), 65_537);
    tree.set_size(file, 1).unwrap();
    assert_eq!(bytes_in_memory(&tree), 1);
}

fn bytes_in_memory(tree: &Tree) -> u64 {
    tree.usage().memory_bytes
}

#[test]
fn another_tree_s_old_bytes_on_disk_never_show() {
    let spill = Spill::in_folder(std::env::temp_dir());
    let quota = Quota { memory_bytes: 0, ..Quota::default() };
    let secret = Tree::with_spill(Lower::empty(), quota, Arc::clone(&spill));
    let keeps_the_file = Tree::with_spill(Lower::empty(), quota, Arc::clone(&spill));
    secret.write_file("secret", &[0xff; 60_000]).unwrap();
    keeps_the_file.write_file("other", &[1]).unwrap();
    drop(secret);
    assert_eq!(spill.slots_in_use(), 1);

    let tree = Tree::with_spill(Lower::empty(), quota, Arc::clone(&spill));
    let root = tree.root().unwrap();
    let file = tree.open(root, "file", CREATE).unwrap();
    tree.write(file, 0, &[1; 10]).unwrap();
    tree.write(file, 1000, &[1; 10]).unwrap();
    tree.set_size(file, 2000).unwrap();
    let bytes = tree.read(file, 0, 5000).unwrap();
    assert_eq!(bytes.len(), 2000);
    assert!(bytes.iter().all(|byte| *byte <= 1), "the slot was written to before");
}

#[test]
fn a_disk_that_cannot_be_used_is_an_error_and_loses_nothing() {
    let spill = Spill::in_folder("/proc/no-folder-to-write-to");
    let quota = Quota { memory_bytes: 10, ..Quota::default() };
    let tree = Tree::with_spill(Lower::empty(), quota, spill);
    tree.write_file("a", &[1; 10]).unwrap();
    assert_eq!(tree.append_file("a", &[2; 10]), Err(FileError::Io));
    assert_eq!(tree.read_file("a", 10).unwrap(), [1; 10]);
    assert_eq!(tree.write_file("b", &[1; 10]), Err(FileError::Io));
    tree.remove_file("a").unwrap();
    tree.write_file("b", &[1; 10]).unwrap();
}
