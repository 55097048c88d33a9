//! From what servers and networks answer to the errors of a policy.

use std::time::{Duration, SystemTime};

use reqwest::{StatusCode, header::HeaderMap};
use serde_json::Value;

use crate::PolicyError;

/// How much of a server's own words is passed on.
const MAXIMUM_EXCERPT: usize = 300;
/// The longest wish to wait that is believed.
const MAXIMUM_WAIT: Duration = Duration::from_secs(3600);

/// A status that is no success. `place` is the address that was asked, for the reader.
pub(super) fn status(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    place: &str,
) -> PolicyError {
    let words = ServerWords::read(body);
    if status.is_redirection() {
        let to = headers.get("location").and_then(|value| value.to_str().ok()).unwrap_or("?");
        return PolicyError::Invalid(format!(
            "{place} redirects to {} ({status}), and redirects are not followed; name the final \
             address",
            excerpt(to)
        ));
    }
    by_code(status.as_u16(), &words, retry_after(headers), place)
}

/// An error that arrives inside a successful answer.
pub(super) fn in_band(error: &Value) -> PolicyError {
    let words = ServerWords::of_error(error);
    let code = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    by_code(code.unwrap_or(500), &words, None, "the server")
}

fn by_code(
    code: u16,
    words: &ServerWords,
    retry_after: Option<Duration>,
    place: &str,
) -> PolicyError {
    let text = if words.message.is_empty() {
        format!("{place} answers {code}")
    } else {
        format!("{place} answers {code}: {}", words.message)
    };
    match code {
        401 | 403 => PolicyError::Unauthorized(text),
        400 | 413 | 422 if words.is_context_length() => PolicyError::ContextLength(text),
        404 => PolicyError::Invalid(format!("{text} (is the URL's path or the model wrong?)")),
        // Waiting does not fill an empty account.
        429 if words.code == "insufficient_quota" => PolicyError::Invalid(text),
        429 => PolicyError::RateLimited { retry_after },
        408 | 409 | 425 | 500..=599 => PolicyError::Unavailable(text),
        _ => PolicyError::Invalid(text),
    }
}

/// What a server says about its failure.
struct ServerWords {
    message: String,
    code: String,
}

impl ServerWords {
    fn read(body: &[u8]) -> Self {
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => Self::of_error(value.get("error").unwrap_or(&value)),
            Err(_) => {
                Self { message: excerpt(&String::from_utf8_lossy(body)), code: String::new() }
            }
        }
    }

    /// The forms seen: `{"message","code","type"}`, `{"detail"}`, and a bare string.
    fn of_error(error: &Value) -> Self {
        let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
        let message = [error.as_str().unwrap_or_default(), text("message"), text("detail")]
            .into_iter()
            .find(|text| !text.is_empty())
            .unwrap_or_default();
        let code = [text("code"), text("type")];
        let code = code.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
        Self { message: excerpt(message), code: excerpt(code) }
    }

    fn is_context_length(&self) -> bool {
        let message = self.message.to_lowercase();
        matches!(self.code.as_str(), "context_length_exceeded" | "exceed_context_size_error")
            || [
                "context length",
                "context window",
                "context size",
                "maximum model length",
                "prompt is too long",
                "input is too long",
            ]
            .iter()
            .any(|words| message.contains(words))
    }
}

/// Foreign text, short and without control characters.
pub(super) fn excerpt(text: &str) -> String {
    let mut short: String = text
        .trim()
        .chars()
        .take(MAXIMUM_EXCERPT)
        .map(|character| if character.is_control() { ' ' } else { character })
        .collect();
    if text.trim().chars().nth(MAXIMUM_EXCERPT).is_some() {
        short.push('…');
    }
    short
}

/// The server's wish to wait: seconds, milliseconds or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let number = |name: &str| text(name).and_then(|text| text.trim().parse::<f64>().ok());
    let seconds = number("retry-after-ms")
        .map(|milliseconds| milliseconds / 1000.0)
        .or_else(|| number("retry-after"));
    let wait = match seconds {
        Some(seconds) => Duration::try_from_secs_f64(seconds).ok()?,
        None => {
            let date = httpdate::parse_http_date(text("retry-after")?).ok()?;
            date.duration_since(SystemTime::now()).unwrap_or_default()
        }
    };
    Some(wait.min(MAXIMUM_WAIT))
}

/// A request that got no answer, or an answer that broke off.
pub(super) fn transport(error: &reqwest::Error, place: &str) -> PolicyError {
    if error.is_timeout() {
        return PolicyError::Timeout;
    }
    let mut reason = String::new();
    let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(error);
    // The innermost cause says what happened; the outer ones repeat that something did.
    while let Some(inner) = cause {
        reason = inner.to_string();
        cause = inner.source();
    }
    let reason = excerpt(&reason);
    if error.is_connect() {
        PolicyError::Unavailable(format!("no connection to {place}: {reason}"))
    } else if error.is_builder() {
        PolicyError::Invalid(format!("the request to {place} cannot be made: {reason}"))
    } else {
        PolicyError::Unavailable(format!("the exchange with {place} broke off: {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    fn answer(code: u16, body: &str) -> PolicyError {
        let code = StatusCode::from_u16(code).unwrap();
        status(code, &HeaderMap::new(), body.as_bytes(), "http://x")
    }

    #[test]
    fn statuses_become_errors() {
        for code in [401, 403] {
            assert!(matches!(answer(code, "no"), PolicyError::Unauthorized(_)), "{code}");
        }
        for code in [408, 409, 500, 502, 503, 529] {
            assert!(matches!(answer(code, "{}"), PolicyError::Unavailable(_)), "{code}");
        }
        for code in [301, 307, 400, 404, 405, 413, 422] {
            assert!(matches!(answer(code, "{}"), PolicyError::Invalid(_)), "{code}");
        }
        assert_eq!(answer(429, ""), PolicyError::RateLimited { retry_after: None });
        let quota = r#"{"error":{"message":"pay","code":"insufficient_quota"}}"#;
        assert!(matches!(answer(429, quota), PolicyError::Invalid(_)));
        assert!(answer(404, r#"{"detail":"Not Found"}"#).to_string().contains("Not Found"));
    }

    #[test]
    fn a_context_that_is_too_long_is_recognised() {
        for body in [
            r#"{"error":{"message":"too much","code":"context_length_exceeded"}}"#,
            r#"{"error":{"message":"x","type":"exceed_context_size_error","code":400}}"#,
            r#"{"object":"error","message":"This model's maximum context length is 32 tokens."}"#,
        ] {
            assert!(matches!(answer(400, body), PolicyError::ContextLength(_)), "{body}");
        }
    }

    #[test]
    fn the_wish_to_wait_is_read_in_every_form() {
        let wait = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_str(value).unwrap());
            retry_after(&headers)
        };
        assert_eq!(wait("retry-after", "2"), Some(Duration::from_secs(2)));
        assert_eq!(wait("retry-after-ms", "1500"), Some(Duration::from_millis(1500)));
        assert_eq!(wait("retry-after", "1e300"), None);
        assert_eq!(wait("retry-after", "-1"), None);
        assert_eq!(wait("retry-after", "NaN"), None);
        assert_eq!(wait("retry-after", "99999999"), Some(MAXIMUM_WAIT));
        assert_eq!(wait("retry-after", "soon"), None);
        let past = wait("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT");
        assert_eq!(past, Some(Duration::ZERO));
    }

    #[test]
    fn foreign_words_are_cut_and_cleaned() {
        let text = answer(500, &format!("\x1b[31m{}", "é".repeat(1000))).to_string();
        assert!(text.chars().count() < 400 && !text.contains('\x1b'), "{text}");
    }
}
