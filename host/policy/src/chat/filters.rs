//! Filters and methods that look into texts, for templates that see placeholders only.

use std::sync::Arc;

use minijinja::{
    Environment, Error, ErrorKind, Value,
    value::{Kwargs, ValueKind},
};
use serde_json::Value as Json;

use super::{json::Style, texts::Texts};

/// Filters and methods that look into texts: they are given the texts, and what they give is a
/// text again.
pub(super) fn add_text_filters(environment: &mut Environment<'static>, texts: &Arc<Texts>) {
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
    environment.add_filter("tojson", move |value: Value, options: Kwargs| {
        let mut style = Style::of(options.get::<Option<usize>>("indent")?);
        style.ensure_ascii = options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
        style.sort_keys = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
        if let Some(given) = options.get::<Option<Vec<String>>>("separators")? {
            let [item, name] = <[String; 2]>::try_from(given)
                .map_err(|_| Error::new(ErrorKind::InvalidOperation, "separators are two"))?;
            style.separators = (item, name);
        }
        options.assert_all_used()?;
        let json = serde_json::to_value(&value).map_err(|error| {
            Error::new(ErrorKind::BadSerialization, "the value is no JSON").with_source(error)
        })?;
        Ok::<_, Error>(known.hide(style.write(&shown(json, &known)?)))
    });
    for name in ["length", "count"] {
        let known = texts.clone();
        environment.add_filter(name, move |value: Value| match value.as_str() {
            Some(text) => Ok(revealed(&known, text)?.chars().count()),
            None => minijinja::filters::length(&value),
        });
    }
    type Case = fn(&str) -> String;
    let cases: [(&str, Case); 4] = [
        ("upper", |text| text.to_uppercase()),
        ("lower", |text| text.to_lowercase()),
        ("capitalize", capitalized),
        ("title", |text| minijinja::filters::title(text.into())),
    ];
    for (name, change) in cases {
        let known = texts.clone();
        environment.add_filter(name, move |text: String| {
            let changed = change(&revealed(&known, &text)?);
            if Texts::hides(&text) {
                hidden_again(&known, Value::from(changed), &text)
            } else {
                Ok(Value::from(changed))
            }
        });
    }
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(characters.flat_map(char::to_lowercase)).collect()
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
