//! Policy specifications: the strings a user writes to name a policy.

use std::{fmt, path::PathBuf, str::FromStr};

use reqwest::Url;

use crate::HubModel;

/// A parsed policy specification. [`PolicySpec::from_str`] reads it, `Display` writes it back;
/// neither form ever holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicySpec {
    /// `openai:URL#MODEL`: any server that speaks OpenAI's chat completions.
    OpenAi {
        /// The base URL, e.g. `http://localhost:8000/v1`.
        url: Url,
        /// The model's name at that server.
        model: String,
    },
    /// `gguf:PATH`: a model file, run on this machine.
    Gguf(PathBuf),
    /// `folder:PATH`: a model as safetensors with its configuration and tokenizer, run on this
    /// machine.
    Folder(PathBuf),
    /// `hf:ORGANISATION/NAME[@REVISION]`: such a folder from the Hugging Face hub, fetched once.
    Hub(HubModel),
    /// `tiny:CONFIG.toml`: a byte-level model of the shape that a file describes.
    Tiny(PathBuf),
    /// `script:FILE`: replies from a JSON Lines file.
    Script(PathBuf),
    /// `oracle`: the reference replies that tasks carry.
    Oracle,
    /// `empty`: answers every call with empty text.
    Empty,
}

/// A specification that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{spec}` is no policy: {reason}\n  the forms are: openai:URL#MODEL (an OpenAI-compatible \
     server), gguf:PATH (a local model file), folder:PATH (a local folder with safetensors), \
     hf:ORGANISATION/NAME[@REVISION] (such a folder from the Hugging Face hub), tiny:CONFIG.toml \
     (a small byte-level model to train from scratch), script:FILE (replies from JSON Lines), oracle (the \
     tasks' reference replies), empty (always empty text)"
)]
pub struct SpecError {
    /// What was given, cut to a printable length and without the credentials of a URL.
    pub spec: String,
    /// What is wrong with it.
    pub reason: String,
}

impl FromStr for PolicySpec {
    type Err = SpecError;

    fn from_str(spec: &str) -> Result<Self, SpecError> {
        parse(spec).map_err(|reason| SpecError { spec: shown(spec), reason })
    }
}

fn parse(spec: &str) -> Result<PolicySpec, String> {
    let (kind, rest) = match spec.split_once(':') {
        Some((kind, rest)) => (kind, Some(rest)),
        None => (spec, None),
    };
    let path = |what: &str| match rest {
        Some(path) if !path.is_empty() => Ok(PathBuf::from(path)),
        _ => Err(format!("a {what} is missing after `{kind}:`")),
    };
    match (kind, rest) {
        ("openai", rest) => parse_openai(rest.unwrap_or_default()),
        ("gguf", _) => path("path").map(PolicySpec::Gguf),
        ("folder", _) => path("path").map(PolicySpec::Folder),
        ("tiny", _) => path("file").map(PolicySpec::Tiny),
        ("hf", rest) => rest.unwrap_or_default().parse().map(PolicySpec::Hub),
        ("script", _) => path("file").map(PolicySpec::Script),
        ("oracle", None) => Ok(PolicySpec::Oracle),
        ("empty", None) => Ok(PolicySpec::Empty),
        ("oracle" | "empty", Some(_)) => Err(format!("`{kind}` takes nothing after a colon")),
        ("", _) => Err("the kind is missing".to_owned()),
        ("http" | "https", _) => Err("a URL alone does not say which protocol and model; \
                                      put `openai:` before it and `#MODEL` behind it"
            .to_owned()),
        _ if spec.ends_with(".gguf") => Err("for a model file write `gguf:PATH`".to_owned()),
        _ if spec.ends_with(".safetensors") => {
            Err("for safetensors write `folder:` and the path of the folder they are in".to_owned())
        }
        _ if spec.ends_with(".toml") => Err("for a tiny model write `tiny:CONFIG.toml`".to_owned()),
        _ if spec.ends_with(".jsonl") => Err("for a script write `script:FILE`".to_owned()),
        _ => Err("its kind is unknown".to_owned()),
    }
}

fn parse_openai(rest: &str) -> Result<PolicySpec, String> {
    let (url, model) = match rest.split_once('#') {
        Some((url, model)) if !model.is_empty() => (url, model),
        _ => return Err("the model is missing; write openai:URL#MODEL".to_owned()),
    };
    if model.chars().any(char::is_control) {
        return Err("the model's name holds control characters".to_owned());
    }
    let url = Url::parse(url).map_err(|error| format!("the URL cannot be read: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("the URL's scheme is `{}`, not http or https", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the URL holds credentials; put the key into the environment variable \
                    OPENAI_API_KEY or FULGURITE_API_KEY instead"
            .to_owned());
    }
    if url.query().is_some() {
        return Err("the URL holds a query; only its base is wanted, \
                    e.g. http://localhost:8000/v1"
            .to_owned());
    }
    Ok(PolicySpec::OpenAi { url, model: model.to_owned() })
}

/// The specification as an error may show it.
fn shown(spec: &str) -> String {
    let mut text: String = spec.chars().filter(|c| !c.is_control()).take(200).collect();
    // Whatever stands before an `@` in an authority, or behind a `?`, may be a secret.
    if let Some(start) = text.find("://").map(|at| at + 3) {
        let end = text.get(start..).and_then(|rest| rest.find(['/', '#', '?']));
        let end = end.map_or(text.len(), |length| start + length);
        if let Some(at) = text.get(start..end).and_then(|authority| authority.rfind('@')) {
            text.replace_range(start..start + at, "…");
        }
    }
    if let Some(query) = text.find('?') {
        text.truncate(query);
        text.push_str("?…");
    }
    text
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenAi { url, model } => {
                write!(f, "openai:{}#{model}", url.as_str().trim_end_matches('/'))
            }
            Self::Gguf(path) => write!(f, "gguf:{}", path.display()),
            Self::Folder(path) => write!(f, "folder:{}", path.display()),
            Self::Hub(model) => write!(f, "hf:{model}"),
            Self::Tiny(path) => write!(f, "tiny:{}", path.display()),
            Self::Script(path) => write!(f, "script:{}", path.display()),
            Self::Oracle => f.write_str("oracle"),
            Self::Empty => f.write_str("empty"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_written_back() {
        for spec in [
            "openai:http://localhost:8000/v1#Qwen/Qwen3-8B:latest",
            "openai:https://api.example.com#m",
            "gguf:/models/a b.gguf",
            "folder:/models/SmolLM2-135M",
            "hf:HuggingFaceTB/SmolLM2-135M-Instruct",
            "hf:Qwen/Qwen3-0.6B@c1899de289a04d12100db370d81485cdf75e47ca",
            "tiny:tiny.toml",
            "script:replies.jsonl",
            "oracle",
            "empty",
        ] {
            let parsed: PolicySpec = spec.parse().unwrap();
            assert_eq!(parsed.to_string(), spec);
        }
    }

    #[test]
    fn errors_name_the_forms() {
        for (spec, part) in [
            ("", "kind is missing"),
            ("gpt-5", "unknown"),
            ("openai:http://localhost:8000/v1", "model is missing"),
            ("openai:ftp://x#m", "not http or https"),
            ("openai:nonsense#m", "cannot be read"),
            ("openai:http://x/v1?a=b#m", "query"),
            ("gguf:", "path is missing"),
            ("script", "file is missing"),
            ("oracle:x", "takes nothing"),
            ("folder:", "path is missing"),
            ("hf:Qwen3", "ORGANISATION/NAME"),
            ("hf:../etc", "letters, digits"),
            ("model.gguf", "gguf:PATH"),
            ("model/model.safetensors", "`folder:`"),
            ("tiny.toml", "tiny:CONFIG.toml"),
            ("http://localhost:8000", "openai:"),
        ] {
            let error = spec.parse::<PolicySpec>().unwrap_err().to_string();
            assert!(error.contains(part), "{spec}: {error}");
            assert!(error.contains("openai:URL#MODEL"), "{error}");
        }
    }

    #[test]
    fn a_key_in_the_url_is_refused_and_not_repeated() {
        for spec in [
            "openai:https://user:sk-secret@example.com/v1#m",
            "openai:https://sk-secret@example.com#m",
            "openai:https://example.com/v1?key=sk-secret#m",
            "open:https://sk-secret@example.com?key=sk-secret",
        ] {
            let error = spec.parse::<PolicySpec>().unwrap_err().to_string();
            assert!(!error.contains("sk-secret"), "{error}");
        }
    }
}
