//! Tools as types.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::bindings::harness::fulgurite::plugin::types::ToolDefinition;
use crate::configuration::schema_of;

/// A tool offered to a model. The type is the tool's arguments; its JSON Schema, doc comments of
/// fields included, is what the model sees.
///
/// ```
/// use fulgurite_sdk::harness::*;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Bash {
///     /// The line to run.
///     command: String,
/// }
///
/// impl Tool for Bash {
///     const NAME: &'static str = "bash";
///     const DESCRIPTION: &'static str = "Runs a shell line in the workspace.";
/// }
///
/// assert!(Bash::definition().parameters.contains("The line to run."));
/// ```
pub trait Tool: DeserializeOwned + JsonSchema {
    /// What the model calls it.
    const NAME: &'static str;
    /// What the model is told about it.
    const DESCRIPTION: &'static str;

    /// The tool as the contract has it.
    fn definition() -> ToolDefinition {
        let mut parameters = schema_of::<Self>();
        if let Some(object) = parameters.as_object_mut() {
            // The doc comment of the type is for readers of the code.
            object.remove("description");
        }
        ToolDefinition {
            name: Self::NAME.to_string(),
            description: Self::DESCRIPTION.to_string(),
            parameters: parameters.to_string(),
        }
    }
}
