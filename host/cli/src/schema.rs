//! Whether a plugin's configuration is what the plugin says it takes, found out before anything
//! runs.
//!
//! The schema comes from the plugin, so it is as hostile as the plugin: its references reach
//! nothing outside of it, its patterns are matched in linear time, its size, the depth it may
//! recurse to and the time it may take are bounded.

use std::{fmt::Write as _, sync::mpsc, time::Duration};

use anyhow::{Result, bail};
use jsonschema::{PatternOptions, ValidationError, error::ValidationErrorKind};
use serde_json::{Map, Value};

use crate::{exit, nearest};

/// The longest schema that is read.
const MOST_SCHEMA_BYTES: usize = 256 << 10;
/// A chain of references as long as such a schema can hold fits.
const STACK_BYTES: usize = 64 << 20;
/// Real schemas take microseconds.
const TIME: Duration = Duration::from_secs(10);
/// Problems that are told at once.
const MOST_PROBLEMS: usize = 8;
/// Characters of what is allowed that are shown.
const MOST_ALLOWED: usize = 300;

/// Compares a configuration with the schema that the plugin declares. `plugin` is how the user
/// knows it: ``the harness `coder` ``. A configuration that does not fit is wrong usage; a schema
/// that cannot be used makes the plugin unacceptable.
pub(crate) fn check(
    plugin: &str,
    name: &str,
    schema: &str,
    config: &Map<String, Value>,
) -> Result<()> {
    if schema.trim().is_empty() {
        return Ok(());
    }
    let unusable = |reason: &str| {
        exit::Plugin(format!(
            "{plugin} declares a configuration schema that cannot be used: {reason}\n  mend: its \
             author has to correct it"
        ))
    };
    if schema.len() > MOST_SCHEMA_BYTES {
        bail!(unusable(&format!("it is longer than {} KiB", MOST_SCHEMA_BYTES >> 10)));
    }
    let schema: Value = serde_json::from_str(schema)
        .map_err(|error| unusable(&format!("it is no JSON: {error}")))?;
    let config = Value::Object(config.clone());
    // A thread of its own, which is left behind when it takes too long.
    let (sender, answer) = mpsc::channel();
    let compare = move || {
        // Whoever waited may have given up.
        let _ = sender.send(problems(&schema, &config));
    };
    std::thread::Builder::new().name("schema".to_owned()).stack_size(STACK_BYTES).spawn(compare)?;
    let problems = match answer.recv_timeout(TIME) {
        Ok(problems) => problems.map_err(|reason| unusable(&reason))?,
        Err(mpsc::RecvTimeoutError::Timeout) => {
            bail!(unusable(&format!("it takes longer than {} s", TIME.as_secs())))
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => bail!(unusable("reading it failed")),
    };
    if problems.is_empty() {
        return Ok(());
    }
    let mut text = format!("the configuration of {plugin} is not right");
    for problem in problems {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n  {problem}");
    }
    let _ = write!(text, "\n  mend: `fulgurite inspect {name}` shows what it takes");
    bail!(exit::Usage(text))
}

/// What does not fit, a line each; an error when the schema is none.
fn problems(schema: &Value, config: &Value) -> Result<Vec<String>, String> {
    let validator = jsonschema::options()
        .with_pattern_options(PatternOptions::regex())
        .build(schema)
        .map_err(|error| error.to_string())?;
    Ok(validator
        .iter_errors(config)
        .take(MOST_PROBLEMS)
        .map(|error| problem(schema, &error))
        .collect())
}

fn problem(schema: &Value, error: &ValidationError<'_>) -> String {
    let place = error.instance_path().as_str();
    let place = if place.is_empty() { "at the top".to_owned() } else { format!("at `{place}`") };
    // The keyword stands within the rule that it belongs to.
    let keyword = error.schema_path().as_str();
    let rule = keyword.rsplit_once('/').and_then(|(rule, _)| schema.pointer(rule));
    let unexpected = match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => Some(unexpected),
        _ => None,
    };
    match (unexpected, rule) {
        (Some(unexpected), rule) => {
            let known: Vec<&str> = rule
                .and_then(|rule| rule.get("properties"))
                .and_then(Value::as_object)
                .map(|known| known.keys().map(String::as_str).collect())
                .unwrap_or_default();
            let mut text = format!("{place}: it has no `{}`", unexpected.join("`, `"));
            if let [unexpected] = unexpected.as_slice()
                && let Some(near) = nearest::nearest(unexpected, known.iter().copied())
            {
                let _ = write!(text, "; did you mean `{near}`?");
            }
            let allowed = if known.is_empty() { "nothing".to_owned() } else { known.join(", ") };
            text + &format!(" (allowed: {allowed})")
        }
        (None, Some(rule)) => format!("{place}: {error} (allowed: {})", allowed(rule)),
        (None, None) => format!("{place}: {error}"),
    }
}

/// A rule without what is said about it, short.
fn allowed(rule: &Value) -> String {
    let mut rule = rule.clone();
    if let Value::Object(rule) = &mut rule {
        for about in ["title", "description", "default", "examples", "$schema", "$defs"] {
            rule.shift_remove(about);
        }
    }
    let text = rule.to_string();
    let mut short: String = text.chars().take(MOST_ALLOWED).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(schema: &Value, config: Value) -> Option<String> {
        let Value::Object(config) = config else { panic!("not an object") };
        let checked = check("the harness `coder`", "coder", &schema.to_string(), &config);
        checked.err().map(|error| {
            assert!(error.is::<exit::Usage>(), "{error}");
            error.to_string()
        })
    }

    fn schema() -> Value {
        json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["mode"],
            "properties": {
                "mode": { "enum": ["function", "suite"], "description": "How to test." },
                "turns": { "type": "integer", "minimum": 1, "format": "uint32" },
                "prompts": { "type": "object", "additionalProperties": { "type": "string" } },
            },
        })
    }

    #[test]
    fn what_fits_passes() {
        assert_eq!(told(&schema(), json!({ "mode": "suite", "turns": 3 })), None);
        assert!(check("x", "x", "", &Map::new()).is_ok());
        assert!(check("x", "x", "true", &Map::new()).is_ok());
    }

    #[test]
    fn what_does_not_fit_is_named_with_its_place_and_what_is_allowed() {
        let config = json!({ "mode": "both", "turns": 0, "prompts": { "a": 1 }, "turn": 1 });
        let told = told(&schema(), config).unwrap();
        for words in [
            "the configuration of the harness `coder` is not right",
            "at `/mode`: \"both\"",
            "[\"function\",\"suite\"]",
            "at `/turns`: 0",
            "\"minimum\":1",
            "at `/prompts/a`: 1",
            "at the top: it has no `turn`; did you mean `turns`? (allowed: mode, turns, prompts)",
            "mend: `fulgurite inspect coder`",
        ] {
            assert!(told.contains(words), "`{words}` is not in: {told}");
        }
        assert!(!told.contains("How to test"), "{told}");
    }

    #[test]
    fn what_is_required_is_asked_for() {
        let told = told(&schema(), json!({})).unwrap();
        assert!(told.contains("\"mode\" is a required property"), "{told}");
    }

    #[test]
    fn a_schema_that_cannot_be_used_is_the_plugins_fault() {
        for (schema, word) in [
            ("{".to_owned(), "no JSON"),
            (json!({ "type": 3 }).to_string(), "cannot be used"),
            (json!({ "$ref": "http://127.0.0.1:1/x" }).to_string(), "127.0.0.1"),
            (json!({ "$ref": "file:///etc/passwd" }).to_string(), "passwd"),
            (format!("\"{}\"", "x".repeat(MOST_SCHEMA_BYTES)), "longer than"),
        ] {
            let error = check("the harness `x`", "x", &schema, &Map::new()).unwrap_err();
            assert!(error.is::<exit::Plugin>(), "{error}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn hostile_schemas_neither_crash_nor_hang() {
        // Refers to itself.
        assert!(check("x", "x", r##"{"$ref":"#"}"##, &Map::new()).is_ok());
        // A chain of references as long as fits.
        let links = 6000;
        let mut rules: Map<String, Value> = (0..links)
            .map(|n| (n.to_string(), json!({ "$ref": format!("#/$defs/{}", n + 1) })))
            .collect();
        rules.insert(links.to_string(), json!(true));
        let chain = json!({ "$ref": "#/$defs/0", "$defs": rules }).to_string();
        assert!(chain.len() < MOST_SCHEMA_BYTES);
        let _ = check("x", "x", &chain, &Map::new());
        // Backtracks for ever where patterns backtrack.
        let pattern = json!({ "properties": { "a": { "pattern": "^(a+)+$" } } }).to_string();
        let config = json!({ "a": format!("{}!", "a".repeat(40)) });
        let error = check("x", "x", &pattern, config.as_object().unwrap()).unwrap_err();
        assert!(error.is::<exit::Usage>(), "{error}");
    }
}
