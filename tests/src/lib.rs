//! What the end-to-end tests share: the built binary, the compiled components, a project of
//! their own each. `cargo xtask test` makes all of it before the tests run.
//!
//! # What is claimed, and which test proves it
//!
//! Files without a folder are in `tests/tests` and run the built binary on real components.
//!
//! | claim | proof |
//! |---|---|
//! | *A hostile guest ends in its own failure kind, and the next episode runs:* | |
//! | endless loop, endless loop inside a host call | `hostile_guests.rs` `an_endless_loop_…` |
//! | endless loop while it is instantiated | `hostile_modules.rs` `loop-at-start` |
//! | memory growth; many, huge and growing memories and tables | `hostile_guests.rs` `memory_without_end_…`; `hostile_modules.rs` |
//! | deep recursion | `hostile_guests.rs` `deep_recursion_…` |
//! | 1 GB of output, a million events, a million open handles | `hostile_guests.rs`, by these names |
//! | paths and links out of the tree, full quotas, a million files | `hostile_guests.rs`, by these names |
//! | the environment, sockets, ungranted imports | `hostile_guests.rs`, by these names |
//! | a score from a harness | `hostile_guests.rs` `a_score_from_…`, `a_harness_that_brings_its_own_scorer_…` |
//! | text that is not UTF-8, pointers out of memory, huge texts and lists | `hostile_guests.rs` `strings_…`, `a_huge_…`; `hostile_modules.rs` `bad-utf8-answer`, `endless-list`, `long-list` |
//! | a compile bomb | `hostile_modules.rs` `a_compile_bomb_…`; `host/runtime/tests/plugins/load.rs` |
//! | catastrophic expressions in `grep` and `sed` | `hostile_guests.rs` `catastrophic_…`; `host/sandbox/tests/shell_hostile.rs` |
//! | rewards: not a number, panic, loop, memory | `hostile_guests.rs` `rewards_that_misbehave_…` |
//! | *The host's memory, threads and files stay flat under all of them* | `flat.rs` |
//! | *Grader attacks fail*, in both modes | `graders.rs`; `plugins/tests-pass/python/test_drivers.py` |
//! | *The oracle passes all of HumanEval, the empty policy nothing* | `graders.rs` |
//! | *Busy guests do not delay waiting ones* | `fairness.rs`; `host/runtime/src/executor.rs` |
//! | *Nothing acknowledged is lost, no task is done twice:* | |
//! | kill -9 at a hundred random instants under load, then `--resume` | `interrupted.rs`; `host/trace/tests/kill.rs` |
//! | power cuts: writes not yet synced are dropped | `host/trace/src/store/tests/crash.rs` |
//! | full disks, file-size limits, read-only folders | `disk.rs` |
//! | Ctrl-C drains, a second one stops at once | `interrupted.rs` |
//! | *Equal runs give equal traces*, at concurrency 1 and 64 | `episodes.rs` `the_same_run_…`, `runs_of_deeds_that_invite_differences_…`, `a_models_run_…` |
//! | *The history of tokens is kept as asked for*: `faithful`, `append-only` | `histories.rs`; `host/gateway/src/tests/histories.rs` |
//! | *Bad input has a headline, a cause, a mend and an exit code:* | |
//! | missing files, wrong worlds and versions, corrupt and core modules, bad keys and rows | `bad_input.rs` |
//! | components that were changed where they are stored | `pins.rs` |
//! | no server, 401, 404, 429, 500, cut-off and senseless answers | `upstream.rs` |
//! | *A served policy gives what the model says, to who has the key*, and its traces can be trained on | `serve.rs`; `host/gateway/tests/serve.rs` |
//! | *An author needs five commands to a scored episode* | `authors.rs` |
//! | *`doctor` and `bench` tell what they are documented to tell* | `this_machine.rs` |

pub mod author;
pub mod chance;
pub mod modules;
pub mod released;
pub mod resident;
pub mod run;
pub mod said;
pub mod served;
pub mod server;

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

pub use assert_cmd::Command;
pub use run::run_of;
use serde_json::{Value, json};

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").to_owned()
}

/// Where the host is compiled.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The binary under test.
pub fn binary() -> PathBuf {
    let binary = std::env::var_os("FULGURITE_BINARY")
        .map_or_else(|| target().join("release").join("fulgurite"), PathBuf::from);
    assert!(binary.is_file(), "{} is missing; run `cargo xtask test`", binary.display());
    binary
}

/// A compiled guest, by its name.
pub fn component(name: &str) -> PathBuf {
    let file = target().join("components").join(format!("{name}.wasm"));
    assert!(file.is_file(), "{} is missing; run `cargo xtask test`", file.display());
    file
}

/// A project in a folder of its own, with a trace store of its own.
pub struct Project {
    folder: tempfile::TempDir,
}

impl Default for Project {
    fn default() -> Self {
        Self::new()
    }
}

impl Project {
    /// An empty one.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join(".fulgurite")).expect("a folder");
        Self { folder }
    }

    /// A path within it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(&path, contents).expect("a file");
        path
    }

    /// Writes a script; answers the specification of the policy that follows it.
    pub fn script(&self, lines: impl AsRef<[u8]>) -> String {
        format!("script:{}", self.write("script.jsonl", lines).display())
    }

    /// Writes a task file.
    pub fn tasks(&self, tasks: &[Value]) -> PathBuf {
        let rows: Vec<String> = tasks.iter().map(Value::to_string).collect();
        self.write("tasks.jsonl", rows.join("\n") + "\n")
    }

    /// As many tasks as wanted, each with its number as the expected answer.
    pub fn plain_tasks(&self, count: u32) -> PathBuf {
        let task = |index: u32| {
            json!({
                "id": format!("task-{index}"),
                "input": format!("say {index}"),
                "grading": { "answer": index.to_string() },
                "references": { "solve": [index.to_string()] },
            })
        };
        self.tasks(&(0..count).map(task).collect::<Vec<_>>())
    }

    /// The first HumanEval tasks.
    pub fn human_eval(&self, limit: usize) -> PathBuf {
        let file = self.path("human-eval.jsonl");
        self.fulgurite(&[
            "tasks",
            "import",
            "human-eval",
            "--limit",
            &limit.to_string(),
            "--output",
        ])
        .arg(&file)
        .assert()
        .success();
        file
    }

    /// A call of the binary in this project.
    pub fn fulgurite<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        Command::from_std(self.process(arguments))
    }

    /// The same, to be started and not waited for.
    pub fn process<S: AsRef<OsStr>>(&self, arguments: &[S]) -> std::process::Command {
        let mut command = std::process::Command::new(binary());
        command.current_dir(self.folder.path()).args(arguments);
        let home = std::env::var_os("FULGURITE_HOME")
            .map_or_else(|| target().join("test-home"), PathBuf::from);
        command.env("FULGURITE_HOME", home).env_remove("RUST_LOG").env("NO_COLOR", "1");
        command.env_remove("OPENAI_API_KEY").env_remove("FULGURITE_API_KEY");
        command
    }

    /// What a call answers with `--json`; it has to end with this exit code.
    #[track_caller]
    pub fn json(&self, arguments: &[&str], code: i32) -> Value {
        let output = self.fulgurite(&["--json"]).args(arguments).output().expect("it starts");
        let error = said::stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// `fulgurite run --json` with these arguments; the report and the exit code.
    #[track_caller]
    pub fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> (Value, i32) {
        let mut command = self.fulgurite(&["--json", "run"]);
        let output = command.args(arguments).output().expect("the binary starts");
        let code = output.status.code().unwrap_or(-1);
        let report = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("no report (exit code {code}): {}", said::stderr(&output)));
        (report, code)
    }

    /// One episode of the probe with this configuration, scored 1 by a fixed reward; what was
    /// recorded of it, and the exit code.
    pub fn probe(&self, config: &Value, more: &[&str]) -> (Episode, i32) {
        let run =
            run_of(component("probe"), component("exact-match"), self.plain_tasks(1), "empty");
        let (_, code) = self.run(run.with(&["--harness-config", &config.to_string()]).with(more));
        (self.episode("last", "0"), code)
    }

    /// The episodes of the last run, as `trace list` shows them; none while there is no run.
    pub fn listed(&self) -> Vec<Value> {
        let list = ["--json", "trace", "list", "last"];
        let output = self.fulgurite(&list).output().expect("the binary starts");
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// How many of them are in a state.
    pub fn count(&self, state: &str) -> usize {
        self.listed().iter().filter(|episode| episode["state"] == state).count()
    }

    /// The canonical lines of one episode.
    pub fn episode(&self, run: &str, episode: &str) -> Episode {
        let output = self.fulgurite(&["--json", "trace", "show", run, episode]).assert().success();
        let text = String::from_utf8(output.get_output().stdout.clone()).expect("UTF-8");
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        Episode { lines }
    }

    /// The canonical form of the last run.
    pub fn export(&self) -> String {
        let output = self.fulgurite(&["trace", "export", "last"]).assert().success();
        String::from_utf8(output.get_output().stdout.clone()).expect("UTF-8")
    }
}

/// The canonical lines of an episode.
#[derive(Debug)]
pub struct Episode {
    /// Line by line.
    pub lines: Vec<Value>,
}

impl Episode {
    /// The first value at a place (a JSON pointer) that any line has.
    pub fn at(&self, pointer: &str) -> Option<&Value> {
        self.lines.iter().find_map(|line| line.pointer(pointer))
    }

    /// The lines of one kind.
    pub fn records(&self, record: &str) -> Vec<&Value> {
        self.lines.iter().filter(|line| line["record"] == record).collect()
    }

    /// The line that says how it ended.
    #[track_caller]
    pub fn ending(&self) -> &Value {
        let endings = self.records("ending");
        endings.first().unwrap_or_else(|| panic!("no ending: {self:#?}"))
    }

    /// How it ended; `none` when it did not.
    pub fn kind(&self) -> &str {
        let endings = self.records("ending");
        endings.first().and_then(|ending| ending["kind"].as_str()).unwrap_or("none")
    }

    /// The answer, if there is one.
    pub fn answer(&self) -> &str {
        self.at("/answer").and_then(Value::as_str).unwrap_or_default()
    }

    /// Lines that hold a text anywhere.
    pub fn with(&self, text: &str) -> usize {
        self.lines.iter().filter(|line| line.to_string().contains(text)).count()
    }
}

/// A guest does its deed in a project of its own, which has to end in `kind`, and then a harmless
/// one, which has to complete. `probe` runs the guest: with a deed, and more arguments of `run`.
/// What was recorded of both.
#[track_caller]
pub fn ends<D: std::fmt::Debug + ?Sized>(
    probe: impl Fn(&Project, &D, &[&str]) -> (Episode, i32),
    deed: &D,
    harmless: &D,
    limits: &[&str],
    kind: &str,
) -> [Episode; 2] {
    let project = Project::new();
    let limits: Vec<&str> = limits.iter().flat_map(|limit| ["--limit", limit]).collect();
    let (episode, _) = probe(&project, deed, &limits);
    assert_eq!(episode.kind(), kind, "{deed:?}: {episode:#?}");
    let (after, code) = probe(&project, harmless, &[]);
    assert_eq!((after.kind(), code), ("completed", 0), "{after:#?}");
    [episode, after]
}
