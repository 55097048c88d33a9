//! The tokenizer and chat template of a folder with Hugging Face files.
//!
//! `tokenizer.json` must be there. Read too, where present: `tokenizer_config.json` (begin and end
//! token, chat template), `chat_template.jinja` (goes before the other template, as in
//! transformers), `generation_config.json` and `config.json` (end tokens). None of them is
//! trusted: sizes are bounded, and the library is handed only parts that were checked.

use std::{
    collections::{HashMap, HashSet},
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{Table, Tokenizer, special_kind, words::Words};
use fulgurite_model::ModelError;

/// The largest `tokenizer.json`; vocabularies of 256,000 tokens take 34 MB.
const MAXIMUM_TOKENIZER: u64 = 128 << 20;
/// The largest of the other files.
const MAXIMUM_OTHER: u64 = 4 << 20;

/// What a folder says about text.
#[derive(Debug)]
pub struct ModelFolder {
    /// Between text and ids.
    pub tokenizer: Tokenizer,
    /// The chat template, where there is one.
    pub template: Option<String>,
}

/// `tokenizer.json`, as far as it matters here.
#[derive(Deserialize)]
struct TokenizerFile {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    normalizer: Option<Value>,
    pre_tokenizer: Option<Value>,
    model: Model,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
    #[serde(default)]
    special: bool,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
}

#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    vocab: HashMap<String, u32>,
    merges: Vec<Merge>,
    #[serde(default)]
    ignore_merges: bool,
    #[serde(default)]
    byte_fallback: bool,
    continuing_subword_prefix: Option<String>,
    end_of_word_suffix: Option<String>,
}

/// Older files write the two tokens as one text with a blank.
#[derive(Deserialize)]
#[serde(untagged)]
enum Merge {
    Pair(String, String),
    Joined(String),
}

/// `tokenizer_config.json`, as far as it matters here.
#[derive(Deserialize, Default)]
struct ConfigFile {
    bos_token: Option<Named>,
    eos_token: Option<Named>,
    chat_template: Option<Templates>,
}

/// A token by its spelling; older files wrap it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Named {
    Plain(String),
    Wrapped { content: String },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Several(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

/// `generation_config.json` and `config.json`, as far as they matter here.
#[derive(Deserialize, Default)]
struct EndsFile {
    eos_token_id: Option<Ends>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Ends {
    One(u64),
    Several(Vec<u64>),
}

impl ModelFolder {
    /// Reads the files of a folder.
    pub fn open(folder: &Path) -> Result<Self, ModelError> {
        let path = folder.join("tokenizer.json");
        let Some(file) = read_json::<TokenizerFile>(&path, MAXIMUM_TOKENIZER)? else {
            return Err(ModelError {
                path,
                reason: "is missing; a model's folder holds tokenizer.json, config.json and \
                         *.safetensors"
                    .to_owned(),
            });
        };
        let config = folder.join("tokenizer_config.json");
        let config = read_json::<ConfigFile>(&config, MAXIMUM_OTHER)?.unwrap_or_default();
        let mut ends = Vec::new();
        for name in ["generation_config.json", "config.json"] {
            match read_json::<EndsFile>(&folder.join(name), MAXIMUM_OTHER)?.unwrap_or_default() {
                EndsFile { eos_token_id: None } => {}
                EndsFile { eos_token_id: Some(Ends::One(id)) } => ends.push(id),
                EndsFile { eos_token_id: Some(Ends::Several(ids)) } => ends.extend(ids),
            }
        }
        let begin = config.bos_token.map(Named::spelling);
        let end = config.eos_token.map(Named::spelling);
        let table = table(file, begin.as_deref(), end.as_deref(), ends);
        let tokenizer = table
            .and_then(Tokenizer::build)
            .map_err(|reason| ModelError { path: path.clone(), reason })?;
        let template = match read_text(&folder.join("chat_template.jinja"), MAXIMUM_OTHER)? {
            Some(template) => Some(template),
            None => config.chat_template.and_then(Templates::choose),
        };
        Ok(Self { tokenizer, template })
    }
}

fn table(
    file: TokenizerFile,
    begin: Option<&str>,
    end: Option<&str>,
    mut ends: Vec<u64>,
) -> Result<Table, String> {
    let TokenizerFile { added_tokens, normalizer, pre_tokenizer, model } = file;
    let kind = model.kind.as_deref().unwrap_or("BPE");
    let filled = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    if kind != "BPE" || model.byte_fallback {
        let kind = if model.byte_fallback { "BPE with byte fallback" } else { kind };
        return Err(format!("its model is {kind:?}; only byte-level BPE is known"));
    }
    if filled(&model.continuing_subword_prefix) || filled(&model.end_of_word_suffix) {
        return Err("its model marks the parts of words, which byte-level BPE does not".to_owned());
    }
    let words = Words::described(normalizer.as_ref(), pre_tokenizer.as_ref(), model.ignore_merges)?;
    let id = |spelling: &str| {
        let added = added_tokens.iter().find(|token| token.content == spelling);
        added.map(|token| token.id).or_else(|| model.vocab.get(spelling).copied())
    };
    let known = |spelling: Option<&str>, what: &str| match spelling.map(|text| (text, id(text))) {
        None => Ok(None),
        Some((_, Some(id))) => Ok(Some(u64::from(id))),
        Some((text, None)) => Err(format!(
            "it has no token {text:?}, which tokenizer_config.json names as the {what} token"
        )),
    };
    let begin = known(begin, "begin")?;
    if let Some(end) = known(end, "end")? {
        ends.insert(0, end);
    }
    let mut special = Vec::with_capacity(added_tokens.len());
    let mut spelled = HashSet::new();
    for AddedToken { id, content, special: hidden, single_word, lstrip, rstrip } in added_tokens {
        if single_word || lstrip || rstrip {
            return Err(format!(
                "its added token {content:?} takes the blanks around it away or stands for whole \
                 words only, which is not known"
            ));
        }
        if model.vocab.get(&content).is_some_and(|other| *other != id) {
            return Err(format!("its added token {content:?} has two ids"));
        }
        // Some files list a token twice.
        if spelled.insert(content.clone()) {
            let kind = special_kind(&content, hidden);
            special.push((id, content, kind));
        }
    }
    let text = model.vocab.into_iter().filter(|(token, _)| !spelled.contains(token));
    let text = text.map(|(token, id)| (id, token)).collect();
    let merges = model.merges.into_iter().map(|merge| match merge {
        Merge::Pair(left, right) => Ok((left, right)),
        Merge::Joined(text) => match text.split_once(' ') {
            Some((left, right)) => Ok((left.to_owned(), right.to_owned())),
            None => Err(format!("the merge {text:?} joins no two tokens")),
        },
    });
    let merges = merges.collect::<Result<_, _>>()?;
    // As in transformers, only the template decides whether a conversation has a begin token.
    Ok(Table { text, special, merges, words, ends, begin, add_begin: false })
}

impl Named {
    fn spelling(self) -> String {
        match self {
            Self::Plain(content) | Self::Wrapped { content } => content,
        }
    }
}

impl Templates {
    /// The default one; the one for tools where it is the only one that knows them is not guessed.
    fn choose(self) -> Option<String> {
        match self {
            Self::One(template) => Some(template),
            Self::Several(templates) => templates
                .into_iter()
                .find(|named| named.name == "default")
                .map(|named| named.template),
        }
    }
}

fn read_json<T: DeserializeOwned>(path: &Path, most: u64) -> Result<Option<T>, ModelError> {
    let Some(text) = read_text(path, most)? else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|error| fail(path, error))
}

/// A file's text; none where there is no such file.
fn read_text(path: &Path, most: u64) -> Result<Option<String>, ModelError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(path, error)),
    };
    let mut text = String::new();
    file.take(most + 1).read_to_string(&mut text).map_err(|error| fail(path, error))?;
    if text.len() as u64 > most {
        return Err(fail(path, format!("has more than {} MiB", most >> 20)));
    }
    Ok(Some(text))
}

fn fail(path: &Path, reason: impl std::fmt::Display) -> ModelError {
    let path: PathBuf = path.to_owned();
    ModelError { path, reason: format!("cannot be used: {reason}") }
}
