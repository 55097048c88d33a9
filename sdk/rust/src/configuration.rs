//! A plugin's configuration: from its type to a JSON Schema, from JSON to a value.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// A configuration without any setting.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

/// The JSON Schema of a type, without references to elsewhere.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let mut value = schema.to_value();
    if let Some(object) = value.as_object_mut() {
        object.remove("title");
    }
    value
}

/// The schema of a configuration that also takes the named prompts.
pub(crate) fn config_schema<T: JsonSchema>(prompts: &[&str]) -> String {
    let mut schema = schema_of::<T>();
    if let (false, Some(object)) = (prompts.is_empty(), schema.as_object_mut()) {
        let names: Map<String, Value> =
            prompts.iter().map(|name| (name.to_string(), json!({"type": "string"}))).collect();
        let properties = object.entry("properties").or_insert_with(|| json!({}));
        if let Some(properties) = properties.as_object_mut() {
            properties.insert(
                "prompts".to_string(),
                json!({
                    "type": "object",
                    "description": "Texts that replace the named prompts.",
                    "properties": names,
                    "additionalProperties": false,
                }),
            );
        }
    }
    schema.to_string()
}

/// Splits a configuration into its prompts and the rest, and reads the rest as `T`.
pub(crate) fn parse<T: DeserializeOwned>(
    text: &str,
    prompts: &[&str],
) -> Result<(T, BTreeMap<String, String>), String> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    let mut object: Map<String, Value> = serde_json::from_str(text)
        .map_err(|error| format!("the configuration is not a JSON object: {error}"))?;
    let mut replaced = BTreeMap::new();
    if !prompts.is_empty()
        && let Some(given) = object.remove("prompts")
    {
        replaced = BTreeMap::<String, String>::deserialize(given)
            .map_err(|error| format!("`prompts` in the configuration: {error}"))?;
        if let Some(name) = replaced.keys().find(|name| !prompts.contains(&name.as_str())) {
            return Err(format!(
                "`prompts.{name}` in the configuration: no such prompt; there are {}",
                prompts.join(", ")
            ));
        }
    }
    let config = T::deserialize(Value::Object(object))
        .map_err(|error| format!("the configuration does not fit: {error}"))?;
    Ok((config, replaced))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Config {
        /// How often.
        #[serde(default)]
        times: u32,
    }

    #[test]
    fn an_empty_text_is_an_empty_object() {
        assert_eq!(parse::<Config>("", &[]).unwrap().0.times, 0);
    }

    #[test]
    fn unknown_settings_and_prompts_are_named() {
        let error = parse::<Config>(r#"{"tmes": 1}"#, &[]).unwrap_err();
        assert!(error.contains("tmes"), "{error}");
        let error = parse::<Config>(r#"{"prompts": {"sistem": ""}}"#, &["system"]).unwrap_err();
        assert!(error.contains("sistem") && error.contains("system"), "{error}");
    }

    #[test]
    fn prompts_are_taken_out_of_the_configuration() {
        let text = r#"{"times": 2, "prompts": {"system": "be kind"}}"#;
        let (config, prompts) = parse::<Config>(text, &["system"]).unwrap();
        assert_eq!(config.times, 2);
        assert_eq!(prompts.get("system").map(String::as_str), Some("be kind"));
    }

    #[test]
    fn the_schema_carries_documentation_and_prompts() {
        let schema: Value = serde_json::from_str(&config_schema::<Config>(&["system"])).unwrap();
        assert_eq!(schema["properties"]["times"]["description"], "How often.");
        assert_eq!(schema["properties"]["prompts"]["properties"]["system"]["type"], "string");
    }
}
