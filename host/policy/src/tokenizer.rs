//! The tokenizer that a GGUF file carries.
//!
//! Byte-level BPE as in GPT-2, with the pre-tokenizers `default`, `smollm` and `llama-bpe`. Two
//! ways to encode are kept strictly apart: [`Tokenizer::encode`] never gives a special token,
//! whatever the text spells (the special tokens are not even in the vocabulary it works with);
//! [`Tokenizer::encode_template`] turns spellings of special tokens into them, and is for the
//! text of chat templates only.
//!
//! Bytes that the vocabulary lacks are dropped, as the reference implementation does.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

use regex::Regex;
use tokenizers::{
    PreTokenizerWrapper, SplitDelimiterBehavior,
    models::bpe::{BPE, Vocab},
    pre_tokenizers::{
        byte_level::ByteLevel,
        digits::Digits,
        sequence::Sequence,
        split::{Split, SplitPattern},
    },
};

use crate::gguf::{GgufFile, ModelError};

/// The most tokens of a vocabulary.
const MAXIMUM_TOKENS: usize = 1 << 20;
/// The most special tokens, and the longest spelling of one.
const MAXIMUM_SPECIAL: usize = 4096;
const MAXIMUM_SPELLING: usize = 256;

/// How Llama 3 cuts text into words.
const LLAMA_WORDS: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\
    \\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

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
    inner: tokenizers::Tokenizer,
    /// What each token stands for.
    pieces: Vec<(Kind, Box<[u8]>)>,
    /// The token of each byte, where there is one.
    bytes: Vec<Option<u32>>,
    special: HashMap<String, u32>,
    special_pattern: Option<Regex>,
    ends: HashSet<u32>,
    begin: Option<u32>,
    add_begin: bool,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("tokens", &self.pieces.len()).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// The tokenizer in the GGUF file at this path.
    pub fn open(path: &Path) -> Result<Self, ModelError> {
        Self::of_gguf(&GgufFile::open(path)?)
    }

    /// The tokenizer in a GGUF file.
    pub(crate) fn of_gguf(file: &GgufFile) -> Result<Self, ModelError> {
        let model = file.text("tokenizer.ggml.model").unwrap_or("none");
        if model != "gpt2" {
            return Err(file.error(format!(
                "its tokenizer is of the kind {model:?}; only \"gpt2\" (byte-level BPE) is known"
            )));
        }
        let words = words(file.text("tokenizer.ggml.pre").unwrap_or("default"))
            .map_err(|reason| file.error(reason))?;
        let tokens = file
            .texts("tokenizer.ggml.tokens")
            .filter(|tokens| !tokens.is_empty() && tokens.len() <= MAXIMUM_TOKENS)
            .ok_or_else(|| file.error("`tokenizer.ggml.tokens` is no list of tokens"))?;
        let kinds = match file.numbers("tokenizer.ggml.token_type") {
            Some(kinds) if kinds.len() == tokens.len() => kinds,
            Some(_) => {
                return Err(file.error("there are not as many token types as tokens"));
            }
            None => return Err(file.error("`tokenizer.ggml.token_type` is missing")),
        };
        let merges = file
            .texts("tokenizer.ggml.merges")
            .ok_or_else(|| file.error("`tokenizer.ggml.merges` is missing"))?;
        let number = |key: &str| file.number(&format!("tokenizer.ggml.{key}"));
        let listed = ["eos_token_id", "eot_token_id", "eom_token_id"].map(number);
        Self::build(
            &tokens,
            &kinds,
            &merges,
            words,
            &listed.into_iter().flatten().collect::<Vec<_>>(),
            number("bos_token_id"),
            file.switch("tokenizer.ggml.add_bos_token").unwrap_or(false),
        )
        .map_err(|reason| file.error(reason))
    }

    fn build(
        tokens: &[&str],
        kinds: &[i64],
        merges: &[&str],
        words: Words,
        listed_ends: &[u64],
        begin: Option<u64>,
        add_begin: bool,
    ) -> Result<Self, String> {
        let (to_character, to_byte) = byte_characters();
        let mut vocabulary: HashMap<String, u32> = HashMap::new();
        let mut special: HashMap<String, u32> = HashMap::new();
        let mut pieces = Vec::with_capacity(tokens.len());
        for (id, (token, kind)) in (0u32..).zip(tokens.iter().zip(kinds)) {
            // 1 is text, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 a byte.
            let (kind, bytes) = match kind {
                1 => (Kind::Text, spelled(token, &to_byte)),
                _ if SPOKEN.contains(token) => (Kind::Spoken, token.as_bytes().to_vec()),
                4 => (Kind::Spoken, token.as_bytes().to_vec()),
                _ => (Kind::Hidden, Vec::new()),
            };
            let known = if kind == Kind::Text {
                vocabulary.insert((*token).to_owned(), id)
            } else {
                special.insert((*token).to_owned(), id)
            };
            if known.is_some() {
                return Err(format!("the token {token:?} is listed twice"));
            }
            pieces.push((kind, bytes.into_boxed_slice()));
        }
        let bytes = to_character
            .iter()
            .map(|character| vocabulary.get(character.encode_utf8(&mut [0; 4]) as &str).copied())
            .collect();
        let merges = checked_merges(merges, &vocabulary)?;
        let model = BPE::builder()
            .vocab_and_merges(vocabulary.into_iter().collect::<Vocab>(), merges)
            .ignore_merges(words.whole_words)
            .build()
            .map_err(|error| format!("the merges do not fit the vocabulary: {error}"))?;
        let mut inner = tokenizers::Tokenizer::new(model);
        inner.with_pre_tokenizer(Some(words.cut));
        let ends = ENDS.iter().filter_map(|spelling| special.get(*spelling).copied());
        let listed = listed_ends.iter().filter_map(|id| u32::try_from(*id).ok());
        let ends: HashSet<u32> =
            ends.chain(listed).filter(|id| (*id as usize) < pieces.len()).collect();
        if ends.is_empty() {
            return Err("no token ends a reply (`tokenizer.ggml.eos_token_id`)".to_owned());
        }
        let begin =
            begin.and_then(|id| u32::try_from(id).ok()).filter(|id| (*id as usize) < pieces.len());
        let special_pattern = special_pattern(&special)?;
        Ok(Self { inner, pieces, bytes, special, special_pattern, ends, begin, add_begin })
    }

    /// Text as ids, never a special one.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        match self.inner.encode_fast(text, false) {
            Ok(encoding) => encoding.get_ids().to_vec(),
            // The word pattern gives up on some absurd texts (a million blanks). Bytes always
            // work.
            Err(_) => text
                .bytes()
                .filter_map(|byte| self.bytes.get(usize::from(byte)).copied().flatten())
                .collect(),
        }
    }

    /// Text of a chat template as ids: spellings of special tokens become these.
    pub fn encode_template(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        let mut from = 0;
        for found in self.special_pattern.iter().flat_map(|pattern| pattern.find_iter(text)) {
            ids.extend(self.encode(text.get(from..found.start()).unwrap_or_default()));
            ids.extend(self.special.get(found.as_str()));
            from = found.end();
        }
        ids.extend(self.encode(text.get(from..).unwrap_or_default()));
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
        ENDS.iter()
            .copied()
            .find(|spelling| self.special.get(*spelling).is_some_and(|id| self.is_end(*id)))
            .or_else(|| self.ends.iter().min().and_then(|id| self.spelling(*id)))
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

/// How text is cut into words.
struct Words {
    cut: PreTokenizerWrapper,
    /// Whether a word that is a token is that token, whatever the merges say.
    whole_words: bool,
}

fn words(name: &str) -> Result<Words, String> {
    let gpt2 = ByteLevel::new(false, false, true);
    let cut = match name {
        "default" | "gpt-2" | "gpt2" => PreTokenizerWrapper::from(gpt2),
        "smollm" => Sequence::new(vec![Digits::new(true).into(), gpt2.into()]).into(),
        "llama-bpe" | "llama3" | "llama-v3" => {
            let pattern = SplitPattern::Regex(LLAMA_WORDS.to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
                .map_err(|error| error.to_string())?;
            let bytes = ByteLevel::new(false, false, false);
            let cut = Sequence::new(vec![split.into(), bytes.into()]).into();
            return Ok(Words { cut, whole_words: true });
        }
        other => {
            return Err(format!(
                "its pre-tokenizer {other:?} is not known; known are default, smollm, llama-bpe"
            ));
        }
    };
    Ok(Words { cut, whole_words: false })
}

/// The merges as pairs. The library copies a merge's result into a buffer as long as the longest
/// token before it looks it up, so results that are no token must be found before.
fn checked_merges(
    merges: &[&str],
    vocabulary: &HashMap<String, u32>,
) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::with_capacity(merges.len());
    for merge in merges {
        let (left, right) = merge
            .split_once(' ')
            .filter(|(left, right)| {
                [*left, *right, &format!("{left}{right}")]
                    .iter()
                    .all(|token| !token.is_empty() && vocabulary.contains_key(*token))
            })
            .ok_or_else(|| format!("the merge {merge:?} does not join two tokens to a third"))?;
        pairs.push((left.to_owned(), right.to_owned()));
    }
    Ok(pairs)
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
