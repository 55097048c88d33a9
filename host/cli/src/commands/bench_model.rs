//! The models that `fulgurite bench policy` and `fulgurite bench train` measure.

use std::{num::NonZeroUsize, sync::Arc};

use anyhow::{Context as _, Result};
use fulgurite_model::{Architecture, Model, ModelConfig, Rope};
use fulgurite_policy::{LocalModel, TemplateFormat, Tokenizer, Weights, open_model};

use crate::exit;

/// Lets the kernels use so many threads; before anything is computed.
pub(crate) fn threads(asked: Option<NonZeroUsize>) -> Result<()> {
    let Some(count) = asked else { return Ok(()) };
    rayon::ThreadPoolBuilder::new()
        .num_threads(count.get())
        .build_global()
        .context("the threads of the kernels cannot be started")
}

/// A shape with random weights, or what a specification names; with weights that can be trained.
pub(crate) fn open(asked: &str) -> Result<LocalModel> {
    if let Some(config) = shape(asked) {
        let tokenizer = Arc::new(Tokenizer::byte_level());
        let format = TemplateFormat::new(tokenizer.clone(), None)?;
        return Ok(LocalModel {
            name: asked.to_owned(),
            model: Model::random(&config, 1)?,
            tokenizer,
            format: Arc::new(format),
            version: 0,
        });
    }
    // As training holds them.
    let model = open_model(&asked.parse()?, Weights::Plain, None)?;
    model.with_context(|| {
        exit::Usage(format!(
            "`{asked}` is no model of this machine\n  mend: pass gguf:, folder:, hf: or tiny:, or \
             one of the shapes tiny, 27m and 135m"
        ))
    })
}

/// The shapes that `--model` knows by name. `bench/pytorch.py` builds the same.
fn shape(name: &str) -> Option<ModelConfig> {
    let (vocabulary, hidden, feed_forward, layers, heads, key_value_heads) = match name {
        "tiny" => (260, 128, 384, 4, 4, 2),
        "27m" => (8192, 512, 1408, 8, 8, 4),
        "135m" => (49_152, 576, 1536, 30, 9, 3),
        _ => return None,
    };
    Some(ModelConfig {
        architecture: Architecture::Llama,
        vocabulary,
        hidden,
        feed_forward,
        layers,
        heads,
        key_value_heads,
        head: hidden / heads,
        epsilon: 1e-5,
        rope: Rope { base: 10_000.0, scaling: None, interleaved: false },
        context: 8192,
        tied: true,
    })
}
