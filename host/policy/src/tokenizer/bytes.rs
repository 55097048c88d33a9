//! The tokenizer of tiny models: every byte is a token, and a few markers.
//!
//! Ids 0 to 255 are the bytes, so nothing is learnt and nothing can be spelled in two ways; the
//! markers follow from 256 on. A model that trains from scratch in minutes needs no more.

use std::collections::{HashMap, HashSet};

use super::{Kind, Tokenizer, nothing, special_kind, special_pattern};

/// The markers, in the order of their ids from 256 on. All but the spoken ones are never seen.
const MARKERS: [&str; 10] = [
    "<|end|>",
    "<|system|>",
    "<|tools|>",
    "<|user|>",
    "<|assistant|>",
    "<|tool|>",
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
];
const BYTES: u32 = 256;

/// The chat template that goes with it: a marker for the role, the text, the end.
pub(crate) const BYTE_TEMPLATE: &str = r#"{%- if tools %}
{{- '<|tools|>' }}
{%- for tool in tools %}{{- tool.function | tojson }}{%- if not loop.last %}{{- '\n' }}{%- endif %}{%- endfor %}
{{- '<|end|>' }}
{%- endif %}
{%- for message in messages %}
{{- '<|' + message.role + '|>' }}
{%- if message.reasoning_content %}{{- '<think>' + message.reasoning_content + '</think>' }}{%- endif %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>{"name": ' }}{{- call.function.name | tojson }}{{- ', "arguments": ' }}
{%- if call.function.arguments is string %}{{- call.function.arguments }}
{%- else %}{{- call.function.arguments | tojson }}{%- endif %}
{{- '}</tool_call>' }}
{%- endfor %}
{{- '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"#;

impl Tokenizer {
    /// How many tokens [`Tokenizer::byte_level`] has: what a tiny model's vocabulary must have at
    /// least.
    pub const BYTE_LEVEL_TOKENS: usize = BYTES as usize + MARKERS.len();

    /// Every byte a token, and markers for messages, tools and thinking.
    pub fn byte_level() -> Self {
        let mut pieces: Vec<(Kind, Box<[u8]>)> =
            (0..=255u8).map(|byte| (Kind::Text, Box::from([byte].as_slice()))).collect();
        let mut special = HashMap::new();
        for (id, marker) in (BYTES..).zip(MARKERS) {
            pieces.push(match special_kind(marker, true) {
                Kind::Spoken => (Kind::Spoken, marker.as_bytes().into()),
                _ => nothing(),
            });
            special.insert(marker.to_owned(), id);
        }
        // The markers are few and short; no pattern of them is too large.
        let special_pattern = special_pattern(&special).unwrap_or_default();
        Self {
            merges: None,
            pieces,
            bytes: (0..BYTES).map(Some).collect(),
            special,
            special_pattern,
            ends: HashSet::from([BYTES]),
            end: Some(BYTES),
            begin: None,
            add_begin: false,
        }
    }
}
