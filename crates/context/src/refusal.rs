//! NGSI error replies: `{"error": NAME, "description": text}` with the status of the name.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use millstream_http::{ErrorStyle, Problem, Reason};
use millstream_types::ErrorCode;
use serde_json::json;

/// The names of NGSI errors. Clients compare them exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorName {
    ParseError,
    BadRequest,
    NotFound,
    NotAcceptable,
    TooManyResults,
    ContentLengthRequired,
    RequestEntityTooLarge,
    NoResourcesAvailable,
    UnsupportedMediaType,
    Unprocessable,
    PartialUpdate,
    /// A part of an update that goes to context providers is not done: named as [`ErrorName::PartialUpdate`], but a 404.
    PartialForward,
    NotSupportedQuery,
    PreconditionFailed,
    NotImplemented,
}

impl ErrorName {
    const fn status(self) -> StatusCode {
        match self {
            Self::ParseError | Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::NotFound | Self::PartialForward => StatusCode::NOT_FOUND,
            Self::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
            Self::TooManyResults => StatusCode::CONFLICT,
            Self::ContentLengthRequired => StatusCode::LENGTH_REQUIRED,
            Self::RequestEntityTooLarge | Self::NoResourcesAvailable => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Unprocessable | Self::PartialUpdate | Self::NotSupportedQuery => StatusCode::UNPROCESSABLE_ENTITY,
            Self::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
            Self::NotImplemented => StatusCode::NOT_IMPLEMENTED,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::ParseError => "ParseError",
            Self::BadRequest => "BadRequest",
            Self::NotFound => "NotFound",
            Self::NotAcceptable => "NotAcceptable",
            Self::TooManyResults => "TooManyResults",
            Self::ContentLengthRequired => "ContentLengthRequired",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::NoResourcesAvailable => "NoResourcesAvailable",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::Unprocessable => "Unprocessable",
            Self::PartialUpdate | Self::PartialForward => "PartialUpdate",
            Self::NotSupportedQuery => "NotSupportedQuery",
            Self::PreconditionFailed => "PreconditionFailed",
            Self::NotImplemented => "NotImplemented",
        }
    }
}

/// An NGSI error with its description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) name: ErrorName,
    /// The refused value, the rule and the remedy.
    pub(crate) description: String,
}

impl Refusal {
    pub(crate) fn new(name: ErrorName, description: impl Into<String>) -> Self {
        Self { name, description: description.into() }
    }

    /// An error in the request alone.
    pub(crate) fn bad(description: impl Into<String>) -> Self {
        Self::new(ErrorName::BadRequest, description)
    }

    /// A feature of NGSI that this version does not support.
    pub(crate) fn later(what: &str, value: &str) -> Self {
        let value = if value.is_empty() { String::new() } else { format!(" ('{value}')") };
        Self::new(ErrorName::NotImplemented, format!("{what}{value} is not supported by this version; leave it out"))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        body(self.name.status(), self.name.as_str(), &self.description)
    }
}

/// An NGSI error, or a problem of the HTTP layer, which that layer logs and renders by [`STYLE`].
#[derive(Debug)]
pub(crate) enum RequestFailure {
    Refused(Refusal),
    Problem(Problem),
}

impl From<Refusal> for RequestFailure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Problem> for RequestFailure {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<millstream_view::Error> for RequestFailure {
    fn from(error: millstream_view::Error) -> Self {
        Self::Problem(Problem::from_error(error.code(), &error))
    }
}

impl IntoResponse for RequestFailure {
    fn into_response(self) -> Response {
        match self {
            Self::Refused(refusal) => refusal.into_response(),
            Self::Problem(problem) => problem.into_response(),
        }
    }
}

/// The form of all refusals of NGSI's routes.
pub(crate) const STYLE: ErrorStyle = ErrorStyle {
    render: rendered,
    media_type: "application/json",
    schema_name: "NgsiError",
    schema: || {
        json!({
            "type": "object",
            "required": ["error", "description"],
            "properties": {
                "error": {"type": "string", "description": "The name of the error, such as NotFound."},
                "description": {"type": "string", "description": "The refused value, the rule and the remedy."},
            },
        })
    },
};

/// Renders a problem of the HTTP layer as an NGSI error.
fn rendered(problem: Problem) -> Response {
    let (status, name) = match problem.reason() {
        // Orion answers 400 for an unknown path.
        Reason::UnknownRoute => (StatusCode::BAD_REQUEST, "BadRequest"),
        Reason::MalformedBody => (StatusCode::BAD_REQUEST, "ParseError"),
        Reason::MethodNotAllowed => (problem.status(), "MethodNotAllowed"),
        Reason::BodyTooLarge => (problem.status(), "RequestEntityTooLarge"),
        Reason::UnsupportedMediaType => (problem.status(), "UnsupportedMediaType"),
        Reason::DeadlinePassed => (problem.status(), "ServiceUnavailable"),
        Reason::SlowBody => (problem.status(), "RequestTimeout"),
        Reason::Code(code) => (problem.status(), name_of(code)),
        _ => (problem.status(), "BadRequest"),
    };
    body(status, name, &problem.text())
}

const fn name_of(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::Unauthenticated => "Unauthorized",
        ErrorCode::Forbidden => "Forbidden",
        ErrorCode::NotFound => "NotFound",
        ErrorCode::Conflict => "Unprocessable",
        ErrorCode::PreconditionFailed => "PreconditionFailed",
        ErrorCode::TooLarge => "RequestEntityTooLarge",
        ErrorCode::RateLimited => "TooManyRequests",
        ErrorCode::Overloaded | ErrorCode::Timeout | ErrorCode::Unavailable => "ServiceUnavailable",
        ErrorCode::Unsupported => "NotImplemented",
        ErrorCode::Corrupt | ErrorCode::Internal => "InternalServerError",
        _ => "BadRequest",
    }
}

fn body(status: StatusCode, name: &str, description: &str) -> Response {
    let text = json!({"error": name, "description": description}).to_string();
    let mut response = (status, text).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn problems_of_the_layers_below_have_the_references_codes_and_names() {
        use ErrorCode::*;
        for (reason, status, name) in [
            (Reason::UnknownRoute, 400, "BadRequest"),
            (Reason::MethodNotAllowed, 405, "MethodNotAllowed"),
            (Reason::BodyTooLarge, 413, "RequestEntityTooLarge"),
            (Reason::UnsupportedMediaType, 415, "UnsupportedMediaType"),
            (Reason::MalformedBody, 400, "ParseError"),
            (Reason::MalformedParameter, 400, "BadRequest"),
            (Reason::SlowBody, 408, "RequestTimeout"),
            (Reason::DeadlinePassed, 503, "ServiceUnavailable"),
            (Reason::Code(Invalid), 400, "BadRequest"),
            (Reason::Code(Unauthenticated), 401, "Unauthorized"),
            (Reason::Code(Forbidden), 403, "Forbidden"),
            (Reason::Code(PreconditionFailed), 412, "PreconditionFailed"),
            (Reason::Code(TooLarge), 413, "RequestEntityTooLarge"),
            (Reason::Code(RateLimited), 429, "TooManyRequests"),
            (Reason::Code(Overloaded), 503, "ServiceUnavailable"),
            (Reason::Code(Timeout), 503, "ServiceUnavailable"),
            (Reason::Code(Unavailable), 503, "ServiceUnavailable"),
            (Reason::Code(Internal), 500, "InternalServerError"),
            (Reason::Code(Corrupt), 500, "InternalServerError"),
            (Reason::Code(Unsupported), 501, "NotImplemented"),
        ] {
            let problem = Problem::new(reason, "it failed").value("7").rule("the rule").remedy("the remedy");
            let response = rendered(problem);
            assert_eq!(response.status().as_u16(), status, "{reason:?}");
            let bytes = axum::body::to_bytes(response.into_body(), 1_024).await.unwrap();
            let expected = json!({"error": name, "description": "it failed ('7'); the rule; the remedy"});
            assert_eq!(serde_json::from_slice::<serde_json::Value>(&bytes).unwrap(), expected, "{reason:?}");
        }
    }
}
