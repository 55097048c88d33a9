//! What a run was made with is recorded, kept and held to: commit, machine, lock file, components.

use fulgurite_tests::{
    Project, component, run_of,
    said::{says, stderr, stdout, wait_for},
};
use serde_json::json;

/// One task with `solve`; its exit code and what it said on standard error.
fn solve(project: &Project, harness: &str, policy: &str) -> (Option<i32>, String) {
    let run = run_of(harness, "exact-match", project.plain_tasks(1), policy);
    let output = project.fulgurite(&["run"]).args(run).output().unwrap();
    (output.status.code(), stderr(&output))
}

#[test]
fn a_run_names_the_commit_and_the_machine() {
    let project = Project::new();
    assert_eq!(solve(&project, "solve", "oracle").0, Some(0));
    let version = project.fulgurite(&["--version"]).output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let list = project.json(&["trace", "list"], 0);
    let shown = project.json(&["trace", "show", "last"], 0);
    for run in [&list[0], &shown] {
        let commit = run["commit"].as_str().unwrap();
        let is_commit = commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit());
        assert!(is_commit || commit == "unknown", "{commit}");
        assert!(version.contains(commit), "{version}");
        let machine = run["machine"].as_str().unwrap();
        says(machine, &["cores", "MiB memory", std::env::consts::OS]);
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
    project.json(&["plugin", "pin", "solve"], 0);
    assert!(!std::fs::read_to_string(&lock).unwrap().contains("exact-match"));
    assert_eq!(solve(&project, "solve", "oracle").0, Some(0));
    let pinned = std::fs::read_to_string(&lock).unwrap();
    assert!(pinned.contains("\"exact-match\""), "the run adds what it used: {pinned}");

    // The lock file of a machine that has another `solve`.
    let other = format!("sha256:{}", "0".repeat(64));
    let used = project.json(&["plugin", "show", "solve"], 0)["digest"].clone();
    let used = used.as_str().unwrap();
    assert!(pinned.contains(used), "{pinned}");
    std::fs::write(&lock, pinned.replace(used, &other)).unwrap();
    let (code, error) = solve(&project, "solve", "oracle");
    assert_eq!(code, Some(3), "{error}");
    says(&error, &["fulgurite.lock pins `solve`", "mend:", "fulgurite plugin pin solve"]);
    project.json(&["plugin", "pin", "solve"], 0);
    assert_eq!(std::fs::read_to_string(&lock).unwrap(), pinned);
    assert_eq!(solve(&project, "solve", "oracle").0, Some(0));
}

#[test]
fn a_newer_plugin_of_the_registry_waits_until_it_is_pinned() {
    let project = Project::new();
    let file = component("solve");
    let add = |file: &std::path::Path| {
        let file = file.to_str().unwrap();
        project.json(&["plugin", "add", file, "--name", "mine", "--project"], 0)
    };
    let first = add(&file)["digest"].clone();
    project.json(&["plugin", "pin", "mine"], 0);
    // The same harness with a custom section behind it: another digest.
    let mut rebuilt = std::fs::read(&file).unwrap();
    rebuilt.extend([0, 5, 4, b'n', b'o', b't', b'e']);
    let second = add(&project.write("rebuilt.wasm", rebuilt))["digest"].clone();
    assert_ne!(first, second);
    let (code, error) = solve(&project, "mine", "oracle");
    assert_eq!(code, Some(0), "{error}");
    assert!(error.contains("`fulgurite plugin pin mine` moves the pin"), "{error}");
    let used = |project: &Project| {
        project.json(&["trace", "show", "last"], 0)["plan"]["harness"]["digest"].clone()
    };
    assert_eq!(used(&project), first);
    project.json(&["plugin", "pin", "mine"], 0);
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
    let policy = project.script(json!({ "text": "1", "delay_ms": 200 }).to_string());
    let run = run_of("./mine.wasm", "exact-match", tasks, policy);
    let mut run =
        project.process(&["run", "-q"]).args(run.with(&["--concurrency", "2"])).spawn().unwrap();
    wait_for("some episodes are scored", || project.count("scored") >= 2);
    run.kill().unwrap();
    run.wait().unwrap();
    // Nobody is at it any more, and readers are told so.
    assert_eq!(project.json(&["trace", "list"], 0)[0]["status"], "interrupted");
    let episodes = project.json(&["trace", "list", "last"], 0);
    let states: Vec<&str> =
        episodes.as_array().unwrap().iter().map(|one| one["state"].as_str().unwrap()).collect();
    assert!(states.contains(&"interrupted") && !states.contains(&"running"), "{states:?}");

    let mut rebuilt = bytes;
    rebuilt.extend([0, 5, 4, b'n', b'o', b't', b'e']);
    std::fs::write(&file, rebuilt).unwrap();
    // What an unfinished run needs is not pruned.
    assert_eq!(project.json(&["plugin", "prune"], 0)["components_removed"], 0);
    let output = project.fulgurite(&["run", "--resume", "last"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(project.json(&["trace", "list"], 0)[0]["status"], "finished");
    assert_eq!(project.json(&["plugin", "prune"], 0)["components_removed"], 1);
}

/// One task with the registered harness `mine` of this project's own home.
fn mine(project: &Project) -> (Option<i32>, String) {
    let reward = component("exact-match");
    let run = run_of("mine", reward, project.plain_tasks(1), "oracle");
    let output = project.fulgurite(&["--home", "home", "run"]).args(run).output().unwrap();
    (output.status.code(), stderr(&output))
}

/// Registers `solve` as `mine` in this project's own home; where its file is.
fn register_mine(project: &Project) -> std::path::PathBuf {
    let solve = component("solve");
    let add = ["--home", "home", "plugin", "add", solve.to_str().unwrap(), "--name", "mine"];
    project.path(project.json(&add, 0)["file"].as_str().unwrap())
}

#[test]
fn a_component_that_was_changed_is_named_and_not_run() {
    let project = Project::new();
    let stored = register_mine(&project);
    let verify = ["--home", "home", "plugin", "verify"];
    assert_eq!(project.json(&verify, 0)["problems"], json!([]));
    assert_eq!(mine(&project).0, Some(0));

    let mut bytes = std::fs::read(&stored).unwrap();
    bytes.extend([0, 5, 4, b'e', b'v', b'i', b'l']);
    std::fs::write(&stored, bytes).unwrap();
    let found = project.json(&verify, 3);
    let [problem] = &found["problems"].as_array().unwrap()[..] else { panic!("{found}") };
    let file = stored.file_name().unwrap().to_str().unwrap();
    says(problem.as_str().unwrap(), &["`mine` was changed", file, "add the right file again"]);
    let shown = project.fulgurite(&verify).assert().code(3);
    says(&stdout(shown.get_output()), &["`mine` was changed"]);
    says(&stderr(shown.get_output()), &["error: 1 problem in the registry"]);
    let (code, error) = mine(&project);
    assert_eq!(code, Some(3), "{error}");
    says(&error, &["the file of `mine` was changed", file, "fulgurite plugin add"]);
    let runs = project.json(&["trace", "list"], 0);
    assert_eq!(runs.as_array().unwrap().len(), 1, "nothing ran: {runs}");

    assert_eq!(register_mine(&project), stored);
    assert_eq!(project.json(&verify, 0)["problems"], json!([]));
    assert_eq!(mine(&project).0, Some(0));
}

#[test]
fn a_name_that_was_removed_is_unknown_and_what_was_pinned_still_runs() {
    let project = Project::new();
    let stored = register_mine(&project);
    let plugin =
        |command: &str, code| project.json(&["--home", "home", "plugin", command, "mine"], code);
    plugin("pin", 0);
    assert_eq!(plugin("remove", 0), json!({ "removed": "mine", "scope": "user" }));
    assert_eq!(project.json(&["--home", "home", "plugin", "list"], 0), json!([]));
    let (code, error) = mine(&project);
    assert_eq!(code, Some(0), "the pin holds: {error}");
    assert_eq!(plugin("unpin", 0)["unpinned"], true);
    let (code, error) = mine(&project);
    assert_eq!(code, Some(3), "{error}");
    says(&error, &["no plugin is called `mine`"]);

    assert_eq!(register_mine(&project), stored);
    plugin("remove", 0);
    assert!(!stored.exists(), "nobody needs it any more");
    for command in ["remove", "show"] {
        let unknown = project.fulgurite(&["--home", "home", "plugin", command, "mine"]).assert();
        says(&stderr(unknown.code(3).get_output()), &["no plugin is called `mine`"]);
    }
}
