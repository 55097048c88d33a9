//! From a WASI 0.1 command module (`wasm32-wasip1`) to a component.
//!
//! A module of WASI 0.1 would need a host of its own, with a file system of its own. Wrapped with
//! the preview 1 adapter of the wasmtime version in use, it becomes a component that exports
//! `wasi:cli/run` and imports WASI 0.2, so that it sees the same tree, clock and random numbers as
//! every other guest.
//!
//! Two things are changed on the way. The adapter knows only success and failure, which would
//! turn every exit status into 0 or 1; the module's `proc_exit` therefore goes straight to
//! `wasi:cli/exit.exit-with-code`, which takes the same single number. And debug information is
//! left out: nobody reads it, and it is half of a large interpreter.

use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
};
use wasm_encoder::{
    ImportSection, Module, RawSection,
    reencode::{Reencode, RoundtripReencoder},
};
use wasmparser::{Encoding, Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// A module cannot be made a component.
#[derive(Debug, thiserror::Error)]
#[error(
    "the module cannot be made a component: {reason}; it has to be a command for wasm32-wasip1, \
     with `_start` and no imports but `wasi_snapshot_preview1`"
)]
pub struct ComponentizeError {
    /// What the encoder said.
    pub reason: String,
}

impl ComponentizeError {
    fn new(reason: impl std::fmt::Display) -> Self {
        Self { reason: format!("{reason:#}") }
    }
}

/// Whether `bytes` start like a core module (and not like a component).
pub fn is_module(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\0asm\x01\0\0\0")
}

/// Wraps a command module. The same module always gives the same component.
pub fn componentize(module: &[u8]) -> Result<Vec<u8>, ComponentizeError> {
    let module = redirect_exit(module)?;
    let encode = || {
        ComponentEncoder::default()
            .validate(true)
            .module(&module)?
            .adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER)?
            .encode()
    };
    encode().map_err(ComponentizeError::new)
}

/// What a module must say to import `exit-with-code`: the interface exactly as the adapter has it.
const EXIT_WORLD: &str = "
package fulgurite:lane;

world exits {
    import wasi:cli/exit@0.2.12;
}

package wasi:cli@0.2.12 {
    @since(version = 0.2.0)
    interface exit {
        @since(version = 0.2.0)
        exit: func(status: result);
        @since(version = 0.2.12)
        exit-with-code: func(status-code: u8);
    }
}
";

/// The module without debug information and with `proc_exit` led past the adapter.
fn redirect_exit(module: &[u8]) -> Result<Vec<u8>, ComponentizeError> {
    let mut output = Module::new();
    let mut exits = false;
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload.map_err(ComponentizeError::new)?;
        match &payload {
            Payload::Version { encoding: Encoding::Component, .. } => {
                return Err(ComponentizeError::new("it is a component already"));
            }
            Payload::CustomSection(section) if section.name().starts_with(".debug_") => {}
            Payload::ImportSection(section) => {
                let mut imports = ImportSection::new();
                for import in section.clone().into_imports() {
                    let mut import = import.map_err(ComponentizeError::new)?;
                    let from = (import.module, import.name);
                    if from == (WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, "proc_exit") {
                        import.module = "wasi:cli/exit@0.2.12";
                        import.name = "exit-with-code";
                        exits = true;
                    }
                    RoundtripReencoder
                        .parse_import(&mut imports, import)
                        .map_err(ComponentizeError::new)?;
                }
                output.section(&imports);
            }
            _ => {
                let section = payload.as_section();
                if let Some((id, data)) =
                    section.and_then(|(id, range)| Some((id, module.get(range)?)))
                {
                    output.section(&RawSection { id, data });
                }
            }
        }
    }
    let mut output = output.finish();
    if exits {
        let mut resolve = Resolve::default();
        let mut embed = || {
            let package = resolve.push_str("exit.wit", EXIT_WORLD)?;
            let world = resolve.select_world(&[package], Some("exits"))?;
            embed_component_metadata(&mut output, &resolve, world, StringEncoding::UTF8)
        };
        embed().map_err(ComponentizeError::new)?;
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rubbish_is_refused_with_a_reason() {
        for bytes in [&b""[..], b"\0asm", b"\0asm\x01\0\0\0\xff\xff", b"hello"] {
            let error = componentize(bytes).unwrap_err();
            assert!(error.to_string().contains("wasm32-wasip1"), "{error}");
        }
        assert!(!is_module(b"\0asm\x0d\0\x01\0"));
    }

    #[test]
    fn component_is_not_wrapped_again() {
        let module = wat::parse_str(MODULE).unwrap();
        let component = componentize(&module).unwrap();
        assert!(!is_module(&component));
        let error = componentize(&component).unwrap_err();
        assert!(error.to_string().contains("already"), "{error}");
    }

    #[test]
    fn foreign_imports_are_refused() {
        let module =
            wat::parse_str(r#"(module (import "env" "f" (func)) (func (export "_start")))"#);
        let error = componentize(&module.unwrap()).unwrap_err();
        assert!(error.to_string().contains("env"), "{error}");
    }

    #[test]
    fn result_is_the_same_each_time_and_small() {
        let mut module = wat::parse_str(MODULE).unwrap();
        let once = componentize(&module).unwrap();
        assert_eq!(once, componentize(&module).unwrap());
        // A custom section of 1000 bytes of debug information changes nothing.
        module.extend_from_slice(&[0, 0xf4, 7, 11]);
        module.extend_from_slice(b".debug_info");
        module.extend_from_slice(&[0; 1000]);
        assert_eq!(once, componentize(&module).unwrap());
    }

    const MODULE: &str = r#"(module
        (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
        (memory (export "memory") 1)
        (func (export "_start") (call $exit (i32.const 7))))"#;
}
