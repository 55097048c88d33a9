//! Plugins in Python: CPython and the plugin's modules in one component, by componentize-py.
//!
//! The builder imports the plugin's module once and keeps the interpreter's memory; an episode
//! starts from that picture. The folder `build/` of the project gets what was built against: the
//! SDK, the bindings (typed, for editors) and the dependencies.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::{Built, embedded, last_line, lay_down, place};

/// What builds components, with the digests of its wheels.
const REQUIREMENT: &str = include_str!("componentize-py.txt");

/// The folder of that version below the folder of tools.
const BUILDER: &str = "componentize-py-0.25.1";

/// The version of CPython in the components.
const GUEST_PYTHON: &str = "3.14";

/// Starts the builder, whose folder is the first argument, without anything of the machine's own
/// Python packages.
const START: &str =
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from componentize_py import script; script()";

/// The module that the component is made of.
const ENTRY: &str = "fulgurite_entry";
const ENTRY_FILE: &str = "fulgurite_entry.py";

/// `pyproject.toml`, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Manifest {
    project: Project,
    #[serde(default)]
    tool: Tools,
}

#[derive(Debug, Deserialize)]
struct Project {
    name: String,
    #[serde(default)]
    dependencies: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Tools {
    fulgurite: Option<Plugin>,
}

/// `[tool.fulgurite]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plugin {
    kind: Kind,
    module: String,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Harness,
    Reward,
}

impl Kind {
    /// The world of the contract.
    const fn world(self) -> &'static str {
        match self {
            Self::Harness => "harness",
            Self::Reward => "reward",
        }
    }

    /// The class of the SDK that the component exports.
    const fn class(self) -> &'static str {
        match self {
            Self::Harness => "Agent",
            Self::Reward => "Scorer",
        }
    }
}

impl Manifest {
    fn read(file: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not as it has to be", file.display()))
    }

    fn plugin(&self, file: &Path) -> Result<&Plugin> {
        let plugin = self.tool.fulgurite.as_ref().with_context(|| {
            format!(
                "{} has no table [tool.fulgurite]\n  mend: add it, with `kind = \"harness\"` or \
                 `\"reward\"` and `module`, the plugin's module",
                file.display()
            )
        })?;
        if !is_module(&plugin.module) {
            bail!(
                "`{}` in {} is not the name of a module",
                plugin.module.escape_debug(),
                file.display()
            );
        }
        if !is_name(&self.project.name) {
            bail!(
                "`{}` in {} is no name for a project",
                self.project.name.escape_debug(),
                file.display()
            );
        }
        Ok(plugin)
    }
}

/// Whether it is fit for a file.
fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter))
}

/// Whether it can stand in an `import`.
fn is_module(name: &str) -> bool {
    name.split('.').all(|part| {
        part.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
            && part.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    }) && name != ENTRY
        && !name.starts_with("wit_world")
}

pub(super) fn build(folder: &Path, output: Option<&Path>, tools: &Path) -> Result<Built> {
    let file = folder.join("pyproject.toml");
    let manifest = Manifest::read(&file)?;
    let plugin = manifest.plugin(&file)?;
    let mut remarks = Vec::new();
    let builder = builder(tools, &mut remarks)?;

    let build = folder.join("build");
    let [contract, sdk, entry, bindings, nothing] =
        ["wit", "sdk", "entry", "bindings", "no-packages"].map(|name| build.join(name));
    lay_down(&contract, embedded::CONTRACT)?;
    lay_down(&sdk, embedded::PYTHON)?;
    lay_down(&entry, &[(ENTRY_FILE, entry_module(plugin).as_str())])?;
    // The builder adds the packages of the virtual environment it finds; here it finds an empty one.
    lay_down(&nothing, &[("lib/site-packages/README", "Empty on purpose.\n")])?;
    let dependencies =
        dependencies(&build.join("dependencies"), &manifest.project.dependencies, &mut remarks)?;

    let call = || {
        let mut command = Command::new("python3");
        command.args(["-I", "-c", START]).arg(&builder).arg("--quiet");
        command.arg("--wit-path").arg(&contract).args(["--world", plugin.kind.world()]);
        command.env("VIRTUAL_ENV", &nothing).stdin(Stdio::null());
        command
    };
    if bindings.exists() {
        fs::remove_dir_all(&bindings)
            .with_context(|| format!("cannot empty {}", bindings.display()))?;
    }
    run(call().arg("bindings").arg(&bindings), "make the bindings")?;
    let component = build.join("component.wasm");
    let mut command = call();
    command.arg("componentize");
    for path in [folder, &entry, &sdk].into_iter().chain(dependencies.as_deref()) {
        command.arg("--python-path").arg(path);
    }
    command.arg("--output").arg(&component).arg(ENTRY);
    run(&mut command, &format!("make a component of {}", folder.display()))?;
    let name = format!("{}.wasm", manifest.project.name);
    let file = output.map_or_else(|| folder.join(name), Path::to_owned);
    place(&component, &file)?;
    Ok(Built { file, remarks })
}

/// Imports the plugin, then keeps the collector from looking at what was imported: it would touch
/// every page of the picture.
fn entry_module(plugin: &Plugin) -> String {
    format!(
        "import gc\n\nimport {module}  # noqa: F401\nfrom fulgurite.{world} import {class}  # \
         noqa: F401\n\ngc.collect()\ngc.freeze()\n",
        module = plugin.module,
        world = plugin.kind.world(),
        class = plugin.kind.class(),
    )
}

/// The folder of the builder; installs it when it is missing.
fn builder(tools: &Path, remarks: &mut Vec<String>) -> Result<PathBuf> {
    let folder = tools.join(BUILDER);
    if folder.join("componentize_py/__init__.py").is_file() {
        return Ok(folder);
    }
    fs::create_dir_all(tools).with_context(|| format!("cannot create {}", tools.display()))?;
    let scratch = tempfile::tempdir_in(tools)
        .with_context(|| format!("cannot write into {}", tools.display()))?;
    let requirement = scratch.path().join("requirement.txt");
    fs::write(&requirement, REQUIREMENT)?;
    let target = scratch.path().join("packages");
    pip(
        Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(["--no-deps", "--only-binary=:all:", "--require-hashes", "--target"])
            .arg(&target)
            .arg("--requirement")
            .arg(&requirement),
        "componentize-py, which makes components of Python plugins,",
    )?;
    // Somebody else may have been as fast; then theirs is as good.
    if let Err(cause) = fs::rename(&target, &folder)
        && !folder.is_dir()
    {
        return Err(cause).with_context(|| format!("cannot write {}", folder.display()));
    }
    remarks.push(format!("installed {BUILDER} with pip into {}", folder.display()));
    Ok(folder)
}

/// The folder of the plugin's dependencies, where it has any: pure Python only, since a component
/// has no extension modules.
fn dependencies(
    folder: &Path,
    wanted: &[String],
    remarks: &mut Vec<String>,
) -> Result<Option<PathBuf>> {
    if wanted.is_empty() {
        return Ok(None);
    }
    let stamp = folder.join("installed.txt");
    let list = wanted.join("\n");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == list) {
        return Ok(Some(folder.to_owned()));
    }
    lay_down(folder, &[("README", "Dependencies, installed by `fulgurite build`.\n")])?;
    pip(
        Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(["--no-compile", "--only-binary=:all:", "--platform", "any"])
            .args(["--implementation", "py", "--abi", "none", "--python-version", GUEST_PYTHON])
            .arg("--target")
            .arg(folder)
            .arg("--")
            .args(wanted),
        "a dependency of the plugin (only pure Python wheels can be used in a component)",
    )?;
    fs::write(&stamp, list).with_context(|| format!("cannot write {}", stamp.display()))?;
    remarks.push(format!("installed {} with pip into {}", wanted.join(", "), folder.display()));
    Ok(Some(folder.to_owned()))
}

fn pip(command: &mut Command, what: &str) -> Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .context("cannot start python3; install Python 3.9 or newer with pip")?;
    if !output.status.success() {
        bail!(
            "{what} cannot be installed\n  caused by: {}\n  mend: make `python3 -m pip download` \
             work (pip, proxy, mirror, network)",
            last_line(&output.stderr)
        );
    }
    Ok(())
}

/// Standard output belongs to the result of `fulgurite build`; a traceback goes to standard error.
fn run(command: &mut Command, what: &str) -> Result<()> {
    let status = command.stdout(Stdio::null()).status().context("cannot start python3")?;
    if !status.success() {
        bail!("componentize-py could not {what}; its messages stand above");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_names_kind_and_module() {
        let text = "[project]\nname = \"a\"\n[tool.other]\nx = 1\n[tool.fulgurite]\n\
                    kind = \"reward\"\nmodule = \"a.b\"\n";
        let manifest: Manifest = toml::from_str(text).unwrap();
        let plugin = manifest.plugin(Path::new("pyproject.toml")).unwrap();
        assert_eq!((plugin.kind.world(), plugin.module.as_str()), ("reward", "a.b"));
        let without: Manifest = toml::from_str("[project]\nname = \"a\"\n").unwrap();
        let error = without.plugin(Path::new("pyproject.toml")).unwrap_err().to_string();
        assert!(error.contains("[tool.fulgurite]"), "{error}");
    }

    #[test]
    fn modules_are_names_and_nothing_else() {
        for good in ["agent", "a.b_c", "_x1"] {
            assert!(is_module(good), "{good}");
        }
        for bad in ["", "a;b", "a b", "1a", "a.", ".a", "a\nimport os", ENTRY, "wit_world"] {
            assert!(!is_module(bad), "{bad}");
        }
    }
}
