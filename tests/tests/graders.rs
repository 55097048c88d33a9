//! `tests-pass` over the real host: honest work passes, attacks in both modes do not.

use fulgurite_tests::{
    Project, component, run_of,
    said::{says, stdout},
};
use serde_json::{Value, json};

const SUITE: &str = "import unittest\nimport calc\n\nclass T(unittest.TestCase):\n    \
                     def test_add(self):\n        self.assertEqual(calc.add(2, 3), 5)\n    \
                     def test_negative(self):\n        self.assertEqual(calc.add(-1, -2), -3)\n";

/// Works (files of the workspace) with what each has to score in suite mode.
fn suite_works() -> Vec<(&'static str, Value, f64)> {
    let bad = "def add(a, b):\n    return None\n";
    let everything = "class E(int):\n    def __eq__(self, other): return True\n    \
                      def __ne__(self, other): return False\n    __hash__ = None\n\
                      def add(a, b):\n    return E()\n";
    vec![
        ("honest", json!({ "calc.py": "def add(a, b):\n    return a + b\n" }), 1.0),
        ("empty", json!({}), 0.0),
        ("prints OK", json!({ "calc.py": "print('OK')\nprint('Ran 2 tests')\n" }), 0.0),
        ("exits", json!({ "calc.py": "import os\nos._exit(0)\n" }), 0.0),
        ("exits in a call", json!({ "calc.py": "import os\ndef add(a, b): os._exit(0)\n" }), 0.0),
        ("equals everything", json!({ "calc.py": everything }), 0.0),
        (
            "own unittest",
            json!({ "calc.py": bad, "unittest.py": "class TestCase: pass\ndef main(): print('OK')\n" }),
            0.0,
        ),
        (
            "shadows the test",
            json!({ "calc.py": bad, "tests/test_calc.py/__init__.py": "def test_x(): pass\n" }),
            0.0,
        ),
        (
            "sitecustomize",
            json!({ "calc.py": bad, "sitecustomize.py": "import unittest\nunittest.TestCase.run = lambda *a: None\n" }),
            0.0,
        ),
        (
            "rewrites the test",
            json!({ "calc.py": format!("open('tests/test_calc.py', 'w').write('def test_x(): pass')\n{bad}") }),
            0.0,
        ),
        (
            "catches the assertion",
            json!({ "calc.py": format!("import sys\nsys.excepthook = lambda *a: None\nimport builtins\nbuiltins.AssertionError = ZeroDivisionError\n{bad}") }),
            0.0,
        ),
    ]
}

/// The probe does what each task's input tells; `tests-pass` has to pay each what is wanted.
fn earn<'a>(
    project: &Project,
    tasks: &[Value],
    wanted: impl IntoIterator<Item = (&'a str, f64)>,
    more: &[&str],
) {
    let run = run_of(component("probe"), "tests-pass", project.tasks(tasks), "empty");
    let (report, code) =
        project.run(run.with(&["--harness-config", r#"{"do":"input"}"#]).with(more));
    assert_eq!(code, 0, "{report}");
    for (index, (name, wanted)) in wanted.into_iter().enumerate() {
        let episode = project.episode("last", &index.to_string());
        assert_eq!(episode.at("/total"), Some(&json!(wanted)), "{name}: {episode:#?}");
    }
}

#[test]
fn suites_pay_honest_work_only() {
    let works = suite_works();
    let project = Project::new();
    let tasks: Vec<Value> = works
        .iter()
        .map(|(name, files, _)| {
            let deed = json!({ "do": "write", "files": files, "text": "done" });
            json!({
                "id": name, "input": deed.to_string(),
                "grading": { "mode": "suite", "files": { "tests/test_calc.py": SUITE } },
            })
        })
        .collect();
    let wanted = works.iter().map(|(name, _, wanted)| (*name, *wanted));
    earn(&project, &tasks, wanted, &[]);
}

/// The work is right, and would be overwritten were a link followed when files are laid down.
#[test]
fn links_where_hidden_files_and_fixtures_go_are_not_followed() {
    let project = Project::new();
    let work = "def add(a, b):\n    return a + b\n\ndef data():\n    \
                return open('data/in.txt').read()\n";
    let test = "import calc\n\ndef test_add():\n    assert calc.add(2, 3) == 5\n\n\
                def test_data():\n    assert calc.data() == open('data/in.txt').read() == 'in'\n";
    let line = format!(
        "mkdir tests data && cat > calc.py <<'END'\n{work}END\n\
         ln -s ../calc.py tests/test_calc.py && ln -s ../calc.py data/in.txt"
    );
    let task = json!({
        "id": "links", "input": json!({ "do": "exec", "lines": [line] }).to_string(),
        "grading": {
            "mode": "suite", "files": { "tests/test_calc.py": test },
            "fixtures": { "data/in.txt": "in" },
        },
    });
    earn(&project, &[task], [("links", 1.0)], &[]);
    let episode = project.episode("last", "0");
    let changes = episode.at("/changes").and_then(Value::as_array).unwrap();
    let links = changes.iter().filter(|change| change["entry"] == "symlink").count();
    assert_eq!(links, 2, "they were made: {episode:#?}");
}

/// Python code that lays byte code of `source` down at `place`, which Python takes without a look
/// at the source beside it.
fn plant(source: &str, place: &str) -> String {
    format!(
        "import py_compile as p\nopen('evil.py', 'w').write({source:?})\n\
         p.compile('evil.py', cfile={place:?}, doraise=True, \
         invalidation_mode=p.PycInvalidationMode.UNCHECKED_HASH)\n"
    )
}

/// Compiled code that Python would take without looking at its source: of the work, of the test,
/// and of what the test imports.
#[test]
fn planted_caches_with_unchecked_hashes_change_nothing() {
    let project = Project::new();
    let tasks = project.tasks(&[json!({
        "id": "cache", "input": "write calc.py",
        "grading": { "mode": "suite", "files": { "tests/test_calc.py": SUITE } },
    })]);
    let passes = "import unittest\nclass T(unittest.TestCase):\n    def test_add(self): pass\n    \
                  def test_negative(self): pass\n";
    let script = [
        plant("def add(a, b):\n    return a + b\n", "__pycache__/calc.cpython-312.pyc"),
        plant(passes, "tests/__pycache__/test_calc.cpython-312.pyc"),
        plant(passes, "tests/test_calc.pyc"),
        plant("class TestCase: pass\n", "__pycache__/unittest.cpython-312.pyc"),
        "open('calc.py', 'w').write('def add(a, b):\\n    return None\\n')\n".to_owned(),
        "import os\nos.remove('evil.py')\nprint(sorted(os.listdir('__pycache__')))\n".to_owned(),
    ];
    let line = format!("mkdir -p tests && python - <<'END'\n{}END", script.concat());
    let config = json!({ "do": "exec", "lines": [line] }).to_string();
    let run = run_of(component("probe"), "tests-pass", tasks, "empty");
    let (report, code) = project.run(run.with(&["--harness-config", &config]));
    let episode = project.episode("last", "0");
    assert!(episode.with("calc.cpython-312.pyc") > 0, "it was planted: {episode:#?}");
    assert_eq!((report["mean_reward"].as_f64(), code), (Some(0.0), 0), "{report}");
}

/// The same attacks on a function that is called by hidden tests: the work is the answer.
#[test]
fn functions_pay_honest_work_only() {
    let everything = "class E(int):\n    def __eq__(self, other): return True\n    \
                      def __ne__(self, other): return False\n\
                      def add(a, b):\n    return E()\n";
    let works = [
        ("honest", "def add(a, b):\n    return a + b\n", 1.0),
        ("empty", "", 0.0),
        ("prints OK", "print('OK')\nprint('1 passed')\n", 0.0),
        ("exits", "import os\nos._exit(0)\n", 0.0),
        ("leaves", "raise SystemExit(0)\n", 0.0),
        ("exits in a call", "import os\ndef add(a, b): os._exit(0)\n", 0.0),
        ("equals everything", everything, 0.0),
        (
            "patches the tests",
            "import builtins, sys\nbuiltins.AssertionError = ZeroDivisionError\n\
             sys.excepthook = lambda *a: None\nsys.modules['__main__'].check = lambda f: None\n\
             def check(candidate): pass\ndef add(a, b): return None\n",
            0.0,
        ),
        (
            "writes files",
            "import os\nfor name in ['judge.py', 'sitecustomize.py', 'unittest.py', 'verdict.json']:\n    \
             open(name, 'w').write('{\"passed\": 1, \"total\": 1}')\ndef add(a, b): return None\n",
            0.0,
        ),
        ("loops", "while True: pass\n", 0.0),
        ("loops in a call", "def add(a, b):\n    while True: pass\n", 0.0),
    ];
    let project = Project::new();
    let test = "def check(candidate):\n    assert candidate(2, 3) == 5\n    \
                assert candidate(-1, -2) == -3\n";
    let tasks: Vec<Value> = works
        .iter()
        .map(|(name, work, _)| {
            json!({
                "id": name, "input": json!({ "do": "answer", "text": work }).to_string(),
                "grading": { "mode": "function", "entry_point": "add", "prompt": "", "test": test },
            })
        })
        .collect();
    let wanted = works.iter().map(|(name, _, wanted)| (*name, *wanted));
    earn(&project, &tasks, wanted, &["--limit", "command-fuel=3G"]);
}

/// The same, where the work is a file of the workspace, among whatever else the episode left.
#[test]
fn files_pay_honest_work_only() {
    let good = "def add(a, b):\n    return a + b\n";
    let bad = "def add(a, b):\n    return None\n";
    let write = |files: Value| json!({ "do": "write", "files": files, "text": "done" });
    let shell = |line: String| json!({ "do": "exec", "lines": [line] });
    let byte_code = format!(
        "python - <<'END'\n{}open('helper.py', 'w').write({bad:?})\n\
         open('solution.py', 'w').write('from helper import add\\n')\nEND",
        plant(good, "__pycache__/helper.cpython-312.pyc"),
    );
    let patch = "import unittest\nunittest.TestCase.run = lambda *a: None\n\
                 import builtins\nbuiltins.AssertionError = ZeroDivisionError\n";
    let exit = "import os\nos._exit(0)\n";
    let planted = json!({
        "solution.py": bad,
        ".fulgurite-grading/verdict.json": r#"{"passed": 1, "total": 1}"#,
        ".fulgurite-grading/judge.py": exit, ".fulgurite-grading/worker.py": exit,
        ".fulgurite-grading/job.json": "{}", ".fulgurite-grading/json.py": patch,
    });
    let works = [
        ("honest", write(json!({ "solution.py": good })), 1.0),
        ("missing", write(json!({ "other.py": good })), 0.0),
        ("byte code", shell(byte_code), 0.0),
        (
            "own modules",
            write(json!({ "solution.py": bad, "unittest.py": patch, "json.py": patch })),
            0.0,
        ),
        (
            "sitecustomize",
            write(
                json!({ "solution.py": bad, "sitecustomize.py": patch, "usercustomize.py": patch }),
            ),
            0.0,
        ),
        (
            "a link",
            shell(format!("cat > mine.py <<'END'\n{good}END\nln -s mine.py solution.py")),
            0.0,
        ),
        ("a planted folder of the grader", write(planted), 0.0),
        (
            "folders where the drivers go",
            write(json!({
                "solution.py": good, ".fulgurite-grading/worker.py/x": "",
                ".fulgurite-grading/job.json/x": "",
            })),
            1.0,
        ),
        (
            "a file where the folder of the grader goes",
            write(json!({ "solution.py": good, ".fulgurite-grading": "in the way" })),
            1.0,
        ),
    ];
    let project = Project::new();
    let test = "def check(candidate):\n    assert candidate(2, 3) == 5\n    \
                assert candidate(-1, -2) == -3\n";
    let tasks: Vec<Value> = works
        .iter()
        .map(|(name, deed, _)| {
            json!({
                "id": name, "input": deed.to_string(),
                "grading": {
                    "mode": "function", "entry_point": "add", "prompt": "", "test": test,
                    "file": "solution.py",
                },
            })
        })
        .collect();
    earn(&project, &tasks, works.iter().map(|(name, _, wanted)| (*name, *wanted)), &[]);
    let planted = project.episode("last", "2");
    assert!(planted.with("helper.cpython-312.pyc") > 0, "it was planted: {planted:#?}");
}

/// Answers that end without a score would be left out of training: each has to be graded.
#[test]
fn no_answer_escapes_its_grade() {
    let swallow = "def apply(f):\n    try:\n        f(0)\n    except Exception:\n        pass\n";
    let callback = "def check(candidate):\n    def seen(x):\n        assert x == 5\n    \
                    candidate(seen)\n";
    let number = "def check(candidate):\n    assert candidate('7') == 7\n";
    let works = [
        ("calls back", "def apply(f):\n    f(5)\n", callback, 1.0),
        ("swallows the assertion", swallow, callback, 0.0),
        ("a class of Python", "apply = int\n", number, 1.0),
        ("another class of Python", "apply = str\n", number, 0.0),
    ];
    let project = Project::new();
    let tasks: Vec<Value> = works
        .iter()
        .map(|(name, work, test, _)| {
            json!({
                "id": name, "input": json!({ "do": "answer", "text": work }).to_string(),
                "grading": { "mode": "function", "entry_point": "apply", "prompt": "", "test": test },
            })
        })
        .collect();
    earn(&project, &tasks, works.iter().map(|(name, _, _, wanted)| (*name, *wanted)), &[]);
}

/// A full workspace leaves the grader as much room as an empty one.
#[test]
fn filling_the_workspace_neither_helps_nor_hurts() {
    let fill = |add: &str| {
        let script = format!(
            "open('calc.py', 'w').write({add:?})\n\
             try:\n    for i in range(1000): open(f'name-{{i}}', 'w').close()\n\
             except OSError: print('names', i)\n\
             import os\nf = open('calc.py', 'ab', buffering=0)\n\
             try:\n    while True: f.write(b'#' * 100)\n\
             except OSError: print('bytes', os.path.getsize('calc.py') // 1000)\n"
        );
        json!({ "do": "exec", "lines": [format!("python - <<'END'\n{script}END")] })
    };
    let works = [
        ("honest", fill("def add(a, b):\n    return a + b\n#"), 1.0),
        ("wrong", fill("def add(a, b):\n    return None\n#"), 0.0),
    ];
    let project = Project::new();
    let tasks: Vec<Value> = works
        .iter()
        .map(|(name, deed, _)| {
            json!({
                "id": name, "input": deed.to_string(),
                "grading": { "mode": "suite", "files": { "tests/test_calc.py": SUITE } },
            })
        })
        .collect();
    let limits = ["--limit", "workspace-files=50", "--limit", "workspace-bytes=64K"];
    earn(&project, &tasks, works.iter().map(|(name, _, wanted)| (*name, *wanted)), &limits);
    let episode = project.episode("last", "0");
    assert!(episode.with("names 49") > 0 && episode.with("bytes 65") > 0, "{episode:#?}");
}

#[test]
fn reward_check_finds_nothing_wrong_with_tests_pass_and_finds_a_reward_that_pays_for_anything() {
    let project = Project::new();
    let tasks = project.human_eval(2);
    project
        .fulgurite(&["reward", "check", "tests-pass", "--quiet", "--tasks"])
        .arg(&tasks)
        .assert()
        .success();
    // A harness that asks again and again, as a file that nobody has registered.
    let coder = project
        .fulgurite(&["reward", "check", "tests-pass", "--json", "--harness"])
        .arg(component("coder"))
        .arg("--tasks")
        .arg(&tasks)
        .assert();
    let rows: Value = serde_json::from_slice(&coder.get_output().stdout).unwrap();
    let rows = rows.as_array().unwrap();
    assert!(rows.len() > 10 && rows.iter().all(|row| row["unscored"] == 0), "{rows:?}");
    assert_eq!(rows[0]["mean"], 1.0, "{rows:?}");
    let output = project
        .fulgurite(&["reward", "check"])
        .arg(component("probe-reward"))
        .args(["--config", r#"{"do":"fixed","value":1}"#, "--tasks"])
        .arg(&tasks)
        .assert()
        .code(5);
    says(&stdout(output.get_output()), &["LOOK AT THIS"]);
}

#[test]
fn all_of_human_eval_passes_with_reference_answers_and_nothing_with_empty_ones() {
    let project = Project::new();
    let tasks = project.human_eval(164);
    for (policy, passed) in [("oracle", 1.0), ("empty", 0.0)] {
        let (report, code) = project.run(run_of("solve", "tests-pass", &tasks, policy));
        assert_eq!((report["scored"].as_u64(), code), (Some(164), 0), "{policy}: {report}");
        assert_eq!(report["mean_reward"], passed, "{policy}");
    }
}
