//! What the hub lists of a model, and which of it is wanted.

use serde::Deserialize;

use super::failed::Failed;

/// What a model is read from, besides its weights.
const FILES: [&str; 5] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
];
pub(super) const WHOLE: &str = "model.safetensors";
pub(super) const INDEX: &str = "model.safetensors.index.json";

#[derive(Deserialize)]
pub(super) struct Listed {
    pub(super) sha: String,
    pub(super) siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
pub(super) struct Sibling {
    pub(super) rfilename: String,
    pub(super) size: Option<u64>,
    pub(super) lfs: Option<Large>,
}

#[derive(Deserialize)]
pub(super) struct Large {
    pub(super) sha256: Option<String>,
}

/// The files to fetch.
pub(super) fn wanted(listed: &[Sibling]) -> Result<Vec<&Sibling>, Failed> {
    let find = |name: &str| listed.iter().find(|file| file.rfilename == name);
    let mut wanted: Vec<&Sibling> = FILES.iter().filter_map(|name| find(name)).collect();
    match find(WHOLE) {
        Some(whole) => wanted.push(whole),
        None => {
            wanted.extend(find(INDEX));
            wanted.extend(listed.iter().filter(|file| is_part(&file.rfilename)));
        }
    }
    let weights = wanted.iter().any(|file| file.rfilename.ends_with(".safetensors"));
    let missing = ["config.json", "tokenizer.json"].into_iter().find(|name| find(name).is_none());
    let missing = missing.or((!weights).then_some("*.safetensors"));
    match missing {
        None => Ok(wanted),
        Some(missing) => Err(Failed {
            reason: format!("it has no {missing} on the hub"),
            mend: Some(
                "take a repository of the model that holds safetensors and a tokenizer.json; \
                 for a GGUF file, download it and write gguf:PATH",
            ),
            unreachable: false,
        }),
    }
}

/// Whether this is a part of weights that are spread over several files, and no path.
fn is_part(name: &str) -> bool {
    let inner = name.strip_prefix("model-").and_then(|rest| rest.strip_suffix(".safetensors"));
    inner.is_some_and(|inner| {
        inner.len() <= 64 && inner.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    })
}

/// The files that an index names.
pub(super) fn parts_of(index: &[u8]) -> Vec<String> {
    #[derive(Deserialize, Default)]
    struct Index {
        weight_map: std::collections::BTreeMap<String, String>,
    }
    let index: Index = serde_json::from_slice(index).unwrap_or_default();
    let mut parts: Vec<String> = index.weight_map.into_values().collect();
    parts.sort_unstable();
    parts.dedup();
    parts
}
