//! From a WASI 0.1 command module (`wasm32-wasip1`) to a component.
//!
//! A module of WASI 0.1 would need a host of its own, with a file system of its own. Wrapped with
//! the preview 1 adapter of the wasmtime version in use, it becomes a component that exports
//! `wasi:cli/run` and imports WASI 0.2, so that it sees the same tree, clock and random numbers as
//! every other guest.

use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
};
use wit_component::ComponentEncoder;

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

/// Whether `bytes` start like a core module (and not like a component).
pub fn is_module(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\0asm\x01\0\0\0")
}

/// Wraps a command module. The same module always gives the same component.
pub fn componentize(module: &[u8]) -> Result<Vec<u8>, ComponentizeError> {
    let encode = || {
        ComponentEncoder::default()
            .validate(true)
            .module(module)?
            .adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER)?
            .encode()
    };
    encode().map_err(|error| ComponentizeError { reason: format!("{error:#}") })
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
}
