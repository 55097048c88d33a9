//! What a client is told when it gets no reply.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use fulgurite_policy::{FormatError, PolicyError};
use serde_json::{Value, json};

/// An error in OpenAI's form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    status: StatusCode,
    kind: &'static str,
    code: &'static str,
    /// The request's field at fault.
    parameter: Option<&'static str>,
    text: String,
    retry_after: Option<u64>,
}

impl Failure {
    fn new(
        status: StatusCode,
        kind: &'static str,
        code: &'static str,
        text: impl Into<String>,
    ) -> Self {
        Self { status, kind, code, parameter: None, text: text.into(), retry_after: None }
    }

    fn request(status: StatusCode, code: &'static str, text: impl Into<String>) -> Self {
        Self::new(status, "invalid_request_error", code, text)
    }

    /// Something in the request is wrong.
    pub(super) fn invalid(parameter: &'static str, text: impl Into<String>) -> Self {
        let failure = Self::request(StatusCode::BAD_REQUEST, "invalid_value", text);
        Self { parameter: Some(parameter), ..failure }
    }

    /// The request wants what this server cannot do.
    pub(super) fn unsupported(parameter: &'static str, text: impl Into<String>) -> Self {
        Self { code: "unsupported_value", ..Self::invalid(parameter, text) }
    }

    pub(super) fn no_json(error: &serde_json::Error) -> Self {
        let text = format!("the body is no chat completion request: {error}");
        Self::request(StatusCode::BAD_REQUEST, "invalid_json", text)
    }

    pub(super) fn model(asked: &str, served: &str) -> Self {
        let asked: String = asked.chars().filter(|c| !c.is_control()).take(100).collect();
        let text = format!("the model `{asked}` is not served here; `{served}` is");
        let failure = Self::request(StatusCode::NOT_FOUND, "model_not_found", text);
        Self { parameter: Some("model"), ..failure }
    }

    pub(super) fn template(error: &FormatError) -> Self {
        // The text names the template's own words at most.
        Self::invalid("messages", error.to_string())
    }

    pub(super) fn key() -> Self {
        let text = "the bearer token is missing or wrong";
        Self::new(StatusCode::UNAUTHORIZED, "authentication_error", "invalid_api_key", text)
    }

    pub(super) fn path() -> Self {
        let text = "there are POST /v1/chat/completions, GET /v1/models and GET /healthz";
        Self::request(StatusCode::NOT_FOUND, "not_found", text)
    }

    pub(super) fn method() -> Self {
        let text = "this path takes another method";
        Self::request(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", text)
    }

    pub(super) fn size(most: usize) -> Self {
        let text = format!("a request's body may have {most} bytes");
        Self::request(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", text)
    }

    pub(super) fn slow() -> Self {
        let text = "the body did not arrive in time";
        Self::request(StatusCode::REQUEST_TIMEOUT, "body_timeout", text)
    }

    pub(super) fn broke_off() -> Self {
        Self::request(StatusCode::BAD_REQUEST, "body_incomplete", "the body broke off")
    }

    pub(super) fn busy() -> Self {
        let text = "as many requests are being answered as may be; come back later";
        let failure =
            Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", "server_busy", text);
        Self { retry_after: Some(1), ..failure }
    }

    pub(super) fn stopping() -> Self {
        let text = "the server stops, and the reply did not end in time";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", "server_stops", text)
    }

    /// What a policy's error tells a client. Details stay in the log.
    pub(super) fn of_policy(error: PolicyError) -> Self {
        let server = |status, code, text: &str| {
            tracing::warn!(%error, "a served call failed");
            Self::new(status, "server_error", code, text)
        };
        match &error {
            PolicyError::RateLimited { retry_after } => Self {
                retry_after: Some(retry_after.map_or(1, |wait| wait.as_secs().max(1))),
                ..Self::busy()
            },
            PolicyError::ContextLength(text) => {
                Self::request(StatusCode::BAD_REQUEST, "context_length_exceeded", text)
            }
            PolicyError::Invalid(text) => {
                Self::request(StatusCode::BAD_REQUEST, "invalid_value", text)
            }
            PolicyError::NoScript(_) => {
                let text = "the policy has no reply for this request";
                Self::request(StatusCode::BAD_REQUEST, "no_reply", text)
            }
            PolicyError::Timeout => server(
                StatusCode::GATEWAY_TIMEOUT,
                "policy_timeout",
                "the policy did not answer in time",
            ),
            PolicyError::Unavailable(_) => server(
                StatusCode::SERVICE_UNAVAILABLE,
                "policy_unavailable",
                "the policy cannot be reached",
            ),
            PolicyError::Unauthorized(_) => server(
                StatusCode::BAD_GATEWAY,
                "policy_unauthorized",
                "the policy refuses this server",
            ),
            _ => server(StatusCode::INTERNAL_SERVER_ERROR, "policy_failed", "the policy failed"),
        }
    }

    /// The body, also sent as an event where the head has gone.
    pub(super) fn body(&self) -> Value {
        json!({
            "error": {
                "message": self.text,
                "type": self.kind,
                "code": self.code,
                "param": self.parameter,
            },
        })
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
