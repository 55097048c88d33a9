//! Every function of WASI 0.2 is linked with its right type, and the lists for the audit are true.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests may fail loudly"
)]

mod support;

use std::collections::BTreeSet;

use fulgurite_runtime::{
    program::{Program, ProgramRequest},
    wasi,
};
use support::python::engine;
use wasi_preview1_component_adapter_provider::WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER;
use wasmtime::component::{
    Component,
    types::{ComponentInstance, ComponentItem},
};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::{
    TypeDefKind, WorldItem,
    abi::{AbiVariant, WasmSignature, WasmType},
};

/// A component that imports all of `wasi:cli/command`, as the adapter of wasmtime describes it,
/// and exports `run`.
fn everything() -> Vec<u8> {
    let (_, bindgen) =
        wit_component::metadata::decode(WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER).unwrap();
    let (resolve, adapter) = (bindgen.resolve, bindgen.world);
    let mut imports = String::new();
    for (key, item) in &resolve.worlds[adapter].imports {
        let WorldItem::Interface { id, .. } = item else { continue };
        let interface = resolve.name_world_key(key);
        let mut import = |name: &str, signature: &str| {
            imports.push_str(&format!("(import \"{interface}\" \"{name}\" (func {signature}))"));
        };
        for (name, function) in &resolve.interfaces[*id].functions {
            let signature = resolve.wasm_signature(AbiVariant::GuestImport, function);
            import(name, &core_signature(&signature));
        }
        for (name, id) in &resolve.interfaces[*id].types {
            if matches!(resolve.types[*id].kind, TypeDefKind::Resource) {
                import(&format!("[resource-drop]{name}"), "(param i32)");
            }
        }
    }
    let text = format!(
        "(module {imports} (memory (export \"memory\") 1)
            (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32) unreachable)
            (func (export \"wasi:cli/run@{}#run\") (result i32) (i32.const 0)))",
        wasi::VERSION
    );
    let mut module = wat::parse_str(text).unwrap();
    embed_component_metadata(&mut module, &resolve, adapter, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().module(&module).unwrap().validate(true).encode().unwrap()
}

fn core_signature(signature: &WasmSignature) -> String {
    let types = |types: &[WasmType]| -> String {
        let name = |kind: &WasmType| match kind {
            WasmType::I64 | WasmType::PointerOrI64 => " i64",
            WasmType::F32 => " f32",
            WasmType::F64 => " f64",
            WasmType::I32 | WasmType::Pointer | WasmType::Length => " i32",
        };
        types.iter().map(name).collect()
    };
    format!("(param{}) (result{})", types(&signature.params), types(&signature.results))
}

fn functions(instance: &ComponentInstance, engine: &wasmtime::Engine) -> usize {
    instance
        .exports(engine)
        .filter(|(_, item)| matches!(item.ty, ComponentItem::ComponentFunc(_)))
        .count()
}

#[test]
fn all_of_wasi_links() {
    let engine = engine();
    let component = Component::new(&engine, everything()).unwrap();
    let mut interfaces = BTreeSet::new();
    let mut count = 0;
    for (name, item) in component.component_type().imports(&engine) {
        let ComponentItem::ComponentInstance(instance) = &item.ty else { panic!("{name}") };
        count += functions(instance, &engine);
        interfaces.insert(name.split('@').next().unwrap().to_owned());
    }
    // Guards against a component that imports next to nothing.
    assert!(count > 120, "{count}");
    Program::new(&engine, &component).unwrap();

    let promised: BTreeSet<String> =
        wasi::GRANTED.iter().chain(wasi::STUBBED).map(|name| (*name).to_owned()).collect();
    assert_eq!(interfaces, promised);
}

#[tokio::test]
async fn sockets_are_denied_and_counted() {
    let engine = engine();
    let component = Component::new(&engine, wat::parse_str(SOCKETS).unwrap()).unwrap();
    let program = Program::new(&engine, &component).unwrap();
    let end = program.run(ProgramRequest::new(["sockets"])).await.unwrap();
    // The guest exits with the error code it was answered: 1 is `access-denied`.
    assert_eq!((end.status, end.stop), (1, None), "{:?}", end.message);
    assert_eq!(end.denied, [("wasi:sockets/tcp-create-socket.create-tcp-socket", 2)]);
}

/// Asks twice for a socket and exits with the error code of the second answer. Built for an older
/// version of WASI than is linked.
const SOCKETS: &str = r#"
(component
  (import "wasi:sockets/network@0.2.0" (instance $network
    (type $code (enum "unknown" "access-denied" "not-supported" "invalid-argument" "out-of-memory"
      "timeout" "concurrency-conflict" "not-in-progress" "would-block" "invalid-state"
      "new-socket-limit" "address-not-bindable" "address-in-use" "remote-unreachable"
      "connection-refused" "connection-reset" "connection-aborted" "datagram-too-large"
      "name-unresolvable" "temporary-resolver-failure" "permanent-resolver-failure"))
    (export "error-code" (type (eq $code)))
    (type $family (enum "ipv4" "ipv6"))
    (export "ip-address-family" (type (eq $family)))))
  (alias export $network "error-code" (type $code))
  (alias export $network "ip-address-family" (type $family))
  (import "wasi:sockets/tcp@0.2.0" (instance $tcp
    (export "tcp-socket" (type (sub resource)))))
  (alias export $tcp "tcp-socket" (type $socket))
  (import "wasi:sockets/tcp-create-socket@0.2.0" (instance $create
    (export "code" (type $c (eq $code)))
    (alias outer 1 $family (type $family-here))
    (export "ip-address-family" (type $f (eq $family-here)))
    (alias outer 1 $socket (type $socket-here))
    (export "tcp-socket" (type $s (eq $socket-here)))
    (export "create-tcp-socket" (func (param "address-family" $f)
      (result (result (own $s) (error $c)))))))
  (import "wasi:cli/exit@0.2.0" (instance $exit
    (export "exit-with-code" (func (param "status-code" u8)))))
  (core module $memory (memory (export "memory") 1))
  (core instance $memory (instantiate $memory))
  (alias core export $memory "memory" (core memory $shared))
  (core func $create (canon lower (func $create "create-tcp-socket") (memory $shared)))
  (core func $exit (canon lower (func $exit "exit-with-code")))
  (core module $main
    (import "host" "memory" (memory 1))
    (import "host" "create" (func $create (param i32 i32)))
    (import "host" "exit" (func $exit (param i32)))
    (func (export "run") (result i32)
      (call $create (i32.const 0) (i32.const 0))
      (call $create (i32.const 1) (i32.const 0))
      (if (i32.ne (i32.load8_u (i32.const 0)) (i32.const 1)) (then unreachable))
      (call $exit (i32.load8_u (i32.const 4)))
      (i32.const 0)))
  (core instance $main (instantiate $main (with "host" (instance
    (export "memory" (memory $shared))
    (export "create" (func $create))
    (export "exit" (func $exit))))))
  (func $run (result (result)) (canon lift (core func $main "run")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $command)))
"#;
