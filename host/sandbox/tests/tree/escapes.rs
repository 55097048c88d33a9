//! Nothing leads out of the tree.

use fulgurite_sandbox::{Lower, Quota, Tree};
use fulgurite_trace::file::{FileError, FileTree, Handle, OpenMode};

fn tree() -> (Tree, Handle) {
    let tree = Tree::new(Lower::empty(), Quota::default());
    let root = tree.root().unwrap();
    tree.create_directories("a/b").unwrap();
    tree.write_file("a/file", b"inside").unwrap();
    (tree, root)
}

const READ: OpenMode = OpenMode {
    create: false,
    exclusive: false,
    truncate: false,
    directory: false,
    follow: true,
    read: true,
    write: false,
};

#[test]
fn paths_that_lead_out_are_refused() {
    let (tree, root) = tree();
    for path in ["/a", "/", "//", "..", "../a", "a/../..", "a/b/../../../a", "./../x"] {
        assert_eq!(tree.stat_at(root, path, true), Err(FileError::NotPermitted), "{path}");
        assert_eq!(tree.open(root, path, READ), Err(FileError::NotPermitted), "{path}");
        let create = OpenMode { create: true, write: true, ..READ };
        assert_eq!(tree.open(root, path, create), Err(FileError::NotPermitted), "{path}");
    }
    assert!(tree.stat_at(root, "a/b/../../a/file", true).is_ok());
}

#[test]
fn a_folder_handle_reaches_the_tree_but_not_beyond() {
    let (tree, root) = tree();
    let below = tree.open(root, "a/b", READ).unwrap();
    assert!(tree.stat_at(below, "../file", true).is_ok());
    assert_eq!(tree.stat_at(below, "../../..", true), Err(FileError::NotPermitted));
}

#[test]
fn links_that_lead_out_are_not_made() {
    let (tree, root) = tree();
    for target in ["/", "/etc/passwd", "..", "../..", "a/../../x", "./.."] {
        assert_eq!(tree.symlink(target, root, "link"), Err(FileError::NotPermitted), "{target}");
    }
    assert_eq!(tree.symlink("../../..", root, "a/b/link"), Err(FileError::NotPermitted));
    tree.symlink("../..", root, "a/b/link").unwrap();
    assert!(tree.stat_at(root, "a/b/link/a/file", true).is_ok());
}

#[test]
fn links_that_come_to_lead_out_are_not_followed() {
    let (tree, root) = tree();
    tree.symlink("../..", root, "a/b/link").unwrap();
    // The link moves up, and its target with it.
    tree.rename(root, "a/b/link", root, "link").unwrap();
    assert_eq!(tree.stat_at(root, "link", true), Err(FileError::NotPermitted));
    assert_eq!(tree.stat_at(root, "link/x", false), Err(FileError::NotPermitted));
    // By names alone `up/../..` stays inside; where `up` leads makes it lead out.
    tree.symlink("b/..", root, "a/stay").unwrap();
    tree.symlink("..", root, "a/up").unwrap();
    tree.symlink("up/../x", root, "a/out").unwrap();
    assert_eq!(tree.stat_at(root, "a/out", true), Err(FileError::NotPermitted));
    assert!(tree.stat_at(root, "a/stay/file", true).is_ok());
}

#[test]
fn targets_of_links_are_together_no_longer_than_a_path() {
    let (tree, root) = tree();
    let far = |name: &str| format!("{}{name}", "./".repeat(1500));
    tree.symlink(&far("a/file"), root, "one").unwrap();
    assert!(tree.stat_at(root, "one", true).is_ok());
    tree.symlink(&far("one"), root, "two").unwrap();
    assert_eq!(tree.stat_at(root, "two", true), Err(FileError::Loop));
    assert!(tree.stat_at(root, "two", false).is_ok());
}

#[test]
fn creating_through_a_link_stays_inside() {
    let (tree, root) = tree();
    tree.symlink("b/new", root, "a/dangling").unwrap();
    let create = OpenMode { create: true, write: true, ..READ };
    let handle = tree.open(root, "a/dangling", create).unwrap();
    tree.write(handle, 0, b"through").unwrap();
    assert_eq!(tree.read_file("a/b/new", 100).unwrap(), b"through");
    // A path that ends in `/` makes no file, wherever it would lead.
    tree.symlink("missing/newer", root, "a/other").unwrap();
    assert_eq!(tree.open(root, "a/other/", create), Err(FileError::IsDirectory));
    let exclusive = OpenMode { exclusive: true, ..create };
    assert_eq!(tree.open(root, "a/dangling", exclusive), Err(FileError::Exists));
}

#[test]
fn loops_end() {
    let (tree, root) = tree();
    tree.symlink("two", root, "one").unwrap();
    tree.symlink("one", root, "two").unwrap();
    assert_eq!(tree.stat_at(root, "one", true), Err(FileError::Loop));
    assert_eq!(tree.stat_at(root, "two/x", false), Err(FileError::Loop));
    // Each link doubles the way; without a bound this would take for ever.
    tree.symlink("a", root, "x0").unwrap();
    for step in 1..60 {
        let (target, path) = (format!("x{}/../x{0}", step - 1), format!("x{step}"));
        tree.symlink(&target, root, &path).unwrap();
    }
    assert_eq!(tree.stat_at(root, "x59", true), Err(FileError::Loop));
}

#[test]
fn malformed_paths_are_refused() {
    let (tree, root) = tree();
    assert_eq!(tree.stat_at(root, "", true), Err(FileError::NotFound));
    assert_eq!(tree.stat_at(root, "a\0b", true), Err(FileError::Invalid));
    assert_eq!(tree.stat_at(root, &"a/".repeat(3000), true), Err(FileError::NameTooLong));
    assert_eq!(tree.create_directory(root, &"n".repeat(256)), Err(FileError::NameTooLong));
    assert_eq!(tree.symlink(&"n".repeat(5000), root, "l"), Err(FileError::NameTooLong));
    assert_eq!(tree.symlink("", root, "l"), Err(FileError::NotFound));
    for name in ["back\\slash", "é", " ", "-rf", "\u{202e}", "a\nb"] {
        tree.create_directory(root, name).unwrap();
        assert!(tree.stat_at(root, name, false).is_ok(), "{name:?} is a name like any other");
    }
}

#[test]
fn laying_down_follows_nothing() {
    let (tree, _) = tree();
    tree.symlink_path("a/file", "test.py").unwrap();
    tree.lay_down("test.py", b"hidden").unwrap();
    assert_eq!(tree.read_file("a/file", 100).unwrap(), b"inside");
    assert_eq!(tree.read_file("test.py", 100).unwrap(), b"hidden");

    // A folder in its place goes with all below it.
    tree.create_directories("suite/test.py/deep").unwrap();
    tree.lay_down("suite/test.py", b"hidden").unwrap();
    assert_eq!(tree.read_file("suite/test.py", 100).unwrap(), b"hidden");

    // A link or file where a folder is needed becomes one.
    tree.symlink_path("a", "tests").unwrap();
    tree.lay_down("/tests/./file", b"hidden").unwrap();
    assert_eq!(tree.read_file("a/file", 100).unwrap(), b"inside");
    tree.lay_down("a/file/below", b"hidden").unwrap();
    assert_eq!(tree.read_file("a/file/below", 100).unwrap(), b"hidden");

    // Another name of the same file keeps what it had.
    tree.write_file("mine", b"mine").unwrap();
    tree.link_path("mine", "shared").unwrap();
    tree.lay_down("shared", b"hidden").unwrap();
    assert_eq!(tree.read_file("mine", 100).unwrap(), b"mine");

    for path in ["", "/", ".", "./."] {
        assert_eq!(tree.lay_down(path, b""), Err(FileError::Invalid), "{path:?}");
    }
    assert_eq!(tree.lay_down("a/../b", b""), Err(FileError::NotPermitted));
}

#[test]
fn a_handle_held_while_a_file_is_laid_down_does_not_reach_it() {
    let (tree, root) = tree();
    let held = tree.open(root, "a/file", OpenMode { write: true, ..READ }).unwrap();
    tree.lay_down("a/file", b"hidden").unwrap();
    tree.write(held, 0, b"forged").unwrap();
    assert_eq!(tree.read_file("a/file", 100).unwrap(), b"hidden");
}
