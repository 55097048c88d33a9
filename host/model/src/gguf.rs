//! Reading GGUF files that nobody vouches for.
//!
//! The parser is candle's; around it stand the bounds that it lacks: the header is read from a
//! buffer of limited size (so that no array in it can grow beyond that), the alignment is
//! checked before the parser divides by it, and every tensor's shape and place are checked
//! against the file before a byte is allocated for it.

use std::{
    fs::File,
    io::{Cursor, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use candle_core::{
    Device,
    quantized::{GgmlDType, QTensor, gguf_file},
};
use sha2::{Digest, Sha256};

/// The largest header: metadata, vocabulary and merges, and the list of tensors. Vocabularies of
/// 256,000 tokens take about 10 MiB.
const MAXIMUM_HEADER: u64 = 32 << 20;
/// The most tensors of a file.
const MAXIMUM_TENSORS: usize = 20_000;
/// The largest alignment.
const MAXIMUM_ALIGNMENT: u64 = 1 << 20;
const ALIGNMENT_KEY: &[u8] = b"general.alignment";

/// A model file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the model {}: {reason}", path.display())]
pub struct ModelError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// An open GGUF file.
#[derive(Debug)]
pub struct GgufFile {
    path: PathBuf,
    file: File,
    length: u64,
    content: gguf_file::Content,
}

impl GgufFile {
    /// Opens a file and reads its header.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let fail = |reason: String| ModelError { path: path.to_owned(), reason };
        let mut file =
            File::open(path).map_err(|error| fail(format!("cannot be opened: {error}")))?;
        let metadata = file.metadata().map_err(|error| fail(error.to_string()))?;
        if !metadata.is_file() {
            return Err(fail("is no file".to_owned()));
        }
        let mut header = Vec::new();
        Read::by_ref(&mut file)
            .take(MAXIMUM_HEADER)
            .read_to_end(&mut header)
            .map_err(|error| fail(format!("cannot be read: {error}")))?;
        let content = read_header(&header).map_err(|reason| {
            let cut = metadata.len() > MAXIMUM_HEADER;
            let hint = if cut { " (only the first 32 MiB may be header)" } else { "" };
            fail(format!("is no GGUF file that can be used: {reason}{hint}"))
        })?;
        Ok(Self { path: path.to_owned(), file, length: metadata.len(), content })
    }

    /// An error about this file.
    pub fn error(&self, reason: impl Into<String>) -> ModelError {
        ModelError { path: self.path.clone(), reason: reason.into() }
    }

    /// SHA-256 of the whole file.
    pub fn digest(&mut self) -> Result<[u8; 32], ModelError> {
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        let mut read = |file: &mut File| {
            file.seek(SeekFrom::Start(0))?;
            loop {
                let length = file.read(&mut buffer)?;
                if length == 0 {
                    return Ok(());
                }
                hash.update(buffer.get(..length).unwrap_or_default());
            }
        };
        read(&mut self.file).map_err(|error: std::io::Error| self.error(error.to_string()))?;
        Ok(hash.finalize().into())
    }

    /// The names of all tensors.
    pub fn tensor_names(&self) -> impl Iterator<Item = &str> {
        self.content.tensor_infos.keys().map(String::as_str)
    }

    /// Whether there is a tensor of this name.
    pub fn has_tensor(&self, name: &str) -> bool {
        self.content.tensor_infos.contains_key(name)
    }

    /// The tensor of this name, which must have this shape (rows first).
    pub fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<QTensor, ModelError> {
        let Some(info) = self.content.tensor_infos.get(name) else {
            return Err(self.error(format!("the tensor `{name}` is missing")));
        };
        if info.shape.dims() != shape {
            return Err(self.error(format!(
                "the tensor `{name}` has the shape {:?}, not {shape:?}",
                info.shape.dims()
            )));
        }
        let kind = info.ggml_dtype;
        if matches!(kind, GgmlDType::Q8_1 | GgmlDType::Q8K) {
            return Err(self.error(format!(
                "the tensor `{name}` is stored as {kind:?}, which is \
                                           not supported; quantise the model as Q8_0 or Q4_0"
            )));
        }
        let rows = shape.split_last().map_or(1, |(_, rows)| rows.iter().product::<usize>());
        let columns = shape.last().copied().unwrap_or(0);
        if columns == 0 || rows == 0 || !columns.is_multiple_of(kind.block_size()) {
            return Err(self.error(format!(
                "the rows of the tensor `{name}` ({columns} numbers) are no multiple of the \
                 blocks of {} numbers that {kind:?} has",
                kind.block_size()
            )));
        }
        let bytes = (columns / kind.block_size())
            .checked_mul(kind.type_size())
            .and_then(|row| row.checked_mul(rows))
            .and_then(|bytes| u64::try_from(bytes).ok());
        let start = self.content.tensor_data_offset.checked_add(info.offset);
        let end = bytes.zip(start).and_then(|(bytes, start)| start.checked_add(bytes));
        if end.is_none_or(|end| end > self.length) {
            return Err(self.error(format!(
                "the tensor `{name}` reaches beyond the end of the file; is the download \
                 complete?"
            )));
        }
        self.content
            .tensor(&mut self.file, name, &Device::Cpu)
            .map_err(|error| self.error(format!("the tensor `{name}` cannot be read: {error}")))
    }

    fn value(&self, key: &str) -> Option<&gguf_file::Value> {
        self.content.metadata.get(key)
    }

    /// A text.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.value(key) {
            Some(gguf_file::Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// A whole number that is not negative, of any width.
    pub fn number(&self, key: &str) -> Option<u64> {
        match *self.value(key)? {
            gguf_file::Value::I8(value) => u64::try_from(value).ok(),
            gguf_file::Value::I16(value) => u64::try_from(value).ok(),
            gguf_file::Value::I32(value) => u64::try_from(value).ok(),
            gguf_file::Value::I64(value) => u64::try_from(value).ok(),
            ref value => value.to_u64().ok(),
        }
    }

    /// A number with a fraction.
    pub fn fraction(&self, key: &str) -> Option<f64> {
        match *self.value(key)? {
            gguf_file::Value::F32(value) => Some(f64::from(value)),
            gguf_file::Value::F64(value) => Some(value),
            _ => None,
        }
    }

    /// A switch.
    pub fn switch(&self, key: &str) -> Option<bool> {
        self.value(key)?.to_bool().ok()
    }

    /// A list of texts.
    pub fn texts(&self, key: &str) -> Option<Vec<&str>> {
        self.value(key)?
            .to_vec()
            .ok()?
            .iter()
            .map(|value| match value {
                gguf_file::Value::String(text) => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    /// A list of whole numbers.
    pub fn numbers(&self, key: &str) -> Option<Vec<i64>> {
        self.value(key)?
            .to_vec()
            .ok()?
            .iter()
            .map(|value| match *value {
                gguf_file::Value::I32(value) => Some(i64::from(value)),
                gguf_file::Value::U32(value) => Some(i64::from(value)),
                gguf_file::Value::I64(value) => Some(value),
                _ => None,
            })
            .collect()
    }
}

/// The parser with its bounds.
fn read_header(header: &[u8]) -> Result<gguf_file::Content, String> {
    // Big-endian files would be read with swapped counts and fail with a riddle.
    if !header.starts_with(b"GGUF") {
        return Err("it does not begin with `GGUF`".to_owned());
    }
    check_alignment(header)?;
    let content = gguf_file::Content::read(&mut Cursor::new(header))
        .map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())?;
    if content.tensor_infos.len() > MAXIMUM_TENSORS {
        return Err(format!("it holds more than {MAXIMUM_TENSORS} tensors"));
    }
    Ok(content)
}

/// The parser divides by the alignment and multiplies with it, whatever it is. So every place
/// that looks like the entry must hold a sane value; that some text elsewhere looks like it by
/// chance and is refused is no loss.
fn check_alignment(header: &[u8]) -> Result<(), String> {
    let places = header
        .windows(ALIGNMENT_KEY.len())
        .enumerate()
        .filter(|(_, window)| *window == ALIGNMENT_KEY)
        .map(|(place, _)| place + ALIGNMENT_KEY.len());
    for place in places {
        let Some(&[kind, 0, 0, 0, b0, b1, b2, b3]) =
            header.get(place..).and_then(|rest| rest.first_chunk::<8>())
        else {
            return Err("the alignment has no sensible type".to_owned());
        };
        let alignment = match kind {
            0 | 1 => u64::from(b0),
            2 | 3 => u64::from(u16::from_le_bytes([b0, b1])),
            4 | 5 => u64::from(u32::from_le_bytes([b0, b1, b2, b3])),
            // The parser ignores every other type.
            _ => gguf_file::DEFAULT_ALIGNMENT,
        };
        if !alignment.is_power_of_two() || alignment > MAXIMUM_ALIGNMENT {
            return Err(format!("the alignment is {alignment}, no small power of two"));
        }
    }
    Ok(())
}
