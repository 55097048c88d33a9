//! From files to a model with its tokenizer and chat template.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use fulgurite_model::{Architecture, Model, ModelConfig, NumberType, Placement, Rope};
use fulgurite_trace::Digest;
use sha2::{Digest as _, Sha256};

use crate::{
    HubModel, HubOptions, LocalModel, ModelError, ModelFolder, OpenError, TemplateFormat,
    TinyArchitecture, TinyModel, Tokenizer,
};

impl LocalModel {
    /// The model in a folder with Hugging Face files: `config.json`, `tokenizer.json` and
    /// safetensors. Takes seconds for large ones.
    pub fn folder(folder: &Path) -> Result<Self, ModelError> {
        Self::of_folder(&format!("folder:{}", stem(folder)), folder)
    }

    /// A model of the Hugging Face hub, fetched where it is not there yet.
    /// [`OpenError::Hub`] or [`OpenError::Model`] where it cannot be had.
    pub fn hub(model: &HubModel, options: &HubOptions) -> Result<Self, OpenError> {
        let folder = model.fetch(options)?;
        Ok(Self::of_folder(&format!("hf:{model}"), &folder)?)
    }

    /// Gives the model the adapter in a folder of PEFT's layout, and its name a mark of that.
    pub fn add_adapter(&mut self, folder: &Path) -> Result<(), ModelError> {
        self.model.load_peft(folder)?;
        self.name = format!("{}+{}", self.name, adapter_digest(folder)?.short());
        Ok(())
    }

    /// Brings the model to where it shall be computed; an adapter is merged before.
    pub fn place(&mut self, placement: Placement, numbers: NumberType) -> Result<(), OpenError> {
        let device = |error: fulgurite_model::Error| OpenError::Device(error.to_string());
        if placement != Placement::Cpu && self.model.lora().is_some() {
            self.model.merge_lora().map_err(device)?;
        }
        self.model.place(placement, numbers).map_err(device)
    }

    /// With the switch for thinking that some chat templates have; as the template has it where
    /// there is none.
    #[must_use]
    pub fn with_thinking(mut self, thinking: Option<bool>) -> Self {
        // Whoever shares the format already has seen it as it is.
        if let Some(format) = Arc::get_mut(&mut self.format) {
            format.set_thinking(thinking);
        }
        self
    }

    fn of_folder(name: &str, folder: &Path) -> Result<Self, ModelError> {
        let at = |file: &str, reason: String| ModelError { path: folder.join(file), reason };
        // What is quickly read comes first, and so do its errors.
        let config = ModelConfig::open(&folder.join("config.json"))?;
        let ModelFolder { mut tokenizer, template } = ModelFolder::open(folder)?;
        tokenizer.fit(config.vocabulary).map_err(|reason| at("tokenizer.json", reason))?;
        let format = TemplateFormat::new(Arc::new(tokenizer), template.as_deref())
            .map_err(|error| at("", format!("its chat template cannot be used: {}", error.0)))?;
        let model = Model::open_folder(folder)?;
        let digest = digest(folder)?;
        Ok(Self {
            name: format!("{name}@{}", digest.short()),
            model,
            tokenizer: format.tokenizer().clone(),
            format: Arc::new(format),
            version: 0,
        })
    }

    /// The byte-level model that a file describes, with random weights or those it names.
    pub fn tiny(path: &Path) -> Result<Self, ModelError> {
        let fail = |reason: String| ModelError { path: path.to_owned(), reason };
        let tiny = TinyModel::open(path)?;
        let config = tiny.config();
        let format = TemplateFormat::byte_level().map_err(|error| fail(error.0))?;
        let (model, name) = match &tiny.weights {
            None => (Model::random(&config, tiny.seed)?, format!("seed {}", tiny.seed)),
            Some(folder) => {
                let model = Model::open_folder(folder)?;
                if *model.config() != config {
                    return Err(fail(format!(
                        "describes another shape than {} has; name weights that were made from \
                         this description",
                        folder.join("config.json").display()
                    )));
                }
                (model, digest(folder)?.short())
            }
        };
        Ok(Self {
            name: format!("tiny:{}@{name}", stem(path)),
            model,
            tokenizer: format.tokenizer().clone(),
            format: Arc::new(format),
            version: 0,
        })
    }
}

impl TinyModel {
    /// The shape, as models have it.
    pub fn config(&self) -> ModelConfig {
        ModelConfig {
            architecture: match self.architecture {
                TinyArchitecture::Llama => Architecture::Llama,
                TinyArchitecture::Qwen3 => Architecture::Qwen3,
            },
            vocabulary: Tokenizer::BYTE_LEVEL_TOKENS,
            hidden: self.hidden,
            feed_forward: self.feed_forward(),
            layers: self.layers,
            heads: self.heads,
            key_value_heads: self.key_value_heads(),
            head: self.hidden / self.heads,
            epsilon: 1e-5,
            rope: Rope { base: self.rope_base, scaling: None, interleaved: false },
            context: self.context,
            tied: true,
        }
    }
}

/// A file's or folder's name, for people.
fn stem(path: &Path) -> String {
    let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
    let name = name.unwrap_or_default().to_string_lossy();
    name.chars().filter(|c| !c.is_control()).take(100).collect()
}

/// The digest of the files that make a model, names and contents.
fn digest(folder: &Path) -> Result<Digest, ModelError> {
    digest_of(folder, |name| {
        name.ends_with(".safetensors") || name == "config.json" || name == "tokenizer.json"
    })
}

fn adapter_digest(folder: &Path) -> Result<Digest, ModelError> {
    digest_of(folder, |name| name.starts_with("adapter_"))
}

fn digest_of(folder: &Path, counts: impl Fn(&str) -> bool) -> Result<Digest, ModelError> {
    let fail = |path: &Path, error: std::io::Error| ModelError {
        path: path.to_owned(),
        reason: format!("cannot be read: {error}"),
    };
    let entries = std::fs::read_dir(folder).map_err(|error| fail(folder, error))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| counts(path.file_name().and_then(|name| name.to_str()).unwrap_or_default()))
        .collect();
    files.sort_unstable();
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut file = File::open(&path).map_err(|error| fail(&path, error))?;
        let length = file.metadata().map_err(|error| fail(&path, error))?.len();
        hash.update(format!("{name}\0{length}\0"));
        loop {
            let length = file.read(&mut buffer).map_err(|error| fail(&path, error))?;
            if length == 0 {
                break;
            }
            hash.update(buffer.get(..length).unwrap_or_default());
        }
    }
    Ok(Digest::from_bytes(hash.finalize().into()))
}
