//! Finding a Rust toolchain that compiles for `wasm32-wasip2`, or making one.
//!
//! First choice is the target of the user's own toolchain, which rustup downloads. Where it
//! cannot (offline machines, mirrors), Debian's packages hold what is needed: a compiler with
//! the matching source of the standard library and a WASI libc; the component linker comes with
//! every rustup toolchain.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail};

use super::{last_line, rust::TARGET};

const PACKAGES: [&str; 3] = ["rustc-web", "rust-web-src", "wasi-libc"];
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_LIBC: &str = "/usr/lib/wasm32-wasi";

/// How to call cargo so that it compiles guests.
#[derive(Debug)]
pub(super) struct Toolchain {
    environment: Vec<(&'static str, OsString)>,
    arguments: Vec<&'static str>,
    /// What was done, for people.
    pub(super) remarks: Vec<String>,
}

impl Toolchain {
    /// Makes `cargo` use this toolchain.
    pub(super) fn apply(&self, cargo: &mut Command) {
        // A build started from within `cargo run` must not inherit that build's settings.
        for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WRAPPER"] {
            cargo.env_remove(name);
        }
        cargo.envs(self.environment.iter().map(|(name, value)| (name, value)));
        cargo.args(&self.arguments);
    }
}

/// What there is already.
pub(super) fn available() -> Result<&'static str> {
    if has_target(&sysroot()?) {
        Ok("the Rust target wasm32-wasip2")
    } else if debian_is_installed() {
        Ok("Debian's packages")
    } else {
        bail!("the Rust target {TARGET} is missing")
    }
}

/// The toolchain to use; installs what is missing and says so.
pub(super) fn find_or_install() -> Result<Toolchain> {
    let sysroot = sysroot()?;
    if has_target(&sysroot) {
        return Ok(own(vec![]));
    }
    let asked =
        Command::new("rustup").args(["target", "add", TARGET]).stdin(Stdio::null()).output();
    if has_target(&sysroot) {
        return Ok(own(vec![format!("installed the target {TARGET} with rustup")]));
    }
    let refusal = match asked {
        Ok(output) => last_line(&output.stderr),
        Err(error) => format!("rustup cannot be started: {error}"),
    };
    debian(&sysroot).with_context(|| {
        format!(
            "the Rust target {TARGET} is missing and `rustup target add {TARGET}` failed: {refusal}"
        )
    })
}

fn own(remarks: Vec<String>) -> Toolchain {
    Toolchain { environment: vec![], arguments: vec![], remarks }
}

fn debian(sysroot: &Path) -> Result<Toolchain> {
    let mut remarks = Vec::new();
    if !debian_is_installed() {
        install()?;
        remarks.push(format!("installed the Debian packages {}", PACKAGES.join(", ")));
    }
    let tools = sysroot.join("lib/rustlib").join(host_triple()?).join("bin");
    let linker = tools.join("wasm-component-ld");
    if !linker.is_file() {
        bail!("{} is missing; it comes with Rust 1.82 and newer from rustup", linker.display());
    }
    let mut folders = vec![tools.join("gcc-ld"), tools];
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    remarks.push(format!(
        "the target {TARGET} cannot be downloaded: compiling with Debian's {DEBIAN_RUSTC} and its \
         own build of the standard library"
    ));
    Ok(Toolchain {
        environment: vec![
            ("RUSTC", DEBIAN_RUSTC.into()),
            ("RUSTC_BOOTSTRAP", "1".into()),
            ("RUSTFLAGS", format!("-L native={DEBIAN_LIBC}").into()),
            ("PATH", std::env::join_paths(folders)?),
        ],
        arguments: vec!["-Zbuild-std=std,panic_abort"],
        remarks,
    })
}

fn debian_is_installed() -> bool {
    Path::new(DEBIAN_LIBC).is_dir()
        && Command::new(DEBIAN_RUSTC)
            .args(["--print", "sysroot"])
            .output()
            .ok()
            .filter(|output| output.status.success())
            .is_some_and(|output| {
                let root = String::from_utf8_lossy(&output.stdout).trim().to_owned();
                Path::new(&root).join("lib/rustlib/src/rust/library/std/Cargo.toml").is_file()
            })
}

fn install() -> Result<()> {
    let by_hand = format!(
        "mend: install them by hand: apt-get install --no-install-recommends {}",
        PACKAGES.join(" ")
    );
    let root = nix::unistd::Uid::effective().is_root();
    if !root || !Path::new("/usr/bin/apt-get").is_file() {
        bail!("the Debian packages {} are missing too\n  {by_hand}", PACKAGES.join(", "));
    }
    let apt = |arguments: &[&str]| {
        Command::new("apt-get")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .output()
            .context("cannot start apt-get")
    };
    apt(&["update", "--quiet"])?;
    let mut arguments = vec!["install", "--quiet", "--yes", "--no-install-recommends"];
    arguments.extend(PACKAGES);
    let installed = apt(&arguments)?;
    if !installed.status.success() {
        bail!("apt-get refused: {}\n  {by_hand}", last_line(&installed.stderr));
    }
    if !debian_is_installed() {
        bail!("the packages were installed, but hold no source of the standard library");
    }
    Ok(())
}

fn has_target(sysroot: &Path) -> bool {
    std::fs::read_dir(sysroot.join("lib/rustlib").join(TARGET).join("lib")).is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("libstd-"))
    })
}

fn sysroot() -> Result<PathBuf> {
    print("sysroot").map(PathBuf::from)
}

fn host_triple() -> Result<String> {
    print("host-tuple")
}

fn print(what: &str) -> Result<String> {
    let output = Command::new("rustc")
        .args(["--print", what])
        .output()
        .context("cannot start rustc; install Rust with rustup")?;
    if !output.status.success() {
        bail!("`rustc --print {what}` failed: {}", last_line(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
