//! `fulgurite doctor`: what is installed, missing or too small, and how to mend it.

use std::{fs, path::Path};

use anyhow::{Result, bail};
use nix::sys::resource::{Resource, getrlimit};
use serde::Serialize;

use crate::{guest, host::registry, output::Output, place::Places, table};

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Good,
    /// Works, but less well than it could.
    Small,
    /// Something will not work.
    Missing,
}

/// One check.
#[derive(Debug, Serialize)]
struct Check {
    what: &'static str,
    verdict: Verdict,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<String>,
}

impl Check {
    fn new(
        what: &'static str,
        found: impl Into<String>,
        problem: Option<(Verdict, String)>,
    ) -> Self {
        let (verdict, mend) = match problem {
            Some((verdict, mend)) => (verdict, Some(mend)),
            None => (Verdict::Good, None),
        };
        Self { what, verdict, found: found.into(), mend }
    }
}

/// Runs every check; an error when something is missing.
pub(crate) fn run(places: &Places, output: Output) -> Result<()> {
    let mut checks = vec![
        map_count(),
        open_files(),
        address_space(),
        memory(),
        guests(),
        python(),
        node(),
        writable("plugins", &places.home),
        registered(places),
        writable("compiled code", &places.cache),
    ];
    for (what, file) in [
        ("Python for the wasm lane", "python-3.12.0.wasm"),
        ("HumanEval", "HumanEval.jsonl.gz"),
        ("SmolLM2-135M-Instruct", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    ] {
        checks.push(artifact(what, &places.artifact(file)));
    }
    output.result(&checks, |checks| {
        let rows = checks.iter().map(|check| {
            let verdict = match check.verdict {
                Verdict::Good => "good",
                Verdict::Small => "small",
                Verdict::Missing => "MISSING",
            };
            [check.what, verdict, &check.found, check.mend.as_deref().unwrap_or_default()]
                .map(str::to_owned)
        });
        table::text(["what", "verdict", "found", "mend"], rows)
    })?;
    let missing = checks.iter().filter(|check| check.verdict == Verdict::Missing).count();
    if missing > 0 {
        bail!("{missing} of {} checks found something missing", checks.len());
    }
    Ok(())
}

fn map_count() -> Check {
    // Each instance in the pool takes several mappings; the runtime sizes its pool by this.
    const WANTED: u64 = 65_530;
    let text = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    match text.trim().parse::<u64>() {
        Ok(count) => Check::new(
            "vm.max_map_count",
            count.to_string(),
            (count < WANTED).then(|| {
                (
                    Verdict::Small,
                    format!("fewer episodes fit at once; sysctl vm.max_map_count={WANTED}"),
                )
            }),
        ),
        Err(_) => Check::new("vm.max_map_count", "not readable", None),
    }
}

fn open_files() -> Check {
    const WANTED: u64 = 1024;
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    Check::new(
        "open files",
        limit.to_string(),
        (limit < WANTED).then(|| (Verdict::Small, format!("ulimit -n {WANTED}"))),
    )
}

fn address_space() -> Check {
    let limit = getrlimit(Resource::RLIMIT_AS).map_or(u64::MAX, |(soft, _)| soft);
    if limit == nix::libc::RLIM_INFINITY {
        return Check::new("address space", "unlimited", None);
    }
    let mend = "the pool of instances is small; ulimit -v unlimited".to_owned();
    Check::new("address space", format!("{} MiB", limit >> 20), Some((Verdict::Small, mend)))
}

fn memory() -> Check {
    const WANTED_MIB: u64 = 4096;
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    match available {
        Some(kib) => Check::new(
            "memory",
            format!("{} MiB available", kib >> 10),
            (kib >> 10 < WANTED_MIB).then(|| {
                (Verdict::Small, "lower --concurrency, or give the machine more".to_owned())
            }),
        ),
        None => Check::new("memory", "not readable", None),
    }
}

fn guests() -> Check {
    match guest::available() {
        Ok(found) => Check::new("compiling guests", found, None),
        Err(error) => {
            let mend = "`fulgurite build` installs what is missing, where it may".to_owned();
            Check::new("compiling guests", format!("{error:#}"), Some((Verdict::Small, mend)))
        }
    }
}

fn python() -> Check {
    const WHAT: &str = "python3";
    let version = std::process::Command::new("python3").args(["-I", "--version"]).output();
    match version {
        Ok(output) if output.status.success() => {
            let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            Check::new(WHAT, found, None)
        }
        _ => {
            let mend = "install Python 3.9 or newer with pip; set-up and building plugins in \
                        Python need it";
            Check::new(WHAT, "not found", Some((Verdict::Small, mend.to_owned())))
        }
    }
}

/// Few need it, so its absence is no finding.
fn node() -> Check {
    let version = std::process::Command::new("node").arg("--version").output();
    let found = match version {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "not found; only building plugins in JavaScript needs it".to_owned(),
    };
    Check::new("node", found, None)
}

fn writable(what: &'static str, folder: &Path) -> Check {
    let usable = fs::create_dir_all(folder).and_then(|()| tempfile::tempfile_in(folder)).is_ok();
    let mend = "the folder cannot be written; mend its owner and mode".to_owned();
    Check::new(what, folder.display().to_string(), (!usable).then_some((Verdict::Missing, mend)))
}

/// Whether what ships is registered.
fn registered(places: &Places) -> Check {
    const SHIPPED: [&str; 6] =
        ["coder", "solve", "tests-pass", "exact-match", "length-penalty", "python"];
    let known = match registry(places).list() {
        Ok(known) => known,
        Err(error) => {
            let mend = "`fulgurite plugin verify` tells more".to_owned();
            return Check::new("registry", error.to_string(), Some((Verdict::Missing, mend)));
        }
    };
    let lacking: Vec<_> = SHIPPED
        .into_iter()
        .filter(|name| !known.iter().any(|plugin| plugin.name.as_str() == *name))
        .collect();
    let problem = (!lacking.is_empty()).then(|| {
        let mend = format!("not registered: {}; cargo xtask setup", lacking.join(", "));
        (Verdict::Small, mend)
    });
    Check::new("registry", format!("{} plugins", known.len()), problem)
}

fn artifact(what: &'static str, file: &Path) -> Check {
    let problem = (!file.is_file()).then(|| (Verdict::Small, "cargo xtask setup".to_owned()));
    let found =
        if problem.is_some() { "not fetched".to_owned() } else { file.display().to_string() };
    Check::new(what, found, problem)
}
