//! What a configuration file names, and what may be a path: relative to that file then.

use std::path::Path;

use fulgurite_policy::PolicySpec;
use serde_json::{Map, Value};

/// A component: a registered name, or a file that ends in `.wasm`.
pub(crate) fn component(folder: &Path, name: &str) -> String {
    let is_file = Path::new(name).extension().is_some_and(|extension| extension == "wasm");
    if is_file { joined(folder, name) } else { name.to_owned() }
}

/// A policy, of which some kinds name a file or a folder.
pub(crate) fn policy(folder: &Path, policy: &str) -> String {
    let spec = match policy.parse() {
        Ok(PolicySpec::Gguf(path)) => PolicySpec::Gguf(folder.join(path)),
        Ok(PolicySpec::Folder(path)) => PolicySpec::Folder(folder.join(path)),
        Ok(PolicySpec::Tiny(path)) => PolicySpec::Tiny(folder.join(path)),
        Ok(PolicySpec::Script(path)) => PolicySpec::Script(folder.join(path)),
        // What is no policy is told by whoever opens it.
        Ok(_) | Err(_) => return policy.to_owned(),
    };
    spec.to_string()
}

/// Options of a policy, of which `adapter` names a folder.
pub(crate) fn policy_options(folder: &Path, mut options: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::String(path)) = options.get_mut("adapter") {
        *path = joined(folder, path);
    }
    options
}

fn joined(folder: &Path, path: &str) -> String {
    folder.join(path).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_are_beside_the_configuration_and_names_stay() {
        let folder = Path::new("/project");
        assert_eq!(component(folder, "a/b.wasm"), "/project/a/b.wasm");
        assert_eq!(component(folder, "/c.wasm"), "/c.wasm");
        assert_eq!(component(folder, "coder"), "coder");
        assert_eq!(policy(folder, "gguf:m.gguf"), "gguf:/project/m.gguf");
        assert_eq!(policy(folder, "script:/s.jsonl"), "script:/s.jsonl");
        assert_eq!(policy(folder, "openai:http://h/v1#m"), "openai:http://h/v1#m");
        assert_eq!(policy(folder, "oracle"), "oracle");
        assert_eq!(policy(folder, "orakel:x"), "orakel:x");
        let options = json!({ "adapter": "out/adapter", "slots": 3 });
        let options = policy_options(folder, options.as_object().unwrap().clone());
        assert_eq!(options["adapter"], "/project/out/adapter");
        assert_eq!(options["slots"], 3);
    }
}
