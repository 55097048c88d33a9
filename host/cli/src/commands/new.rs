//! `fulgurite new`: a harness or reward of one's own, from a template.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, bail};

use crate::{
    args::{Language, New, NewKind},
    exit,
    output::Output,
};

/// A template: paths and contents, with `{{name}}` and `{{sdk}}` to fill in.
type Template = &'static [(&'static str, &'static str)];

macro_rules! template {
    ($folder:literal, $($path:literal),+ $(,)?) => {
        &[$((
            $path,
            include_str!(concat!("../../../../sdk/templates/", $folder, "/", $path)),
        )),+]
    };
}

const fn template(kind: NewKind, language: Language) -> Template {
    match (kind, language) {
        (NewKind::Harness, Language::Rust) => template!(
            "harness-rust",
            ".gitignore",
            "Cargo.toml",
            "README.md",
            "src/lib.rs",
            "tasks.jsonl",
        ),
        (NewKind::Reward, Language::Rust) => template!(
            "reward-rust",
            ".gitignore",
            "Cargo.toml",
            "README.md",
            "src/lib.rs",
            "tasks.jsonl",
        ),
        (NewKind::Harness, Language::Python) => template!(
            "harness-python",
            ".gitignore",
            "README.md",
            "agent.py",
            "pyproject.toml",
            "tasks.jsonl",
        ),
        (NewKind::Reward, Language::Python) => template!(
            "reward-python",
            ".gitignore",
            "README.md",
            "pyproject.toml",
            "scorer.py",
            "tasks.jsonl",
        ),
        (NewKind::Harness, Language::Js) => template!(
            "harness-js",
            ".gitignore",
            "README.md",
            "agent.js",
            "package.json",
            "tasks.jsonl",
        ),
        (NewKind::Reward, Language::Js) => template!(
            "reward-js",
            ".gitignore",
            "README.md",
            "package.json",
            "scorer.js",
            "tasks.jsonl",
        ),
    }
}

pub(crate) fn run(new: &New, output: Output) -> Result<()> {
    let name = checked(&new.name)?;
    let folder = Path::new(name);
    if folder.exists() {
        bail!(exit::Usage(format!(
            "{name} is there already\n  mend: choose another name, or remove it"
        )));
    }
    // The other languages build against what this program carries.
    let sdk = if new.lang == Language::Rust { sdk()? } else { String::new() };
    for (path, contents) in template(new.kind, new.lang) {
        let place = folder.join(path);
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent)
                .with_context(|| format!("cannot create {}", parent.display()))?;
        }
        let contents = contents.replace("{{name}}", name).replace("{{sdk}}", &sdk);
        fs::write(&place, contents).with_context(|| format!("cannot write {}", place.display()))?;
    }
    let done = serde_json::json!({ "folder": folder });
    output.result(&done, |_| {
        let component = format!("{name}/{name}.wasm");
        let try_it = match new.kind {
            NewKind::Harness => format!(
                "fulgurite run --harness {component} --reward exact-match --tasks \
                 {name}/tasks.jsonl --policy oracle"
            ),
            NewKind::Reward => {
                format!("fulgurite reward check {component} --tasks {name}/tasks.jsonl")
            }
        };
        format!(
            "made {name}\nnext:\n  fulgurite build {name}\n  fulgurite inspect {component}\n  {try_it}"
        )
    })
}

/// A name that is good for a package and a folder.
fn checked(name: &str) -> Result<&str> {
    let good = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name
            .chars()
            .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-')
        && name.len() <= 64;
    if good {
        Ok(name)
    } else {
        bail!(exit::Usage(format!(
            "`{}` is no name for a plugin; use lower-case letters, digits and `-`, a letter first",
            name.escape_debug()
        )))
    }
}

/// How the new package names the SDK: by the folder it was built beside, which
/// `$FULGURITE_SDK` overrides.
fn sdk() -> Result<String> {
    let folder = match std::env::var_os("FULGURITE_SDK") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/rust"),
    };
    let folder = folder.canonicalize().with_context(|| {
        format!(
            "the SDK is not at {}\n  mend: set FULGURITE_SDK to the folder sdk/rust of the \
             repository",
            folder.display()
        )
    })?;
    // As the contents of a TOML string.
    Ok(folder.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::checked;

    #[test]
    fn names_are_names_of_packages() {
        assert!(checked("my-agent2").is_ok());
        for bad in ["", "My", "2a", "a_b", "../a", "a/b", "-a"] {
            assert!(checked(bad).is_err(), "{bad}");
        }
    }
}
