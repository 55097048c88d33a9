//! A policy as a server of OpenAI's chat completions.
//!
//! For programs that are no plugins: an editor, a script, another trainer. It has no
//! conversations, captures nothing and writes no trace; it renders each request by the policy's
//! own chat template and gives what the policy says. What it promises:
//!
//! - `POST /v1/chat/completions` (whole and as an event stream), `GET /v1/models`, `GET /healthz`.
//! - **Closed by default.** On an address that others can reach it does not start without a key.
//!   The key is compared in constant time; `/healthz` alone needs none.
//! - **Bounded.** Bodies, the time they take to arrive, and the requests that are answered at
//!   once have limits; what is above them is refused with the limit's name.
//! - **Nothing is ignored that would change the reply**: a field that is known and not supported
//!   (`n` above 1, penalties, `response_format`) is an error that names it. Unknown fields are
//!   passed over, as every server of this kind does.
//! - A client that goes away cancels its call.
//! - Details of failures inside the policy go to the log; clients learn a code and a short text.
//! - **Shutting down** stops listening, lets replies under way end for
//!   [`ServeOptions::grace`], and returns.
//!
//! Beyond OpenAI's fields it takes `top_k`, `min_p`, `stop_token_ids` and `return_token_ids`, as
//! vLLM does. Log-probabilities are those of the distribution that was sampled from, at its
//! temperature and cuts.

mod body;
mod completion;
mod failure;
mod request;
mod stream;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Json, Router,
    body::Body,
    extract::{Request, State},
    http::header,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use fulgurite_policy::{ApiKey, Policy};
use serde_json::json;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
};

use self::{completion::Completion, failure::Failure, request::Asked};
use crate::SamplingDefaults;

/// How long clients may take to hear that their reply was cut off.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How a policy is served.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The model's name; absent: the policy's.
    pub name: Option<String>,
    /// What clients must send as a bearer token. Needed unless the address is a loopback one.
    pub key: Option<ApiKey>,
    /// Sampling where a request says nothing, and the most tokens of a reply.
    pub sampling: SamplingDefaults,
    /// Bytes of a request's body.
    pub body_bytes: usize,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// Requests that are answered at once; further ones are told to come back.
    pub requests: usize,
    /// How long replies under way may take when the server is to stop.
    pub grace: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            name: None,
            key: None,
            sampling: SamplingDefaults::default(),
            body_bytes: 8 << 20,
            body_timeout: Duration::from_secs(30),
            requests: 256,
            grace: Duration::from_secs(30),
        }
    }
}

/// A server that does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Open to others, and without a key.
    #[error(
        "{0} can be reached by others, and no key is set\n  mend: listen on 127.0.0.1, or name an \
         environment variable that holds a key"
    )]
    KeyNeeded(SocketAddr),
    /// The address is not to be had.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        cause: std::io::Error,
    },
    /// The sampling defaults are none.
    #[error("the sampling defaults: {0}")]
    Sampling(String),
    /// The listener broke.
    #[error("the server ended: {0}")]
    Ended(std::io::Error),
}

/// A policy behind an address. See the [module](self).
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    policy: Arc<dyn Policy>,
    name: String,
    options: ServeOptions,
    places: Arc<Semaphore>,
    since: u64,
    /// Set when replies are not waited for any more.
    cut: watch::Sender<bool>,
}

impl Shared {
    /// Until replies are not waited for any more.
    async fn cut(&self) {
        // The sender lives in `self`: waiting cannot fail.
        let _ = self.cut.subscribe().wait_for(|cut| *cut).await;
    }
}

impl Server {
    /// Takes the address. Port 0 takes a free one.
    pub async fn bind(
        policy: Arc<dyn Policy>,
        address: SocketAddr,
        options: ServeOptions,
    ) -> Result<Self, ServeError> {
        if options.key.is_none() && !address.ip().is_loopback() {
            return Err(ServeError::KeyNeeded(address));
        }
        if let Some(problem) = options.sampling.truncation.problem() {
            return Err(ServeError::Sampling(problem));
        }
        let cannot = |cause| ServeError::Listen { address, cause };
        let listener = TcpListener::bind(address).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        let name = options.name.clone().unwrap_or_else(|| policy.info().name.clone());
        let places = Arc::new(Semaphore::new(options.requests.min(Semaphore::MAX_PERMITS)));
        let cut = watch::Sender::new(false);
        let shared = Arc::new(Shared { policy, name, options, places, since: now(), cut });
        Ok(Self { listener, address, shared })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Serves until `stop`, and then until the replies under way have ended or the grace is over.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
        let Self { listener, shared, .. } = self;
        let (stopping, mut stopped) = watch::channel(false);
        let router = router(shared.clone());
        let serving = axum::serve(listener, router).with_graceful_shutdown(async move {
            // An error means that the sender is gone, and the server with it.
            let _ = stopped.wait_for(|stopped| *stopped).await;
        });
        let mut serving = std::pin::pin!(serving.into_future());
        tokio::select! {
            ended = &mut serving => return ended.map_err(ServeError::Ended),
            () = stop => {}
        }
        stopping.send_replace(true);
        if let Ok(ended) = tokio::time::timeout(shared.options.grace, &mut serving).await {
            return ended.map_err(ServeError::Ended);
        }
        tracing::warn!("replies that did not end in time are cut off");
        shared.cut.send_replace(true);
        match tokio::time::timeout(LAST_WORDS, serving).await {
            Ok(ended) => ended.map_err(ServeError::Ended),
            // Clients that neither read nor go away.
            Err(_) => Ok(()),
        }
    }
}

fn router(shared: Arc<Shared>) -> Router {
    let guarded = Router::new()
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/models", get(models))
        .method_not_allowed_fallback(async || Failure::method())
        .fallback(async || Failure::path())
        .layer(middleware::from_fn_with_state(shared.clone(), guard));
    Router::new()
        .route("/healthz", get(async || Json(json!({ "status": "ok" }))))
        .fallback_service(guarded.with_state(shared))
}

/// Lets through who has the key.
async fn guard(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let allowed = shared.options.key.as_ref().is_none_or(|key| {
        request
            .headers()
            .get(header::AUTHORIZATION)
            .is_some_and(|value| key.is_bearer(value.as_bytes()))
    });
    if allowed { next.run(request).await } else { Failure::key().into_response() }
}

async fn models(State(shared): State<Arc<Shared>>) -> Json<serde_json::Value> {
    Json(json!({
        "object": "list",
        "data": [{
            "id": shared.name,
            "object": "model",
            "created": shared.since,
            "owned_by": "fulgurite",
            "max_model_len": shared.policy.info().context_length,
        }],
    }))
}

async fn chat_completions(
    State(shared): State<Arc<Shared>>,
    request: Request,
) -> Result<Response, Failure> {
    let place = shared.places.clone().try_acquire_owned().map_err(|_| Failure::busy())?;
    let bytes = body(request.into_body(), &shared.options).await?;
    let asked = Asked::parse(&bytes, &shared.name, &shared.options.sampling)?;
    let request = asked.request(&*shared.policy)?;
    let completion = Completion::new(&shared.name, now(), asked, &request, &*shared.policy);
    if completion.asked.stream {
        return Ok(stream::respond(shared, request, completion, place));
    }
    let reply = tokio::select! {
        reply = shared.policy.reply(request, None) => reply.map_err(Failure::of_policy)?,
        () = shared.cut() => return Err(Failure::stopping()),
    };
    drop(place);
    Ok(Json(completion.whole(reply)).into_response())
}

/// The body, if it is neither too long nor too slow.
async fn body(body: Body, options: &ServeOptions) -> Result<Vec<u8>, Failure> {
    let reading = axum::body::to_bytes(body, options.body_bytes);
    match tokio::time::timeout(options.body_timeout, reading).await {
        Ok(Ok(bytes)) => Ok(bytes.into()),
        Ok(Err(error)) => {
            let too_long = std::error::Error::source(&error)
                .is_some_and(|cause| cause.to_string().contains("length limit"));
            Err(if too_long { Failure::size(options.body_bytes) } else { Failure::broke_off() })
        }
        Err(_) => Err(Failure::slow()),
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
