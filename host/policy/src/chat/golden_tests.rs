//! Renderings compared with those of transformers (`tests/golden/make_chat.py`).

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use fulgurite_trace::{Message, Part, Role, ToolCall, ToolDefinition, ToolResult};
use serde::Deserialize;
use serde_json::Value;

use super::{Piece, Template, Texts};

#[derive(Deserialize)]
pub(crate) struct Golden {
    tokens: BTreeMap<String, String>,
    tools: Vec<Value>,
    conversations: BTreeMap<String, Vec<OpenAiMessage>>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct OpenAiMessage {
    role: Role,
    content: String,
    reasoning_content: Option<String>,
    #[serde(default)]
    tool_calls: Vec<OpenAiCall>,
    tool_call_id: Option<String>,
}

#[derive(Deserialize)]
struct OpenAiCall {
    id: String,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    arguments: Value,
}

#[derive(Deserialize)]
struct Case {
    template: String,
    conversation: String,
    tools: bool,
    thinking: Option<bool>,
    text: Option<String>,
    error: Option<String>,
}

impl OpenAiMessage {
    fn message(&self) -> Message {
        let mut parts = vec![];
        if let Some(call) = &self.tool_call_id {
            let (call, content) = (call.clone(), self.content.clone());
            parts.push(Part::ToolResult(ToolResult { call, content, failed: false }));
        } else {
            parts.extend(self.reasoning_content.clone().map(Part::Thinking));
            parts.push(Part::Text(self.content.clone()));
        }
        parts.extend(self.tool_calls.iter().map(|call| {
            Part::ToolCall(ToolCall {
                id: call.id.clone(),
                name: call.function.name.clone(),
                arguments: call.function.arguments.to_string(),
                problem: None,
            })
        }));
        Message { role: self.role, parts, metadata: vec![] }
    }
}

fn definition(tool: &Value) -> ToolDefinition {
    let text = |name: &str| tool["function"][name].as_str().unwrap().to_owned();
    let parameters = tool["function"]["parameters"].to_string();
    ToolDefinition { name: text("name"), description: text("description"), parameters }
}

fn rendered(
    template: &Template,
    messages: &[Message],
    tools: &[ToolDefinition],
) -> Result<String, String> {
    let texts = Arc::new(Texts::default());
    let rendered = template.render(messages, tools, &texts, &|_| false);
    let pieces = rendered.and_then(|rendered| texts.cut(&rendered)).map_err(|error| error.0)?;
    Ok(pieces.into_iter().map(|(Piece::Template(text) | Piece::Text(_, text))| text).collect())
}

impl Golden {
    pub(crate) fn read(path: &Path) -> Self {
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    pub(crate) fn conversation(
        &self,
        name: &str,
        tools: bool,
    ) -> (Vec<Message>, Vec<ToolDefinition>) {
        let messages = self.conversations[name].iter().map(OpenAiMessage::message).collect();
        let tools = self.tools.iter().filter(|_| tools).map(definition).collect();
        (messages, tools)
    }
}

fn compare(golden: &Path, folder: &Path) {
    let golden = Golden::read(golden);
    let mut wrong = String::new();
    for case in &golden.cases {
        let source = std::fs::read_to_string(folder.join(&case.template)).unwrap();
        let (begin, end) = (&golden.tokens["bos_token"], &golden.tokens["eos_token"]);
        let mut template = Template::new(&source, begin, end).unwrap();
        template.set_thinking(case.thinking);
        assert_eq!(template.knows_tools(), source.contains("tools"), "{}", case.template);
        let (messages, tools) = golden.conversation(&case.conversation, case.tools);
        let ours = rendered(&template, &messages, &tools);
        let same = match (&ours, &case.text, &case.error) {
            (Ok(ours), Some(text), None) => ours == text,
            (Err(ours), None, Some(error)) => ours.contains(error.as_str()),
            _ => false,
        };
        if !same {
            let Case { template, conversation, tools, thinking, text, error } = case;
            wrong += &format!(
                "{template} {conversation} tools {tools} thinking {thinking:?}\n  ours {ours:?}\n  \
                 transformers' {text:?} {error:?}\n"
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

#[test]
fn templates_render_as_in_transformers() {
    compare(&golden().join("chat.json"), &golden().join("chat"));
}

/// For templates whose licence keeps them out of this repository: `make_chat.py FOLDER
/// FOLDER/chat.json`, then this with `FULGURITE_TEMPLATES=FOLDER`.
#[test]
#[ignore = "needs a folder of templates"]
fn templates_of_another_folder_render_as_in_transformers() {
    let folder = PathBuf::from(std::env::var_os("FULGURITE_TEMPLATES").unwrap());
    compare(&folder.join("chat.json"), &folder);
}
