//! Tokenizers: what a GGUF file carries, what a folder of Hugging Face files carries, and the
//! byte-level one of tiny models.
//!
//! The first two are byte-level BPE as in GPT-2, after a cut into words ([`words`]). Two ways to
//! encode are kept strictly apart: [`Tokenizer::encode`] never gives a special token, whatever
//! the text spells (the special tokens are not even in the vocabulary it works with);
//! [`Tokenizer::encode_template`] turns spellings of special tokens into them, and is for the
//! text of chat templates only.
//!
//! Bytes that the vocabulary lacks are dropped, as the reference implementation does. Where the
//! tokenizer normalises (Qwen's composes characters, Unicode's form C), ids spell the normalised
//! text.

mod bytes;
mod folder;
mod gguf;
mod words;

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use regex::Regex;
use tokenizers::models::bpe::{BPE, Vocab};

pub(crate) use self::bytes::BYTE_TEMPLATE;
pub use self::folder::ModelFolder;
use self::words::Words;
use fulgurite_model::{GgufFile, ModelError};

/// The most tokens of a vocabulary.
const MAXIMUM_TOKENS: usize = 1 << 20;
/// The most special tokens, and the longest spelling of one.
const MAXIMUM_SPECIAL: usize = 4096;
const MAXIMUM_SPELLING: usize = 256;

/// Tokens that end a reply, by their usual spellings.
const ENDS: [&str; 6] =
    ["<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "</s>"];

/// Special tokens that are part of what a model says rather than of how it is asked.
const SPOKEN: [&str; 4] = ["<think>", "</think>", "<tool_call>", "</tool_call>"];

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Text.
    Text,
    /// Never seen: markers between messages, padding, unused.
    Hidden,
    /// Special, but part of what is said.
    Spoken,
}

/// Between text and token ids.
pub struct Tokenizer {
    /// None where every byte is a token.
    merges: Option<tokenizers::Tokenizer>,
    /// What each token stands for.
    pieces: Vec<(Kind, Box<[u8]>)>,
    /// The token of each byte, where there is one.
    bytes: Vec<Option<u32>>,
    special: HashMap<String, u32>,
    special_pattern: Option<Regex>,
    ends: HashSet<u32>,
    /// The end that the files name first.
    end: Option<u32>,
    begin: Option<u32>,
    add_begin: bool,
}

/// A part of what is encoded.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part<'a> {
    /// Written by a template: spellings of special tokens are these.
    Template(&'a str),
    /// A text, whatever it spells.
    Text(&'a str),
}

/// What a tokenizer is made from, wherever it was read.
struct Table {
    /// Tokens that are text, in GPT-2's characters for bytes.
    text: Vec<(u32, String)>,
    special: Vec<(u32, String, Kind)>,
    merges: Vec<(String, String)>,
    words: Words,
    /// Ids that end a reply, the main one first.
    ends: Vec<u64>,
    begin: Option<u64>,
    /// Whether texts begin with `begin` unless a template says otherwise.
    add_begin: bool,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("tokens", &self.pieces.len()).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// The tokenizer at this path: a GGUF file, or a folder with a `tokenizer.json`.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        if path.is_dir() {
            return Ok(ModelFolder::open(path)?.tokenizer);
        }
        Self::of_gguf(&GgufFile::open(path)?)
    }

    fn build(table: Table) -> Result<Self, String> {
        let Table { text, special: listed, merges, words, ends: listed_ends, begin, add_begin } =
            table;
        let size = text.iter().map(|(id, _)| *id).chain(listed.iter().map(|(id, ..)| *id)).max();
        let size = size.map_or(0, |id| id as usize + 1);
        if size == 0 || size > MAXIMUM_TOKENS {
            return Err(format!("it has {size} tokens, not between 1 and {MAXIMUM_TOKENS}"));
        }
        let (to_character, to_byte) = byte_characters();
        let mut pieces: Vec<Option<(Kind, Box<[u8]>)>> = vec![None; size];
        let mut place = |id: u32, token: &str, piece: (Kind, Vec<u8>)| {
            match pieces.get_mut(id as usize) {
                Some(free @ None) => *free = Some((piece.0, piece.1.into_boxed_slice())),
                _ => return Err(format!("the token {token:?} has the id {id} of another")),
            }
            Ok(())
        };
        let mut vocabulary: HashMap<String, u32> = HashMap::with_capacity(text.len());
        let mut special: HashMap<String, u32> = HashMap::with_capacity(listed.len());
        for (id, token) in text {
            place(id, &token, (Kind::Text, spelled(&token, &to_byte)))?;
            if let Some(other) = vocabulary.insert(token, id) {
                return Err(format!("the tokens {other} and {id} are spelled alike"));
            }
        }
        for (id, token, kind) in listed {
            let bytes = if kind == Kind::Hidden { Vec::new() } else { token.as_bytes().to_vec() };
            place(id, &token, (kind, bytes))?;
            if let Some(other) = special.insert(token, id) {
                return Err(format!("the special tokens {other} and {id} are spelled alike"));
            }
        }
        let pieces: Vec<(Kind, Box<[u8]>)> =
            pieces.into_iter().map(|piece| piece.unwrap_or_else(nothing)).collect();
        let bytes = to_character
            .iter()
            .map(|character| vocabulary.get(character.encode_utf8(&mut [0; 4]) as &str).copied())
            .collect();
        check_merges(&merges, &vocabulary)?;
        let model = BPE::builder()
            .vocab_and_merges(vocabulary.into_iter().collect::<Vocab>(), merges)
            .ignore_merges(words.whole_words)
            .build()
            .map_err(|error| format!("the merges do not fit the vocabulary: {error}"))?;
        let mut inner = tokenizers::Tokenizer::new(model);
        inner.with_normalizer(words.normalizer).map_err(|error| error.to_string())?;
        inner.with_pre_tokenizer(Some(words.cut));
        let token = |id: u64| u32::try_from(id).ok().filter(|id| (*id as usize) < pieces.len());
        let listed_ends: Vec<u32> = listed_ends.into_iter().filter_map(token).collect();
        let usual = ENDS.iter().filter_map(|spelling| special.get(*spelling).copied());
        let end = listed_ends.first().copied().or_else(|| usual.clone().next());
        let ends: HashSet<u32> = usual.chain(listed_ends).collect();
        if ends.is_empty() {
            return Err("no token ends a reply".to_owned());
        }
        let begin = begin.and_then(token);
        let special_pattern = special_pattern(&special)?;
        let merges = Some(inner);
        Ok(Self { merges, pieces, bytes, special, special_pattern, ends, end, begin, add_begin })
    }

    /// Fits the tokenizer to a model with so many rows in its embedding. A model may have more
    /// rows than there are tokens (padding to a round number): these become tokens that are never
    /// seen. Fewer is an error, since the tokenizer would give ids that the model lacks.
    pub fn fit(&mut self, vocabulary: usize) -> Result<(), String> {
        if self.pieces.len() > vocabulary {
            return Err(format!(
                "the tokenizer has {} tokens and the model {vocabulary}: they do not belong \
                 together; take both from the same model",
                self.pieces.len()
            ));
        }
        self.pieces.resize_with(vocabulary, nothing);
        Ok(())
    }

    /// Text as ids, never a special one.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        match self.merges.as_ref().map(|merges| merges.encode_fast(text, false)) {
            Some(Ok(encoding)) => encoding.get_ids().to_vec(),
            // The word pattern gives up on some absurd texts (a million blanks). Bytes always
            // work.
            Some(Err(_)) | None => self.encode_bytes(text.as_bytes()),
        }
    }

    /// Each byte as its own token, where it has one.
    pub(crate) fn encode_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        let token = |byte: &u8| self.bytes.get(usize::from(*byte)).copied().flatten();
        bytes.iter().filter_map(token).collect()
    }

    /// Text of a chat template as ids: spellings of special tokens become these.
    pub fn encode_template(&self, text: &str) -> Vec<u32> {
        self.encode_parts([Part::Template(text)])
    }

    /// Parts, one behind the other, as ids. Between special tokens all is encoded as one text,
    /// whoever wrote it, since that is how the model saw it in training.
    pub(crate) fn encode_parts<'a>(&self, parts: impl IntoIterator<Item = Part<'a>>) -> Vec<u32> {
        let mut ids = Vec::new();
        let mut text = String::new();
        for part in parts {
            let template = match part {
                Part::Text(part) => {
                    text.push_str(part);
                    continue;
                }
                Part::Template(template) => template,
            };
            let mut from = 0;
            for found in self.special_pattern.iter().flat_map(|known| known.find_iter(template)) {
                text.push_str(template.get(from..found.start()).unwrap_or_default());
                ids.extend(self.encode(&text));
                text.clear();
                ids.extend(self.special.get(found.as_str()));
                from = found.end();
            }
            text.push_str(template.get(from..).unwrap_or_default());
        }
        ids.extend(self.encode(&text));
        ids
    }

    /// The bytes that a token stands for; none for tokens that are never seen, and for ids that
    /// are no token.
    pub fn bytes(&self, id: u32) -> &[u8] {
        self.pieces.get(id as usize).map_or(&[], |(_, bytes)| bytes)
    }

    /// The text that ids spell, special tokens left out. Bytes that are no UTF-8 become `U+FFFD`.
    pub fn decode(&self, ids: &[u32]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| self.bytes(*id)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether this token ends a reply.
    pub fn is_end(&self, id: u32) -> bool {
        self.ends.contains(&id)
    }

    /// Whether this token is special: no text spells it.
    pub fn is_special(&self, id: u32) -> bool {
        self.pieces.get(id as usize).is_some_and(|(kind, _)| *kind != Kind::Text)
    }

    /// Whether the text holds a spelling of a special token.
    pub(crate) fn spells_special(&self, text: &str) -> bool {
        self.special_pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
    }

    /// The token that begins a text, and whether texts begin with it unless a template says
    /// otherwise.
    pub(crate) fn begin(&self) -> (Option<u32>, bool) {
        (self.begin, self.add_begin)
    }

    /// How a special token is spelled.
    pub(crate) fn spelling(&self, id: u32) -> Option<&str> {
        self.special.iter().find(|(_, known)| **known == id).map(|(spelling, _)| spelling.as_str())
    }

    /// The spelling of a token that ends a reply, the file's own first.
    pub(crate) fn end_spelling(&self) -> Option<&str> {
        self.end.and_then(|id| self.spelling(id))
    }

    /// Tokens of the vocabulary.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether there are no tokens; never so.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}

/// What an id without a token is: never seen, and no text spells it.
fn nothing() -> (Kind, Box<[u8]>) {
    (Kind::Hidden, Box::default())
}

/// The kind of a special token that files call so, or call an added one without more.
fn special_kind(spelling: &str, hidden: bool) -> Kind {
    if hidden && !SPOKEN.contains(&spelling) { Kind::Hidden } else { Kind::Spoken }
}

/// The library copies a merge's result into a buffer as long as the longest token before it looks
/// it up, so results that are no token must be found before.
fn check_merges(
    merges: &[(String, String)],
    vocabulary: &HashMap<String, u32>,
) -> Result<(), String> {
    let sound = |(left, right): &&(String, String)| {
        [left, right, &format!("{left}{right}")]
            .into_iter()
            .all(|token| !token.is_empty() && vocabulary.contains_key(token))
    };
    match merges.iter().find(|merge| !sound(merge)) {
        None => Ok(()),
        Some((left, right)) => {
            Err(format!("the merge {:?} does not join two tokens to a third", [left, right]))
        }
    }
}

/// Finds special tokens, the longest first.
fn special_pattern(special: &HashMap<String, u32>) -> Result<Option<Regex>, String> {
    let mut spellings: Vec<&str> =
        special.keys().map(String::as_str).filter(|spelling| !spelling.is_empty()).collect();
    if spellings.len() > MAXIMUM_SPECIAL
        || spellings.iter().any(|spelling| spelling.len() > MAXIMUM_SPELLING)
    {
        return Err("there are too many special tokens, or too long ones".to_owned());
    }
    if spellings.is_empty() {
        return Ok(None);
    }
    spellings.sort_unstable_by_key(|spelling| (std::cmp::Reverse(spelling.len()), *spelling));
    let spellings: Vec<String> = spellings.into_iter().map(regex::escape).collect();
    Regex::new(&spellings.join("|"))
        .map(Some)
        .map_err(|_| "the special tokens are too many".to_owned())
}

/// GPT-2's characters for bytes: printable ones stand for themselves, the others for characters
/// from U+0100 on.
fn byte_characters() -> (Vec<char>, HashMap<char, u8>) {
    let mut characters = Vec::with_capacity(256);
    let mut next = 0x100;
    for byte in 0..=255u8 {
        let printable = matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
        let character = if printable {
            char::from(byte)
        } else {
            next += 1;
            char::from_u32(next - 1).unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        characters.push(character);
    }
    let back = (0..=255u8).zip(&characters).map(|(byte, character)| (*character, byte)).collect();
    (characters, back)
}

/// The bytes that a token's characters stand for.
fn spelled(token: &str, to_byte: &HashMap<char, u8>) -> Vec<u8> {
    let bytes: Option<Vec<u8>> =
        token.chars().map(|character| to_byte.get(&character).copied()).collect();
    bytes.unwrap_or_else(|| token.as_bytes().to_vec())
}

#[cfg(test)]
mod tests;
