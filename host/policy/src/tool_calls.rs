//! What makes a tool call malformed; one answer for all policies.

use serde_json::{Map, Value};

/// The most calls taken from one reply.
pub(crate) const MAXIMUM_CALLS: usize = 128;

/// Why these arguments are malformed, if they are: they must be one JSON object.
pub(crate) fn arguments_problem(arguments: &str) -> Option<String> {
    match serde_json::from_str::<Map<String, Value>>(arguments) {
        Ok(_) => None,
        Err(error) => Some(format!("the arguments are no JSON object: {error}")),
    }
}

/// Why a call is malformed, if it is.
pub(crate) fn problem(name: &str, arguments: &str) -> Option<String> {
    if name.is_empty() {
        return Some("the call names no tool".to_owned());
    }
    arguments_problem(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_named_call_with_an_object_is_well_formed() {
        assert_eq!(problem("bash", r#"{"a":[1]}"#), None);
        for (name, arguments) in
            [("", "{}"), ("bash", ""), ("bash", "[]"), ("bash", "{"), ("bash", "{} {}")]
        {
            assert!(problem(name, arguments).is_some(), "{name} {arguments}");
        }
        // Deeply nested input is an error, not an exhausted stack.
        assert!(problem("bash", &"[".repeat(1 << 20)).is_some());
    }
}
