//! Models from the Hugging Face hub: listed, fetched, checked, kept.
//!
//! The files go where Python's `huggingface_hub` keeps them (`models--ORG--NAME/snapshots/COMMIT`
//! in the hub's cache folder, with the commit of each revision under `refs`), so that a model
//! which another program fetched is not fetched again, and the other way round. Only what a model
//! is read from is fetched: configuration, tokenizer, chat template, safetensors.
//!
//! - **No hang.** Connecting, the server's first answer and every pause within a file have a
//!   limit each.
//! - **No half file.** A file is written beside its place, its size and, where the hub names one,
//!   its SHA-256 are checked, and then it is moved there.
//! - **Offline works.** When the hub cannot be reached, a revision that is there whole is used.
//! - The token goes to the hub alone: not along with redirects to another host.
//!
//! A client of our own, since the hub's Rust client brings its own storage protocol (three hundred
//! packages) for what are a list and a few plain downloads.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use futures::StreamExt;
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::{fs::File, io::AsyncWriteExt};

use crate::ApiKey;

/// The largest list of files, in bytes.
const MAXIMUM_LIST: usize = 8 << 20;
/// What a model is read from, besides its weights.
const FILES: [&str; 5] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
];
const WHOLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// A model of the hub and which of its revisions: `org/name` or `org/name@revision`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubModel {
    organisation: String,
    name: String,
    /// A branch, tag or commit.
    revision: String,
}

/// How to talk to the hub.
#[derive(Debug, Clone)]
pub struct HubOptions {
    /// The hub, or a mirror of it.
    pub endpoint: String,
    /// The folder in which models are kept.
    pub cache: PathBuf,
    /// The token, for models that want one.
    pub token: Option<ApiKey>,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// How long the server may take to begin an answer, and pause within one.
    pub idle_timeout: Duration,
}

/// A model that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the model hf:{model}: {reason}\n  mend: {mend}")]
pub struct HubError {
    model: String,
    reason: String,
    mend: String,
}

/// What went wrong, before the model is named.
struct Failed {
    reason: String,
    mend: Option<&'static str>,
    /// Whether the hub said nothing, so that what is kept may serve.
    unreachable: bool,
}

#[derive(Deserialize)]
struct Listed {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    lfs: Option<Large>,
}

#[derive(Deserialize)]
struct Large {
    sha256: Option<String>,
}

impl HubOptions {
    /// From the environment variables that other programs of the hub know: `HF_ENDPOINT`,
    /// `HF_TOKEN`, `HF_HUB_CACHE`, `HF_HOME`, `XDG_CACHE_HOME`, `HOME`.
    pub fn from_environment() -> Self {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let folder = |name: &str| text(name).map(PathBuf::from);
        let user =
            || folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|at| at.join(".cache")));
        let home = || folder("HF_HOME").or_else(|| user().map(|at| at.join("huggingface")));
        let cache = folder("HF_HUB_CACHE").or_else(|| home().map(|at| at.join("hub")));
        Self {
            endpoint: text("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned()),
            cache: cache.unwrap_or_else(|| std::env::temp_dir().join("huggingface")),
            token: ApiKey::from_environment(Some("HF_TOKEN")).ok().flatten(),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(30),
        }
    }
}

impl FromStr for HubModel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (model, revision) = text.split_once('@').unwrap_or((text, "main"));
        let (organisation, name) = model
            .split_once('/')
            .ok_or("a model of the hub is named ORGANISATION/NAME, optionally @REVISION")?;
        let plain = |part: &str, more: &str| {
            let known =
                |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c) || more.contains(c);
            let sound = part.split('/').all(|part| !part.is_empty() && !part.starts_with('.'));
            sound && part.len() <= 128 && part.chars().all(known)
        };
        if !plain(organisation, "") || !plain(name, "") || !plain(revision, "/") {
            return Err("names on the hub are letters, digits, `-`, `_` and `.`".to_owned());
        }
        let [organisation, name, revision] = [organisation, name, revision].map(str::to_owned);
        Ok(Self { organisation, name, revision })
    }
}

impl fmt::Display for HubModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.organisation, self.name)?;
        if self.revision == "main" { Ok(()) } else { write!(f, "@{}", self.revision) }
    }
}

impl HubModel {
    /// The folder with the model's files, fetched where they are not there yet. May take as long
    /// as the files are large; not for the threads of an asynchronous runtime.
    pub fn fetch(&self, options: &HubOptions) -> Result<PathBuf, HubError> {
        let fail = |failed: Failed| HubError {
            model: self.to_string(),
            reason: failed.reason,
            mend: failed
                .mend
                .unwrap_or(
                    "check the network, set HF_ENDPOINT to a mirror, or bring the files here \
                     another way and write folder:PATH",
                )
                .to_owned(),
        };
        let run = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(Failed::local)?;
            runtime.block_on(self.fetched(options))
        };
        // A thread of its own: a runtime cannot be entered from within another.
        let result = std::thread::scope(|scope| scope.spawn(run).join());
        let result = result.unwrap_or_else(|_| Err(Failed::local("the download panicked")));
        match result {
            Err(failed) if failed.unreachable => self.kept(options).ok_or_else(|| fail(failed)),
            result => result.map_err(fail),
        }
    }

    fn folder(&self, options: &HubOptions) -> PathBuf {
        options.cache.join(format!("models--{}--{}", self.organisation, self.name))
    }

    /// The revision as it was fetched before, if it is there whole.
    fn kept(&self, options: &HubOptions) -> Option<PathBuf> {
        let folder = self.folder(options);
        let commit = std::fs::read_to_string(folder.join("refs").join(&self.revision));
        let commit = commit.unwrap_or_else(|_| self.revision.clone());
        let commit = commit.trim();
        let snapshot = is_commit(commit).then(|| folder.join("snapshots").join(commit))?;
        let there = |name: &str| snapshot.join(name).is_file();
        let index = std::fs::read(snapshot.join(INDEX)).unwrap_or_default();
        let parts = parts_of(&index);
        let weights = there(WHOLE) || (!parts.is_empty() && parts.iter().all(|part| there(part)));
        (there("config.json") && there("tokenizer.json") && weights).then_some(snapshot)
    }

    async fn fetched(&self, options: &HubOptions) -> Result<PathBuf, Failed> {
        let client = Client::builder()
            .connect_timeout(options.connect_timeout)
            .read_timeout(options.idle_timeout)
            .user_agent(concat!("fulgurite/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(Failed::local)?;
        let hub = Hub { client, options };
        let Self { organisation, name, revision } = self;
        let path = ["api", "models", organisation, name, "revision", revision];
        let mut url = hub.url(&path)?;
        url.set_query(Some("blobs=true"));
        let list = hub.get(url).await?;
        let list: Listed = serde_json::from_slice(&hub.whole(list).await?)
            .map_err(|error| Failed::of(format!("the hub's list cannot be read: {error}")))?;
        if !is_commit(&list.sha) {
            return Err(Failed::of("the hub names no commit".to_owned()));
        }
        let wanted = wanted(&list.siblings)?;
        let folder = self.folder(options);
        let snapshot = folder.join("snapshots").join(&list.sha);
        tokio::fs::create_dir_all(&snapshot)
            .await
            .map_err(|error| Failed::at(&snapshot, &error))?;
        for file in wanted {
            let place = snapshot.join(&file.rfilename);
            let size = tokio::fs::metadata(&place).await.map(|known| known.len());
            if size.is_ok_and(|size| file.size.is_none_or(|wanted| wanted == size)) {
                continue;
            }
            tracing::info!(model = %self, file = file.rfilename, bytes = file.size, "fetching");
            let path = [organisation, name, "resolve", &list.sha, &file.rfilename];
            let response = hub.get(hub.url(&path)?).await?;
            hub.save(response, file, &place).await?;
        }
        let reference = folder.join("refs").join(revision);
        if let Some(parent) = reference.parent() {
            let _ = tokio::fs::create_dir_all(parent).await;
        }
        // Only needed without the hub.
        let _ = tokio::fs::write(&reference, &list.sha).await;
        Ok(snapshot)
    }
}

struct Hub<'a> {
    client: Client,
    options: &'a HubOptions,
}

impl Hub<'_> {
    fn url(&self, path: &[&str]) -> Result<Url, Failed> {
        let endpoint = &self.options.endpoint;
        let broken = || Failed::of(format!("HF_ENDPOINT is no address of a server: {endpoint:?}"));
        let mut url = Url::parse(endpoint).map_err(|_| broken())?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(broken());
        }
        // A revision's `/` is part of its name.
        url.path_segments_mut().map_err(|()| broken())?.pop_if_empty().extend(path);
        Ok(url)
    }

    async fn get(&self, url: Url) -> Result<Response, Failed> {
        let mut request = self.client.get(url.clone());
        if let Some(token) = &self.options.token {
            let value = reqwest::header::HeaderValue::from_str(&token.bearer());
            let mut value = value.map_err(|_| Failed::of("the token fits no header".to_owned()))?;
            value.set_sensitive(true);
            request = request.header(reqwest::header::AUTHORIZATION, value);
        }
        let place = url.host_str().unwrap_or("the hub").to_owned();
        let limit = self.options.connect_timeout + self.options.idle_timeout;
        let silent = |why: String| Failed {
            reason: format!("{place} cannot be reached ({why})"),
            mend: None,
            unreachable: true,
        };
        let response = tokio::time::timeout(limit, request.send())
            .await
            .map_err(|_| silent(format!("no answer within {} s", limit.as_secs_f32())))?
            .map_err(|error| silent(cause(&error)))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let mend = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                "check the name; if the model is private or gated, accept its terms on the hub and \
                 put a token that may read it into HF_TOKEN"
            }
            StatusCode::NOT_FOUND => "check the name and the revision",
            _ => "try again later, or bring the files here another way and write folder:PATH",
        };
        let unreachable = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        Err(Failed { reason: format!("{place} answers {status}"), mend: Some(mend), unreachable })
    }

    /// A short answer.
    async fn whole(&self, response: Response) -> Result<Vec<u8>, Failed> {
        let mut bytes = Vec::new();
        let mut parts = response.bytes_stream();
        while let Some(part) = parts.next().await {
            bytes.extend_from_slice(&part.map_err(|error| Failed::broken(&error))?);
            if bytes.len() > MAXIMUM_LIST {
                return Err(Failed::of("the hub's list is too long".to_owned()));
            }
        }
        Ok(bytes)
    }

    /// Writes a file beside its place, checks it and moves it there.
    async fn save(&self, response: Response, file: &Sibling, place: &Path) -> Result<(), Failed> {
        let beside = place.with_extension(format!("{}.part", std::process::id()));
        let written = self.write(response, file, &beside).await;
        let moved = match written {
            Ok(()) => {
                tokio::fs::rename(&beside, place).await.map_err(|error| Failed::at(place, &error))
            }
            Err(failed) => Err(failed),
        };
        if moved.is_err() {
            let _ = tokio::fs::remove_file(&beside).await;
        }
        moved
    }

    async fn write(&self, response: Response, file: &Sibling, place: &Path) -> Result<(), Failed> {
        let at = |error: std::io::Error| Failed::at(place, &error);
        let name = &file.rfilename;
        let mut to = File::create(place).await.map_err(at)?;
        let (mut hash, mut size) = (Sha256::new(), 0u64);
        let mut parts = response.bytes_stream();
        while let Some(part) = parts.next().await {
            let part = part.map_err(|error| Failed::broken(&error))?;
            size += part.len() as u64;
            if file.size.is_some_and(|wanted| size > wanted) {
                break;
            }
            hash.update(&part);
            to.write_all(&part).await.map_err(at)?;
        }
        to.sync_all().await.map_err(at)?;
        if let Some(wanted) = file.size
            && wanted != size
        {
            let reason = format!("{name} came with {size} bytes, not {wanted}");
            return Err(Failed::of(reason));
        }
        let digest = hexadecimal(&hash.finalize());
        match file.lfs.as_ref().and_then(|large| large.sha256.as_ref()) {
            Some(wanted) if !wanted.eq_ignore_ascii_case(&digest) => {
                Err(Failed::of(format!("{name} has the SHA-256 {digest}, not {wanted}")))
            }
            _ => Ok(()),
        }
    }
}

/// The files to fetch.
fn wanted(listed: &[Sibling]) -> Result<Vec<&Sibling>, Failed> {
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
fn parts_of(index: &[u8]) -> Vec<String> {
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

fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.chars().all(|c| c.is_ascii_hexdigit())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The innermost cause, which says more than the layers around it.
fn cause(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string().chars().filter(|c| !c.is_control()).take(200).collect()
}

impl Failed {
    const fn of(reason: String) -> Self {
        Self { reason, mend: None, unreachable: false }
    }

    fn local(error: impl fmt::Display) -> Self {
        Self::of(format!("the download cannot be started: {error}"))
    }

    fn at(place: &Path, error: &std::io::Error) -> Self {
        Self {
            reason: format!("{} cannot be written: {error}", place.display()),
            mend: Some("make room there, or set HF_HUB_CACHE to another folder"),
            unreachable: false,
        }
    }

    fn broken(error: &reqwest::Error) -> Self {
        let reason = format!("the download broke off ({})", cause(error));
        Self { reason, mend: None, unreachable: true }
    }
}

#[cfg(test)]
#[path = "hub_tests.rs"]
mod tests;
