//! Reads and writes of keys in a cache bucket. Values have no place but memory, so they come and go whole.

use std::sync::Arc;

use axum::http::header::{CONTENT_TYPE, ETAG};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use millstream_http::{Answer, Problem, Request, Unread, sandbox};

use super::conditions::{Preconditions, etag};
use super::parameters::{WriteParameters, refuse_content_range, text};
use super::problems::{bad_parameter, no_such_key, problem};
use super::target::cached_target;
use crate::{CacheBucket, Error, Interrupted, Store, Value};

/// Largest value over HTTP, whose body is held whole.
const VALUE_MAX_BYTES: u64 = 1 << 20;

/// Answers a request for a key of a cache bucket; any other is left to `durable`.
pub(super) fn or(
    store: &Arc<Store>,
    request: &Request<'_>,
    of_cache: fn(&CacheBucket, Bytes, &Request<'_>) -> Result<Answer, Unread>,
    durable: impl FnOnce() -> Answer,
) -> Answer {
    match cached_target(store, request) {
        Ok(Some((bucket, key))) => of_cache(&bucket, key, request).unwrap_or_else(Answer::from),
        Ok(None) => durable(),
        Err(problem) => problem.into(),
    }
}

/// `GET /kv/{bucket}/{key}`
pub(super) fn get(bucket: &CacheBucket, key: Bytes, request: &Request<'_>) -> Result<Answer, Unread> {
    let conditions = Preconditions::of(request.headers())?;
    let (value, version) = bucket.cache().transact(&[&key], |transaction| {
        let version = transaction.entry(&key).and_then(|entry| entry.version);
        (transaction.get(&key), version)
    });
    let Ok(Some(value)) = value else { return Err(no_such_key(&key).into()) };
    let version = version.unwrap_or_default();
    if let Some(unmet) = conditions.unmet_by_read(version) {
        return Err(unmet.problem(Some(version)).into());
    }
    let is_current = conditions.if_none_match.as_ref().is_some_and(|versions| versions.have(Some(version)));
    let mut response = match is_current {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => {
            let content_type = value.attributes.as_ref().and_then(|attributes| attributes.content_type.clone());
            let is_chosen = content_type.is_some();
            let attributes = value.attributes.clone();
            let content_type = content_type.unwrap_or_else(|| "application/octet-stream".to_owned());
            let mut response = ([(CONTENT_TYPE, content_type)], value.bytes).into_response();
            if is_chosen {
                sandbox(response.headers_mut());
            }
            for (name, value) in attributes.iter().flat_map(|attributes| &attributes.headers) {
                if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                    response.headers_mut().insert(name, value);
                }
            }
            response
        }
    };
    response.headers_mut().insert(ETAG, etag(version));
    Ok(response.into())
}

/// `PUT /kv/{bucket}/{key}`
pub(super) fn put(bucket: &CacheBucket, key: Bytes, request: &Request<'_>) -> Result<Answer, Unread> {
    let (parameters, conditions) = (WriteParameters::of(request)?, Preconditions::of(request.headers())?);
    refuse_content_range(request.headers())?;
    if parameters.offset.is_some() {
        let problem = bad_parameter("offset", "", "a cache bucket takes whole values");
        return Err(problem.remedy("use a durable bucket, or SETRANGE of the Redis protocol").into());
    }
    let length = text(request.headers(), "content-length").and_then(|length| length.parse::<u64>().ok());
    if length.is_none_or(|length| length > VALUE_MAX_BYTES) {
        let length = length.map_or_else(|| "none".to_owned(), |length| length.to_string());
        let rule = "a value of a cache bucket has at most 1 MiB over HTTP, and its length is told";
        return Err(bad_parameter("Content-Length", &length, rule).remedy("use a durable bucket, or SET").into());
    }
    let body = request.body_to_keep()?;
    let ttl_ms = parameters.ttl_ms.or(bucket.config().ttl_ms);
    let expires_ms = ttl_ms.map(|ttl_ms| bucket.now_ms().saturating_add_unsigned(ttl_ms));
    let value = Value { bytes: body, expires_ms, attributes: parameters.attributes.clone() };
    let outcome = bucket.cache().transact(&[&key], |transaction| {
        let version = transaction.entry(&key).and_then(|entry| entry.version);
        if let Some(unmet) = conditions.unmet_by(version) {
            return Ok(Err((unmet, version)));
        }
        transaction.put(&key, value)?;
        Ok(Ok((version.is_none(), transaction.entry(&key).and_then(|entry| entry.version))))
    });
    match outcome {
        Ok(Ok((is_new, version))) => {
            let status = match (parameters.is_minimal, is_new) {
                (true, _) => StatusCode::NO_CONTENT,
                (false, true) => StatusCode::CREATED,
                (false, false) => StatusCode::OK,
            };
            let mut response = status.into_response();
            response.headers_mut().insert(ETAG, etag(version.unwrap_or_default()));
            Ok(response.into())
        }
        Ok(Err((unmet, version))) => Err(unmet.problem(version).into()),
        Err(interrupted) => Err(refused(interrupted).into()),
    }
}

/// `DELETE /kv/{bucket}/{key}`
pub(super) fn delete(bucket: &CacheBucket, key: Bytes, request: &Request<'_>) -> Result<Answer, Unread> {
    let conditions = Preconditions::of(request.headers())?;
    let outcome = bucket.cache().transact(&[&key], |transaction| {
        let version = transaction.entry(&key).and_then(|entry| entry.version);
        match conditions.unmet_by(version) {
            Some(unmet) => Err((unmet, version)),
            None => Ok(transaction.delete(&key)),
        }
    });
    match outcome {
        Ok(true) => Ok(Response::from(StatusCode::NO_CONTENT.into_response()).into()),
        Ok(false) => Err(no_such_key(&key).into()),
        Err((unmet, version)) => Err(unmet.problem(version).into()),
    }
}

/// `POST /kv/{bucket}/{key}`
pub(super) fn post(_: &CacheBucket, _: Bytes, _: &Request<'_>) -> Result<Answer, Unread> {
    let problem = bad_parameter("append", "", "a cache bucket takes whole values");
    Err(problem.remedy("use a durable bucket, or APPEND of the Redis protocol").into())
}

fn refused(interrupted: Interrupted) -> Problem {
    match interrupted {
        Interrupted::Refused(refusal) => problem(&Error::Refused(refusal)),
        Interrupted::NotLoaded => Problem::internal("a cache asks for the disk"),
    }
}
