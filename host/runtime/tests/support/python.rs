//! CPython for WASI, componentised and compiled once; the compiled form is kept between runs.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use fulgurite_runtime::{
    componentize::componentize,
    program::{Program, ProgramEnd, ProgramRequest},
    wasi::Preopen,
};
use fulgurite_trace::file::FileTree;
use wasmtime::{Config, Engine, component::Component};

use super::tree::MemoryTree;

/// The interpreter, ready to run.
pub(crate) fn python() -> &'static Program {
    static PYTHON: OnceLock<Program> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let engine = engine();
        Program::new(&engine, &component(&engine)).unwrap()
    })
}

pub(crate) fn engine() -> Engine {
    let mut config = Config::new();
    config.consume_fuel(true).cranelift_nan_canonicalization(true);
    Engine::new(&config).unwrap()
}

/// Where tests keep what takes long to make.
pub(crate) fn cache() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache");
    std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("fulgurite")
}

/// The interpreter as it is fetched: a module.
pub(crate) fn module() -> Vec<u8> {
    let artifacts = std::env::var_os("FULGURITE_ARTIFACTS")
        .map_or_else(|| cache().join("artifacts"), PathBuf::from);
    let path = artifacts.join("python-3.12.0.wasm");
    std::fs::read(&path).unwrap_or_else(|error| {
        panic!("{}: {error}; `cargo xtask setup` fetches the interpreter", path.display())
    })
}

fn component(engine: &Engine) -> Component {
    let bytes = componentize(&module()).unwrap();
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    bytes.hash(&mut hasher);
    let folder = cache().join("tests");
    let compiled = folder.join(format!("python-{:016x}.cwasm", hasher.finish()));
    if !compiled.exists() {
        let bytes = engine.precompile_component(&bytes).unwrap();
        std::fs::create_dir_all(&folder).unwrap();
        // Several test processes may do this at once; a rename replaces the file as a whole.
        let partial = folder.join(format!("python-{}.part", std::process::id()));
        std::fs::write(&partial, bytes).unwrap();
        std::fs::rename(&partial, &compiled).unwrap();
    }
    // SAFETY: the file lies in the user's own cache, its name holds the hash of its source and of
    // the compiler's settings, and only the lines above write it.
    unsafe { Component::deserialize_file(engine, &compiled) }.unwrap()
}

/// `python -c CODE`.
pub(crate) fn request(code: &str) -> ProgramRequest {
    ProgramRequest::new(["python", "-c", code])
}

/// Runs `python -c CODE` with `tree` as workspace and as the current folder.
pub(crate) async fn run_in(tree: &Arc<MemoryTree>, code: &str) -> ProgramEnd {
    let mut request = request(code);
    let tree: Arc<dyn FileTree> = Arc::clone(tree) as _;
    request.preopens = vec![Preopen::new("/workspace", Arc::clone(&tree)), Preopen::new("/", tree)];
    python().run(request).await.unwrap()
}

/// Runs `python -c CODE` without anything.
pub(crate) async fn run(code: &str) -> ProgramEnd {
    python().run(request(code)).await.unwrap()
}

/// Standard output of a program that has to succeed.
pub(crate) fn output(end: &ProgramEnd) -> String {
    let stderr = String::from_utf8_lossy(&end.stderr.bytes);
    assert_eq!((end.status, end.stop), (0, None), "{stderr}{:?}", end.message);
    String::from_utf8(end.stdout.bytes.clone()).unwrap()
}
