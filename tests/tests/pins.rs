//! What a run was made with is recorded, kept and held to: commit, machine, lock file, components.

use fulgurite_tests::{Project, component};
use serde_json::{Value, json};

fn json_of(project: &Project, arguments: &[&str]) -> Value {
    let mut all = vec!["--json"];
    all.extend(arguments);
    let output = project.fulgurite(&all).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// One task with `solve`; its exit code and what it said on standard error.
fn solve(project: &Project, harness: &str, policy: &str) -> (Option<i32>, String) {
    let tasks = project.plain_tasks(1);
    let output = project
        .fulgurite(&["run", "--harness", harness, "--reward", "exact-match", "--policy", policy])
        .arg("--tasks")
        .arg(tasks)
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_run_names_the_commit_and_the_machine() {
    let project = Project::new();
    assert_eq!(solve(&project, "solve", "oracle").0, Some(0));
    let version = project.fulgurite(&["--version"]).output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let list = json_of(&project, &["trace", "list"]);
    let shown = json_of(&project, &["trace", "show", "last"]);
    for run in [&list[0], &shown] {
        let commit = run["commit"].as_str().unwrap();
        let is_commit = commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit());
        assert!(is_commit || commit == "unknown", "{commit}");
        assert!(version.contains(commit), "{version}");
        let machine = run["machine"].as_str().unwrap();
        for word in ["cores", "MiB memory", std::env::consts::OS] {
            assert!(machine.contains(word), "`{word}` is not in: {machine}");
        }
        assert_eq!(run["status"], "finished");
    }
    assert_eq!(shown["plan"]["harness"]["name"], "solve");
    let text = project.fulgurite(&["trace", "show", "last"]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("commit") && text.contains("MiB memory"), "{text}");
    // Neither is part of what equal runs share.
    assert!(!project.export().contains("MiB memory"));
}

#[test]
fn a_lock_file_is_kept_honoured_and_mended_by_pin() {
    let project = Project::new();
    let lock = project.path("fulgurite.lock");
    assert_eq!(solve(&project, "solve", "oracle").0, Some(0));
    assert!(!lock.exists(), "a run alone makes no lock file");
    json_of(&project, &["plugin", "pin", "solve"]);
    assert!(!std::fs::read_to_string(&lock).unwrap().contains("exact-match"));
    assert_eq!(solve(&project, "solve", "oracle").0, Some(0));
    let pinned = std::fs::read_to_string(&lock).unwrap();
    assert!(pinned.contains("\"exact-match\""), "the run adds what it used: {pinned}");

    // The lock file of a machine that has another `solve`.
    let other = format!("sha256:{}", "0".repeat(64));
    let used = json_of(&project, &["plugin", "show", "solve"])["digest"].clone();
    let used = used.as_str().unwrap();
    assert!(pinned.contains(used), "{pinned}");
    std::fs::write(&lock, pinned.replace(used, &other)).unwrap();
    let (code, error) = solve(&project, "solve", "oracle");
    assert_eq!(code, Some(3), "{error}");
    for words in ["fulgurite.lock pins `solve`", "mend:", "fulgurite plugin pin solve"] {
        assert!(error.contains(words), "`{words}` is not in: {error}");
    }
    json_of(&project, &["plugin", "pin", "solve"]);
    assert_eq!(std::fs::read_to_string(&lock).unwrap(), pinned);
    assert_eq!(solve(&project, "solve", "oracle").0, Some(0));
}

#[test]
fn a_newer_plugin_of_the_registry_waits_until_it_is_pinned() {
    let project = Project::new();
    let file = component("solve");
    let add = |file: &std::path::Path| {
        let file = file.to_str().unwrap();
        json_of(&project, &["plugin", "add", file, "--name", "mine", "--project"])
    };
    let first = add(&file)["digest"].clone();
    json_of(&project, &["plugin", "pin", "mine"]);
    // The same harness with a custom section behind it: another digest.
    let mut rebuilt = std::fs::read(&file).unwrap();
    rebuilt.extend([0, 5, 4, b'n', b'o', b't', b'e']);
    let second = add(&project.write("rebuilt.wasm", rebuilt))["digest"].clone();
    assert_ne!(first, second);
    let (code, error) = solve(&project, "mine", "oracle");
    assert_eq!(code, Some(0), "{error}");
    assert!(error.contains("`fulgurite plugin pin mine` moves the pin"), "{error}");
    let used = |project: &Project| {
        json_of(project, &["trace", "show", "last"])["plan"]["harness"]["digest"].clone()
    };
    assert_eq!(used(&project), first);
    json_of(&project, &["plugin", "pin", "mine"]);
    assert_eq!(solve(&project, "mine", "oracle").0, Some(0));
    assert_eq!(used(&project), second);
}

#[test]
fn a_run_of_a_file_goes_on_with_what_the_file_was() {
    let project = Project::new();
    let mut bytes = std::fs::read(component("solve")).unwrap();
    // A section of its own, so that no registered component is the same.
    bytes.extend([0, 5, 4, b'm', b'i', b'n', b'e']);
    let file = project.write("mine.wasm", &bytes);
    let tasks = project.plain_tasks(20);
    let script = project.write("slow.jsonl", json!({ "text": "1", "delay_ms": 200 }).to_string());
    let mut run = project
        .process(&["run", "--harness", "./mine.wasm", "--reward", "exact-match", "-q"])
        .args(["--concurrency", "2", "--policy", &format!("script:{}", script.display())])
        .arg("--tasks")
        .arg(tasks)
        .spawn()
        .unwrap();
    let began = std::time::Instant::now();
    loop {
        let output = project.fulgurite(&["--json", "trace", "list", "last"]).output().unwrap();
        let episodes: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if episodes.iter().filter(|episode| episode["state"] == "scored").count() >= 2 {
            break;
        }
        assert!(began.elapsed().as_secs() < 120, "nothing was scored");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    // Nobody is at it any more, and readers are told so.
    assert_eq!(json_of(&project, &["trace", "list"])[0]["status"], "interrupted");
    let episodes = json_of(&project, &["trace", "list", "last"]);
    let states: Vec<&str> =
        episodes.as_array().unwrap().iter().map(|one| one["state"].as_str().unwrap()).collect();
    assert!(states.contains(&"interrupted") && !states.contains(&"running"), "{states:?}");

    let mut rebuilt = bytes;
    rebuilt.extend([0, 5, 4, b'n', b'o', b't', b'e']);
    std::fs::write(&file, rebuilt).unwrap();
    // What an unfinished run needs is not pruned.
    assert_eq!(json_of(&project, &["plugin", "prune"])["components_removed"], 0);
    let output = project.fulgurite(&["run", "--resume", "last"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{error}");
    assert_eq!(json_of(&project, &["trace", "list"])[0]["status"], "finished");
    assert_eq!(json_of(&project, &["plugin", "prune"])["components_removed"], 1);
}
