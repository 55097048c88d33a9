//! How text is cut into words before the merges.

use serde_json::Value;
use tokenizers::{
    NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior,
    normalizers::unicode::NFC,
    pre_tokenizers::{
        byte_level::ByteLevel,
        digits::Digits,
        sequence::Sequence,
        split::{Split, SplitPattern},
    },
};

/// How Llama 3 cuts text into words. Qwen's differs in one place: each digit is a word.
const LLAMA_WORDS: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\
    \\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const QWEN_WORDS: &str = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\
    \\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/// The most that a described cut may hold: parts of a sequence, and bytes of a pattern.
const MAXIMUM_PARTS: usize = 16;
const MAXIMUM_PATTERN: usize = 4096;

/// How text is cut into words.
pub(super) struct Words {
    pub(super) normalizer: Option<NormalizerWrapper>,
    pub(super) cut: PreTokenizerWrapper,
    /// Whether a word that is a token is that token, whatever the merges say.
    pub(super) whole_words: bool,
}

impl Words {
    /// The cut of this name in a GGUF file.
    pub(super) fn named(name: &str) -> Result<Self, String> {
        let gpt2 = ByteLevel::new(false, false, true);
        let (cut, whole_words) = match name {
            "default" | "gpt-2" | "gpt2" => (PreTokenizerWrapper::from(gpt2), false),
            "smollm" => (Sequence::new(vec![Digits::new(true).into(), gpt2.into()]).into(), false),
            "llama-bpe" | "llama3" | "llama-v3" => (by_pattern(LLAMA_WORDS)?, true),
            "qwen2" => (by_pattern(QWEN_WORDS)?, false),
            other => {
                return Err(format!(
                    "its pre-tokenizer {other:?} is not known; known are default, smollm, \
                     llama-bpe, qwen2"
                ));
            }
        };
        let normalizer = (name == "qwen2").then_some(NormalizerWrapper::NFC(NFC));
        Ok(Self { normalizer, cut, whole_words })
    }

    /// The cut that a `tokenizer.json` describes.
    pub(super) fn described(
        normalizer: Option<&Value>,
        cut: Option<&Value>,
        whole_words: bool,
    ) -> Result<Self, String> {
        let normalizer = match normalizer.map(kind) {
            None => None,
            Some("NFC") => Some(NormalizerWrapper::NFC(NFC)),
            Some(other) => {
                return Err(format!("its normalizer {other:?} is not known; known is NFC"));
            }
        };
        let cut = cut.ok_or("it has no pre-tokenizer; only byte-level BPE is known")?;
        if !check_cut(cut)? {
            return Err(
                "its pre-tokenizer has no step `ByteLevel`; only byte-level BPE is known".into()
            );
        }
        let cut = serde_json::from_value(cut.clone())
            .map_err(|error| format!("its pre-tokenizer cannot be used: {error}"))?;
        Ok(Self { normalizer, cut, whole_words })
    }
}

fn by_pattern(pattern: &str) -> Result<PreTokenizerWrapper, String> {
    let pattern = SplitPattern::Regex(pattern.to_owned());
    let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
        .map_err(|error| error.to_string())?;
    let bytes = ByteLevel::new(false, false, false);
    Ok(Sequence::new(vec![split.into(), bytes.into()]).into())
}

fn kind(value: &Value) -> &str {
    value.get("type").and_then(Value::as_str).unwrap_or("none")
}

/// Whether a described cut ends in bytes; an error where it holds what is not known here.
fn check_cut(cut: &Value) -> Result<bool, String> {
    let part = |cut: &Value| match kind(cut) {
        "ByteLevel" if cut.get("add_prefix_space") == Some(&Value::Bool(true)) => {
            Err("its pre-tokenizer puts a blank before every text, which is not known".to_owned())
        }
        "ByteLevel" => Ok(true),
        "Digits" => Ok(false),
        // Anything but this would take characters out of a text.
        "Split" if cut.get("behavior") != Some(&Value::from("Isolated")) => {
            Err("its pre-tokenizer splits in a way other than `Isolated`".to_owned())
        }
        "Split" if cut.to_string().len() > MAXIMUM_PATTERN => {
            Err(format!("its pre-tokenizer has a pattern of more than {MAXIMUM_PATTERN} bytes"))
        }
        "Split" => Ok(false),
        other => Err(format!(
            "its pre-tokenizer {other:?} is not known; known are Split, Digits, ByteLevel and \
             sequences of these"
        )),
    };
    if kind(cut) != "Sequence" {
        return part(cut);
    }
    let parts = cut.get("pretokenizers").and_then(Value::as_array);
    let parts = parts.filter(|parts| parts.len() <= MAXIMUM_PARTS);
    let parts = parts.ok_or("its pre-tokenizer is no sequence of a few steps")?;
    let mut bytes = false;
    for step in parts {
        if bytes {
            return Err("its pre-tokenizer goes on behind `ByteLevel`".to_owned());
        }
        bytes = part(step)?;
    }
    Ok(bytes)
}
