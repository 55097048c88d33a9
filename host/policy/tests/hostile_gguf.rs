//! Model files that nobody vouches for: each is an error, none a panic or a giant allocation.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic, in its helpers too"
)]

use std::{io::Write, path::Path};

use fulgurite_policy::{LocalModel, Weights};
use proptest::prelude::*;

fn good() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/golden/tiny-llama.gguf");
    std::fs::read(path).unwrap()
}

fn open(bytes: &[u8]) -> Result<LocalModel, String> {
    let mut file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    file.write_all(bytes).unwrap();
    LocalModel::gguf(file.path(), Weights::default()).map_err(|error| error.to_string())
}

/// The good file with what follows the first occurrence of a text replaced.
fn patched(after: &[u8], skip: usize, with: &[u8]) -> Vec<u8> {
    let mut bytes = good();
    let found = bytes.windows(after.len()).position(|window| window == after).unwrap();
    let start = found + after.len() + skip;
    bytes.splice(start..start + with.len(), with.iter().copied());
    bytes
}

fn error(bytes: &[u8], part: &str) {
    let error = open(bytes).unwrap_err();
    assert!(error.contains(part), "{part}: {error}");
    assert!(error.contains(".gguf"), "the file is named: {error}");
}

#[test]
fn the_good_file_opens() {
    open(&good()).unwrap();
}

#[test]
fn what_is_no_model_is_said_so() {
    error(b"", "GGUF");
    error(b"GGUF", "GGUF");
    error(b"PK\x03\x04 a zip file", "does not begin with `GGUF`");
    let missing = LocalModel::gguf(Path::new("/nonexistent/m.gguf"), Weights::default());
    assert!(missing.unwrap_err().to_string().contains("/nonexistent/m.gguf"));
    assert!(LocalModel::gguf(&std::env::temp_dir(), Weights::default()).is_err());
}

#[test]
fn huge_counts_are_refused() {
    for at in [8, 16] {
        for count in [u64::MAX, 1 << 40, 1 << 29] {
            let mut bytes = good();
            bytes.splice(at..at + 8, count.to_le_bytes());
            open(&bytes).unwrap_err();
        }
    }
    // The list of tokens: its type (array, of strings), then its length.
    for count in [u64::MAX, 1 << 40, 1 << 26] {
        let bytes = patched(b"tokenizer.ggml.tokens", 8, &count.to_le_bytes());
        error(&bytes, "no GGUF file that can be used");
    }
}

#[test]
fn an_alignment_that_would_divide_by_zero_is_refused() {
    for alignment in [0u32, 3, 1 << 31, u32::MAX] {
        // A key of the same length in place of a harmless one.
        let mut entry = b"general.alignment".to_vec();
        entry.extend(4u32.to_le_bytes());
        entry.extend(alignment.to_le_bytes());
        let mut bytes = good();
        let mut header = bytes[..24].to_vec();
        let pairs = u64::from_le_bytes(bytes[16..24].try_into().unwrap()) + 1;
        header[16..24].copy_from_slice(&pairs.to_le_bytes());
        header.extend(17u64.to_le_bytes());
        header.extend(entry);
        bytes.splice(..24, header);
        error(&bytes, "alignment");
    }
}

#[test]
fn tensors_outside_the_file_or_of_other_shapes_are_refused() {
    // A tensor's entry: name, number of dimensions, dimensions, type, offset.
    let name = b"blk.1.attn_q.weight";
    error(&patched(name, 4 + 16 + 4, &u64::MAX.to_le_bytes()), "beyond the end of the file");
    error(&patched(name, 4 + 16 + 4, &(1u64 << 40).to_le_bytes()), "beyond the end of the file");
    error(&patched(name, 4, &64u64.to_le_bytes()), "has the shape");
    error(&patched(name, 4, &u64::MAX.to_le_bytes()), "has the shape");
    error(&patched(name, 4 + 16, &999u32.to_le_bytes()), "no GGUF file that can be used");
    // Q8_K (15) is for activations only; Q4_1 (3) has blocks of 32, which fit.
    error(&patched(name, 4 + 16, &15u32.to_le_bytes()), "not supported");
    error(&patched(b"blk.1.attn_", 0, b"x"), "blk.1.attn_");
    let mut cut = good();
    cut.truncate(cut.len() - 100);
    error(&cut, "is the download complete?");
}

#[test]
fn impossible_models_are_refused() {
    let number = |key: &[u8], value: u32| patched(key, 4, &value.to_le_bytes());
    error(&number(b"llama.block_count", 0), "block_count");
    error(&number(b"llama.block_count", u32::MAX), "block_count");
    error(&number(b"llama.block_count", 3), "`blk.2.attn_norm.weight` is missing");
    error(&number(b"llama.block_count", 1), "no part of the llama architecture");
    error(&number(b"llama.context_length", 0), "context_length");
    error(&number(b"llama.attention.head_count_kv", 3), "cannot share 3 key heads");
    error(&number(b"llama.attention.head_count_kv", 1), "has the shape");
    error(&number(b"llama.embedding_length", 1 << 30), "embedding_length");
    error(&number(b"llama.rope.dimension_count", 4), "rotary");
    let epsilon = patched(b"llama.attention.layer_norm_rms_epsilon", 4, &f32::NAN.to_le_bytes());
    error(&epsilon, "epsilon");
    error(&patched(b"general.architecture", 12, b"bloom"), "known are \"llama\"");
    error(&patched(b"tokenizer.ggml.model", 12, b"bert"), "byte-level BPE");
    error(&patched(b"tokenizer.ggml.pre", 12, b"smallm"), "pre-tokenizer");
    error(&patched(b"tokenizer.ggml.merges", 16 + 8, b"h h"), "does not join two tokens");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn cut_files_are_errors(length in 0usize..77_000) {
        let mut bytes = good();
        bytes.truncate(length);
        prop_assert!(open(&bytes).is_err());
    }

    #[test]
    fn damaged_headers_never_panic(
        damage in proptest::collection::vec((0usize..9_000, any::<u8>()), 1..20)
    ) {
        let mut bytes = good();
        for (place, value) in damage {
            bytes[place] = value;
        }
        let _ = open(&bytes);
    }
}
