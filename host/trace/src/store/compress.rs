//! Compression of text and output where it pays.
//!
//! Below [`WORTHWHILE`] bytes it costs more time than the disk does. The form is the length
//! (little-endian `u32`) followed by a zstd frame, so that reading allocates once and a forged
//! frame cannot grow beyond what was announced.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};

/// Shorter inputs are kept as they are.
const WORTHWHILE: usize = 1024;
/// Longer inputs are kept as they are, and longer announcements are refused.
const LARGEST: usize = 256 << 20;
const LEVEL: i32 = 1;

thread_local! {
    // A context is half a megabyte: one a thread, not one an entry.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = RefCell::new(Compressor::new(LEVEL).ok());
}

/// The compressed form, or none when `bytes` are better kept as they are.
pub(crate) fn deflate(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() < WORTHWHILE || bytes.len() > LARGEST {
        return None;
    }
    let length = u32::try_from(bytes.len()).ok()?;
    let frame = COMPRESSOR.with_borrow_mut(|context| context.as_mut()?.compress(bytes).ok())?;
    let smaller = frame.len() + 4 <= bytes.len() - bytes.len() / 8;
    smaller.then(|| {
        let mut form = Vec::with_capacity(frame.len() + 4);
        form.extend(length.to_le_bytes());
        form.extend(frame);
        form
    })
}

/// What [`deflate`] was given.
pub(crate) fn inflate(form: &[u8]) -> Result<Vec<u8>, String> {
    let (length, frame) =
        form.split_first_chunk::<4>().ok_or_else(|| "compressed data breaks off".to_owned())?;
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length > LARGEST {
        return Err(format!("compressed data announces {length} bytes"));
    }
    let bytes = Decompressor::new()
        .and_then(|mut context| context.decompress(frame, length))
        .map_err(|error| format!("compressed data is damaged: {error}"))?;
    if bytes.len() == length {
        Ok(bytes)
    } else {
        Err(format!("compressed data holds {} bytes instead of {length}", bytes.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_comes_back_and_is_smaller() {
        let text = "the same line again and again\n".repeat(200).into_bytes();
        let form = deflate(&text).expect("repetitive text is worth compressing");
        assert!(form.len() < text.len() / 10);
        assert_eq!(inflate(&form), Ok(text));
    }

    #[test]
    fn short_and_random_input_is_left_alone() {
        assert_eq!(deflate(&[b'a'; WORTHWHILE - 1]), None);
        let mut state = 1_u64;
        let random: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(10_000)
        .collect();
        assert_eq!(deflate(&random), None);
    }

    #[test]
    fn forged_lengths_are_refused() {
        let mut form = deflate(&[0; 100_000]).expect("zeros compress");
        form[..4].copy_from_slice(&10_u32.to_le_bytes());
        assert!(inflate(&form).is_err());
        form[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(inflate(&form).is_err());
        assert!(inflate(&[1, 2]).is_err());
    }
}
