//! Refusals as problem details (RFC 9457), with the offending value, the rule and the remedy.
//!
//! A handler or an extractor returns a [`Problem`]; the pipeline renders it, like its own refusals, in the style of the
//! route's group. So NGSI and Hono clients find the error body that they know.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use millstream_net::Throttled;
use millstream_types::{ErrorCode, NameError};
use serde_json::{Map, Value, json};

/// Media type of problem details.
pub const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The form of all problems of a group of routes, those of the pipeline included.
#[derive(Debug, Clone, Copy)]
pub struct ErrorStyle {
    /// Renders a problem as an answer with its status.
    pub render: fn(Problem) -> Response,
    /// The media type of the bodies that `render` makes.
    pub media_type: &'static str,
    /// The name of their schema in the OpenAPI document.
    pub schema_name: &'static str,
    /// The JSON Schema of these bodies.
    pub schema: fn() -> Value,
}

/// Problem details, the form of problems in groups without a style of their own.
pub(crate) static PROBLEM_STYLE: ErrorStyle = ErrorStyle {
    render: Problem::into_response,
    media_type: "application/problem+json",
    schema_name: "Problem",
    schema: problem_schema,
};

/// The kind of a refusal. Errors of other crates arrive as their [`ErrorCode`]; the others are HTTP's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The error code of another crate's error.
    Code(ErrorCode),
    /// No route has this path.
    UnknownRoute,
    /// The path does not have this method; `Allow` lists its methods.
    MethodNotAllowed,
    /// The body is over the route's limit.
    BodyTooLarge,
    /// The header section is over the listener's limit.
    HeadTooLarge,
    /// The request target is over the listener's limit.
    UriTooLong,
    /// The transfer coding is not supported.
    UnsupportedTransferCoding,
    /// The route does not take a body of this type.
    UnsupportedMediaType,
    /// The body does not match its media type.
    MalformedBody,
    /// A path or query parameter, or a header, cannot be read.
    MalformedParameter,
    /// The body did not arrive before the request's deadline; nothing was done.
    SlowBody,
    /// The deadline passed during the request; it may or may not have taken effect.
    DeadlinePassed,
    /// A party behind the server, such as a device, did not answer in time. The request to it stands.
    NoAnswer,
    /// No request waits for this message, such as the answer to an unknown command; a retry does not help.
    NobodyWaits,
}

impl Reason {
    /// The HTTP status of the refusal.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Code(code) => StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            Self::UnknownRoute => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::HeadTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::UriTooLong => StatusCode::URI_TOO_LONG,
            Self::UnsupportedTransferCoding => StatusCode::NOT_IMPLEMENTED,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::MalformedBody | Self::MalformedParameter => StatusCode::BAD_REQUEST,
            Self::NoAnswer => StatusCode::GATEWAY_TIMEOUT,
            Self::NobodyWaits => StatusCode::SERVICE_UNAVAILABLE,
            Self::SlowBody => StatusCode::REQUEST_TIMEOUT,
            Self::DeadlinePassed => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// A short stable name, the end of the problem's `type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Code(code) => code.as_str(),
            Self::UnknownRoute => "unknown-route",
            Self::MethodNotAllowed => "method-not-allowed",
            Self::BodyTooLarge => "body-too-large",
            Self::HeadTooLarge => "head-too-large",
            Self::UriTooLong => "uri-too-long",
            Self::UnsupportedTransferCoding => "unsupported-transfer-coding",
            Self::UnsupportedMediaType => "unsupported-media-type",
            Self::MalformedBody => "malformed-body",
            Self::MalformedParameter => "malformed-parameter",
            Self::SlowBody => "slow-body",
            Self::DeadlinePassed => "deadline-passed",
            Self::NoAnswer => "no-answer",
            Self::NobodyWaits => "nobody-waits",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Code(ErrorCode::Unauthenticated) => "Not logged in",
            Self::Code(ErrorCode::Forbidden) => "Not allowed",
            Self::Code(ErrorCode::NotFound) => "Not found",
            Self::Code(ErrorCode::RateLimited) => "Too many requests",
            Self::Code(ErrorCode::Overloaded) => "Overloaded",
            Self::Code(ErrorCode::Internal | ErrorCode::Corrupt) => "Internal error",
            Self::Code(_) => "Refused",
            Self::UnknownRoute => "No such route",
            Self::MethodNotAllowed => "Method not allowed",
            Self::BodyTooLarge => "Body too large",
            Self::HeadTooLarge => "Header section too large",
            Self::UriTooLong => "Request target too long",
            Self::UnsupportedTransferCoding => "Unsupported transfer coding",
            Self::UnsupportedMediaType => "Media type not taken here",
            Self::MalformedBody => "Malformed body",
            Self::MalformedParameter => "Malformed parameter",
            Self::SlowBody => "Body did not arrive in time",
            Self::DeadlinePassed => "No verdict in time",
            Self::NoAnswer => "No answer in time",
            Self::NobodyWaits => "Nobody waits for it",
        }
    }

    const fn is_worth_a_retry(self) -> bool {
        match self {
            Self::Code(code) => code.is_retryable(),
            reason => matches!(reason, Self::DeadlinePassed),
        }
    }
}

/// A refusal of a request.
#[derive(Clone)]
pub struct Problem(Box<ProblemParts>);

#[derive(Clone)]
struct ProblemParts {
    reason: Reason,
    status: StatusCode,
    detail: Cow<'static, str>,
    value: Option<String>,
    rule: Option<Cow<'static, str>>,
    remedy: Option<Cow<'static, str>>,
    members: Vec<(&'static str, Value)>,
    headers: Vec<(HeaderName, HeaderValue)>,
    retry_after: Option<Duration>,
    cause: Option<String>,
}

impl Problem {
    /// Makes a refusal for `reason`; `detail` is one sentence for people.
    pub fn new(reason: Reason, detail: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(ProblemParts {
            reason,
            status: reason.status(),
            detail: detail.into(),
            value: None,
            rule: None,
            remedy: None,
            members: Vec::new(),
            headers: Vec::new(),
            retry_after: reason.is_worth_a_retry().then_some(Duration::from_secs(1)),
            cause: None,
        }))
    }

    /// Makes a refusal from another crate's error. Its text becomes the detail; its source goes to the log.
    pub fn from_error(code: ErrorCode, error: &(dyn StdError + 'static)) -> Self {
        let problem = Self::new(Reason::Code(code), error.to_string());
        match error.source() {
            Some(source) => problem.caused_by(source),
            None => problem,
        }
    }

    /// Makes a refusal for an internal error; `cause` goes only to the log.
    pub fn internal(cause: impl Into<String>) -> Self {
        let mut problem =
            Self::new(Reason::Code(ErrorCode::Internal), "the server failed on this request; its log says why");
        problem.0.cause = Some(cause.into());
        problem
    }

    /// Makes a refusal of an unauthenticated caller; `challenge` (such
    /// as `Bearer realm="millstream"`) becomes `WWW-Authenticate`.
    pub fn unauthenticated(challenge: HeaderValue, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Reason::Code(ErrorCode::Unauthenticated), detail).header(WWW_AUTHENTICATE, challenge)
    }

    /// Makes a refusal of a caller that lacks the permission.
    pub fn forbidden(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Reason::Code(ErrorCode::Forbidden), detail)
    }

    /// Makes a refusal of an invalid request.
    pub fn invalid(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Reason::Code(ErrorCode::Invalid), detail)
    }

    /// Adds the value that was refused.
    #[must_use]
    pub fn value(mut self, value: impl fmt::Display) -> Self {
        self.0.value = Some(value.to_string());
        self
    }

    /// Adds the rule that the value breaks.
    #[must_use]
    pub fn rule(mut self, rule: impl Into<Cow<'static, str>>) -> Self {
        self.0.rule = Some(rule.into());
        self
    }

    /// Adds the way to resolve the problem.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<Cow<'static, str>>) -> Self {
        self.0.remedy = Some(remedy.into());
        self
    }

    /// Adds a member to the body.
    #[must_use]
    pub fn member(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.0.members.push((name, value.into()));
        self
    }

    /// Adds a header to the answer.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// Sets `Retry-After`, in whole seconds, rounded up. Retryable refusals default to 1 s.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.0.retry_after = Some(wait);
        self
    }

    /// Overrides the reason's status, for protocols with other rules.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.0.status = status;
        self
    }

    /// Sets the cause, which goes only to the log.
    #[must_use]
    pub fn caused_by(mut self, cause: &dyn StdError) -> Self {
        let mut text = cause.to_string();
        let mut next = cause.source();
        while let Some(source) = next {
            text = format!("{text}: {source}");
            next = source.source();
        }
        self.0.cause = Some(text);
        self
    }

    /// The kind of the refusal.
    pub fn reason(&self) -> Reason {
        self.0.reason
    }

    /// The HTTP status code of the answer.
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// The sentence that explains the problem to people.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// The value of an additional member, by [`Self::member`].
    pub fn value_of(&self, name: &str) -> Option<&Value> {
        self.0.members.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Detail, value, rule and remedy in one text, for error bodies with only one member.
    pub fn text(&self) -> String {
        let parts = &*self.0;
        let mut text = parts.detail.to_string();
        if let Some(value) = parts.value.as_deref().filter(|value| !text.contains(value)) {
            text = format!("{text} ('{value}')");
        }
        [&parts.rule, &parts.remedy].into_iter().flatten().fold(text, |text, part| text + "; " + part)
    }

    pub(crate) fn cause(&self) -> Option<&str> {
        self.0.cause.as_deref()
    }

    /// Writes the headers that belong to the refusal (`Allow`, `WWW-Authenticate`, `Retry-After`), whatever the body's style.
    pub(crate) fn write_headers(&self, response: &mut Response) {
        let headers = response.headers_mut();
        for (name, value) in &self.0.headers {
            headers.insert(name.clone(), value.clone());
        }
        if let Some(wait) = self.0.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_millis().div_ceil(1000).max(1) as u64));
        }
    }

    /// The problem details as JSON text.
    pub(crate) fn json(&self) -> String {
        self.body().to_string()
    }

    /// A complete answer that closes its connection.
    pub(crate) fn closing_answer(&self) -> String {
        let (status, body) = (self.0.status, self.json());
        let retry = if status == StatusCode::SERVICE_UNAVAILABLE { "retry-after: 1\r\n" } else { "" };
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\n{retry}connection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    fn body(&self) -> Value {
        let parts = &*self.0;
        let mut body = Map::new();
        body.insert("type".into(), json!(format!("urn:millstream:problem:{}", parts.reason.as_str())));
        body.insert("title".into(), json!(parts.reason.title()));
        body.insert("status".into(), json!(parts.status.as_u16()));
        body.insert("detail".into(), json!(parts.detail));
        for (name, member) in [("rule", &parts.rule), ("remedy", &parts.remedy)] {
            if let Some(text) = member {
                body.insert(name.into(), json!(text));
            }
        }
        if let Some(value) = &parts.value {
            body.insert("value".into(), json!(value));
        }
        for (name, value) in &parts.members {
            body.insert((*name).into(), value.clone());
        }
        // Hono clients read this member only.
        body.insert("error".into(), json!(self.text()));
        Value::Object(body)
    }
}

/// Builds the refusal of a request whose handler has not answered in time.
pub fn deadline_passed(waited: Duration) -> Problem {
    let waited_ms = waited.as_millis();
    Problem::new(Reason::DeadlinePassed, format!("no verdict in time: {waited_ms} ms have passed"))
        .value(format!("{waited_ms} ms"))
        .rule("the request may or may not have taken effect")
        .remedy("check whether it has before you send it again, or allow more time")
}

/// The schema of problem details, the body of refusals that have no other.
fn problem_schema() -> Value {
    json!({
        "type": "object",
        "required": ["type", "title", "status", "detail", "error"],
        "properties": {
            "type": {"type": "string", "format": "uri"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "value": {"type": "string", "description": "What was given."},
            "rule": {"type": "string", "description": "The rule that it breaks."},
            "remedy": {"type": "string", "description": "What to do about it."},
            "error": {"type": "string", "description": "All of it in one text."},
        },
    })
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.0.status, self.json()).into_response();
        response.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
        self.write_headers(&mut response);
        // The pipeline removes it again to log it and to render it in the group's style.
        response.extensions_mut().insert(self);
        response
    }
}

impl From<NameError> for Problem {
    fn from(error: NameError) -> Self {
        Self::from_error(ErrorCode::Invalid, &error).remedy("choose a name that keeps this rule")
    }
}

impl From<Throttled> for Problem {
    fn from(throttled: Throttled) -> Self {
        let Throttled { client, failures_per_minute, wait } = throttled;
        let wait_s = throttled.wait_s();
        Self::new(Reason::Code(ErrorCode::RateLimited), "too many logins from this address have failed")
            .value(client)
            .rule(format!("{} = {failures_per_minute}; the next is checked in {wait_s} s", Throttled::SETTING))
            .remedy("correct the credentials, then wait as long as Retry-After says")
            .retry_after(wait)
    }
}

impl fmt::Debug for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Problem({} {}: {})", self.0.status.as_u16(), self.0.reason.as_str(), self.text())
    }
}
