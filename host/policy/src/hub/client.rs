//! Requests to the hub, and files that are checked on their way to the disk.

use std::path::Path;

use futures::StreamExt;
use reqwest::{Client, Response, StatusCode, Url};
use sha2::{Digest as _, Sha256};
use tokio::{fs::File, io::AsyncWriteExt};

use super::{
    HubOptions,
    failed::{Failed, cause},
    listing::Sibling,
};

/// The largest list of files, in bytes.
const MAXIMUM_LIST: usize = 8 << 20;
/// The hub.
pub(super) struct Hub<'a> {
    pub(super) client: Client,
    pub(super) options: &'a HubOptions,
}

impl Hub<'_> {
    pub(super) fn url(&self, path: &[&str]) -> Result<Url, Failed> {
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

    pub(super) async fn get(&self, url: Url) -> Result<Response, Failed> {
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
    pub(super) async fn whole(&self, response: Response) -> Result<Vec<u8>, Failed> {
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
    pub(super) async fn save(
        &self,
        response: Response,
        file: &Sibling,
        place: &Path,
    ) -> Result<(), Failed> {
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

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
