//! Many threads at once.

use std::{sync::Arc, thread};

use fulgurite_sandbox::{Lower, Quota, Spill, Tree};
use fulgurite_trace::file::{FileTree, OpenMode};

#[test]
fn threads_share_a_tree() {
    let quota = Quota { memory_bytes: 300_000, ..Quota::default() };
    let spill = Spill::in_folder(std::env::temp_dir());
    let tree = Arc::new(Tree::with_spill(Lower::empty(), quota, Arc::clone(&spill)));
    let shared = OpenMode { create: true, read: true, write: true, ..OpenMode::default() };
    thread::scope(|scope| {
        for thread in 0..8_u8 {
            let tree = Arc::clone(&tree);
            scope.spawn(move || {
                let root = tree.root().unwrap();
                let log = tree.open(root, "log", shared).unwrap();
                tree.make_directory(&format!("{thread}")).unwrap();
                for step in 0..50_u8 {
                    let path = format!("{thread}/{step}");
                    tree.write_file(&path, &vec![thread; 3000]).unwrap();
                    tree.append(log, &[thread]).unwrap();
                    tree.rename_path(&path, &format!("{thread}/moved")).unwrap();
                    let digest = tree.snapshot().digest().unwrap();
                    assert_ne!(digest, Lower::empty().digest());
                    tree.digest().unwrap();
                }
                tree.close(log);
                tree.close(root);
            });
        }
    });
    assert_eq!(tree.usage().handles, 0);
    assert_eq!(tree.usage().files, 8 + 8 + 1);
    let mut log = tree.read_file("log", 1000).unwrap();
    log.sort_unstable();
    assert_eq!(log, (0..8).flat_map(|thread| [thread; 50]).collect::<Vec<_>>());

    // What was remembered on the way is right: a tree made of the same content agrees.
    let fresh = Tree::new(Lower::empty(), Quota::default());
    for (path, stat) in tree.snapshot().entries().unwrap() {
        match stat.kind {
            fulgurite_trace::file::FileKind::Directory => fresh.make_directory(&path).unwrap(),
            _ => fresh.write_file(&path, &tree.read_file(&path, u64::MAX).unwrap()).unwrap(),
        }
    }
    assert_eq!(tree.digest().unwrap(), fresh.digest().unwrap());
    drop(fresh);
    drop(tree);
    assert_eq!(spill.slots_in_use(), 0);
}

#[test]
fn ten_thousand_trees_live_at_once() {
    let lower = Lower::empty();
    let trees: Vec<Tree> =
        (0..10_000).map(|_| Tree::new(Arc::clone(&lower), Quota::default())).collect();
    for (number, tree) in trees.iter().enumerate().step_by(100) {
        tree.write_file("number", number.to_string().as_bytes()).unwrap();
    }
    assert_eq!(trees[9900].read_file("number", 10).unwrap(), b"9900");
    assert_eq!(trees[9901].digest().unwrap(), lower.digest());
}
