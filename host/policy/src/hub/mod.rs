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

mod client;
mod failed;
mod listing;

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use reqwest::Client;

use self::{
    client::Hub,
    failed::Failed,
    listing::{INDEX, Listed, WHOLE, parts_of, wanted},
};
use crate::ApiKey;

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
    /// `ORGANISATION/NAME`, without the revision.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.organisation, self.name)
    }

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

fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.chars().all(|c| c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests;
