//! The registry on a real disk: names, pins, tampering, several writers.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    thread,
};

use fulgurite_registry::{
    Description, Kind, Name, Pinned, Problem, Registry, RegistryError, Scope, Source,
};
use fulgurite_trace::Digest;
use tempfile::TempDir;

struct Place {
    registry: Registry,
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("project");
        fs::create_dir(&project).unwrap();
        Self { registry: Registry::new(folder.path().join("home"), project), folder }
    }

    fn add(&self, name: &str, text: &str) -> Digest {
        let added = self.registry.add(Scope::User, &named(name), text.as_bytes(), harness());
        added.unwrap().plugin.digest
    }

    fn user_store(&self) -> PathBuf {
        self.folder.path().join("home/plugins")
    }

    fn problems(&self) -> Vec<Problem> {
        self.registry.verify().unwrap().problems
    }
}

fn named(text: &str) -> Name {
    text.parse().unwrap()
}

fn harness() -> Description {
    let metadata = BTreeMap::from([("version".to_owned(), "1.2 \"x\"\n".to_owned())]);
    Description { kind: Kind::Harness, metadata }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn what_was_added_is_listed_shown_and_resolved() {
    let place = Place::new();
    assert!(place.registry.list().unwrap().is_empty());
    let digest = place.add("coder", "one");
    let plugin = place.registry.show("coder").unwrap();
    assert_eq!((plugin.digest, plugin.size, plugin.kind), (digest, 3, Kind::Harness));
    assert_eq!(plugin.metadata, harness().metadata);
    assert_eq!(plugin.pinned, Pinned::No);
    let resolved = place.registry.resolve("coder", Some(Kind::Harness)).unwrap();
    assert_eq!(resolved.source, Source::Registered(Scope::User));
    assert_eq!(resolved.read().unwrap(), b"one");
    assert_eq!(place.registry.list().unwrap(), [plugin]);
    assert!(place.problems().is_empty());
}

#[test]
fn only_the_owner_may_look() {
    let place = Place::new();
    let digest = place.add("coder", "one");
    let store = place.user_store();
    assert_eq!(mode(&store), 0o700);
    assert_eq!(mode(&store.join("sha256")), 0o700);
    assert_eq!(mode(&store.join("names.toml")), 0o600);
    assert_eq!(mode(&store.join("lock")), 0o600);
    let component = store.join("sha256").join(format!("{}.wasm", digest.hex()));
    assert_eq!(mode(&component), 0o600);
    fs::set_permissions(&component, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(place.problems(), [Problem::Exposed { path: component, mode: 0o666 }]);
}

#[test]
fn a_changed_file_is_caught_named_and_mended_by_adding_it_again() {
    let place = Place::new();
    let expected = place.add("coder", "one");
    place.add("same", "one");
    place.add("other", "two");
    let resolved = place.registry.resolve("coder", None).unwrap();
    fs::write(&resolved.path, "evil").unwrap();
    let error = resolved.read().unwrap_err();
    assert!(matches!(error, RegistryError::Changed { .. }), "{error}");
    let problems = place.problems();
    let found = Digest::of("evil");
    let names = vec![named("coder"), named("same")];
    let path = resolved.path.clone();
    assert_eq!(problems, [Problem::Changed { names, path, expected, found }]);
    let text = problems[0].to_string();
    assert!(text.contains("`coder`, `same`") && text.contains(&found.to_string()), "{text}");
    place.add("coder", "one");
    assert!(place.problems().is_empty());
    assert_eq!(resolved.read().unwrap(), b"one");
}

#[test]
fn a_file_that_is_gone_or_a_link_is_caught() {
    let place = Place::new();
    place.add("coder", "one");
    place.add("solve", "two");
    let gone = place.registry.resolve("coder", None).unwrap();
    fs::remove_file(&gone.path).unwrap();
    let linked = place.registry.resolve("solve", None).unwrap();
    let target = place.folder.path().join("target");
    fs::rename(&linked.path, &target).unwrap();
    symlink(&target, &linked.path).unwrap();
    assert!(matches!(linked.read(), Err(RegistryError::NotAFile { .. })));
    for name in ["coder", "solve"] {
        let error = place.registry.resolve(name, None).unwrap_err();
        assert!(matches!(error, RegistryError::Missing { .. }), "{error}");
    }
    let problems = place.problems();
    assert_eq!(problems.len(), 2, "{problems:?}");
    let missing = Problem::Missing { names: vec![named("coder")], path: gone.path };
    assert!(problems.contains(&missing));
    assert!(problems.iter().any(|problem| matches!(problem, Problem::Unreadable { .. })));
}

#[test]
fn what_does_not_belong_into_the_store_is_named() {
    let place = Place::new();
    place.add("coder", "one");
    let stray = place.user_store().join("sha256/readme.txt");
    fs::write(&stray, "x").unwrap();
    let nameless = Digest::of("nobody's");
    let path = place.user_store().join("sha256").join(format!("{}.wasm", nameless.hex()));
    fs::write(&path, "changed").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let problems = place.problems();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert_eq!(problems[0], Problem::Stray { path: stray });
    assert!(matches!(&problems[1], Problem::Changed { names, .. } if names.is_empty()));
}

#[test]
fn a_pin_outlives_the_name_that_moved_on() {
    let place = Place::new();
    let registry = &place.registry;
    let one = place.add("coder", "one");
    registry.pin(&[named("coder")]).unwrap();
    assert_eq!(registry.show("coder").unwrap().pinned, Pinned::Here);
    let two = place.add("coder", "two");
    let resolved = registry.resolve("coder", Some(Kind::Harness)).unwrap();
    assert_eq!((resolved.digest, resolved.source), (one, Source::Pinned(Scope::User)));
    assert_eq!(resolved.read().unwrap(), b"one");
    assert_eq!(registry.show("coder").unwrap().pinned, Pinned::Elsewhere(one));
    let differs = Problem::PinDiffers { name: named("coder"), pinned: one, registered: two };
    assert_eq!(place.problems(), [differs]);
    // A run pins what has no pin and leaves the others.
    place.add("solve", "three");
    let run = ["coder", "solve"].map(|name| registry.resolve(name, None).unwrap());
    registry.pin_resolved(&run).unwrap();
    let pins = registry.lock_file().unwrap().pins;
    assert_eq!(pins["coder"].digest, one);
    assert_eq!(pins["solve"].digest, Digest::of("three"));
    registry.pin(&[named("coder")]).unwrap();
    assert_eq!(registry.resolve("coder", None).unwrap().digest, two);
    assert!(registry.unpin(&named("coder")).unwrap());
    assert!(!registry.unpin(&named("coder")).unwrap());
}

#[test]
fn a_pin_to_what_is_not_here_is_an_error_and_never_something_else() {
    let place = Place::new();
    place.add("coder", "one");
    place.registry.pin(&[named("coder")]).unwrap();
    let elsewhere = Place::new();
    elsewhere.add("coder", "two");
    fs::copy(place.registry.lock_path(), elsewhere.registry.lock_path()).unwrap();
    let error = elsewhere.registry.resolve("coder", None).unwrap_err();
    assert!(matches!(error, RegistryError::PinNotFound { .. }), "{error}");
    let pinned = Digest::of("one");
    let problem = Problem::PinNotFound { name: named("coder"), pinned };
    assert_eq!(elsewhere.problems(), [problem]);
    elsewhere.add("another-name", "one");
    assert_eq!(elsewhere.registry.resolve("coder", None).unwrap().digest, pinned);
}

#[test]
fn an_unchanged_lock_file_is_left_alone() {
    let place = Place::new();
    place.add("coder", "one");
    place.registry.pin(&[named("coder")]).unwrap();
    let path = place.registry.lock_path();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("# ") && !text.contains(place.folder.path().to_str().unwrap()));
    let spaced = text + "\n# merged by hand\n";
    fs::write(&path, &spaced).unwrap();
    place.registry.pin(&[named("coder")]).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), spaced);
}

#[test]
fn the_projects_names_go_first() {
    let place = Place::new();
    let registry = &place.registry;
    place.add("coder", "user's");
    registry.add(Scope::Project, &named("coder"), b"project's", harness()).unwrap();
    assert_eq!(registry.resolve("coder", None).unwrap().read().unwrap(), b"project's");
    let list = registry.list().unwrap();
    let told: Vec<_> = list.iter().map(|plugin| (plugin.scope, plugin.shadowed)).collect();
    assert_eq!(told, [(Scope::Project, false), (Scope::User, true)]);
    let removed = registry.remove(&named("coder")).unwrap();
    assert_eq!(removed.scope, Scope::Project);
    assert_eq!(registry.resolve("coder", None).unwrap().read().unwrap(), b"user's");
}

#[test]
fn removing_a_name_keeps_what_others_need() {
    let place = Place::new();
    let registry = &place.registry;
    place.add("coder", "one");
    place.add("same", "one");
    let removed = registry.remove(&named("coder")).unwrap();
    assert!(!removed.component_removed, "`same` needs it");
    registry.pin(&[named("same")]).unwrap();
    let removed = registry.remove(&named("same")).unwrap();
    assert!(!removed.component_removed && removed.still_pinned);
    assert_eq!(registry.resolve("same", None).unwrap().read().unwrap(), b"one");
    registry.unpin(&named("same")).unwrap();
    place.add("same", "one");
    assert!(registry.remove(&named("same")).unwrap().component_removed);
    assert!(matches!(registry.remove(&named("same")), Err(RegistryError::Unknown { .. })));
    assert_eq!(fs::read_dir(place.user_store().join("sha256")).unwrap().count(), 0);
}

#[test]
fn mistakes_are_answered_with_a_way_on() {
    let place = Place::new();
    place.add("coder", "one");
    let error = |text: &str, wanted| place.registry.resolve(text, wanted).unwrap_err().to_string();
    assert!(error("codr", None).contains("did you mean `coder`?"));
    assert!(error("zzz", None).contains("plugin list"));
    assert!(error("Coder", None).contains("try `coder`"));
    assert!(error("coder", Some(Kind::Reward)).contains("is a harness, but a reward is needed"));
    assert!(error("no/such/file", None).contains("cannot open no/such/file"));
    assert!(error("missing.wasm", None).contains("cannot open missing.wasm"));
    let folder = place.folder.path().to_str().unwrap();
    assert!(error(&format!("{folder}/home"), None).contains("not a regular file"));
}

#[test]
fn a_file_is_resolved_by_its_bytes_and_watched() {
    let place = Place::new();
    let file = place.folder.path().join("my.wasm");
    fs::write(&file, "one").unwrap();
    let resolved = place.registry.resolve(file.to_str().unwrap(), Some(Kind::Reward)).unwrap();
    assert_eq!((resolved.source, resolved.kind), (Source::File, None));
    assert_eq!(resolved.digest, Digest::of("one"));
    assert_eq!(Name::of_file(&file).unwrap(), named("my"));
    fs::write(&file, "two").unwrap();
    assert!(matches!(resolved.read(), Err(RegistryError::Changed { .. })));
    assert!(place.registry.pin_resolved(&[resolved]).unwrap().pins.is_empty());
    assert!(!place.folder.path().join("project/.fulgurite").exists(), "nothing to write");
}

#[test]
fn a_damaged_or_newer_index_is_refused_and_kept() {
    let place = Place::new();
    place.add("coder", "one");
    let names = place.user_store().join("names.toml");
    for (text, told) in [
        ("format = 9", "use the newer fulgurite"),
        ("format = 1\nplugin = 3", "damaged"),
        ("\u{0}", "damaged"),
    ] {
        fs::write(&names, text).unwrap();
        let error = place.registry.list().unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
        let add = place.registry.add(Scope::User, &named("x"), b"x", harness());
        assert!(add.is_err());
        assert_eq!(fs::read_to_string(&names).unwrap(), text);
    }
}

#[test]
fn nothing_is_added_while_the_lock_file_is_damaged() {
    let place = Place::new();
    fs::write(place.registry.lock_path(), "<<<<<<< HEAD").unwrap();
    let add = place.registry.add(Scope::User, &named("coder"), b"one", harness());
    assert!(matches!(add, Err(RegistryError::Damaged { .. })));
    assert!(!place.user_store().exists());
}

#[test]
fn a_writer_that_died_leaves_nothing_that_matters() {
    let place = Place::new();
    place.add("coder", "one");
    let half = place.user_store().join("sha256/.new-abc");
    fs::write(&half, "hal").unwrap();
    assert!(place.problems().is_empty());
    place.add("solve", "two");
    assert!(!half.exists());
}

#[test]
fn several_writers_lose_nothing() {
    let place = Place::new();
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let registry = place.registry.clone();
            thread::spawn(move || {
                for step in 0..8 {
                    let name = named(&format!("plugin-{writer}-{step}"));
                    let text = format!("component {}", step % 3);
                    registry.add(Scope::User, &name, text.as_bytes(), harness()).unwrap();
                    registry.pin(std::slice::from_ref(&name)).unwrap();
                    registry.list().unwrap();
                    if step % 4 == 3 {
                        registry.remove(&name).unwrap();
                    }
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert_eq!(place.registry.list().unwrap().len(), 8 * 6);
    assert_eq!(place.registry.lock_file().unwrap().pins.len(), 8 * 8);
    let verification = place.registry.verify().unwrap();
    assert_eq!((verification.components, verification.names), (3, 48));
    assert!(verification.problems.is_empty(), "{:?}", verification.problems);
}

#[test]
fn what_a_run_pinned_is_kept_without_a_name_until_nobody_needs_it() {
    let place = Place::new();
    let named = place.add("a", "named");
    let kept = place.registry.keep(b"built yesterday").unwrap();
    assert_eq!(place.registry.keep(b"built yesterday").unwrap(), kept);
    assert_eq!(place.registry.component(&kept).unwrap().read().unwrap(), b"built yesterday");
    // What is stored already is not stored twice.
    assert_eq!(place.registry.keep(b"named").unwrap(), named);
    let file = place.registry.component(&kept).unwrap().path;
    assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    // A changed file is told, and mended by keeping the right bytes again.
    fs::write(&file, "changed").unwrap();
    let error = place.registry.component(&kept).unwrap().read().unwrap_err();
    assert!(matches!(error, RegistryError::Changed { .. }), "{error:?}");
    place.registry.keep(b"built yesterday").unwrap();
    assert!(place.problems().is_empty(), "{:?}", place.problems());
    assert_eq!(place.registry.prune(|digest| *digest == kept).unwrap(), []);
    assert_eq!(place.registry.prune(|_| false).unwrap(), [(kept, 15)]);
    assert!(place.registry.component(&kept).is_none());
    assert!(place.registry.component(&named).is_some());
}

#[test]
fn a_pin_that_is_not_here_says_how_to_go_on() {
    let place = Place::new();
    place.add("a", "one");
    place.registry.pin(&[named("a")]).unwrap();
    place.registry.remove(&named("a")).unwrap();
    // The pin keeps its component; somebody else's checkout has only the lock file.
    fs::remove_dir_all(place.user_store().join("sha256")).unwrap();
    let error = place.registry.resolve("a", None).unwrap_err().to_string();
    assert!(error.contains("mend:") && error.contains("fulgurite plugin pin a"), "{error}");
}
