//! `tests-pass`: the hidden tests of the task pass.
//!
//! What an episode wrote (*the work*) and the tests that judge it never share an interpreter.
//! Tests run in one sandbox, which holds nothing that the episode touched; the work runs in
//! another; between them goes plain data over a pipe. The README lists the forms of grading data
//! and the attacks that this answers.

#[cfg(test)]
mod drivers;
mod grading;
mod verdict;

use fulgurite_sdk::reward::*;
use grading::Grading;
use serde_json::json;
use verdict::Verdict;

/// What both drivers begin with.
const VALUES: &str = include_str!("../python/values.py");
/// The tests' stand-ins for the work.
const REMOTE: &str = include_str!("../python/remote.py");
/// Runs the tests.
const JUDGE: &str = include_str!("../python/judge.py");
/// Runs the work.
const WORKER: &str = include_str!("../python/worker.py");

/// The largest source text that is graded.
const SOURCE_BYTES: usize = 1 << 20;

#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Config {
    /// Score the share of tests that pass; otherwise 1 when all pass, else 0.
    partial: bool,
    /// Milliseconds that the work has for all tests together. The run's limits cap it.
    timeout_ms: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { partial: false, timeout_ms: 20_000 }
    }
}

struct TestsPass;

impl Reward for TestsPass {
    type Config = Config;

    fn describe() -> Description {
        Description::new("tests-pass", env!("CARGO_PKG_VERSION"))
    }

    fn score(episode: &Episode, config: Config) -> Result<Score, Failure> {
        let grading: Grading = episode.grading()?;
        let tests = Sandbox::open(Base::Empty)?;
        let source = match grading.work_file() {
            None => Ok(None),
            Some(path) => match episode.read_file(path, SOURCE_BYTES) {
                Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
                Err(ReadError::NotFound) => Ok(None),
                Err(error) => Err(Failure::from(error).message),
            },
        };
        let (base, source) = match source {
            Ok(Some(source)) => (Base::Changed, source),
            Ok(None) => (grading.work_base(), episode.ending().answer),
            Err(reason) => return Ok(Score::new(0.0).note("reason", reason)),
        };
        if source.len() > SOURCE_BYTES {
            return Ok(Score::new(0.0).note("reason", "the answer is too large"));
        }
        let work = Sandbox::open(base)?;
        for path in grading.work_files() {
            // What is missing, or no file, is missing for the tests too.
            if let Ok(contents) = episode.read_file(path, SOURCE_BYTES) {
                tests.put_file(path, &contents)?;
            }
        }
        for (path, contents) in grading.test_files() {
            tests.put_file(path, contents.as_bytes())?;
        }
        for (path, contents) in grading.fixtures() {
            tests.put_file(path, contents.as_bytes())?;
            work.put_file(path, contents.as_bytes())?;
        }
        let judge = driver(&tests, "judge", &[VALUES, REMOTE, JUDGE], &grading.judge_job()?)?
            // The judge only waits while the work computes; it must outlive it to say so.
            .timeout_ms(config.timeout_ms.saturating_mul(2));
        let worker = driver(&work, "worker", &[VALUES, WORKER], &grading.worker_job(&source))?
            .timeout_ms(config.timeout_ms);
        // Whatever lies at this path is gone, so what is read later is the judge's.
        tests.put_file(VERDICT, b"{}")?;
        let (judged, worked) = run_connected((&tests, judge), (&work, worker))?;
        let verdict = Verdict::read(&tests, &judged)?;
        Ok(verdict.into_score(config.partial, &judged, &worked))
    }
}

/// Where the drivers and what they need lie in their trees.
const FOLDER: &str = ".fulgurite-grading";
/// Where the judge writes.
const VERDICT: &str = ".fulgurite-grading/verdict.json";

/// Lays a driver and its job down and gives the command that starts it.
///
/// `-I` keeps the tree, the environment and user packages off the interpreter's path; `-B` and
/// the prefix keep it from writing and from reading byte code that lies in the tree.
fn driver(
    sandbox: &Sandbox,
    name: &str,
    parts: &[&str],
    job: &serde_json::Value,
) -> Result<Command, Failure> {
    let path = format!("{FOLDER}/{name}.py");
    sandbox.put_file(&path, parts.join("\n").as_bytes())?;
    sandbox.put_file(&format!("{FOLDER}/job.json"), json!(job).to_string().as_bytes())?;
    let prefix = format!("pycache_prefix={FOLDER}/none");
    Ok(Command::argv(["python", "-I", "-B", "-X", &prefix, &path]))
}

fulgurite_sdk::export_reward!(TestsPass);
