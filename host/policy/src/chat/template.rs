//! Running a chat template as transformers runs it, with texts hidden.

use std::sync::Arc;

use fulgurite_trace::{Message, ToolCall, ToolDefinition};
use minijinja::{
    Environment, Error, ErrorKind, Value,
    syntax::SyntaxConfig,
    value::{Serde, ValueKind},
};
use serde_json::{Map, Value as Json, json};

use super::{json::to_json, texts::Texts};
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
        environment.add_global("bos_token", begin.to_owned());
        environment.add_global("eos_token", end.to_owned());
        environment.add_template_owned(NAME, source.to_owned()).map_err(failed)?;
        let names = environment.get_template(NAME).map_err(failed)?.undeclared_variables(false);
        Ok(Self { environment, knows_tools: names.contains("tools") })
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
        let context = json!({
            "messages": messages,
            "tools": if tools.is_empty() { Json::Null } else { Json::Array(tools) },
            "add_generation_prompt": true,
        });
        environment
            .get_template(NAME)
            .and_then(|template| template.render(Value::from(Serde(&context))))
            .map_err(failed)
    }
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
        object.insert("reasoning_content".to_owned(), json!(texts.hide(flat.thinking)));
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

/// Filters and methods that look into texts: they are given the texts, and what they give is a
/// text again.
fn add_text_filters(environment: &mut Environment<'static>, texts: &Arc<Texts>) {
    let known = texts.clone();
    environment.set_unknown_method_callback(move |state, value, method, arguments| {
        let call = minijinja_contrib::pycompat::unknown_method_callback;
        match value.as_str() {
            Some(text) if Texts::hides(text) => {
                let plain = Value::from(revealed(&known, text)?);
                let arguments = arguments
                    .iter()
                    .map(|argument| match argument.as_str() {
                        Some(text) => revealed(&known, text).map(Value::from),
                        None => Ok(argument.clone()),
                    })
                    .collect::<Result<Vec<_>, _>>()?;
                let result = call(state, &plain, method, &arguments)?;
                hidden_again(&known, result, text)
            }
            _ => call(state, value, method, arguments),
        }
    });
    let known = texts.clone();
    environment.add_filter("trim", move |text: String, characters: Option<String>| {
        let plain = revealed(&known, &text)?;
        let trimmed = match characters {
            Some(characters) => plain.trim_matches(|c| characters.contains(c)),
            None => plain.trim(),
        };
        if Texts::hides(&text) {
            hidden_again(&known, Value::from(trimmed), &text)
        } else {
            Ok(Value::from(trimmed))
        }
    });
    let known = texts.clone();
    environment.add_filter("replace", move |text: String, from: String, to: String| {
        let result = revealed(&known, &text)?.replace(&from, &to);
        if Texts::hides(&text) {
            hidden_again(&known, Value::from(result), &text)
        } else {
            Ok(Value::from(result))
        }
    });
    let known = texts.clone();
    environment.add_filter("tojson", move |value: Value, options: minijinja::value::Kwargs| {
        let indent = options.get::<Option<usize>>("indent")?;
        // Python's other options change nothing here.
        let _ = (options.get::<Option<bool>>("ensure_ascii")?, options.get::<Value>("separators"));
        options.assert_all_used()?;
        let json = serde_json::to_value(&value).map_err(|error| {
            Error::new(ErrorKind::BadSerialization, "the value is no JSON").with_source(error)
        })?;
        let json = shown(json, &known)?;
        let text = to_json(&json, indent)
            .ok_or_else(|| Error::new(ErrorKind::BadSerialization, "the value is no JSON"))?;
        Ok::<_, Error>(known.hide(text))
    });
}

fn revealed(texts: &Texts, text: &str) -> Result<String, Error> {
    texts.reveal(text).map_err(|error| Error::new(ErrorKind::InvalidOperation, error.0))
}

/// A result made from a hidden text: its strings are hidden, unless nothing changed.
fn hidden_again(texts: &Texts, result: Value, original: &str) -> Result<Value, Error> {
    match result.kind() {
        ValueKind::String => {
            let text = result.as_str().unwrap_or_default();
            let same = revealed(texts, original)? == text;
            Ok(Value::from(if same { original.to_owned() } else { texts.hide(text) }))
        }
        ValueKind::Seq | ValueKind::Iterable => result
            .try_iter()?
            .map(|item| hidden_again(texts, item, original))
            .collect::<Result<Vec<_>, _>>()
            .map(Value::from),
        _ => Ok(result),
    }
}

/// The value with its texts in place of their placeholders.
fn shown(value: Json, texts: &Texts) -> Result<Json, Error> {
    Ok(match value {
        Json::String(text) => Json::String(revealed(texts, &text)?),
        Json::Array(values) => {
            let values = values.into_iter().map(|value| shown(value, texts));
            Json::Array(values.collect::<Result<_, _>>()?)
        }
        Json::Object(fields) => {
            let fields = fields.into_iter();
            let fields = fields.map(|(name, value)| Ok((name, shown(value, texts)?)));
            Json::Object(fields.collect::<Result<_, Error>>()?)
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
        match characters.next() {
            Some('Y') => text.push_str("2024"),
            Some('y') => text.push_str("24"),
            Some('m') => text.push_str("07"),
            Some('d') => text.push_str("26"),
            Some('B') => text.push_str("July"),
            Some('b') => text.push_str("Jul"),
            Some('A') => text.push_str("Friday"),
            Some('a') => text.push_str("Fri"),
            Some('H') => text.push_str("12"),
            Some('M' | 'S') => text.push_str("00"),
            Some('%') | None => text.push('%'),
            Some(other) => text.extend(['%', other]),
        }
    }
    text
}
