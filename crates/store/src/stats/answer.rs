//! Answers of statistics over HTTP: the tree that a request asks for, compressed if it asks for that.

use std::io::Write as _;

use axum::http::HeaderMap;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use millstream_http::{Caller, Problem, Reach, Reason};
use millstream_types::TenantId;
use serde_json::Value;

use super::{Categories, Statistics};

/// Members of every answer, and of the server's own `/stats`.
pub(super) const RESERVED: [&str; 5] = ["timestamp", "string_timestamp", "monitor_status", "backends", "list"];
/// Smaller answers are not compressed.
const COMPRESSED_MIN_BYTES: usize = 1_024;

/// The tenants whose figures a caller sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The only tenant; `None` for all.
    pub tenant: Option<TenantId>,
}

impl Scope {
    /// The figures of all tenants.
    pub const EVERY_TENANT: Self = Self { tenant: None };

    /// The tenants that `caller` may see: its own, or all.
    pub fn of(caller: &Caller) -> Self {
        Self { tenant: (caller.reach() == Reach::OneTenant).then(|| caller.tenant.clone()) }
    }
}

/// Answers the statistics of `categories`, which are bits or names.
///
/// # Errors
/// A [`Problem`] for categories that are none.
pub async fn answer(
    statistics: &Statistics,
    categories: &str,
    scope: &Scope,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let parsed = Categories::parse(categories).ok_or_else(|| {
        Problem::new(Reason::MalformedParameter, "there are no such categories")
            .value(categories)
            .rule("categories are a sum of bits (cache 1, io 2, commands 4, io_histograms 8, backend 16, stats 32, procfs 64, top 128), -1 for all, or names separated by commas")
            .remedy("ask for categories=-1")
    })?;
    Ok(encoded(&statistics.render(parsed, scope).await, headers))
}

/// Answers the category or the provider of that name.
pub(super) async fn named(
    statistics: &Statistics,
    name: &str,
    scope: &Scope,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let tree = match Categories::named(name) {
        Some(category) => Some(statistics.render(category, scope).await),
        None => statistics.render_provider(name, scope).await,
    };
    tree.map(|tree| encoded(&tree, headers)).ok_or_else(|| {
        let categories = "all, cache, io, commands, io_histograms, backend, stats, procfs, top";
        Problem::new(Reason::Code(millstream_types::ErrorCode::NotFound), format!("there are no statistics '{name}'"))
            .value(name)
            .rule(format!("categories are {categories}; providers are {}", statistics.names().join(", ")))
            .remedy("ask for one of these")
    })
}

fn encoded(tree: &Value, headers: &HeaderMap) -> Response {
    let body = tree.to_string().into_bytes();
    let accepted = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (body, coding) = match coding(accepted).filter(|_| body.len() >= COMPRESSED_MIN_BYTES) {
        Some(coding) => match compressed(&body, coding) {
            Ok(smaller) => (smaller, Some(coding)),
            Err(_) => (body, None),
        },
        None => (body, None),
    };
    let mut response = (StatusCode::OK, body).into_response();
    let answer = response.headers_mut();
    answer.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if let Some(coding) = coding {
        answer.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
    }
    response
}

/// The first coding of `accepted` that we have (RFC 9110, section 12.5.3).
fn coding(accepted: &str) -> Option<&'static str> {
    accepted.split(',').find_map(|offer| {
        let (name, parameters) = offer.split_once(';').unwrap_or((offer, ""));
        let quality = parameters.trim().strip_prefix("q=").and_then(|quality| quality.parse::<f32>().ok());
        let known = ["deflate", "gzip"].into_iter().find(|known| name.trim().eq_ignore_ascii_case(known));
        known.filter(|_| quality != Some(0.0))
    })
}

/// HTTP's `deflate` is the format of zlib.
fn compressed(body: &[u8], coding: &str) -> std::io::Result<Vec<u8>> {
    if coding == "gzip" {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(body)?;
        return encoder.finish();
    }
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_compressed_only_when_asked() {
        for (accepted, expected) in [
            ("", None),
            ("identity", None),
            ("br", None),
            ("deflate", Some("deflate")),
            ("gzip, deflate", Some("gzip")),
            ("br;q=1.0, Deflate;q=0.5", Some("deflate")),
            ("deflate;q=0", None),
            ("deflate;q=0, gzip", Some("gzip")),
        ] {
            assert_eq!(coding(accepted), expected, "{accepted}");
        }
    }

    #[test]
    fn what_is_compressed_is_the_tree() {
        use std::io::Read as _;
        let body = vec![b'x'; 5_000];
        let mut zlib = Vec::new();
        flate2::read::ZlibDecoder::new(&compressed(&body, "deflate").unwrap()[..]).read_to_end(&mut zlib).unwrap();
        let mut gzip = Vec::new();
        flate2::read::GzDecoder::new(&compressed(&body, "gzip").unwrap()[..]).read_to_end(&mut gzip).unwrap();
        assert_eq!((zlib, gzip), (body.clone(), body));
    }
}
