//! Disks that are full or may not be written to: a clear error, and nothing acknowledged is lost.
//!
//! The full disk is a small one, mounted in a namespace of its own. Where the system does not
//! allow that, these tests say so (`NOT TRIED`), and a limit on the size of files stands in for it.

use std::{path::Path, process::Command, time::Duration};

use fulgurite_tests::{
    Project, binary, component,
    released::Witness,
    said::{not_tried, says, stderr},
};
use serde_json::{Value, json};

/// Ways to a namespace in which file systems can be mounted: for everybody, and for root where the
/// first is forbidden.
const WAYS: [&[&str]; 2] = [&["--user", "--map-root-user", "--mount"], &["--mount"]];

const MOUNT: &str = "mount -t tmpfs -o size=3m tmpfs disk";

/// Runs a script of the shell where `disk` is a file system of three megabytes; none where the
/// system does not allow it. In the script `$F` is the program with a store on that disk, and
/// `$F $RUN` begins a run.
fn on_a_small_disk(project: &Project, run: &str, script: &str) -> bool {
    std::fs::create_dir_all(project.path("disk")).unwrap();
    let apart = |way: &[&str], script: &str| {
        let mut command = Command::new("unshare");
        command.args(way).args(["sh", "-c", script]).current_dir(project.path(""));
        command.env("FULGURITE_HOME", project.path("home")).env("RUST_LOG", "off");
        command
    };
    // Whether it is allowed is asked first: what fails in the script itself is no excuse.
    let mut refusals = Vec::new();
    let way = WAYS.into_iter().find(|way| match apart(way, MOUNT).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            refusals.push(stderr(&output).trim().to_owned());
            false
        }
        Err(error) => {
            refusals.push(error.to_string());
            false
        }
    });
    let Some(way) = way else {
        not_tried(&format!("full disks; no file system can be mounted here: {refusals:?}"));
        return false;
    };
    let script = format!(
        "{MOUNT} || exit 99\n\
         F='{} --store disk/traces.sqlite'\nRUN='{run}'\n{script}",
        binary().display()
    );
    let status = apart(way, &script).status().unwrap();
    assert!(status.success(), "the script fails: {status}");
    true
}

/// The arguments of a run whose replies fill three megabytes soon.
fn filling(project: &Project, policy: &str) -> String {
    let tasks = project.plain_tasks(200);
    project.write("probe.json", json!({ "do": "turns", "count": 3, "text": "go on" }).to_string());
    format!(
        "--quiet run --concurrency 4 --harness {} --reward {} --tasks {} --policy {policy}",
        component("probe").display(),
        component("exact-match").display(),
        tasks.display(),
    )
}

const CONFIG: &str = r#"--harness-config "$(cat probe.json)""#;

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The states of the episodes that `trace list` wrote to a file.
fn states(path: &Path) -> Vec<String> {
    let episodes: Vec<Value> = serde_json::from_str(&text(path)).unwrap();
    episodes.iter().map(|episode| episode["state"].as_str().unwrap().to_owned()).collect()
}

fn count(states: &[String], state: &str) -> usize {
    states.iter().filter(|known| *known == state).count()
}

#[test]
fn a_full_disk_stops_the_run_loses_nothing_and_the_run_goes_on_when_there_is_room() {
    let project = Project::new();
    let witness = Witness::default();
    let server = witness.serve(Duration::from_millis(5), 20_000);
    let run = filling(&project, &server.policy());
    let script = format!(
        "$F $RUN {CONFIG} 2> error; echo $? > code\n\
         $F --json trace list last > before\n\
         mount -o remount,size=200m disk\n\
         $F --quiet run --resume last > resumed 2>&1; echo $? > resumed-code\n\
         $F --json trace list last > after\n\
         mkdir kept; cp disk/traces.sqlite* kept/"
    );
    if !on_a_small_disk(&project, &run, &script) {
        return;
    }
    let error = text(&project.path("error"));
    assert_eq!(text(&project.path("code")).trim(), "1", "{error}");
    says(&error, &["error: ", "is full", "everything acknowledged so far is safe", "resume"]);
    assert!(!error.contains("panicked"), "{error}");
    let before = states(&project.path("before"));
    assert!(count(&before, "scored") < 200, "{before:?}");
    assert_eq!(
        text(&project.path("resumed-code")).trim(),
        "0",
        "{}",
        text(&project.path("resumed"))
    );
    let after = states(&project.path("after"));
    assert_eq!(count(&after, "scored"), 200, "{after:?}");
    assert!(witness.released().len() > 200);
    witness.check(&project.path("kept/traces.sqlite"));
}

#[test]
fn a_limit_on_file_sizes_stops_the_run_and_loses_nothing() {
    let project = Project::new();
    let witness = Witness::default();
    let server = witness.serve(Duration::from_millis(5), 20_000);
    // Compiled code is a file too: it has to be there before.
    project.probe(&json!({ "do": "turn" }), &[]);
    let run = filling(&project, &server.policy());
    // In blocks of 512 or 1,024 bytes, as the shell likes. Ignored, the signal becomes an error.
    let script = format!(
        "trap '' XFSZ; ulimit -f 2000; exec {} --store small/traces.sqlite {run} {CONFIG}",
        binary().display()
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(project.path(""))
        .env("FULGURITE_HOME", project.path("home"))
        .env("RUST_LOG", "off")
        .output()
        .unwrap();
    let error = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{error}");
    says(&error, &["error: ", "small/traces.sqlite", "trace cannot be written"]);
    assert!(!witness.released().is_empty());
    witness.check(&project.path("small/traces.sqlite"));
    let resume = ["--store", "small/traces.sqlite", "--quiet", "run", "--resume", "last"];
    project.fulgurite(&resume).env("FULGURITE_HOME", project.path("home")).assert().success();
    witness.check(&project.path("small/traces.sqlite"));
}

#[test]
fn folders_that_may_not_be_written_to_are_named() {
    let project = Project::new();
    let run = filling(&project, "empty");
    let script = format!(
        "mkdir disk/cache; mount -o remount,ro disk\n\
         $F $RUN {CONFIG} 2> store-error; echo $? > store-code\n\
         XDG_CACHE_HOME=$PWD/disk/cache {} $RUN {CONFIG} 2> cache-error; echo $? > cache-code\n\
         {} --home disk/home plugin add --kind reward --name r {} 2> home-error; echo $? > home-code\n\
         {} --store other.sqlite $RUN {CONFIG} --limit turns=4 2> fine-error; echo $? > fine-code\n\
         {} --store other.sqlite trace export last --output disk/out.jsonl 2> out-error; \
         echo $? > out-code",
        binary().display(),
        binary().display(),
        component("exact-match").display(),
        binary().display(),
        binary().display(),
    );
    if !on_a_small_disk(&project, &run, &script) {
        return;
    }
    for (what, code, words) in [
        ("store", "1", &["disk/traces.sqlite", "Read-only file system"][..]),
        ("cache", "1", &["disk/cache", "Read-only file system"]),
        ("home", "3", &["disk/home", "Read-only file system"]),
        ("out", "1", &["disk/out.jsonl", "Read-only file system"]),
    ] {
        let error = text(&project.path(&format!("{what}-error")));
        assert_eq!(text(&project.path(&format!("{what}-code"))).trim(), code, "{what}: {error}");
        for word in words.iter().chain(&["error: "]) {
            assert!(error.contains(word), "{what}: `{word}` is not in: {error}");
        }
        assert!(!error.contains("panicked"), "{error}");
    }
    assert_eq!(text(&project.path("fine-code")).trim(), "0");
}
