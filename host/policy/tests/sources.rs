//! Models from folders and from descriptions, opened as a user names them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic, in its helpers too")]

use std::path::{Path, PathBuf};

use fulgurite_model::{Architecture, Model, ModelConfig, Rope};
use fulgurite_policy::{
    CallKey, OpenContext, Policy, Prompt, ReplyRequest, Sampling, TinyModel, Tokenizer, open,
};
use fulgurite_trace::{Message, Role};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn config(vocabulary: usize) -> ModelConfig {
    ModelConfig {
        architecture: Architecture::Qwen3,
        vocabulary,
        hidden: 32,
        feed_forward: 48,
        layers: 2,
        heads: 4,
        key_value_heads: 2,
        head: 8,
        epsilon: 1e-6,
        rope: Rope { base: 1e4, scaling: None, interleaved: false },
        context: 256,
        tied: true,
    }
}

/// A folder as Hugging Face has them, with random weights.
fn folder(vocabulary: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    Model::random(&config(vocabulary), 7).unwrap().save(folder.path()).unwrap();
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(golden("tokenizers/qwen").join(name), folder.path().join(name)).unwrap();
    }
    std::fs::copy(golden("chat/qwen3.jinja"), folder.path().join("chat_template.jinja")).unwrap();
    folder
}

fn opened(spec: &str) -> Result<std::sync::Arc<dyn Policy>, String> {
    open(&spec.parse().unwrap(), OpenContext::default()).map_err(|error| error.to_string())
}

async fn asked(policy: &dyn Policy) -> Vec<u32> {
    let format = policy.chat_format().unwrap();
    let prompt = format.render(&[Message::text(Role::User, "Hi")], &[]).unwrap();
    let key = CallKey {
        task: "t".to_owned(),
        harness: "h".to_owned(),
        agent: String::new(),
        tool_format: "text",
        conversation: 0,
        turn: 0,
    };
    let sampling = Sampling { max_tokens: 6, temperature: 0.0, ..Sampling::default() };
    let prompt = Prompt::Tokens(prompt.into());
    let request = ReplyRequest { key, prompt, tools: [].into(), sampling };
    policy.reply(request, None).await.unwrap().tokens.unwrap().response
}

#[tokio::test]
async fn a_folder_is_a_policy_with_its_tokenizer_and_template() {
    let folder = folder(512);
    let spec = format!("folder:{}", folder.path().display());
    let policy = opened(&spec).unwrap();
    let name = policy.info().name.clone();
    assert!(name.starts_with("folder:") && name.contains('@'), "{name}");
    assert!(policy.info().native_tools);
    assert_eq!(policy.info().context_length, Some(256));
    let reply = asked(&*policy).await;
    assert!(!reply.is_empty());
    let again = opened(&spec).unwrap();
    assert_eq!(again.info().name, name, "the name tells the files");
    assert_eq!(asked(&*again).await, reply);
}

#[test]
fn what_does_not_fit_is_named_with_its_file() {
    let small = folder(300);
    let error = opened(&format!("folder:{}", small.path().display())).err().unwrap();
    assert!(error.contains("tokenizer.json") && error.contains("do not belong"), "{error}");
    for (file, part) in [
        ("config.json", "config.json"),
        ("tokenizer.json", "is missing"),
        ("model.safetensors", "model.safetensors"),
    ] {
        let folder = folder(512);
        std::fs::remove_file(folder.path().join(file)).unwrap();
        let error = opened(&format!("folder:{}", folder.path().display())).err().unwrap();
        assert!(error.contains(part) && error.contains(file), "{error}");
    }
    let folder = folder(512);
    let path = folder.path().join("config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("qwen3", "bloom").replace("Qwen3", "Bloom")).unwrap();
    let error = opened(&format!("folder:{}", folder.path().display())).err().unwrap();
    assert!(error.contains("config.json") && error.contains("loom"), "{error}");
}

#[tokio::test]
async fn a_description_is_a_byte_level_policy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.toml");
    let text = "hidden = 32\nlayers = 2\nheads = 4\nkey_value_heads = 2\nseed = 3\n";
    std::fs::write(&path, text).unwrap();
    let spec = format!("tiny:{}", path.display());
    let policy = opened(&spec).unwrap();
    assert_eq!(policy.info().name, "tiny:tiny@seed 3");
    let reply = asked(&*policy).await;
    assert!(reply.iter().all(|id| (*id as usize) < Tokenizer::BYTE_LEVEL_TOKENS));
    assert_eq!(asked(&*opened(&spec).unwrap()).await, reply, "one seed, one model");
    // The same weights, saved and named.
    let tiny = TinyModel::open(&path).unwrap();
    let weights = folder.path().join("weights");
    std::fs::create_dir(&weights).unwrap();
    Model::random(&tiny.config(), 3).unwrap().save(&weights).unwrap();
    std::fs::write(&path, format!("{text}weights = \"weights\"")).unwrap();
    assert_eq!(asked(&*opened(&spec).unwrap()).await, reply);
    std::fs::write(&path, format!("{}weights = \"weights\"", text.replace("32", "64"))).unwrap();
    let error = opened(&spec).err().unwrap();
    assert!(error.contains("tiny.toml") && error.contains("another shape"), "{error}");
}
