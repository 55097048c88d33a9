//! Checkpoints in Hugging Face's layout: `config.json` and safetensors, in one file or several.

use std::{
    collections::{BTreeMap, HashSet},
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors, tensor::Metadata};

use super::{Builder, Loaded, Source};
use crate::{Model, ModelConfig, ModelError};

/// The largest header of a file; some hundred tensors take some ten KiB.
const MAXIMUM_HEADER: u64 = 32 << 20;
/// The most files of a checkpoint.
const MAXIMUM_SHARDS: usize = 1000;

impl Model {
    /// Loads the checkpoint in a folder: `config.json` and `model.safetensors`, or
    /// `model.safetensors.index.json` and the files it names. Weights of 16 bits become f32.
    pub fn open_folder(folder: &Path) -> Result<Self, ModelError> {
        let config = ModelConfig::open(&folder.join("config.json"))?;
        let mut source = Checkpoint::open(folder)?;
        let model = Builder::build(&config, &mut source, config.rope.frequencies(config.head))?;
        source.nothing_left(&config)?;
        Ok(model)
    }
}

/// The tensors of one or several safetensors files.
pub(crate) struct Checkpoint {
    /// What errors name.
    path: PathBuf,
    files: Vec<TensorFile>,
    /// In which file each tensor is.
    places: BTreeMap<String, usize>,
    used: HashSet<String>,
}

impl Checkpoint {
    /// Opens the checkpoint in a folder.
    pub(crate) fn open(folder: &Path) -> Result<Self, ModelError> {
        let single = folder.join("model.safetensors");
        let index = folder.join("model.safetensors.index.json");
        if index.is_file() && !single.is_file() {
            return Self::open_sharded(folder, &index);
        }
        Self::open_file(&single)
    }

    /// Opens one file.
    pub(crate) fn open_file(path: &Path) -> Result<Self, ModelError> {
        let file = TensorFile::open(path)?;
        let places = file.names().map(|name| (name, 0)).collect();
        Ok(Self { path: path.to_owned(), files: vec![file], places, used: HashSet::new() })
    }

    fn open_sharded(folder: &Path, index: &Path) -> Result<Self, ModelError> {
        let fail = |reason: String| ModelError { path: index.to_owned(), reason };
        let mut text = Vec::new();
        File::open(index)
            .and_then(|file| file.take(MAXIMUM_HEADER).read_to_end(&mut text))
            .map_err(|error| fail(error.to_string()))?;
        let value: serde_json::Value =
            serde_json::from_slice(&text).map_err(|error| fail(error.to_string()))?;
        let map = value
            .get("weight_map")
            .and_then(serde_json::Value::as_object)
            .ok_or_else(|| fail("it has no `weight_map`".to_owned()))?;
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut files, mut places) = (Vec::new(), BTreeMap::new());
        for (name, file) in map {
            let file = file.as_str().unwrap_or_default();
            // Names of files next to the index; nothing that leads elsewhere.
            let plain = Path::new(file).file_name().is_some_and(|name| name == file);
            if !plain || !file.ends_with(".safetensors") || numbers.len() > MAXIMUM_SHARDS {
                return Err(fail(format!(
                    "the tensor `{}` is said to be in {file:?}, which is no safetensors file \
                     beside the index",
                    name.escape_debug()
                )));
            }
            let number = match numbers.get(file) {
                Some(number) => *number,
                None => {
                    files.push(TensorFile::open(&folder.join(file))?);
                    numbers.insert(file, files.len() - 1);
                    files.len() - 1
                }
            };
            places.insert(name.clone(), number);
        }
        Ok(Self { path: index.to_owned(), files, places, used: HashSet::new() })
    }

    /// The numbers of a tensor of this name and shape.
    pub(crate) fn numbers(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        let Some(number) = self.places.get(name) else {
            return Err(self.error(format!("the tensor `{name}` is missing")));
        };
        self.used.insert(name.to_owned());
        match self.files.get_mut(*number) {
            Some(file) => file.numbers(name, shape),
            None => Err(self.error(format!("the tensor `{name}` is missing"))),
        }
    }

    /// A tensor that is not used would be a part of the model that is missing.
    pub(crate) fn nothing_left(&self, config: &ModelConfig) -> Result<(), ModelError> {
        let known = |name: &str| {
            self.used.contains(name)
                // A tied head is a copy of the embeddings, and frequencies are computed.
                || (config.tied && name == "lm_head.weight")
                || name.ends_with("rotary_emb.inv_freq")
        };
        match self.places.keys().find(|name| !known(name)) {
            None => Ok(()),
            Some(name) => Err(self.error(format!(
                "the tensor `{}` is no part of the architecture as it is known here",
                name.escape_debug()
            ))),
        }
    }
}

impl Source for Checkpoint {
    fn matrix(&mut self, name: &str, outputs: usize, inputs: usize) -> Result<Loaded, ModelError> {
        self.numbers(name, &[outputs, inputs]).map(Loaded::Plain)
    }

    fn vector(&mut self, name: &str, length: usize) -> Result<Vec<f32>, ModelError> {
        self.numbers(name, &[length])
    }

    fn error(&self, reason: String) -> ModelError {
        ModelError { path: self.path.clone(), reason }
    }
}

/// A safetensors file, its header checked against its length.
struct TensorFile {
    path: PathBuf,
    file: File,
    metadata: Metadata,
    /// Where the numbers begin.
    start: u64,
}

impl TensorFile {
    fn open(path: &Path) -> Result<Self, ModelError> {
        let fail = |reason: String| ModelError { path: path.to_owned(), reason };
        let mut file =
            File::open(path).map_err(|error| fail(format!("cannot be opened: {error}")))?;
        let length = file.metadata().map_err(|error| fail(error.to_string()))?.len();
        let mut size = [0u8; 8];
        file.read_exact(&mut size).map_err(|error| fail(format!("cannot be read: {error}")))?;
        let header = u64::from_le_bytes(size);
        if header > MAXIMUM_HEADER || header + 8 > length {
            return Err(fail(format!(
                "is no safetensors file that can be used: it says that its header has {header} \
                 bytes"
            )));
        }
        let mut buffer = size.to_vec();
        Read::by_ref(&mut file)
            .take(header)
            .read_to_end(&mut buffer)
            .map_err(|error| fail(format!("cannot be read: {error}")))?;
        let (_, metadata) = SafeTensors::read_metadata(&buffer)
            .map_err(|error| fail(format!("is no safetensors file that can be used: {error}")))?;
        let start = header + 8;
        if start + metadata.data_len() as u64 > length {
            return Err(fail(format!(
                "it has {length} bytes, fewer than its tensors need; is the download complete?"
            )));
        }
        Ok(Self { path: path.to_owned(), file, metadata, start })
    }

    fn names(&self) -> impl Iterator<Item = String> {
        self.metadata.tensors().into_keys()
    }

    fn numbers(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, ModelError> {
        let fail = |reason: String| ModelError { path: self.path.clone(), reason };
        let Some(info) = self.metadata.info(name) else {
            return Err(fail(format!("the tensor `{name}` is missing")));
        };
        if info.shape != shape {
            return Err(fail(format!(
                "the tensor `{name}` has the shape {:?}, not {shape:?}",
                info.shape
            )));
        }
        let (from, to) = info.data_offsets;
        let mut bytes = vec![0; to.saturating_sub(from)];
        self.file
            .seek(SeekFrom::Start(self.start + from as u64))
            .and_then(|_| self.file.read_exact(&mut bytes))
            .map_err(|error| fail(format!("the tensor `{name}` cannot be read: {error}")))?;
        let (pairs, _) = bytes.as_chunks::<2>();
        let numbers: Vec<f32> = match info.dtype {
            Dtype::F32 => {
                bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
            }
            Dtype::BF16 => pairs.iter().map(|pair| bf16::from_le_bytes(*pair).to_f32()).collect(),
            Dtype::F16 => pairs.iter().map(|pair| f16::from_le_bytes(*pair).to_f32()).collect(),
            other => {
                return Err(fail(format!(
                    "the tensor `{name}` holds {other:?}; known are F32, F16 and BF16"
                )));
            }
        };
        if numbers.len() != shape.iter().product::<usize>() {
            return Err(fail(format!(
                "the tensor `{name}` has {} numbers, which is not its shape {shape:?}",
                numbers.len()
            )));
        }
        Ok(numbers)
    }
}
