//! Bad input: a headline, the cause, the mend, and the documented exit code. What servers do wrong
//! is in `upstream.rs`, what disks do in `disk.rs`.

use fulgurite_tests::{
    Project, component, modules, root, run_of,
    said::{says, stderr, stdout},
};
use serde_json::json;

/// Runs it and wants this code and these words in the error.
fn fails(project: &Project, arguments: &[&str], code: i32, words: &[&str]) {
    let output = project.fulgurite(arguments).assert().code(code);
    let error = stderr(output.get_output());
    assert!(error.contains("error: "), "{arguments:?}: {error}");
    for word in words {
        assert!(error.contains(word), "{arguments:?}: `{word}` is not in: {error}");
    }
    assert!(!error.contains("panicked"), "{error}");
}

/// The one line of JSON that stands last on standard error.
fn told(project: &Project, arguments: &[&str]) -> serde_json::Value {
    let output = project.fulgurite(arguments).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    let value: serde_json::Value = serde_json::from_str(error.lines().last().unwrap()).unwrap();
    assert_eq!(value["error"]["exit_code"].as_i64(), output.status.code().map(i64::from));
    value["error"].clone()
}

/// A run with `exact-match`, with `run` itself.
fn run<'a>(harness: &'a str, tasks: &'a str, policy: &'a str) -> Vec<&'a str> {
    let tasks = ["--tasks", tasks, "--policy", policy];
    [&["run", "--harness", harness, "--reward", "exact-match"][..], &tasks].concat()
}

#[test]
fn files_that_are_missing_or_wrong_are_named() {
    let project = Project::new();
    let tasks = project.plain_tasks(1);
    let tasks = tasks.to_str().unwrap();
    fails(&project, &run("solve", "nowhere.jsonl", "empty"), 2, &["nowhere.jsonl"]);
    fails(&project, &run("./nowhere.wasm", tasks, "empty"), 3, &["nowhere.wasm"]);
    fails(&project, &run("solv", tasks, "empty"), 3, &["solv", "solve"]);
    fails(&project, &run("solve", tasks, "orcle"), 2, &["orcle", "oracle"]);
    fails(&project, &run("solve", tasks, "script:none.jsonl"), 4, &["none.jsonl"]);
    fails(&project, &run("solve", tasks, "gguf:none.gguf"), 4, &["none.gguf"]);
}

#[test]
fn components_that_cannot_be_used_say_why() {
    let project = Project::new();
    let tasks = project.plain_tasks(1);
    let tasks = tasks.to_str().unwrap();
    let garbage = project.write("garbage.wasm", b"\0asm\x0d\0\x01\0 and then nonsense");
    let text = project.write("text.wasm", b"(module)");
    let core = project.write("core.wasm", b"\0asm\x01\0\0\0");
    let reward = component("exact-match");
    for (file, words) in [
        (&garbage, &["corrupt"][..]),
        (&text, &["not WebAssembly"]),
        (&core, &["core module", "wasm32-wasip2"]),
        (&reward, &["not a harness"]),
    ] {
        fails(&project, &run(file.to_str().unwrap(), tasks, "empty"), 3, words);
    }
}

/// A harness of a contract that does not exist yet: everything else about it is right.
#[test]
fn a_component_of_another_contract_version_is_told_which_one_is_served() {
    let project = Project::new();
    for folder in ["wit", "wit/deps/io", "tests/guests/wat"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap().flatten() {
            if entry.file_type().unwrap().is_file() {
                let text = std::fs::read_to_string(entry.path()).unwrap();
                let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
                let text = text.replace("@0.1.0", "@9.0.0");
                project.write(&name, text);
            }
        }
    }
    let component = modules::wat_guest(&project.path(""), "bad-utf8-answer");
    let file = project.write("future.wasm", component);
    let tasks = project.plain_tasks(1);
    let arguments = run(file.to_str().unwrap(), tasks.to_str().unwrap(), "empty");
    let words = ["fulgurite:plugin/agent@9.0.0", "0.1.0", "build the plugin against that version"];
    fails(&project, &arguments, 3, &words);
    fails(&project, &["plugin", "add", "--name", "future", "future.wasm"], 3, &words);
}

#[test]
fn rows_and_keys_that_are_wrong_are_named_with_their_place() {
    let project = Project::new();
    let tasks = project.write(
        "bad.jsonl",
        "{\"id\":\"a\",\"input\":\"b\",\"grading\":{\"answer\":\"c\"}}\n{\"id\":1}\n",
    );
    fails(&project, &run("solve", tasks.to_str().unwrap(), "empty"), 2, &["bad.jsonl:2:"]);
    let mut skipping = run("solve", tasks.to_str().unwrap(), "empty");
    skipping.push("--skip-bad");
    project.fulgurite(&skipping).assert().success();
    let config = project.write("other.toml", "harness = 'solve'\npolcy = 'empty'\n");
    let arguments = ["run", "--config", config.to_str().unwrap()];
    fails(&project, &arguments, 2, &["other.toml", "polcy", "did you mean `policy`?"]);
    let mut limited = run("solve", "x", "empty");
    limited.extend(["--limit", "truns=3"]);
    fails(&project, &limited, 2, &["truns", "turns"]);
}

#[test]
fn a_task_file_can_be_checked_without_a_run() {
    let project = Project::new();
    project.plain_tasks(3);
    let good = project.json(&["tasks", "check", "tasks.jsonl"], 0);
    assert_eq!((&good["tasks"], &good["bad"]), (&json!(3), &json!([])), "{good}");
    let shown = project.fulgurite(&["tasks", "check", "tasks.jsonl"]).assert().success();
    says(&stdout(shown.get_output()), &["3 good tasks, 0 broken rows"]);

    let row = |id: &str| json!({ "id": id, "input": "say 1" }).to_string();
    let rows = [row("a"), "{\"id\":1}".to_owned(), row("b"), row("a"), "\u{1b}[2J".to_owned()];
    project.write("bad.jsonl", rows.join("\n"));
    let found = project.json(&["tasks", "check", "bad.jsonl"], 2);
    assert_eq!(found["tasks"], 2, "{found}");
    let bad: Vec<&str> =
        found["bad"].as_array().unwrap().iter().map(|row| row.as_str().unwrap()).collect();
    let [no_text, twice, no_json] = bad[..] else { panic!("{found}") };
    says(no_text, &["bad.jsonl:2:", "expected a string"]);
    says(twice, &["bad.jsonl:4:", "`a`", "line 1", "unique"]);
    says(no_json, &["bad.jsonl:5:"]);
    let shown = project.fulgurite(&["tasks", "check", "bad.jsonl"]).assert().code(2);
    let text = stdout(shown.get_output());
    says(&text, &["bad.jsonl:2:", "bad.jsonl:4:", "2 good tasks, 3 broken rows"]);
    assert!(!text.contains('\u{1b}'), "{text:?}");
    fails(&project, &["tasks", "check", "bad.jsonl"], 2, &["broken rows"]);
    fails(&project, &["tasks", "check", "nowhere.jsonl"], 2, &["nowhere.jsonl"]);
}

#[test]
fn runs_and_episodes_that_are_not_there_are_named() {
    let project = Project::new();
    fails(&project, &["trace", "list"], 1, &["traces.sqlite"]);
    let tasks = project.plain_tasks(1);
    project.run(run_of("solve", "exact-match", tasks, "empty"));
    fails(&project, &["trace", "show", "20200101-000000-beef", "0"], 1, &["20200101-000000-beef"]);
    fails(&project, &["trace", "show", "last", "7"], 1, &["7.0"]);
    fails(&project, &["trace", "show", "last", "x"], 2, &["TASK.SAMPLE"]);
    fails(&project, &["run", "--resume", "20200101-000000-beef"], 1, &["20200101-000000-beef"]);
}

#[test]
fn a_store_of_a_newer_version_is_refused() {
    let project = Project::new();
    let tasks = project.plain_tasks(1);
    project.run(run_of("solve", "exact-match", tasks, "empty"));
    let store = project.path(".fulgurite/traces.sqlite");
    // The version of the schema stands at offset 60 of the file, as SQLite documents.
    let mut bytes = std::fs::read(&store).unwrap();
    bytes[60..64].copy_from_slice(&9999_u32.to_be_bytes());
    std::fs::write(&store, bytes).unwrap();
    fails(&project, &["trace", "list"], 1, &["newer", "9999"]);
}

#[test]
fn names_and_folders_for_new_plugins_are_checked() {
    let project = Project::new();
    fails(&project, &["new", "harness", "My Agent"], 2, &["lower-case"]);
    std::fs::create_dir(project.path("taken")).unwrap();
    fails(&project, &["new", "harness", "taken"], 2, &["taken is there already"]);
    fails(&project, &["build", "taken"], 1, &["no Cargo.toml"]);
}

#[test]
fn an_oracle_without_references_says_so() {
    let project = Project::new();
    let tasks = project.tasks(&[json!({ "id": "a", "input": "b", "grading": { "answer": "c" } })]);
    let arguments = run("solve", tasks.to_str().unwrap(), "oracle");
    fails(&project, &arguments, 2, &["references", "`solve`"]);
}

#[test]
fn configurations_are_compared_with_what_the_plugin_declares_before_anything_runs() {
    let project = Project::new();
    let tasks = project.plain_tasks(1);
    let tasks = tasks.to_str().unwrap();
    let mut harness = run("coder", tasks, "empty");
    harness.extend(["--harness-config", r#"{"max_turn":3,"tools":"telepathy"}"#]);
    let words = [
        "the configuration of the harness `coder` is not right",
        "it has no `max_turn`; did you mean `max_turns`? (allowed: ",
        "at `/tools`: \"telepathy\"",
        "mend: `fulgurite inspect coder`",
    ];
    fails(&project, &harness, 2, &words);
    let mut reward = run("solve", tasks, "empty");
    reward.extend(["--reward-config", r#"exact-match={"tolerance":"much"}"#]);
    let words = ["the reward `exact-match`", "at `/tolerance`: \"much\"", "\"type\":["];
    fails(&project, &reward, 2, &words);
    let check =
        ["reward", "check", "exact-match", "--tasks", tasks, "--config", r#"{"trims":true}"#];
    fails(&project, &check, 2, &["did you mean `trim`?"]);
    // Nothing ran.
    let runs = project.fulgurite(&["--json", "trace", "list"]).output().unwrap();
    assert_eq!(String::from_utf8(runs.stdout).unwrap().trim(), "[]");
    let mut right = run("solve", tasks, "empty");
    right.extend(["--reward-config", r#"exact-match={"tolerance":0.5}"#]);
    project.fulgurite(&right).assert().success();
}

#[test]
fn machines_are_told_errors_as_one_line_of_json() {
    let project = Project::new();
    let error = told(&project, &["--json", "trace", "list"]);
    assert_eq!(error["exit_code"], 1);
    assert!(error["headline"].as_str().unwrap().contains("traces.sqlite"), "{error}");
    let tasks = project.plain_tasks(1);
    let mut arguments = vec!["--json"];
    arguments.extend(run("solve", tasks.to_str().unwrap(), "script:none.jsonl"));
    let error = told(&project, &arguments);
    assert_eq!(error["exit_code"], 4);
    assert!(error["hint"].as_str().unwrap().contains("script:FILE"), "{error}");
    arguments = vec!["run", "--json"];
    let error = told(&project, &arguments);
    assert_eq!(error["exit_code"], 2);
    assert!(error["causes"][0].as_str().unwrap().contains("no harness"), "{error}");
    // What the command line itself has wrong, too.
    let error = told(&project, &["trace", "list", "--jsn", "--json"]);
    assert_eq!(error["exit_code"], 2);
    assert!(error["headline"].as_str().unwrap().contains("--jsn"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("Usage: "), "{error}");
    project.fulgurite(&["--json", "--version"]).assert().success();
}

#[test]
fn what_stands_in_the_way_is_told_with_a_mend() {
    let project = Project::new();
    let empty = project.write("empty.wasm", b"\0asm\x0d\0\x01\0");
    fails(&project, &["inspect", empty.to_str().unwrap()], 3, &["neither a harness", "mend: "]);
    let tasks = project.plain_tasks(1);
    let tasks = tasks.to_str().unwrap();
    let latin = project.write("latin.jsonl", b"{\"text\":\"caf\xe9\"}\n");
    let policy = format!("script:{}", latin.display());
    fails(&project, &run("solve", tasks, &policy), 4, &["line 1", "not UTF-8", "mend: "]);
    fails(&project, &run("solve", tasks, "script:none.jsonl"), 4, &["none.jsonl", "mend: "]);
    let cache = project.path("cache");
    std::fs::create_dir(&cache).unwrap();
    std::fs::write(cache.join("fulgurite"), "in the way").unwrap();
    let output = project
        .fulgurite(&run("solve", tasks, "empty"))
        .env("XDG_CACHE_HOME", &cache)
        .assert()
        .code(1);
    let error = stderr(output.get_output());
    assert!(error.contains("mend: ") && error.contains("XDG_CACHE_HOME"), "{error}");
}

#[test]
fn quiet_is_quiet_and_usage_shows_what_was_asked() {
    let project = Project::new();
    let tasks = project.plain_tasks(1);
    let mut arguments = run("solve", tasks.to_str().unwrap(), "empty");
    arguments.push("-q");
    let output = project.fulgurite(&arguments).assert().success();
    assert!(output.get_output().stdout.is_empty(), "{output}");
    assert!(output.get_output().stderr.is_empty(), "{output}");
    // FULGURITE_HOME is set for every call here, and is nobody's flag.
    let output = project.fulgurite(&["trace", "list", "--nonsense"]).assert().code(2);
    let error = stderr(output.get_output());
    assert!(error.contains("Usage: ") && !error.contains("--home"), "{error}");
}
