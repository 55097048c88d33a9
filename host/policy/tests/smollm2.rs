//! The real SmolLM2-135M-Instruct, against what other programs make of the same file
//! (`golden/make_smollm2.py`).
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test may panic, in its helpers too"
)]

use std::{
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
};

use fulgurite_model::{Batch, KvSlots, Model};
use fulgurite_policy::{
    CallKey, ChatFormat, EngineOptions, LocalModel, LocalPolicy, Policy, Prompt, ReplyRequest,
    Sampling, TemplateFormat, Tokenizer, Weights,
};
use fulgurite_trace::{FinishReason, Message, Role};

/// The file that `cargo xtask setup` fetches.
fn file() -> PathBuf {
    let folder = std::env::var_os("FULGURITE_ARTIFACTS").map_or_else(
        || {
            let cache = std::env::var_os("XDG_CACHE_HOME")
                .map(PathBuf::from)
                .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
            cache.unwrap_or_default().join("fulgurite/artifacts")
        },
        PathBuf::from,
    );
    let file = folder.join("SmolLM2-135M-Instruct.Q4_1.gguf");
    assert!(file.exists(), "{} is missing; run `cargo xtask setup`", file.display());
    file
}

#[derive(serde::Deserialize)]
struct Golden {
    texts: Vec<Text>,
    conversations: Vec<Conversation>,
    logits: Vec<Row>,
}

#[derive(serde::Deserialize)]
struct Text {
    text: String,
    ids: Vec<u32>,
}

#[derive(serde::Deserialize)]
struct Conversation {
    messages: Vec<Plain>,
    ids: Vec<u32>,
}

#[derive(serde::Deserialize)]
struct Plain {
    role: Role,
    content: String,
}

#[derive(serde::Deserialize)]
struct Row {
    position: usize,
    ids: Vec<usize>,
    logits: Vec<f32>,
}

static GOLDEN: LazyLock<Golden> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/smollm2.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
});
static TOKENIZER: LazyLock<Arc<Tokenizer>> =
    LazyLock::new(|| Arc::new(Tokenizer::open(&file()).unwrap()));

fn all_logits(model: &Model, ids: &[u32], part: usize) -> Vec<Vec<f32>> {
    let mut slots = KvSlots::new(model.config(), 1, 512).unwrap();
    let mut rows = Vec::new();
    for part in ids.chunks(part) {
        let hidden = model.forward(&Batch::following(&slots, 0, part), &mut slots).unwrap();
        let logits = model.logits(&hidden).unwrap();
        rows.extend(logits.to_vec2::<f32>().unwrap());
    }
    rows
}

#[test]
fn texts_have_the_ids_of_an_independent_tokenizer() {
    for Text { text, ids } in &GOLDEN.texts {
        assert_eq!(&TOKENIZER.encode(text), ids, "{text:?}");
        assert_eq!(&TOKENIZER.decode(ids), text);
        assert!(ids.iter().all(|id| !TOKENIZER.is_special(*id)));
    }
    assert_eq!(TOKENIZER.len(), 49_152);
    // A million blanks: absurd, but text all the same.
    let blanks = " ".repeat(1_000_000);
    assert_eq!(TOKENIZER.decode(&TOKENIZER.encode(&blanks)), blanks);
}

#[test]
fn conversations_have_the_ids_of_the_reference() {
    let template = template();
    let format = TemplateFormat::new(TOKENIZER.clone(), Some(&template)).unwrap();
    assert!(!format.native_tools());
    for Conversation { messages, ids } in &GOLDEN.conversations {
        let messages: Vec<Message> =
            messages.iter().map(|plain| Message::text(plain.role, &*plain.content)).collect();
        assert_eq!(&format.render(&messages, &[]).unwrap(), ids);
    }
}

/// The template of the file, as `make_smollm2.py` found it.
fn template() -> String {
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
     {{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging \
     Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + \
     message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}\
     {{ '<|im_start|>assistant\n' }}{% endif %}"
        .to_owned()
}

#[test]
fn plain_weights_give_the_logits_of_transformers() {
    let model = Model::open_gguf(&file(), Weights::Plain).unwrap();
    let rows = all_logits(&model, &GOLDEN.conversations[0].ids, 64);
    for Row { position, ids, logits } in &GOLDEN.logits {
        for (id, logit) in ids.iter().zip(logits) {
            let difference = (rows[*position][*id] - logit).abs();
            // Logits are around 20 here, so this is 1e-5 relative.
            assert!(difference < 5e-4, "{position} {id}: {difference}");
        }
    }
}

#[test]
fn stored_weights_come_near_and_do_not_depend_on_the_cut() {
    let model = Model::open_gguf(&file(), Weights::Stored).unwrap();
    let ids = &GOLDEN.conversations[0].ids;
    let rows = all_logits(&model, ids, 64);
    for Row { position, ids, logits } in &GOLDEN.logits {
        let differences: Vec<f32> =
            ids.iter().zip(logits).map(|(id, logit)| rows[*position][*id] - logit).collect();
        // What all logits are shifted by changes no probability.
        let shift = differences.iter().sum::<f32>() / differences.len() as f32;
        for difference in &differences {
            assert!((difference - shift).abs() < 1.0, "{position}: {differences:?}");
        }
        assert!(shift.abs() < 2.0, "{position}: {differences:?}");
    }
    for part in [1, 7] {
        let cut = all_logits(&model, &ids[..12], part);
        assert!(cut == rows[..12], "cut into parts of {part}: not bit by bit the same");
    }
}

#[tokio::test]
async fn it_replies_and_goes_on_with_the_conversation() {
    let model = LocalModel::gguf(&file(), Weights::default()).unwrap();
    let policy = LocalPolicy::new(model, EngineOptions::default()).unwrap();
    assert!(policy.info().name.starts_with("gguf:SmolLM2-135M-Instruct.Q4_1@b179c9523d0e"));
    assert_eq!(policy.info().context_length, Some(8192));
    let format = policy.chat_format().unwrap();
    let ask = |prompt: Vec<u32>, maximum| ReplyRequest {
        key: CallKey {
            task: "t".to_owned(),
            harness: "h".to_owned(),
            agent: String::new(),
            tool_format: "text",
            conversation: 0,
            turn: 0,
        },
        prompt: Prompt::Tokens(prompt.into()),
        tools: Arc::from([]),
        sampling: Sampling { max_tokens: maximum, temperature: 0.0, ..Default::default() },
    };
    let question = Message::text(Role::User, "Write a function that adds two numbers.");
    let prompt = format.render(&[question], &[]).unwrap();
    assert_eq!(prompt, GOLDEN.conversations[0].ids);
    let reply = policy.reply(ask(prompt.clone(), 12), None).await.unwrap();
    let tokens = reply.tokens.unwrap();
    // Rounding activations to 8 bits may turn a close choice, but not to something unlikely.
    let likely = &GOLDEN.logits.last().unwrap().ids;
    assert!(likely.contains(&(tokens.response[0] as usize)), "{:?}", tokens.response);
    assert_eq!(format.parse(&tokens.response), reply.message);
    let mut history = [prompt, tokens.response].concat();
    let next = [Message::text(Role::User, "Thanks. Say bye.")];
    let ended = reply.finish == FinishReason::Stop;
    history.extend(format.render_continuation(&next, &[], ended).unwrap());
    let known = GOLDEN.conversations[0].ids.len() + 12 - 1;
    let reply = policy.reply(ask(history, 2), None).await.unwrap();
    assert_eq!(reply.usage.cached_tokens as usize, known);
}
