//! A client of any server that speaks OpenAI's chat completions: OpenAI, vLLM, SGLang,
//! llama.cpp, Ollama and many more.
//!
//! It is message-level: the server tokenises. What it promises:
//!
//! - The key is sent to the configured address only, and shown nowhere. Redirects are not
//!   followed, proxies of the environment are not used.
//! - A reply is complete or an error; one that breaks off is [`PolicyError::Unavailable`].
//! - Everything that is read is bounded in size and time.
//! - No retries: that is the gateway's part.
//!
//! With [`OpenAiOptions::token_ids`] the server is asked for the token ids and
//! log-probabilities of the reply (`return_token_ids` and `logprobs`, which vLLM answers).
//! Where it gives none, the reply has no tokens and cannot be trained on. vLLM's log-probabilities
//! are those of the sampling distribution only under `--logprobs-mode processed_logprobs`, or
//! at temperature 1.

mod body;
mod failure;
mod key;
mod request;
mod response;

use std::{fmt, time::Duration};

use async_trait::async_trait;
use eventsource_stream::{EventStreamError, Eventsource};
use futures::StreamExt;
use reqwest::{Client, RequestBuilder, Response, Url, header};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use self::{
    body::BodyReader,
    request::RequestStyle,
    response::{Body, Draft},
};
use crate::{
    Chunk, Policy, PolicyError, PolicyInfo, PolicyReply, ReplyRequest, chunks::ChunkSender,
};

pub use key::{ApiKey, KeyError};

/// How to talk to the server.
#[derive(Debug, Clone)]
pub struct OpenAiOptions {
    /// Sent as a bearer token.
    pub key: Option<ApiKey>,
    /// Ask for token ids and log-probabilities. Servers that do not know the fields may refuse
    /// the request.
    pub token_ids: bool,
    /// Send the model's earlier thinking back to the server (`reasoning_content`).
    pub send_thinking: bool,
    /// Whether the server takes tool definitions.
    pub native_tools: bool,
    /// Tokens of history and reply together, where known.
    pub context_length: Option<u32>,
    /// Fields added to every request, e.g. `top_k`; they replace fields of the same name.
    pub extra: Map<String, Value>,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// How long the answer's head may take; without streaming this is the whole reply.
    pub answer_timeout: Duration,
    /// How long the server may pause within an answer.
    pub idle_timeout: Duration,
}

impl Default for OpenAiOptions {
    fn default() -> Self {
        Self {
            key: None,
            token_ids: false,
            send_thinking: false,
            native_tools: true,
            context_length: None,
            extra: Map::new(),
            connect_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(600),
            idle_timeout: Duration::from_secs(120),
        }
    }
}

/// A policy behind an OpenAI-compatible server. See the [module](self).
pub struct OpenAi {
    info: PolicyInfo,
    client: Client,
    url: Url,
    place: String,
    style: RequestStyle,
    options: OpenAiOptions,
}

impl fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAi")
            .field("info", &self.info)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl OpenAi {
    /// A client of the server at this base URL (`http://localhost:8000/v1`; the path
    /// `/chat/completions` is added unless it is there). Connects at the first call.
    pub fn new(url: &Url, model: &str, options: OpenAiOptions) -> Result<Self, PolicyError> {
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(options.connect_timeout)
            .user_agent(concat!("fulgurite/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| PolicyError::Internal(format!("no HTTP client: {error}")))?;
        let base = url.as_str().trim_end_matches('/');
        let name = format!("openai:{base}#{model}");
        let mut endpoint = url.clone();
        if !base.ends_with("/chat/completions") {
            endpoint.set_path(&format!("{}/chat/completions", url.path().trim_end_matches('/')));
        }
        if options.key.is_some() && endpoint.scheme() == "http" && !is_local(&endpoint) {
            tracing::warn!(policy = %name, "the key is sent over a connection without encryption");
        }
        let style = RequestStyle {
            model: model.to_owned(),
            maximum_field: if endpoint.host_str() == Some("api.openai.com") {
                "max_completion_tokens"
            } else {
                "max_tokens"
            },
            token_ids: options.token_ids,
            send_thinking: options.send_thinking,
            extra: options.extra.clone(),
        };
        let info = PolicyInfo {
            name,
            context_length: options.context_length,
            native_tools: options.native_tools,
        };
        Ok(Self { info, client, place: endpoint.to_string(), url: endpoint, style, options })
    }

    /// The request with the key, where there is one.
    fn with_key(&self, request: RequestBuilder) -> Result<RequestBuilder, PolicyError> {
        let Some(key) = &self.options.key else { return Ok(request) };
        let mut value = header::HeaderValue::from_str(&key.bearer())
            .map_err(|_| PolicyError::Internal("the key fits no header".to_owned()))?;
        value.set_sensitive(true);
        Ok(request.header(header::AUTHORIZATION, value))
    }

    /// Asks for the list of models, which costs nothing. Servers that have none say so, and are
    /// there all the same: only a missing server and a refused key are errors.
    async fn knock(&self) -> Result<(), PolicyError> {
        let mut url = self.url.clone();
        url.set_path(&format!("{}/models", url.path().trim_end_matches("/chat/completions")));
        let place = url.to_string();
        let request = self.with_key(self.client.get(url))?;
        let answer = tokio::time::timeout(self.options.connect_timeout, request.send()).await;
        let response = match answer {
            Ok(Ok(response)) => response,
            Ok(Err(error)) if error.is_connect() => {
                return Err(failure::transport(&error, &place));
            }
            _ => return Ok(()),
        };
        let (status, headers) = (response.status(), response.headers().clone());
        if !matches!(status.as_u16(), 401 | 403) {
            return Ok(());
        }
        let body = self.reader(response).beginning().await;
        let body = self.redact(&String::from_utf8_lossy(&body)).into_bytes();
        Err(failure::status(status, &headers, &body, &place))
    }

    async fn ask(&self, body: &Value) -> Result<Response, PolicyError> {
        let request = self.with_key(self.client.post(self.url.clone()).json(body))?;
        let response = tokio::time::timeout(self.options.answer_timeout, request.send())
            .await
            .map_err(|_| PolicyError::Timeout)?
            .map_err(|error| failure::transport(&error, &self.place))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (status, headers) = (response.status(), response.headers().clone());
        let body = self.reader(response).beginning().await;
        // Before it is cut: half a key is a secret too.
        let body = self.redact(&String::from_utf8_lossy(&body)).into_bytes();
        Err(failure::status(status, &headers, &body, &self.place))
    }

    fn reader(&self, response: Response) -> BodyReader<'_> {
        BodyReader { response, idle: self.options.idle_timeout, place: &self.place }
    }

    async fn read_whole(
        &self,
        response: Response,
        chunks: &mut ChunkSender,
    ) -> Result<Draft, PolicyError> {
        let bytes = self.reader(response).whole().await?;
        let body: Body = serde_json::from_slice(&bytes).map_err(|error| {
            if error.is_eof() {
                PolicyError::Unavailable(format!("the answer of {} broke off", self.place))
            } else {
                self.no_completion(&error, &bytes)
            }
        })?;
        let mut draft = Draft::default();
        draft.add(body, chunks)?;
        Ok(draft)
    }

    async fn read_stream(
        &self,
        response: Response,
        chunks: &mut ChunkSender,
    ) -> Result<Draft, PolicyError> {
        let events = self.reader(response).pieces().eventsource();
        let mut events = std::pin::pin!(events);
        let mut draft = Draft::default();
        while let Some(event) = events.next().await {
            let event = event.map_err(|error| match error {
                EventStreamError::Transport(error) => error,
                EventStreamError::Utf8(_) | EventStreamError::Parser(_) => PolicyError::Internal(
                    format!("{} answers with a malformed event stream", self.place),
                ),
            })?;
            if event.data.trim() == "[DONE]" {
                break;
            }
            if event.data.is_empty() {
                continue;
            }
            let body: Body = serde_json::from_str(&event.data)
                .map_err(|error| self.no_completion(&error, event.data.as_bytes()))?;
            draft.add(body, chunks)?;
        }
        if draft.is_finished() {
            return Ok(draft);
        }
        Err(PolicyError::Unavailable(format!(
            "the answer of {} broke off after {} characters",
            self.place,
            draft.characters()
        )))
    }

    fn no_completion(&self, error: &serde_json::Error, body: &[u8]) -> PolicyError {
        let start = body.get(..4096).unwrap_or(body);
        PolicyError::Internal(format!(
            "{} answers with something that is no chat completion ({error}): {}",
            self.place,
            failure::excerpt(&self.redact(&String::from_utf8_lossy(start)))
        ))
    }

    fn redact(&self, text: &str) -> String {
        match &self.options.key {
            Some(key) => key.redact(text),
            None => text.to_owned(),
        }
    }

    async fn exchange(
        &self,
        request: &ReplyRequest,
        chunks: Option<mpsc::Sender<Chunk>>,
    ) -> Result<PolicyReply, PolicyError> {
        let stream = chunks.is_some();
        let response = self.ask(&request::body(&self.style, request, stream)?).await?;
        let is_stream = response
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|kind| kind.starts_with("text/event-stream"));
        let mut chunks = ChunkSender::new(chunks);
        let draft = if is_stream {
            self.read_stream(response, &mut chunks).await?
        } else {
            self.read_whole(response, &mut chunks).await?
        };
        chunks.flush();
        draft.finish(request.key.turn)
    }

    /// The error without the key, should the server have echoed it.
    fn without_key(&self, error: PolicyError) -> PolicyError {
        match error {
            PolicyError::Unavailable(text) => PolicyError::Unavailable(self.redact(&text)),
            PolicyError::Unauthorized(text) => PolicyError::Unauthorized(self.redact(&text)),
            PolicyError::ContextLength(text) => PolicyError::ContextLength(self.redact(&text)),
            PolicyError::Invalid(text) => PolicyError::Invalid(self.redact(&text)),
            PolicyError::Internal(text) => PolicyError::Internal(self.redact(&text)),
            other => other,
        }
    }
}

fn is_local(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => host
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback()),
        None => false,
    }
}

#[async_trait]
impl Policy for OpenAi {
    fn info(&self) -> &PolicyInfo {
        &self.info
    }

    async fn check(&self) -> Result<(), PolicyError> {
        self.knock().await.map_err(|error| self.without_key(error))
    }

    async fn reply(
        &self,
        request: ReplyRequest,
        chunks: Option<mpsc::Sender<Chunk>>,
    ) -> Result<PolicyReply, PolicyError> {
        self.exchange(&request, chunks).await.map_err(|error| self.without_key(error))
    }
}
