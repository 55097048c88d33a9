//! `tests-pass` over the real host: honest work passes, attacks in both modes do not.

use fulgurite_tests::{Project, component};
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

#[test]
fn suites_pay_honest_work_only() {
    for (name, files, wanted) in suite_works() {
        let project = Project::new();
        let tasks = project.tasks(&[json!({
            "id": name, "input": "write calc.py",
            "grading": { "mode": "suite", "files": { "tests/test_calc.py": SUITE } },
        })]);
        let harness = component("probe");
        let config = json!({ "do": "write", "files": files, "text": "done" }).to_string();
        let (report, code) = project.run(&[
            "--harness",
            harness.to_str().unwrap(),
            "--harness-config",
            &config,
            "--reward",
            "tests-pass",
            "--tasks",
            tasks.to_str().unwrap(),
            "--policy",
            "empty",
        ]);
        assert_eq!((report["mean_reward"].as_f64(), code), (Some(wanted), 0), "{name}: {report}");
    }
}

#[test]
fn a_link_where_the_hidden_file_goes_changes_nothing() {
    let project = Project::new();
    let tasks = project.tasks(&[json!({
        "id": "link", "input": "write calc.py",
        "grading": { "mode": "suite", "files": { "tests/test_calc.py": SUITE } },
    })]);
    let lines = "mkdir tests && echo 'def test_x(): pass' > mine.py && ln -s ../mine.py \
                 tests/test_calc.py && mkdir __pycache__ && cp mine.py __pycache__/calc.pyc";
    let script = project.write(
        "script.jsonl",
        json!({ "text": format!("```bash\n{lines}\n```\n```submit mine.py\n```") }).to_string(),
    );
    let policy = format!("script:{}", script.display());
    let (report, _) = project.run(&[
        "--harness",
        "coder",
        "--reward",
        "tests-pass",
        "--tasks",
        tasks.to_str().unwrap(),
        "--policy",
        &policy,
    ]);
    assert_eq!(report["mean_reward"], 0.0, "{report}");
    assert!(project.episode("last", "0").with("tests/test_calc.py") > 0, "the link was made");
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
    let output = project
        .fulgurite(&["reward", "check"])
        .arg(component("probe-reward"))
        .args(["--config", r#"{"do":"fixed","value":1}"#, "--tasks"])
        .arg(&tasks)
        .assert()
        .code(5);
    let text = String::from_utf8_lossy(&output.get_output().stdout).into_owned();
    assert!(text.contains("LOOK AT THIS"), "{text}");
}

#[test]
fn all_of_human_eval_passes_with_reference_answers_and_nothing_with_empty_ones() {
    let project = Project::new();
    let tasks = project.human_eval(164);
    let tasks = tasks.to_str().unwrap();
    for (policy, passed) in [("oracle", 1.0), ("empty", 0.0)] {
        let (report, code) = project.run(&[
            "--harness",
            "solve",
            "--reward",
            "tests-pass",
            "--tasks",
            tasks,
            "--policy",
            policy,
        ]);
        assert_eq!((report["scored"].as_u64(), code), (Some(164), 0), "{policy}: {report}");
        assert_eq!(report["mean_reward"], passed, "{policy}");
    }
}
