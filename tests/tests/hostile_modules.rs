//! Components that no compiler of a usual language makes, from texts in `tests/guests/wat`: each
//! is refused or stopped with its own words, and the next episode runs.

use fulgurite_tests::{
    Project, component, modules,
    resident::names,
    root, run_of,
    said::{says, stderr},
};
use serde_json::json;

/// One run of a component file over four tasks; standard error and the exit code.
fn run(project: &Project, harness: &[u8], more: &[&str]) -> (String, i32) {
    let harness = project.write("guest.wasm", harness);
    let run = run_of(harness, component("exact-match"), project.plain_tasks(4), "empty");
    let output = project.fulgurite(&["run"]).args(run).args(more).output().unwrap();
    let error = stderr(&output);
    assert!(!error.contains("panicked"), "{error}");
    (error, output.status.code().unwrap_or(-1))
}

fn the_next_episode_runs(project: &Project) {
    let (episode, code) = project.probe(&json!({ "do": "turn" }), &[]);
    assert_eq!((episode.kind(), code), ("completed", 0), "{episode:#?}");
}

#[test]
fn modules_that_cannot_even_be_described_are_refused_with_their_kind() {
    let project = Project::new();
    for (name, words) in [
        ("huge-memory", &["out-of-memory", "memory-bytes"][..]),
        ("many-memories", &["out-of-memory", "memory count"]),
        ("many-tables", &["out-of-memory", "table count"]),
        ("loop-at-start", &["out-of-fuel"]),
        ("import-in-describe", &["describe", "import"]),
    ] {
        let (error, code) = run(&project, &modules::wat_guest(&root(), name), &[]);
        assert_eq!(code, 3, "{name}: {error}");
        says(&error, words);
        the_next_episode_runs(&project);
    }
}

#[test]
fn modules_that_misbehave_in_an_episode_end_in_their_kind() {
    let project = Project::new();
    for (name, kind) in [
        ("bad-utf8-answer", "trap"),
        ("endless-list", "trap"),
        ("long-list", "out-of-memory"),
        ("growing-memories", "out-of-memory"),
        ("growing-tables", "out-of-memory"),
    ] {
        let (error, code) = run(&project, &modules::wat_guest(&root(), name), &[]);
        let episodes = project.listed();
        assert_eq!(episodes.len(), 4, "{name} ({code}): {error}");
        for episode in episodes {
            assert_eq!(episode["ended"], kind, "{name} ({code}): {episode} {error}");
        }
        the_next_episode_runs(&project);
    }
}

#[test]
fn a_compile_bomb_is_stopped_and_leaves_nothing_behind() {
    let project = Project::new();
    let bomb = project.write("bomb.wasm", modules::compile_bomb(&root(), 40, 3000));
    let cache = project.path("cache");
    let began = std::time::Instant::now();
    let output = project
        .fulgurite(&["run", "--policy", "empty", "--harness"])
        .arg(&bomb)
        .arg("--tasks")
        .arg(project.plain_tasks(1))
        .env("FULGURITE_COMPILE_TIME", "2s")
        .env("FULGURITE_HOME", project.path("home"))
        .env("XDG_CACHE_HOME", &cache)
        .output()
        .unwrap();
    let error = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{error}");
    says(&error, &["compiling the component took more than 2 s", "FULGURITE_COMPILE_TIME"]);
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
    assert_eq!(names(&cache.join("fulgurite").join("compiled")), Vec::<String>::new());
    the_next_episode_runs(&project);
}
