//! Descriptions of tiny models: byte-level, small enough to train from scratch.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::{ModelError, Tokenizer};

/// The largest description.
const MAXIMUM_FILE: usize = 64 << 10;

/// A tiny model, as `tiny:CONFIG.toml` describes it. The vocabulary is not asked for: it is that
/// of [`Tokenizer::byte_level`].
///
/// ```toml
/// hidden = 128
/// layers = 4
/// heads = 4
/// key_value_heads = 2    # as heads, unless given
/// feed_forward = 384     # 3 × hidden, unless given
/// context = 1024
/// architecture = "llama" # or "qwen3"
/// rope_base = 10000.0
/// seed = 0               # of the random weights, or:
/// # weights = "folder"   # with model.safetensors, relative to this file
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TinyModel {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Query heads; divide `hidden` into even parts.
    pub heads: usize,
    /// Key and value heads; divide `heads`.
    pub key_value_heads: Option<usize>,
    /// Width of the feed-forward layers.
    pub feed_forward: Option<usize>,
    /// Tokens of history and reply together.
    #[serde(default = "usual_context")]
    pub context: usize,
    /// How a layer is built.
    #[serde(default)]
    pub architecture: TinyArchitecture,
    /// Base of the rotary frequencies.
    #[serde(default = "usual_rope_base")]
    pub rope_base: f32,
    /// Seed of the random weights.
    #[serde(default)]
    pub seed: u64,
    /// A folder with weights, instead of random ones.
    pub weights: Option<PathBuf>,
}

/// How a tiny model's layers are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TinyArchitecture {
    /// As Llama's.
    #[default]
    Llama,
    /// As Qwen3's: queries and keys are normed.
    Qwen3,
}

const fn usual_context() -> usize {
    1024
}

const fn usual_rope_base() -> f32 {
    10_000.0
}

impl TinyModel {
    /// Reads a description. The folder of the weights is relative to it.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        let fail = |reason: String| ModelError { path: path.to_owned(), reason };
        let text = std::fs::read(path).map_err(|error| fail(format!("cannot be read: {error}")))?;
        if text.len() > MAXIMUM_FILE {
            return Err(fail(format!("is longer than {} KiB", MAXIMUM_FILE >> 10)));
        }
        let mut tiny: Self = toml::from_slice(&text).map_err(|error| {
            fail(format!("describes no tiny model: {}", error.to_string().trim()))
        })?;
        if let Some(reason) = tiny.problem() {
            return Err(fail(reason));
        }
        if let (Some(weights), Some(folder)) = (&mut tiny.weights, path.parent()) {
            *weights = folder.join(&weights);
        }
        Ok(tiny)
    }

    /// Query heads that share a key.
    pub fn key_value_heads(&self) -> usize {
        self.key_value_heads.unwrap_or(self.heads)
    }

    /// Width of the feed-forward layers.
    pub fn feed_forward(&self) -> usize {
        self.feed_forward.unwrap_or(3 * self.hidden)
    }

    /// Numbers that the weights have, the embedding counted once.
    pub fn parameters(&self) -> usize {
        let (hidden, head) = (self.hidden, self.hidden / self.heads);
        let attention = 2 * hidden * hidden + 2 * hidden * self.key_value_heads() * head;
        let layer = attention + 3 * hidden * self.feed_forward() + 2 * hidden;
        Tokenizer::BYTE_LEVEL_TOKENS * hidden + self.layers * layer + hidden
    }

    /// What keeps this from being a tiny model, if anything.
    fn problem(&self) -> Option<String> {
        let sizes = [
            ("hidden", self.hidden, 1 << 12),
            ("layers", self.layers, 1 << 8),
            ("heads", self.heads, 1 << 8),
            ("key_value_heads", self.key_value_heads(), 1 << 8),
            ("feed_forward", self.feed_forward(), 1 << 14),
            ("context", self.context, 1 << 20),
        ];
        if let Some((name, size, most)) =
            sizes.into_iter().find(|(_, size, most)| !(1..=*most).contains(size))
        {
            return Some(format!("`{name}` is {size}, not between 1 and {most}"));
        }
        if !self.hidden.is_multiple_of(2 * self.heads) {
            return Some(format!(
                "`hidden` is {}, which {} heads do not divide into even parts",
                self.hidden, self.heads
            ));
        }
        if !self.heads.is_multiple_of(self.key_value_heads()) {
            return Some(format!(
                "{} `heads` cannot share {} `key_value_heads`",
                self.heads,
                self.key_value_heads()
            ));
        }
        if !(self.rope_base >= 1.0 && self.rope_base.is_finite()) {
            return Some(format!("`rope_base` is {}", self.rope_base));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TinyModel, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.toml");
        std::fs::write(&path, text).unwrap();
        TinyModel::open(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn a_description_is_read_with_what_is_usual() {
        let tiny = read("hidden = 128\nlayers = 4\nheads = 4").unwrap();
        assert_eq!((tiny.key_value_heads(), tiny.feed_forward(), tiny.context), (4, 384, 1024));
        assert_eq!((tiny.architecture, tiny.seed), (TinyArchitecture::Llama, 0));
        assert_eq!(tiny.parameters(), 266 * 128 + 4 * (65_536 + 147_456 + 256) + 128);
        let text = "hidden = 64\nlayers = 1\nheads = 4\nkey_value_heads = 2\nfeed_forward = 96\n\
                    context = 512\narchitecture = \"qwen3\"\nrope_base = 1e5\nweights = \"w\"";
        let tiny = read(text).unwrap();
        assert_eq!(tiny.architecture, TinyArchitecture::Qwen3);
        assert!(tiny.weights.unwrap().is_absolute(), "beside the description");
    }

    #[test]
    fn impossible_shapes_are_refused_by_name() {
        let usual = "hidden = 128\nlayers = 4\nheads = 4\n";
        for (text, part) in [
            (usual.replace("128", "0"), "`hidden` is 0"),
            (usual.replace("128", "99999"), "`hidden` is 99999"),
            (usual.replace("128", "36"), "even parts"),
            (usual.replace("layers = 4\n", ""), "layers"),
            (format!("{usual}key_value_heads = 3"), "`key_value_heads`"),
            (format!("{usual}rope_base = nan"), "`rope_base`"),
            (format!("{usual}depth = 3"), "depth"),
            (format!("{usual}architecture = \"gpt\""), "gpt"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(part) && error.contains("tiny.toml"), "{error}");
        }
        assert!(TinyModel::open(Path::new("/nowhere.toml")).is_err());
    }
}
