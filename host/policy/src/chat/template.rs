//! Running a chat template as transformers runs it, with texts hidden.

use std::sync::Arc;

use fulgurite_trace::{Message, Role, ToolCall, ToolDefinition};
use minijinja::{
    Environment, Error, ErrorKind, Value,
    syntax::SyntaxConfig,
    value::{Serde, ValueKind},
};
use regex::Regex;
use serde_json::{Map, Value as Json, json};

use super::{filters::add_text_filters, texts::Texts};
use crate::{
    FormatError,
    flat::{FlatMessage, flatten},
};

const NAME: &str = "chat";
/// Steps that one rendering may take: a thousand messages take about 100,000.
const FUEL: u64 = 20_000_000;
/// Words of JSON Schema that templates compare with. They are shown to the template as they are.
const SCHEMA_WORDS: [&str; 8] =
    ["function", "object", "array", "string", "number", "integer", "boolean", "null"];

/// A compiled template.
#[derive(Debug)]
pub(super) struct Template {
    environment: Environment<'static>,
    knows_tools: bool,
    /// Whether the model is to think, for templates that have a switch for it.
    thinking: Option<bool>,
}

/// Whether a text spells a special token.
type IsSpecial<'a> = &'a dyn Fn(&str) -> bool;

impl Template {
    pub(super) fn new(source: &str, begin: &str, end: &str) -> Result<Self, FormatError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(failed)?);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_fuel(Some(FUEL));
        environment.add_function("raise_exception", |text: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, text))
        });
        environment.add_function("strftime_now", |format: String| strftime_fixed(&format));
        // In Python a text is a sequence of characters, and an object one of its names.
        environment.add_test("iterable", |value: Value| value.try_iter().is_ok());
        environment.add_test("sequence", |value: Value| {
            matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Map)
        });
        environment.add_global("bos_token", begin.to_owned());
        environment.add_global("eos_token", end.to_owned());
        let source = without_generation_marks(source)?;
        environment.add_template_owned(NAME, source).map_err(failed)?;
        let mut template = Self { environment, knows_tools: false, thinking: None };
        template.knows_tools = template.writes_tools();
        Ok(template)
    }

    pub(super) fn set_thinking(&mut self, thinking: Option<bool>) {
        self.thinking = thinking;
    }

    /// Whether the tools of a conversation are in its rendering.
    fn writes_tools(&self) -> bool {
        const TOOL: &str = "a tool's name";
        let texts = Arc::new(Texts::default());
        let tool = ToolDefinition {
            name: TOOL.to_owned(),
            description: "-".to_owned(),
            parameters: "{\"type\": \"object\", \"properties\": {}}".to_owned(),
        };
        let question = [Message::text(Role::User, "-")];
        let rendered = self.render(&question, &[tool], &texts, &|_| false);
        let written = rendered.and_then(|rendered| texts.reveal(&rendered));
        written.is_ok_and(|written| written.contains(TOOL))
    }

    pub(super) fn knows_tools(&self) -> bool {
        self.knows_tools
    }

    /// Runs the template. Texts are hidden in the order of the messages, before anything else.
    pub(super) fn render(
        &self,
        messages: &[Message],
        tools: &[ToolDefinition],
        texts: &Arc<Texts>,
        is_special: IsSpecial<'_>,
    ) -> Result<String, FormatError> {
        // A copy shares the compiled template, and its filters may know this rendering's texts.
        let mut environment = self.environment.clone();
        add_text_filters(&mut environment, texts);
        let flat = flatten(messages);
        let contents: Vec<String> =
            flat.iter().map(|message| texts.hide(message.text.as_ref())).collect();
        let messages: Vec<Json> = flat
            .into_iter()
            .zip(contents)
            .map(|(flat, content)| message(flat, content, texts, is_special))
            .collect();
        let tools = tools
            .iter()
            .map(|definition| tool(definition, texts, is_special))
            .collect::<Result<Vec<Json>, _>>()?;
        let mut context = json!({
            "messages": messages,
            "tools": if tools.is_empty() { Json::Null } else { Json::Array(tools) },
            "documents": null,
            "add_generation_prompt": true,
        });
        if let (Some(thinking), Some(context)) = (self.thinking, context.as_object_mut()) {
            context.insert("enable_thinking".to_owned(), json!(thinking));
        }
        environment
            .get_template(NAME)
            .and_then(|template| template.render(Value::from(Serde(&context))))
            .map_err(failed)
    }
}

/// The template without the marks that tell transformers which text the assistant generates:
/// what they enclose is rendered as if they were not there.
fn without_generation_marks(source: &str) -> Result<String, FormatError> {
    const MARK: &str = r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}";
    let marks = Regex::new(MARK).map_err(|error| FormatError(error.to_string()))?;
    // A condition that always holds keeps the blanks around as the mark does.
    let unmarked = marks.replace_all(source, |found: &regex::Captures<'_>| {
        let group = |number| found.get(number).map_or("", |group| group.as_str());
        let statement = if group(2).is_empty() { "if true" } else { "endif" };
        format!("{{%{} {statement} {}%}}", group(1), group(3))
    });
    Ok(unmarked.into_owned())
}

fn failed(error: Error) -> FormatError {
    let mut text = error.kind().to_string();
    if let Some(detail) = error.detail() {
        let detail: String = detail.chars().filter(|c| !c.is_control()).take(300).collect();
        text = format!("{text}: {detail}");
    }
    if let Some(line) = error.line() {
        text = format!("{text} (line {line})");
    }
    FormatError(text)
}

fn message(
    flat: FlatMessage<'_>,
    content: String,
    texts: &Texts,
    is_special: IsSpecial<'_>,
) -> Json {
    let mut object = Map::new();
    object.insert("role".to_owned(), json!(flat.role));
    object.insert("content".to_owned(), json!(content));
    if !flat.thinking.is_empty() {
        // The second is an older name, which transformers gives too.
        let thinking = texts.hide(flat.thinking);
        object.insert("reasoning_content".to_owned(), json!(thinking));
        object.insert("thinking".to_owned(), json!(thinking));
    }
    if !flat.calls.is_empty() {
        let calls = flat.calls.iter().map(|call| tool_call(call, texts, is_special)).collect();
        object.insert("tool_calls".to_owned(), Json::Array(calls));
    }
    if let Some(id) = flat.answers {
        object.insert("tool_call_id".to_owned(), json!(texts.hide(id)));
    }
    Json::Object(object)
}

fn tool_call(call: &ToolCall, texts: &Texts, is_special: IsSpecial<'_>) -> Json {
    // Templates write the arguments as JSON where they are an object, else as they are.
    let arguments = serde_json::from_str::<Map<String, Json>>(&call.arguments)
        .ok()
        .and_then(|object| hidden(Json::Object(object), texts, is_special).ok())
        .unwrap_or_else(|| json!(texts.hide(call.arguments.as_str())));
    json!({
        "id": texts.hide(call.id.as_str()),
        "type": "function",
        "function": {"name": texts.hide(call.name.as_str()), "arguments": arguments},
    })
}

fn tool(
    definition: &ToolDefinition,
    texts: &Texts,
    is_special: IsSpecial<'_>,
) -> Result<Json, FormatError> {
    let parameters: Map<String, Json> =
        serde_json::from_str(&definition.parameters).map_err(|error| {
            FormatError(format!(
                "the parameters of the tool {:?} are no JSON object: {error}",
                definition.name
            ))
        })?;
    let parameters = hidden(Json::Object(parameters), texts, is_special)?;
    Ok(json!({
        "type": "function",
        "function": {
            "name": texts.hide(definition.name.as_str()),
            "description": texts.hide(definition.description.as_str()),
            "parameters": parameters,
        },
    }))
}

/// The value with its texts hidden. Names of fields cannot be hidden, since templates look
/// fields up; one that spells a special token is an error.
fn hidden(value: Json, texts: &Texts, is_special: IsSpecial<'_>) -> Result<Json, FormatError> {
    Ok(match value {
        Json::String(text) if SCHEMA_WORDS.contains(&text.as_str()) && !is_special(&text) => {
            Json::String(text)
        }
        Json::String(text) => Json::String(texts.hide(text)),
        Json::Array(values) => {
            let values = values.into_iter().map(|value| hidden(value, texts, is_special));
            Json::Array(values.collect::<Result<_, _>>()?)
        }
        Json::Object(fields) => {
            let mut object = Map::with_capacity(fields.len());
            for (name, value) in fields {
                if is_special(&name) || Texts::hides(&name) {
                    return Err(FormatError(format!(
                        "the field {:?} spells a special token",
                        name.escape_debug().to_string()
                    )));
                }
                object.insert(name, hidden(value, texts, is_special)?);
            }
            Json::Object(object)
        }
        other => other,
    })
}

/// `strftime` of one fixed date, 26 July 2024, noon: the date that Llama's template falls back
/// to. A real clock would make equal runs differ.
fn strftime_fixed(format: &str) -> String {
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        // `%-d` is `%d` without its zero.
        let (code, bare) = match characters.next() {
            Some('-') => (characters.next(), true),
            other => (other, false),
        };
        let written = match code {
            Some('Y') => "2024",
            Some('y') => "24",
            Some('m') => "07",
            Some('d' | 'e') => "26",
            Some('j') => "208",
            Some('B') => "July",
            Some('b' | 'h') => "Jul",
            Some('A') => "Friday",
            Some('a') => "Fri",
            Some('H' | 'I') => "12",
            Some('p') => "PM",
            Some('M' | 'S') => "00",
            Some('F') => "2024-07-26",
            Some('T') => "12:00:00",
            Some('%') | None => "%",
            Some(other) => {
                text.extend(['%', other]);
                continue;
            }
        };
        let trimmed = written.strip_prefix('0').filter(|_| bare);
        text.push_str(trimmed.unwrap_or(written));
    }
    text
}
