//! What plugins in Python and JavaScript are built against: the contract and the SDKs, carried in
//! this binary so that a plugin always fits the host it is built with.

/// Files below a folder: path and contents.
type Files = &'static [(&'static str, &'static str)];

macro_rules! files {
    ($folder:literal, $($path:literal),+ $(,)?) => {
        &[$(($path, include_str!(concat!("../../../../", $folder, "/", $path)))),+]
    };
}

/// The folder `wit/`.
pub(super) const CONTRACT: Files = files!(
    "wit",
    "agent.wit",
    "capabilities.wit",
    "deps/io/poll.wit",
    "llm.wit",
    "scorer.wit",
    "types.wit",
    "worlds.wit",
);

/// The package in `sdk/python/`.
pub(super) const PYTHON: Files = files!(
    "sdk/python",
    "fulgurite/__init__.py",
    "fulgurite/commands.py",
    "fulgurite/configuration.py",
    "fulgurite/conversation.py",
    "fulgurite/export.py",
    "fulgurite/grading.py",
    "fulgurite/harness.py",
    "fulgurite/host.py",
    "fulgurite/messages.py",
    "fulgurite/model.py",
    "fulgurite/py.typed",
    "fulgurite/recorded.py",
    "fulgurite/reward.py",
    "fulgurite/text.py",
);

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, path::Path};

    fn found(folder: &Path, root: &Path, suffixes: &[&str]) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                names.extend(found(&path, root, suffixes));
            } else if suffixes.iter().any(|suffix| name.ends_with(suffix)) {
                names.insert(name);
            }
        }
        names
    }

    #[test]
    fn nothing_of_the_contract_and_the_sdk_is_left_out() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (files, folder, inner, suffixes) in [
            (CONTRACT, "wit", "", [".wit"].as_slice()),
            (PYTHON, "sdk/python", "fulgurite", [".py", "py.typed"].as_slice()),
        ] {
            let folder = root.join(folder);
            let carried: BTreeSet<_> = files.iter().map(|(path, _)| (*path).to_owned()).collect();
            assert_eq!(carried, found(&folder.join(inner), &folder, suffixes));
        }
    }
}
