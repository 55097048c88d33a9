//! Ids compared with those of the library `tokenizers` in Python (`tests/golden/make_tokenizers.py`).

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Deserialize;

use super::{ModelFolder, Tokenizer};
use crate::{ChatFormat, TemplateFormat, chat::golden_tests::Golden};

#[derive(Deserialize)]
struct OfFolder {
    folder: String,
    texts: Vec<Text>,
    conversations: Vec<Conversation>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
    ids: Vec<u32>,
    /// Where the tokenizer normalises.
    decoded: Option<String>,
}

#[derive(Deserialize)]
struct Conversation {
    template: String,
    conversation: String,
    tools: bool,
    ids: Vec<u32>,
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn compare(folders: &Path, goldens: &Path) {
    let goldens: Vec<OfFolder> = serde_json::from_slice(&std::fs::read(goldens).unwrap()).unwrap();
    assert!(!goldens.is_empty());
    let chat = Golden::read(&golden().join("chat.json"));
    for OfFolder { folder, texts, conversations } in goldens {
        let tokenizer = Arc::new(Tokenizer::open(&folders.join(&folder)).unwrap());
        for Text { text, ids, decoded } in texts {
            assert_eq!(tokenizer.encode(&text), ids, "{folder}: {text:?}");
            assert_eq!(tokenizer.decode(&ids), decoded.unwrap_or(text), "{folder}");
        }
        for Conversation { template, conversation, tools, ids } in conversations {
            let source = std::fs::read_to_string(golden().join("chat").join(&template)).unwrap();
            let format = TemplateFormat::new(tokenizer.clone(), Some(&source)).unwrap();
            let (messages, tools) = chat.conversation(&conversation, tools);
            let ours = format.render(&messages, &tools).unwrap();
            assert_eq!(ours, ids, "{folder} {template} {conversation}");
        }
    }
}

#[test]
fn texts_and_conversations_have_the_ids_of_the_reference() {
    compare(&golden().join("tokenizers"), &golden().join("tokenizers.json"));
}

/// `make_tokenizers.py FOLDER FOLDER/tokenizers.json` for a folder with the folders of real
/// models (`qwen-…`, `llama-…`, `smollm-…`), then this with `FULGURITE_TOKENIZERS=FOLDER`.
#[test]
#[ignore = "needs the tokenizers of real models"]
fn real_tokenizers_give_the_ids_of_the_reference() {
    let folder = PathBuf::from(std::env::var_os("FULGURITE_TOKENIZERS").unwrap());
    compare(&folder, &folder.join("tokenizers.json"));
}

fn small(name: &str) -> ModelFolder {
    ModelFolder::open(&golden().join("tokenizers").join(name)).unwrap()
}

#[test]
fn text_never_becomes_special_whatever_it_spells() {
    for name in ["qwen", "llama", "smollm"] {
        let tokenizer = small(name).tokenizer;
        let markers: Vec<String> = tokenizer.special.keys().cloned().collect();
        assert!(markers.len() >= 3);
        for marker in markers {
            for text in [marker.clone(), format!("a{marker}b"), marker.repeat(3)] {
                let ids = tokenizer.encode(&text);
                assert!(ids.iter().all(|id| !tokenizer.is_special(*id)), "{name}: {text}");
                assert_eq!(tokenizer.decode(&ids), text);
            }
            let ids = tokenizer.encode_template(&format!("a{marker}b"));
            assert_eq!(ids.iter().filter(|id| tokenizer.is_special(**id)).count(), 1);
        }
    }
}

#[test]
fn folders_name_begin_end_and_template() {
    let qwen = small("qwen");
    assert_eq!((qwen.tokenizer.begin, qwen.template), (None, None));
    assert_eq!(qwen.tokenizer.end_spelling(), Some("<|im_end|>"));
    let llama = small("llama");
    assert_eq!(llama.template.as_deref(), Some("{{ bos_token }}"));
    assert_eq!(llama.tokenizer.end_spelling(), Some("<|eot_id|>"));
    let format = TemplateFormat::new(Arc::new(llama.tokenizer), llama.template.as_deref()).unwrap();
    let ids = format.render(&[], &[]).unwrap();
    assert_eq!(format.tokenizer().spelling(ids[0]), Some("<|begin_of_text|>"));
    assert_eq!(ids.len(), 1);
    // The file of its own goes before; end tokens may be named in two more files.
    let folder = tempfile::tempdir().unwrap();
    let copy = |name: &str| {
        let from = golden().join("tokenizers/smollm").join(name);
        std::fs::copy(from, folder.path().join(name)).unwrap();
    };
    copy("tokenizer.json");
    copy("tokenizer_config.json");
    std::fs::write(folder.path().join("chat_template.jinja"), "{{ 1 }}").unwrap();
    std::fs::write(folder.path().join("generation_config.json"), r#"{"eos_token_id": [7, 1]}"#)
        .unwrap();
    let read = ModelFolder::open(folder.path()).unwrap();
    assert_eq!(read.template.as_deref(), Some("{{ 1 }}"));
    assert_eq!(read.tokenizer.end_spelling(), Some("<|im_end|>"));
    for end in [0, 1, 2, 7] {
        assert!(read.tokenizer.is_end(end), "{end}");
    }
    assert!(!read.tokenizer.is_end(8));
}

/// What comes of a `tokenizer.json` in which one text is replaced.
fn changed(name: &str, from: &str, to: &str) -> String {
    let text = golden().join("tokenizers").join(name).join("tokenizer.json");
    let text = std::fs::read_to_string(text).unwrap();
    assert!(text.contains(from), "{from}");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), text.replacen(from, to, 1)).unwrap();
    match ModelFolder::open(folder.path()) {
        Ok(_) => "it is used".to_owned(),
        Err(error) => {
            assert!(error.path.ends_with("tokenizer.json"), "{error}");
            error.to_string()
        }
    }
}

#[test]
fn files_that_cannot_be_used_are_refused_with_the_reason() {
    for (from, to, part) in [
        (r#""type": "BPE""#, r#""type": "Unigram""#, "only byte-level BPE"),
        (r#""byte_fallback": false"#, r#""byte_fallback": true"#, "only byte-level BPE"),
        (r#""type": "NFC""#, r#""type": "Lowercase""#, "normalizer \"Lowercase\""),
        (r#""type": "ByteLevel", "add"#, r#""type": "Metaspace", "add"#, "\"Metaspace\""),
        (r#""add_prefix_space": false"#, r#""add_prefix_space": true"#, "blank"),
        (r#""behavior": "Isolated""#, r#""behavior": "Removed""#, "Isolated"),
        (r#""lstrip": false"#, r#""lstrip": true"#, "blanks around"),
        (r#""id": 473"#, r#""id": 472"#, "the id 472 of another"),
        (r#""id": 473"#, r#""id": 4294967295"#, "not between 1 and"),
        (r#""merges": [["#, r#""merges": [["q", "7"], ["#, "does not join two tokens"),
        (r#""merges": [["#, r#""merges": ["ab", ["#, "joins no two tokens"),
        (r#""version""#, "version", "line 1"),
        (r#""model""#, r#""modle""#, "missing field `model`"),
    ] {
        let error = changed("qwen", from, to);
        assert!(error.contains(part), "{from} → {to}: {error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let error = ModelFolder::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json") && error.contains("is missing"), "{error}");
}

#[test]
fn a_tokenizer_is_fitted_to_the_models_rows() {
    let mut tokenizer = small("qwen").tokenizer;
    let tokens = tokenizer.len();
    tokenizer.fit(tokens + 5).unwrap();
    assert_eq!(tokenizer.len(), tokens + 5);
    let padding = u32::try_from(tokens + 4).unwrap();
    assert!(tokenizer.is_special(padding) && tokenizer.bytes(padding).is_empty());
    let error = tokenizer.fit(100).unwrap_err();
    assert!(error.contains("do not belong together"), "{error}");
}

#[test]
fn every_byte_is_a_token_of_the_byte_level_one() {
    let format = TemplateFormat::byte_level().unwrap();
    let tokenizer = format.tokenizer();
    assert_eq!(tokenizer.len(), Tokenizer::BYTE_LEVEL_TOKENS);
    let text = "a<|end|>é\0</think>";
    let ids = tokenizer.encode(text);
    assert_eq!(ids, text.bytes().map(u32::from).collect::<Vec<_>>());
    assert!(format.native_tools());
    let chat = Golden::read(&golden().join("chat.json"));
    let (messages, tools) = chat.conversation("calls", true);
    let ids = format.render(&messages, &tools[1..]).unwrap();
    let spelled: String = ids
        .iter()
        .map(|id| match tokenizer.spelling(*id) {
            Some(marker) => marker.to_owned(),
            None => tokenizer.decode(&[*id]),
        })
        .collect();
    let spelled = spelled.replace('\u{FFFD}', "?");
    assert!(spelled.starts_with("<|tools|>{\"name\": \"noop\", \"description\": "), "{spelled}");
    assert!(
        spelled.ends_with(
            "<|end|><|system|>Be.<|end|><|user|>list<|end|><|assistant|>I look.\
             <tool_call>{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\", \"limit\": 1.0, \
             \"deep\": [1, {\"a\": null}]}}</tool_call>\
             <tool_call>{\"name\": \"noop\", \"arguments\": {}}</tool_call><|end|>\
             <|tool|>a<|end|><|tool|><|end|><|assistant|>"
        ),
        "{spelled}"
    );
    // What the model says in this form is read back.
    let mut reply = format.encode("ok");
    reply.extend(tokenizer.encode_template("<tool_call>{\"name\": \"noop\", \"arguments\": {}}"));
    reply.extend(tokenizer.encode_template("</tool_call><|end|>"));
    let message = format.parse(&reply);
    assert_eq!(message.plain_text(), "ok");
    assert_eq!(message.tool_calls().count(), 1);
}
