//! The tokenizer that a GGUF file carries.

use super::{Kind, Table, Tokenizer, special_kind, words::Words};
use fulgurite_model::{GgufFile, ModelError};

impl Tokenizer {
    /// The tokenizer in a GGUF file.
    pub(crate) fn of_gguf(file: &GgufFile) -> Result<Self, ModelError> {
        let model = file.text("tokenizer.ggml.model").unwrap_or("none");
        if model != "gpt2" {
            return Err(file.error(format!(
                "its tokenizer is of the kind {model:?}; only \"gpt2\" (byte-level BPE) is known"
            )));
        }
        let words = Words::named(file.text("tokenizer.ggml.pre").unwrap_or("default"))
            .map_err(|reason| file.error(reason))?;
        let tokens = file
            .texts("tokenizer.ggml.tokens")
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
        let merges = merges.into_iter().map(|merge| {
            let pair = merge.split_once(' ').map(|(left, right)| (left.into(), right.into()));
            pair.ok_or_else(|| file.error(format!("the merge {merge:?} joins no two tokens")))
        });
        let number = |key: &str| file.number(&format!("tokenizer.ggml.{key}"));
        let ends = ["eos_token_id", "eot_token_id", "eom_token_id"].map(number);
        let (mut text, mut special) = (Vec::new(), Vec::new());
        for (id, (token, kind)) in (0u32..).zip(tokens.into_iter().zip(kinds)) {
            let token = token.to_owned();
            // 1 is text, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 a byte.
            match kind {
                1 => text.push((id, token)),
                kind => {
                    let kind: Kind = special_kind(&token, kind != 4);
                    special.push((id, token, kind));
                }
            }
        }
        let table = Table {
            text,
            special,
            merges: merges.collect::<Result<_, _>>()?,
            words,
            ends: ends.into_iter().flatten().collect(),
            begin: number("bos_token_id"),
            add_begin: file.switch("tokenizer.ggml.add_bos_token").unwrap_or(false),
        };
        Self::build(table).map_err(|reason| file.error(reason))
    }
}
