//! Plugins in JavaScript: SpiderMonkey and the plugin's module in one component, by
//! componentize-js.
//!
//! The module is evaluated once and the engine's memory kept; an episode starts from that picture.
//! Modules that it imports by a relative path come along; packages have to be bundled before.

use std::{
    fs,
    path::{Component, Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::{Built, embedded, last_line, lay_down, place};

/// What builds components.
const PACKAGE: &str = "@bytecodealliance/componentize-js";
const VERSION: &str = "0.23.0";

/// Calls the builder. Its `fetch` is left out: there is no network in a component.
const START: &str = r"
const [builder, sourcePath, witPath, worldName, output] = process.argv.slice(1);
const { pathToFileURL } = await import('node:url');
const { writeFile } = await import('node:fs/promises');
const { componentize } = await import(pathToFileURL(builder).href);
const disableFeatures = ['http', 'fetch-event'];
const { component } = await componentize({ sourcePath, witPath, worldName, disableFeatures });
await writeFile(output, component);
";

/// `package.json`, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Manifest {
    name: String,
    #[serde(default)]
    main: Option<String>,
    #[serde(default)]
    fulgurite: Option<Plugin>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plugin {
    kind: Kind,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Harness,
    Reward,
}

impl Manifest {
    fn read(file: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        serde_json::from_str(&text)
            .with_context(|| format!("{} is not as it has to be", file.display()))
    }

    /// The world of the contract.
    fn world(&self, file: &Path) -> Result<&'static str> {
        match &self.fulgurite {
            Some(Plugin { kind: Kind::Harness }) => Ok("harness"),
            Some(Plugin { kind: Kind::Reward }) => Ok("reward"),
            None => bail!(
                "{} has no field `fulgurite`\n  mend: add `\"fulgurite\": {{ \"kind\": \
                 \"harness\" }}` or `\"reward\"`",
                file.display()
            ),
        }
    }

    /// What the component is called, without the scope of the package.
    fn file_name(&self) -> Result<String> {
        let name = self.name.rsplit('/').next().unwrap_or_default();
        let mut parts = Path::new(name).components();
        match (parts.next(), parts.next()) {
            (Some(Component::Normal(_)), None) => Ok(format!("{name}.wasm")),
            _ => bail!("`{}` is no name for a package", self.name.escape_debug()),
        }
    }
}

pub(super) fn build(folder: &Path, output: Option<&Path>, tools: &Path) -> Result<Built> {
    let file = folder.join("package.json");
    let manifest = Manifest::read(&file)?;
    let world = manifest.world(&file)?;
    let name = manifest.file_name()?;
    let source = folder.join(manifest.main.as_deref().unwrap_or("index.js"));
    if !source.is_file() {
        bail!(
            "{} is missing\n  mend: name the plugin's module as `main` in package.json",
            source.display()
        );
    }
    let mut remarks = Vec::new();
    let builder = builder(tools, &mut remarks)?;
    let build = folder.join("build");
    let contract = build.join("wit");
    lay_down(&contract, embedded::CONTRACT)?;
    let component = build.join("component.wasm");
    let status = Command::new("node")
        .args(["--input-type=module", "--eval", START, "--"])
        .arg(&builder)
        // The builder takes relative paths for its own.
        .args([source.canonicalize()?, contract.canonicalize()?])
        .arg(world)
        .arg(&component)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("cannot start node; install Node.js 20 or newer")?;
    if !status.success() {
        bail!(
            "componentize-js could not make a component of {}; its messages stand above",
            source.display()
        );
    }
    let file = output.map_or_else(|| folder.join(name), Path::to_owned);
    place(&component, &file)?;
    Ok(Built { file, remarks })
}

/// The builder's module; installs it when it is missing.
fn builder(tools: &Path, remarks: &mut Vec<String>) -> Result<PathBuf> {
    let folder = tools.join(format!("componentize-js-{VERSION}"));
    let module = folder.join("node_modules").join(PACKAGE).join("src/componentize.js");
    if module.is_file() {
        return Ok(module);
    }
    fs::create_dir_all(tools).with_context(|| format!("cannot create {}", tools.display()))?;
    let scratch = tempfile::tempdir_in(tools)
        .with_context(|| format!("cannot write into {}", tools.display()))?;
    let target = scratch.path().join("packages");
    fs::create_dir(&target)?;
    let installed = Command::new("npm")
        .args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"])
        .arg("--prefix")
        .arg(&target)
        .arg(format!("{PACKAGE}@{VERSION}"))
        .stdin(Stdio::null())
        .output()
        .context("cannot start npm; install Node.js 20 or newer with npm")?;
    if !installed.status.success() {
        bail!(
            "componentize-js, which makes components of JavaScript plugins, cannot be installed\n  \
             caused by: {}\n  mend: make `npm install {PACKAGE}@{VERSION}` work (proxy, registry, \
             network)",
            last_line(&installed.stderr)
        );
    }
    // Somebody else may have been as fast; then theirs is as good.
    if let Err(cause) = fs::rename(&target, &folder)
        && !folder.is_dir()
    {
        return Err(cause).with_context(|| format!("cannot write {}", folder.display()));
    }
    remarks.push(format!("installed {PACKAGE} {VERSION} with npm into {}", folder.display()));
    Ok(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_names_kind_and_file() {
        let read = |text: &str| serde_json::from_str::<Manifest>(text).unwrap();
        let file = Path::new("package.json");
        let plugin = read(r#"{"name": "@me/a", "x": 1, "fulgurite": {"kind": "reward"}}"#);
        assert_eq!(plugin.world(file).unwrap(), "reward");
        assert_eq!(plugin.file_name().unwrap(), "a.wasm");
        assert!(read(r#"{"name": "a"}"#).world(file).unwrap_err().to_string().contains("kind"));
        assert!(read(r#"{"name": ".."}"#).file_name().is_err());
    }
}
