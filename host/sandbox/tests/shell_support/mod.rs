//! What the shell's tests share: corpus files, and a tree to run lines in.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::BTreeMap;
use std::sync::Arc;

use fulgurite_sandbox::{CommandLimits, Lane, Lower, NoPrograms, Quota, Tree};
use fulgurite_trace::file::{FileKind, FileTree};
use fulgurite_trace::{CommandOutput, CommandRequest};

/// What a file tree holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    Folder,
    File(Vec<u8>),
    Link(String),
}

/// A tree by its paths.
pub(crate) type Entries = BTreeMap<String, Entry>;

/// One line of a corpus file.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) line: String,
    pub(crate) number: usize,
    pub(crate) setup: Arc<Entries>,
    /// Status and a part of standard error, for lines that differ on purpose.
    pub(crate) expected: Option<(i32, String)>,
}

/// A corpus file.
pub(crate) struct Corpus {
    pub(crate) cases: Vec<Case>,
    /// Commands of the host that have to be there for a comparison.
    pub(crate) needs: Vec<String>,
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// Reads a corpus file: `@file`, `@dir`, `@link` and `@bytes` set files up, `> ` continues a file,
/// `$ ` begins a line, `| ` continues it, `= ` says what is expected.
pub(crate) fn parse(text: &str) -> Corpus {
    let mut corpus = Corpus { cases: Vec::new(), needs: Vec::new() };
    let mut setup = Entries::new();
    let mut file: Option<String> = None;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        if let Some(content) = line.strip_prefix('>') {
            let name = file.clone().unwrap_or_else(|| panic!("line {number}: no file"));
            if let Some(Entry::File(bytes)) = setup.get_mut(&name) {
                bytes.extend_from_slice(content.strip_prefix(' ').unwrap_or(content).as_bytes());
                bytes.push(b'\n');
            }
            continue;
        }
        if let Some(rest) = line.strip_prefix('@') {
            let (word, rest) = rest.split_once(' ').unwrap();
            match word {
                "file" => {
                    setup.insert(rest.to_owned(), Entry::File(Vec::new()));
                    file = Some(rest.to_owned());
                }
                "dir" => {
                    setup.insert(rest.to_owned(), Entry::Folder);
                }
                "link" => {
                    let (name, target) = rest.split_once(' ').unwrap();
                    setup.insert(name.to_owned(), Entry::Link(target.to_owned()));
                }
                "bytes" => {
                    let (name, hex) = rest.split_once(' ').unwrap();
                    setup.insert(name.to_owned(), Entry::File(unhex(hex)));
                }
                "needs" => corpus.needs = rest.split(' ').map(str::to_owned).collect(),
                other => panic!("line {number}: @{other}"),
            }
            continue;
        }
        if let Some(rest) = line.strip_prefix("$ ") {
            corpus.cases.push(Case {
                line: rest.to_owned(),
                number,
                setup: Arc::new(setup.clone()),
                expected: None,
            });
        } else if let Some(rest) = line.strip_prefix('|') {
            let case = corpus.cases.last_mut().unwrap();
            case.line.push('\n');
            case.line.push_str(rest.strip_prefix(' ').unwrap_or(rest));
        } else if let Some(rest) = line.strip_prefix("= ") {
            let (status, part) = rest.split_once(' ').unwrap();
            let case = corpus.cases.last_mut().unwrap();
            case.expected = Some((status.parse().unwrap(), part.to_owned()));
        } else {
            assert!(line.is_empty() || line.starts_with('#'), "line {number}: {line}");
        }
    }
    corpus
}

/// A fresh tree that holds `entries`.
pub(crate) fn tree(entries: &Entries) -> Arc<Tree> {
    let tree = Arc::new(Tree::new(Lower::empty(), Quota::default()));
    for (path, entry) in entries {
        if let Some((folder, _)) = path.rsplit_once('/') {
            tree.create_directories(folder).unwrap();
        }
        match entry {
            Entry::Folder => tree.create_directories(path).unwrap(),
            Entry::File(bytes) => tree.write_file(path, bytes).unwrap(),
            Entry::Link(target) => tree.symlink_path(target, path).unwrap(),
        }
    }
    tree
}

/// Everything that a tree holds.
pub(crate) fn entries(tree: &Tree) -> Entries {
    let mut all = Entries::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let named = if folder.is_empty() { "." } else { &folder };
        for entry in tree.list(named).unwrap().iter() {
            let path = match folder.is_empty() {
                true => entry.name.clone(),
                false => format!("{folder}/{}", entry.name),
            };
            let found = match entry.kind {
                FileKind::Directory => {
                    folders.push(path.clone());
                    Entry::Folder
                }
                FileKind::Symlink => Entry::Link(tree.read_link_path(&path).unwrap()),
                FileKind::File => Entry::File(tree.read_file(&path, u64::MAX).unwrap()),
            };
            all.insert(path, found);
        }
    }
    all
}

/// The environment of both shells.
pub(crate) const ENVIRONMENT: [(&str, &str); 4] =
    [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/home"), ("LC_ALL", "C"), ("TZ", "UTC")];

/// Runs a line of the shell.
pub(crate) fn run(line: &str, tree: &Arc<Tree>, limits: &CommandLimits) -> CommandOutput {
    let mut request = CommandRequest::line(line);
    request.env =
        ENVIRONMENT.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    request_with(&request, tree, limits)
}

/// Runs a request.
pub(crate) fn request_with(
    request: &CommandRequest,
    tree: &Arc<Tree>,
    limits: &CommandLimits,
) -> CommandOutput {
    let lane = Lane::new(Arc::new(NoPrograms));
    let tree: Arc<dyn FileTree> = Arc::clone(tree) as Arc<dyn FileTree>;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(lane.run(request, tree, limits)).unwrap()
}

/// The fuel an output says it used.
pub(crate) fn fuel(output: &CommandOutput) -> u64 {
    output.metadata.iter().find(|(name, _)| name == "fuel").unwrap().1.parse().unwrap()
}
