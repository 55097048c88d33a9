//! The JSON of a request, as far as this server reads it.

use serde::Deserialize;
use serde_json::{Map, Value};

/// The body of a request, as far as this server reads it.
#[derive(Deserialize)]
pub(super) struct Body {
    pub(super) model: String,
    pub(super) messages: Vec<MessageBody>,
    #[serde(default)]
    pub(super) tools: Option<Vec<ToolBody>>,
    #[serde(default)]
    pub(super) tool_choice: Option<Value>,
    #[serde(default)]
    pub(super) max_tokens: Option<u32>,
    #[serde(default)]
    pub(super) max_completion_tokens: Option<u32>,
    #[serde(default)]
    pub(super) temperature: Option<f32>,
    #[serde(default)]
    pub(super) top_p: Option<f32>,
    #[serde(default)]
    pub(super) top_k: Option<i64>,
    #[serde(default)]
    pub(super) min_p: Option<f32>,
    #[serde(default)]
    pub(super) stop: Option<OneOrMany>,
    #[serde(default)]
    pub(super) stop_token_ids: Option<Vec<u32>>,
    #[serde(default)]
    pub(super) seed: Option<i64>,
    #[serde(default)]
    pub(super) stream: Option<bool>,
    #[serde(default)]
    pub(super) stream_options: Option<StreamOptions>,
    #[serde(default)]
    pub(super) logprobs: Option<bool>,
    #[serde(default)]
    pub(super) return_token_ids: Option<bool>,
    // Known, and not supported beyond their neutral values.
    #[serde(default)]
    pub(super) n: Option<u32>,
    #[serde(default)]
    pub(super) top_logprobs: Option<u32>,
    #[serde(default)]
    pub(super) frequency_penalty: Option<f32>,
    #[serde(default)]
    pub(super) presence_penalty: Option<f32>,
    #[serde(default)]
    pub(super) repetition_penalty: Option<f32>,
    #[serde(default)]
    pub(super) logit_bias: Option<Map<String, Value>>,
    #[serde(default)]
    pub(super) response_format: Option<FormatBody>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
pub(super) struct StreamOptions {
    #[serde(default)]
    pub(super) include_usage: bool,
}

#[derive(Deserialize)]
pub(super) struct FormatBody {
    pub(super) r#type: String,
}

#[derive(Deserialize)]
pub(super) struct MessageBody {
    pub(super) role: String,
    #[serde(default)]
    pub(super) content: Option<Content>,
    #[serde(default)]
    pub(super) reasoning_content: Option<String>,
    #[serde(default)]
    pub(super) tool_calls: Option<Vec<CallBody>>,
    #[serde(default)]
    pub(super) tool_call_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Content {
    Text(String),
    Parts(Vec<PartBody>),
}

#[derive(Deserialize)]
pub(super) struct PartBody {
    pub(super) r#type: String,
    #[serde(default)]
    pub(super) text: String,
}

#[derive(Deserialize)]
pub(super) struct CallBody {
    pub(super) id: String,
    pub(super) function: CalledBody,
}

#[derive(Deserialize)]
pub(super) struct CalledBody {
    pub(super) name: String,
    pub(super) arguments: String,
}

#[derive(Deserialize)]
pub(super) struct ToolBody {
    pub(super) r#type: String,
    pub(super) function: FunctionBody,
}

#[derive(Deserialize)]
pub(super) struct FunctionBody {
    pub(super) name: String,
    #[serde(default)]
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) parameters: Option<Map<String, Value>>,
}
