//! The hidden grading data of a task, and the jobs that the drivers get from it.

use std::collections::BTreeMap;

use fulgurite_sdk::reward::{Base, Failure};
use serde::Deserialize;
use serde_json::{Value, json};

/// What a task says about its tests.
#[derive(Debug, Deserialize)]
#[serde(tag = "mode", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Grading {
    /// One function is tested, as in HumanEval.
    Function {
        /// The code that the answer may go on from; its helpers exist on both sides.
        #[serde(default)]
        prompt: String,
        /// The function's name.
        entry_point: String,
        /// Defines `check(candidate)`, which raises unless all is well.
        test: String,
        /// A file of the workspace that holds the work; without it, or where the episode left no
        /// such file, the outcome's answer is the work.
        #[serde(default)]
        file: Option<String>,
        /// Whether arguments that the work changed in place are changed for the tests too.
        #[serde(default)]
        write_back: bool,
    },
    /// Test files are run against the workspace.
    Suite {
        /// Hidden files: path to contents. The work never sees them.
        files: BTreeMap<String, String>,
        /// Which of them hold tests; otherwise those called `test*.py` or `*_test.py`.
        #[serde(default)]
        tests: Vec<String>,
        /// Names of all tests (`path::Class::method`, `path::function`); otherwise they are read
        /// from the files.
        #[serde(default)]
        expected: Vec<String>,
        /// Files that tests and work both see: path to contents.
        #[serde(default)]
        fixtures: BTreeMap<String, String>,
        /// Modules of the work that share their name with one of the standard library.
        #[serde(default)]
        work_modules: Vec<String>,
        /// Files that the episode may have left and that the tests can read.
        #[serde(default)]
        work_files: Vec<String>,
        /// Whether the work's own operators decide comparisons with plain data.
        #[serde(default)]
        operators: bool,
        /// As in `function`.
        #[serde(default)]
        write_back: bool,
    },
}

impl Grading {
    /// What the work's sandbox starts with, where the answer is the work.
    pub(crate) fn work_base(&self) -> Base {
        match self {
            Grading::Function { .. } => Base::Empty,
            Grading::Suite { .. } => Base::Changed,
        }
    }

    /// The file that holds the work, where it is one file.
    pub(crate) fn work_file(&self) -> Option<&str> {
        match self {
            Grading::Function { file, .. } => file.as_deref(),
            Grading::Suite { .. } => None,
        }
    }

    /// Hidden files.
    pub(crate) fn test_files(&self) -> impl Iterator<Item = (&String, &String)> {
        let files = match self {
            Grading::Function { .. } => None,
            Grading::Suite { files, .. } => Some(files),
        };
        files.into_iter().flatten()
    }

    /// Files of the work that the tests can read.
    pub(crate) fn work_files(&self) -> &[String] {
        match self {
            Grading::Function { .. } => &[],
            Grading::Suite { work_files, .. } => work_files,
        }
    }

    /// Files of both sides.
    pub(crate) fn fixtures(&self) -> impl Iterator<Item = (&String, &String)> {
        let fixtures = match self {
            Grading::Function { .. } => None,
            Grading::Suite { fixtures, .. } => Some(fixtures),
        };
        fixtures.into_iter().flatten()
    }

    /// What the judge is told.
    pub(crate) fn judge_job(&self) -> Result<Value, Failure> {
        match self {
            Grading::Function { prompt, entry_point, test, write_back, .. } => Ok(json!({
                "mode": "function",
                "prompt": prompt,
                "entry_point": entry_point,
                "test": test,
                "operators": false,
                "write_back": write_back,
            })),
            Grading::Suite {
                files, tests, expected, work_modules, operators, write_back, ..
            } => {
                let named: Vec<&String> = if tests.is_empty() {
                    files.keys().filter(|path| is_test(path)).collect()
                } else {
                    tests.iter().collect()
                };
                if named.is_empty() {
                    return Err("the grading data names no test file: `files` needs one called \
                                test*.py or *_test.py, or `tests` must name one"
                        .into());
                }
                if let Some(path) = named.iter().find(|path| !files.contains_key(**path)) {
                    return Err(format!(
                        "the grading data lists the test file `{path}`, which is \
                                        not in `files`"
                    )
                    .into());
                }
                Ok(json!({
                    "mode": "suite",
                    "files": files,
                    "tests": named,
                    "expected": expected,
                    "work_modules": work_modules,
                    "operators": operators,
                    "write_back": write_back,
                }))
            }
        }
    }

    /// What the worker is told. Nothing hidden is in it.
    pub(crate) fn worker_job(&self, source: &str) -> Value {
        match self {
            Grading::Function { prompt, entry_point, .. } => {
                json!({"prompt": prompt, "entry_point": entry_point, "source": source})
            }
            Grading::Suite { .. } => json!({"prompt": "", "entry_point": "", "source": ""}),
        }
    }
}

fn is_test(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.ends_with(".py") && (name.starts_with("test") || name.ends_with("_test.py"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grading(text: &str) -> Result<Grading, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn a_function_needs_a_name_and_a_test() {
        let text = r#"{"mode": "function", "entry_point": "f", "test": "def check(c): pass"}"#;
        let job = grading(text).unwrap().worker_job("x = 1");
        assert_eq!(job["source"], "x = 1");
        assert!(!job.to_string().contains("check"), "the work must not see the test");
        assert!(grading(r#"{"mode": "function", "test": ""}"#).is_err());
        assert!(grading(r#"{"mode": "magic"}"#).is_err());
    }

    #[test]
    fn test_files_are_found_by_name() {
        let text = r#"{"mode": "suite", "files":
            {"tests/test_a.py": "", "tests/helpers.py": "", "b_test.py": ""}}"#;
        let job = grading(text).unwrap().judge_job().unwrap();
        assert_eq!(job["tests"], json!(["b_test.py", "tests/test_a.py"]));
    }

    #[test]
    fn mistakes_in_the_grading_data_are_named() {
        let none = grading(r#"{"mode": "suite", "files": {"a.py": ""}}"#).unwrap();
        assert!(none.judge_job().unwrap_err().message.contains("no test file"));
        let missing = r#"{"mode": "suite", "files": {"a.py": ""}, "tests": ["b.py"]}"#;
        let error = grading(missing).unwrap().judge_job().unwrap_err();
        assert!(error.message.contains("`b.py`"), "{error:?}");
        assert!(grading(r#"{"mode": "suite", "files": {}, "opertors": true}"#).is_err());
    }
}
