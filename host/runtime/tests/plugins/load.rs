//! From bytes to something that runs: audit, compiling child, cache.

use std::{num::NonZeroUsize, os::unix::fs::MetadataExt as _, path::Path, time::Duration};

use fulgurite_runtime::{
    LoadError, Runtime, Settings,
    audit::AuditError,
    compile::{CompileError, CompileLimits, Compiler},
    limits::Role,
};
use fulgurite_trace::FailureKind;

use crate::{
    guests::{ASK, LLM, asking, doing, harness, harness_describing, reward},
    hosts::Fixture,
};

/// This test program as the child.
fn child(limits: CompileLimits) -> Compiler {
    Compiler::Child {
        program: std::env::current_exe().unwrap(),
        arguments: ["compiling_child", "--exact", "--ignored", "--nocapture"]
            .map(Into::into)
            .to_vec(),
        limits,
    }
}

fn runtime(cache: &Path, compiler: Compiler) -> Runtime {
    let mut settings = Settings::new(cache, compiler);
    settings.plugins = 4.try_into().unwrap();
    settings.programs = 4.try_into().unwrap();
    settings.threads = NonZeroUsize::MIN;
    Runtime::new(settings).unwrap()
}

#[tokio::test]
async fn a_child_compiles_once_and_the_cache_serves_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("code");
    let first = runtime(&cache, child(CompileLimits::default()));
    let harness = first.harness(asking()).await.unwrap();
    assert_eq!(harness.describe().await.unwrap().name, "guest");
    let files: Vec<_> = std::fs::read_dir(&cache).unwrap().map(Result::unwrap).collect();
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].metadata().unwrap().mode() & 0o777, 0o600);
    assert!(first.time_cached_load(harness.inspection()).is_some());

    // A compiler that cannot work shows that nothing is compiled.
    let broken =
        Compiler::Child { program: "/".into(), arguments: Vec::new(), limits: Default::default() };
    let second = runtime(&cache, broken.clone());
    second.harness(asking()).await.unwrap();
    let error = second.harness(doing("unreachable")).await.unwrap_err();
    assert!(matches!(error, LoadError::Compile(CompileError::Child(_))), "{error}");

    // Damage is noticed, and mended where there is a compiler.
    std::fs::write(files[0].path(), b"\x7fELF and no more").unwrap();
    let third = runtime(&cache, broken);
    assert!(third.harness(asking()).await.is_err());
    let fourth = runtime(&cache, child(CompileLimits::default()));
    fourth.harness(asking()).await.unwrap();
}

#[tokio::test]
async fn what_the_child_cannot_take_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let limits = CompileLimits::default();
    let compile = async |limits: CompileLimits, bytes| {
        let error = runtime(&folder.path().join("code"), child(limits)).harness(bytes).await;
        match error.unwrap_err() {
            LoadError::Compile(error) => error,
            other => panic!("{other}"),
        }
    };
    // Valid to look at, but with a function body that is none.
    let mut invalid = doing("(i32.const 0x12345678)").to_vec();
    let place = invalid.windows(5).position(|bytes| bytes == [0xf8, 0xac, 0xd1, 0x91, 0x01]);
    invalid[place.unwrap() - 1] = 0xff;
    let error = compile(limits, invalid.into()).await;
    assert!(matches!(error, CompileError::Invalid(_)), "{error}");
    assert!(!error.to_string().contains("/"), "{error}");

    let wall = Duration::from_millis(1);
    let error = compile(CompileLimits { wall, ..limits }, asking()).await;
    assert_eq!(error, CompileError::Time(wall));

    let error = compile(CompileLimits { output_bytes: 100, ..limits }, asking()).await;
    assert_eq!(error, CompileError::Output(100));

    let memory_bytes = 400 << 20;
    let error = compile(CompileLimits { memory_bytes, ..limits }, bomb()).await;
    assert_eq!(error, CompileError::Memory(memory_bytes));
}

/// One function with a great many live values, which is hard on a compiler.
fn bomb() -> std::sync::Arc<[u8]> {
    let mut text = String::from("(func $bomb (param i32) (result i32)");
    for _ in 0..150_000 {
        text.push_str("(if (result i32) (local.get 0) (then (i32.const 1)) (else (local.get 0)))");
        text.push_str("(i32.load (local.get 0))");
    }
    for _ in 0..299_999 {
        text.push_str("i32.xor ");
    }
    text.push(')');
    let body = "(func $body (param i32 i32) (result i32) (call $bomb (local.get 0)))";
    harness("", &format!("{text} {body}"))
}

#[tokio::test]
async fn what_is_no_harness_is_refused_before_anything_runs() {
    let fixture = Fixture::new();
    let load = async |bytes: Vec<u8>| match fixture.runtime.harness(bytes).await.unwrap_err() {
        LoadError::Audit(error) => error,
        other => panic!("{other}"),
    };
    assert_eq!(load(b"hello".to_vec()).await, AuditError::NotWasm);
    assert_eq!(load(wat::parse_str("(module)").unwrap()).await, AuditError::CoreModule);
    let body = "(func $body (result i32) (call $total (f64.const 0)))";
    let error = load(reward("", body).to_vec()).await;
    assert!(matches!(error, AuditError::WrongRole { role: Role::Harness, .. }), "{error}");
    let network = r#"(component
        (import "wasi:http/outgoing-handler@0.2.0" (instance))
        (instance $agent) (export "fulgurite:plugin/agent@0.1.0" (instance $agent)))"#;
    let error = load(wat::parse_str(network).unwrap()).await;
    assert!(matches!(error, AuditError::Refused(_)), "{error}");
}

#[tokio::test]
async fn right_names_with_wrong_shapes_are_refused() {
    let fixture = Fixture::new();
    let empty = r#"(component
        (instance $agent) (export "fulgurite:plugin/agent@0.1.0" (instance $agent)))"#;
    let error = fixture.runtime.harness(wat::parse_str(empty).unwrap()).await.unwrap_err();
    assert!(matches!(error, LoadError::Shape(_)), "{error}");
    assert!(error.to_string().contains("describe"), "{error}");
    let import = r#"(component
        (import "fulgurite:plugin/exec@0.1.0" (instance (export "reboot" (func))))
        (instance $agent) (export "fulgurite:plugin/agent@0.1.0" (instance $agent)))"#;
    let error = fixture.runtime.harness(wat::parse_str(import).unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("reboot"), "{error}");
}

#[tokio::test]
async fn describing_uses_no_import() {
    let fixture = Fixture::new();
    let body = "(func $body (param i32 i32) (result i32) unreachable)";
    let bytes = harness_describing(LLM, "(call $converse)", &format!("{ASK} {body}"));
    let error = fixture.harness(bytes).await.describe().await.unwrap_err();
    assert_eq!(error.kind, FailureKind::Denied, "{error}");
    let bytes = harness_describing("", "(loop $again (br $again))", body);
    let error = fixture.harness(bytes).await.describe().await.unwrap_err();
    assert_eq!(error.kind, FailureKind::OutOfFuel, "{error}");
}
