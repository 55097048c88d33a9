//! From a folder of the host and back to one.

use std::{collections::BTreeMap, os::unix::fs::symlink};

use cap_std::{ambient_authority, fs::Dir};
use fulgurite_sandbox::{Lower, LowerError, Quota, Tree};

fn folder() -> (tempfile::TempDir, Dir) {
    let temporary = tempfile::tempdir().unwrap();
    let folder = Dir::open_ambient_dir(temporary.path(), ambient_authority()).unwrap();
    (temporary, folder)
}

fn import_error(make: impl FnOnce(&std::path::Path), limits: Quota) -> String {
    let (temporary, folder) = folder();
    make(temporary.path());
    Lower::import(&folder, &limits).unwrap_err().to_string()
}

#[test]
fn a_folder_goes_in_and_comes_out_the_same() {
    let (temporary, folder) = folder();
    let big: Vec<u8> = (0..300_000_u32).map(|number| number as u8).collect();
    std::fs::create_dir_all(temporary.path().join("src/deep/empty")).unwrap();
    std::fs::write(temporary.path().join("src/big"), &big).unwrap();
    std::fs::write(temporary.path().join("nothing"), b"").unwrap();
    symlink("../nothing", temporary.path().join("src/link")).unwrap();
    symlink("missing", temporary.path().join("dangling")).unwrap();
    let lower = Lower::import(&folder, &Quota::default()).unwrap();
    assert_eq!(lower.len(), 7);

    let tree = Tree::new(lower.clone(), Quota::default());
    assert_eq!(tree.read_file("src/big", u64::MAX).unwrap(), big);
    assert_eq!(tree.read_link_path("src/link").unwrap(), "../nothing");
    tree.link_path("nothing", "src/second").unwrap();

    let (_kept, out) = self::folder();
    let exported = tree.export(&out).unwrap();
    assert_eq!((exported.entries, exported.bytes, exported.refused.len()), (8, 300_000, 0));
    let again = Lower::import(&out, &Quota::default()).unwrap();
    assert_eq!(again.digest(), tree.digest().unwrap());
    use std::os::unix::fs::MetadataExt;
    assert_eq!(std::fs::metadata(_kept.path().join("nothing")).unwrap().nlink(), 2);

    assert!(tree.export(&out).unwrap_err().to_string().contains("must be empty"));
}

#[test]
fn files_given_by_path_equal_the_imported_folder() {
    let (temporary, folder) = folder();
    std::fs::create_dir_all(temporary.path().join("a/b")).unwrap();
    std::fs::write(temporary.path().join("a/b/c"), b"content").unwrap();
    std::fs::write(temporary.path().join("a-b"), b"").unwrap();
    let files =
        BTreeMap::from([("a-b".to_owned(), Vec::new()), ("a/b/c".to_owned(), b"content".to_vec())]);
    let given = Lower::from_files(&files).unwrap();
    assert_eq!(given.digest(), Lower::import(&folder, &Quota::default()).unwrap().digest());
    assert!(Lower::empty().is_empty());
}

#[test]
fn paths_that_no_workspace_can_have_are_named() {
    for (path, reason) in [
        ("", "empty"),
        ("/etc/passwd", "absolute"),
        ("a/../b", "`.` or `..`"),
        ("./a", "`.` or `..`"),
        ("a//b", "empty name"),
        ("a/", "empty name"),
        ("a\0", "forbidden character"),
        (&"n".repeat(256), "255 bytes"),
        (&"a/".repeat(300), "256 folders"),
    ] {
        let files = BTreeMap::from([(path.to_owned(), Vec::new())]);
        let error = Lower::from_files(&files).unwrap_err().to_string();
        assert!(error.contains(reason), "{path:?}: {error}");
    }
    let clash = ["a", "a/b"].map(|path| (path.to_owned(), Vec::new())).into();
    let error = Lower::from_files(&clash).unwrap_err().to_string();
    assert!(error.contains("`a/b`") && error.contains("file of one of its folders"), "{error}");
}

#[test]
fn links_out_of_a_folder_are_refused() {
    for target in ["/etc/passwd", "..", "sub/../../x"] {
        let error = import_error(
            |path| {
                std::fs::create_dir(path.join("sub")).unwrap();
                symlink(target, path.join("link")).unwrap();
            },
            Quota::default(),
        );
        assert!(error.contains("`link`") && error.contains("leads out"), "{error}");
    }
    // By names alone it stays inside; by where its parts lead it does not.
    let error = import_error(
        |path| {
            std::fs::create_dir(path.join("sub")).unwrap();
            symlink("..", path.join("sub/up")).unwrap();
            symlink("up/../etc", path.join("sub/out")).unwrap();
        },
        Quota::default(),
    );
    assert!(error.contains("`sub/out`"), "{error}");
}

#[test]
fn what_is_no_file_is_refused() {
    let error = import_error(
        |path| nix::unistd::mkfifo(&path.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap(),
        Quota::default(),
    );
    assert!(error.contains("`pipe`") && error.contains("neither a file"), "{error}");
    let error = import_error(
        |path| drop(std::os::unix::net::UnixListener::bind(path.join("socket")).unwrap()),
        Quota::default(),
    );
    assert!(error.contains("`socket`"), "{error}");
    let error = import_error(
        |path| {
            use std::os::unix::ffi::OsStrExt;
            let name = std::ffi::OsStr::from_bytes(b"\xff");
            std::fs::write(path.join(name), b"").unwrap();
        },
        Quota::default(),
    );
    assert!(error.contains("not UTF-8"), "{error}");
}

#[test]
fn importing_is_bounded() {
    let fill = |path: &std::path::Path| {
        std::fs::create_dir_all(path.join("a/b")).unwrap();
        std::fs::write(path.join("a/b/c"), [0; 100]).unwrap();
    };
    for (limits, what) in [
        (Quota { bytes: 99, ..Quota::default() }, "99 bytes"),
        (Quota { files: 2, ..Quota::default() }, "2 entries"),
        (Quota { depth: 2, ..Quota::default() }, "2 folders"),
    ] {
        let error = import_error(fill, limits);
        assert!(error.contains(what), "{error}");
    }
    let (temporary, folder) = folder();
    fill(temporary.path());
    let limits = Quota { bytes: 100, files: 3, depth: 3, ..Quota::default() };
    Lower::import(&folder, &limits).unwrap();
    drop(temporary);
    assert!(matches!(Lower::import(&folder, &limits), Ok(_) | Err(LowerError::Read { .. })));
}

#[test]
fn links_that_lead_out_are_not_exported() {
    let tree = Tree::new(Lower::empty(), Quota::default());
    tree.create_directories("a/b").unwrap();
    tree.symlink_path("../..", "a/b/link").unwrap();
    tree.rename_path("a/b/link", "link").unwrap();
    tree.symlink_path("a", "fine").unwrap();
    let (temporary, folder) = folder();
    let exported = tree.export(&folder).unwrap();
    assert_eq!(exported.refused, ["link"]);
    assert!(temporary.path().join("fine/b").is_dir());
    assert!(temporary.path().join("link").symlink_metadata().is_err());
}
