//! Runs every line of `corpus/` here and in the host's bash, with the same files, and compares
//! standard output, status and the files afterwards; of standard error only whether there is any.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "helpers of tests fail the test"
)]

mod shell_support;

use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use fulgurite_sandbox::CommandLimits;
use shell_support::{Case, Corpus, Entries, Entry, entries, parse, run, tree};

#[derive(Debug, PartialEq, Eq)]
struct Ended {
    status: i32,
    stdout: String,
    complained: bool,
    files: Entries,
}

fn lay_out(folder: &Path, entries: &Entries) {
    for (path, entry) in entries {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        match entry {
            Entry::Folder => std::fs::create_dir_all(path).unwrap(),
            Entry::File(bytes) => std::fs::write(path, bytes).unwrap(),
            Entry::Link(target) => symlink(target, path).unwrap(),
        }
    }
}

fn collect(folder: &Path, prefix: &str, all: &mut Entries) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            all.insert(path.clone(), Entry::Folder);
            collect(&entry.path(), &path, all);
        } else if kind.is_symlink() {
            let target = std::fs::read_link(entry.path()).unwrap();
            all.insert(path, Entry::Link(target.to_str().unwrap().to_owned()));
        } else {
            all.insert(path, Entry::File(without_times(std::fs::read(entry.path()).unwrap())));
        }
    }
}

/// The headers of `diff -u` without their times, which are the host's in bash.
fn without_times(bytes: Vec<u8>) -> Vec<u8> {
    let times = regex::bytes::Regex::new(r"(?m)^(---|\+\+\+) (\S+)\t\d{4}-.*$").unwrap();
    times.replace_all(&bytes, &b"$1 $2"[..]).into_owned()
}

fn in_bash(case: &Case) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    lay_out(folder.path(), &case.setup);
    let output = Command::new("/bin/bash")
        .arg("-c")
        .arg(&case.line)
        .env_clear()
        .envs(shell_support::ENVIRONMENT)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("these tests compare with /bin/bash");
    let mut files = Entries::new();
    collect(folder.path(), "", &mut files);
    Ended {
        status: output.status.code().unwrap(),
        stdout: output.stdout.escape_ascii().to_string(),
        complained: !output.stderr.is_empty(),
        files,
    }
}

fn here(case: &Case) -> (Ended, String) {
    let tree = tree(&case.setup);
    let output = run(&case.line, &tree, &CommandLimits::default());
    let ended = Ended {
        status: output.status,
        stdout: output.stdout.bytes.escape_ascii().to_string(),
        complained: !output.stderr.bytes.is_empty(),
        files: entries(&tree)
            .into_iter()
            .map(|(path, entry)| match entry {
                Entry::File(bytes) => (path, Entry::File(without_times(bytes))),
                other => (path, other),
            })
            .collect(),
    };
    (ended, String::from_utf8_lossy(&output.stderr.bytes).into_owned())
}

/// What a plain Debian has not. Only its lines are left out where it is missing.
const NOT_EVERYWHERE: [&str; 1] = ["patch"];
/// The most lines of a corpus that may be left out.
const MOST_LEFT_OUT: usize = 16;

/// The lines that can be compared on this host; those that cannot are told of.
fn comparable<'a>(name: &str, corpus: &'a Corpus) -> Vec<&'a Case> {
    let is_there = |need: &str| Path::new("/usr/bin").join(need).exists();
    let missing: Vec<&str> =
        corpus.needs.iter().map(String::as_str).filter(|need| !is_there(need)).collect();
    assert!(
        missing.iter().all(|need| NOT_EVERYWHERE.contains(need)),
        "{name}: lines are compared with {missing:?}, which the host has not; install them"
    );
    let needs_missing = |case: &&Case| missing.iter().any(|need| case.line.contains(need));
    let (left_out, compared): (Vec<_>, Vec<_>) = corpus.cases.iter().partition(needs_missing);
    if !left_out.is_empty() {
        assert!(left_out.len() <= MOST_LEFT_OUT, "{name}: {} lines left out", left_out.len());
        // Straight to the stream: what the macros print is shown of tests that fail only.
        let count = left_out.len();
        let told = format!("NOT TRIED: {count} lines of {name}; the host has no {missing:?}");
        let _ = writeln!(std::io::stderr(), "{told}");
    }
    compared
}

fn compare(name: &str, text: &str) {
    let corpus = parse(text);
    let compared = comparable(name, &corpus);
    let mut differ = Vec::new();
    for case in &compared {
        let bash = in_bash(case);
        let (ours, stderr) = here(case);
        if bash != ours {
            let mut report = format!("{name}:{}: {}\n", case.number, case.line);
            if bash.status != ours.status {
                report += &format!("  status: bash {}, here {}\n", bash.status, ours.status);
            }
            if bash.stdout != ours.stdout {
                report += &format!("  bash: {}\n  here: {}\n", bash.stdout, ours.stdout);
            }
            if bash.complained != ours.complained {
                report += &format!("  bash complained: {}\n", bash.complained);
            }
            if bash.files != ours.files {
                for (path, entry) in &bash.files {
                    if ours.files.get(path) != Some(entry) {
                        let here = ours.files.get(path);
                        report += &format!(
                            "  {path}: bash {}, here {}\n",
                            shown(Some(entry)),
                            shown(here)
                        );
                    }
                }
                for (path, entry) in &ours.files {
                    if !bash.files.contains_key(path) {
                        report += &format!("  {path}: only here: {}\n", shown(Some(entry)));
                    }
                }
            }
            if !stderr.is_empty() {
                report += &format!("  here on stderr: {stderr}");
            }
            differ.push(report);
        }
    }
    assert!(
        differ.is_empty(),
        "{} of {} lines differ from bash:\n{}",
        differ.len(),
        compared.len(),
        differ.join("\n")
    );
}

fn shown(entry: Option<&Entry>) -> String {
    match entry {
        None => "nothing".to_owned(),
        Some(Entry::Folder) => "a folder".to_owned(),
        Some(Entry::File(bytes)) => format!("{:?}", bytes.escape_ascii().to_string()),
        Some(Entry::Link(target)) => format!("-> {target}"),
    }
}

macro_rules! corpus {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                let name = stringify!($name);
                compare(name, include_str!(concat!("corpus/", stringify!($name), ".txt")));
            }
        )*

        #[test]
        fn the_corpus_is_large() {
            let count: usize = [$(include_str!(concat!("corpus/", stringify!($name), ".txt"))),*]
                .iter()
                .map(|text| parse(text).cases.len())
                .sum();
            assert!(count >= 300, "{count} lines");
        }
    };
}

corpus!(control diff files grep sed text words);

#[test]
fn lines_that_differ_on_purpose_say_so() {
    let corpus = parse(include_str!("corpus/refusals.txt"));
    let mut wrong = Vec::new();
    for case in &corpus.cases {
        let (status, part) = case.expected.clone().unwrap();
        let (ended, stderr) = here(case);
        if ended.status != status || !(stderr.contains(&part) || ended.stdout.contains(&part)) {
            wrong
                .push(format!("{}: {}: status {}, {stderr}", case.number, case.line, ended.status));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
