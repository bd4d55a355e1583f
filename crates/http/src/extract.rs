//! Extractors for path, query and body. They refuse with problems, so each group's error style applies.

use std::fmt::Display;
use std::str::FromStr;

use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, LengthLimitError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::context::{RequestTime, context};
use crate::path_params::PathParams;
use crate::{Limits, Problem, Reason};

/// The decoded parameters of the path, in order: one string or number, or a tuple of up to four values with `FromStr`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path<T>(pub T);

/// A type that [`Path`] can parse.
pub trait FromPath: Sized {
    /// Parses the path parameters into `Self`.
    ///
    /// # Errors
    /// A [`Problem`] that names the parameter and its value.
    fn from_path(params: &Params<'_>) -> Result<Self, Problem>;
}

/// The parameters of one request's path.
pub struct Params<'a> {
    pub(crate) params: &'a PathParams,
    pub(crate) path: &'a str,
}

impl Params<'_> {
    fn parse<T: FromStr<Err: Display>>(&self, index: usize) -> Result<T, Problem> {
        let (name, value) = self.params.at(self.path, index)?;
        value.parse().map_err(|error| {
            Problem::new(Reason::MalformedParameter, format!("path parameter '{name}': {error}")).value(&value)
        })
    }
}

macro_rules! from_path_for_one {
    ($($name:ident),*) => {
        $(impl FromPath for $name {
            fn from_path(params: &Params<'_>) -> Result<Self, Problem> {
                params.parse(0)
            }
        })*
    };
}
from_path_for_one!(String, u16, u32, u64, usize, i64);

impl FromPath for () {
    fn from_path(_: &Params<'_>) -> Result<Self, Problem> {
        Ok(())
    }
}

macro_rules! from_path_for_tuple {
    ($($name:ident $index:literal),*) => {
        impl<$($name: FromStr<Err: Display>),*> FromPath for ($($name,)*) {
            fn from_path(params: &Params<'_>) -> Result<Self, Problem> {
                Ok(($(params.parse::<$name>($index)?,)*))
            }
        }
    };
}
from_path_for_tuple!(A 0);
from_path_for_tuple!(A 0, B 1);
from_path_for_tuple!(A 0, B 1, C 2);
from_path_for_tuple!(A 0, B 1, C 2, D 3);

impl<T: FromPath, S: Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let params = &context(parts)?.params;
        T::from_path(&Params { params, path: parts.uri.path() }).map(Self)
    }
}

/// The query of the target, deserialized into `T`.
#[derive(Debug, Clone)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match axum::extract::Query::try_from_uri(&parts.uri) {
            Ok(axum::extract::Query(value)) => Ok(Self(value)),
            Err(error) => Err(Problem::new(Reason::MalformedParameter, error.body_text())
                .value(parts.uri.query().unwrap_or_default())
                .remedy("see this route in /openapi.json")),
        }
    }
}

/// The body as bytes, at most as many as the route's limit allows.
#[derive(Debug, Clone)]
pub struct Payload(pub Bytes);

impl<S: Sync> FromRequest<S> for Payload {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let context = context(&parts)?;
        read(body, &context.time, &context.limits).await.map(Self)
    }
}

pub(crate) async fn read(body: Body, time: &RequestTime, limits: &Limits) -> Result<Bytes, Problem> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    time.set_reading_body(true);
    let bytes = read_pieces(body, limits).await;
    time.set_reading_body(false);
    bytes
}

/// Reads all pieces of a body. A body of one piece is not copied; others are copied once.
async fn read_pieces(mut body: Body, limits: &Limits) -> Result<Bytes, Problem> {
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|error| unreadable(error, limits))?.into_data() else { continue };
        if first.is_empty() {
            first = piece;
        } else {
            if whole.is_empty() {
                whole.reserve(first.len() + piece.len() + body.size_hint().lower() as usize);
                whole.extend_from_slice(&first);
            }
            whole.extend_from_slice(&piece);
        }
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

pub(crate) fn unreadable(error: axum::Error, limits: &Limits) -> Problem {
    let error = error.into_inner();
    if error.is::<LengthLimitError>() {
        return body_too_large(None, limits);
    }
    Problem::new(Reason::MalformedBody, "the body ended before it was complete").caused_by(&*error)
}

/// Builds the refusal of a body over its route's limit. `size_bytes` is set if the client announced it.
pub(crate) fn body_too_large(size_bytes: Option<u64>, limits: &Limits) -> Problem {
    let limit = limits.body_max_bytes;
    let detail = match size_bytes {
        Some(size) => format!("a body of {size} bytes is over the limit of {limit} bytes"),
        None => format!("the body is over the limit of {limit} bytes"),
    };
    // A name with a blank is no setting but says that the limit is fixed.
    let is_setting = !limits.body_max_setting.contains(' ');
    let remedy = if is_setting { "send less at once, or raise the limit" } else { "send less at once" };
    let problem = Problem::new(Reason::BodyTooLarge, detail)
        .rule(format!("{} = {limit}", limits.body_max_setting))
        .remedy(remedy)
        .member("limit_bytes", limit);
    match size_bytes {
        Some(size) => problem.value(size),
        None => problem,
    }
}

/// A JSON body or answer. A body needs an `application/json` or `+json` content type.
#[derive(Debug, Clone)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        check_json_type(request.headers())?;
        let Payload(bytes) = Payload::from_request(request, state).await?;
        parse_json(&bytes).map(Self)
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

/// Refuses a request whose content type is not JSON.
///
/// # Errors
/// A [`Problem`] with [`Reason::UnsupportedMediaType`], for any other content type.
pub fn check_json_type(headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let essence = given.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if essence.eq_ignore_ascii_case(b"application/json") || essence.to_ascii_lowercase().ends_with(b"+json") {
        return Ok(());
    }
    Err(Problem::new(Reason::UnsupportedMediaType, "the body is not declared as JSON")
        .value(String::from_utf8_lossy(given))
        .rule("Content-Type: application/json")
        .remedy("send that header"))
}

/// The error of a JSON text in JSON's own terms, without its position.
pub fn json_fault(error: &serde_json::Error) -> String {
    const WORDS: [(&str, &str); 9] = [
        ("expected ident", "a word that is none of true, false and null"),
        ("EOF while parsing", "it ends within"),
        ("invalid type: map", "invalid type: object"),
        ("invalid type: sequence", "invalid type: array"),
        ("expected a map", "expected an object"),
        ("expected a sequence", "expected an array"),
        ("expected a borrowed string", "expected a string"),
        ("expected u32", "expected a whole number of at most 4294967295"),
        ("expected u64", "expected a whole number"),
    ];
    let said = error.to_string();
    let fault = said.rsplit_once(" at line ").map_or(&*said, |(fault, _)| fault);
    let fault = WORDS.iter().fold(fault.to_owned(), |fault, (theirs, ours)| fault.replace(theirs, ours));
    // The Rust type's name means nothing to the client.
    match fault.split_once(", expected struct ") {
        Some((given, _)) => format!("{given}, expected an object"),
        None => fault,
    }
}

/// Parses a JSON body into `T`.
///
/// # Errors
/// A [`Problem`] with [`Reason::MalformedBody`], and the error's line and column.
pub fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes).map_err(|error| {
        let (what, line, column) = (json_fault(&error), error.line(), error.column());
        Problem::new(Reason::MalformedBody, format!("the body cannot be taken: {what} at line {line} column {column}"))
            .remedy("correct the body there")
            .member("line", error.line())
            .member("column", error.column())
    })
}
