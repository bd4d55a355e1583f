//! Keeps a document that a client has stored from running in a browser as a page of this server.

use axum::http::header::{CONTENT_SECURITY_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderValue};

/// Adds the headers of an answer whose media type a client has chosen. A browser that opens it runs none of its scripts,
/// gives it an origin of its own, and does not guess another type.
pub fn sandbox(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}
