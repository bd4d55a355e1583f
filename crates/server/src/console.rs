//! The web console, served from the binary.

use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use millstream_http::{Access, Content, Limits, Route, Routes};

/// Name and bytes of each file of the built console; empty if the console was not built before the binary.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/console_files.rs"));
const INDEX: &str = "index.html";
/// Paths of the console's pages, which share one document.
const PAGES: [&str; 7] = ["/", "/devices", "/entities", "/topics", "/query", "/jobs", "/store"];
/// Prefix of files whose names contain a content hash.
const HASHED: &str = "assets/";
/// Scripts, connections and forms go to this server alone, and no other page frames the console. Only styles may be inline.
pub(crate) const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
);
const LIMITS: Limits =
    Limits { body_max_bytes: 0, body_max_setting: "none: these routes take no body", timeout: Duration::from_secs(10) };

/// A file with its headers, ready to send.
#[derive(Clone, Copy)]
struct File {
    media_type: &'static str,
    cache: &'static str,
    bytes: &'static [u8],
}

impl File {
    fn new(name: &'static str, bytes: &'static [u8]) -> Self {
        let cache = if name.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
        Self { media_type: media_type(name), cache, bytes }
    }
}

/// Returns the document of all console pages; `None` if the console was not built.
pub(crate) fn document() -> Option<&'static [u8]> {
    FILES.iter().find(|(name, _)| *name == INDEX).map(|(_, bytes)| *bytes)
}

pub(crate) fn routes() -> Routes {
    let mut routes = Routes::new("console");
    let index = FILES.iter().find(|(name, _)| *name == INDEX).map(|(_, bytes)| File::new(INDEX, bytes));
    let page = index.unwrap_or(File {
        media_type: "text/plain; charset=utf-8",
        cache: "no-cache",
        bytes: b"This binary was built without the console: 'make build' builds both.\n",
    });
    for path in PAGES {
        routes = routes.route(route(path, page));
    }
    for (name, bytes) in FILES.iter().filter(|(name, _)| *name != INDEX) {
        routes = routes.route(route(&format!("/{name}"), File::new(name, bytes)));
    }
    routes
}

fn route(path: &str, file: File) -> Route {
    Route::get(path, Access::Public, LIMITS, "A file of the console")
        .answers_with(200, "The file.", Content::bytes(file.media_type))
        .to(send, file)
}

async fn send(axum::extract::State(file): axum::extract::State<File>) -> Response {
    let about = [(CONTENT_TYPE, file.media_type), (CACHE_CONTROL, file.cache)];
    let kept_in = [(CONTENT_SECURITY_POLICY, POLICY), (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))];
    (about, kept_in, file.bytes).into_response()
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}
