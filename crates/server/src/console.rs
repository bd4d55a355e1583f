//! The web console, served from the binary.
//!
//! A browser runs only the console's own scripts and styles, and lets them ask this server and the origins of the identity
//! provider alone: a flaw in the console cannot load another site's code, or send a login there.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use flate2::bufread::GzDecoder;
use millstream_http::{Access, Content, Limits, Route, Routes};

/// Name and bytes, compressed by gzip, of each file of the built console; empty if the console was not built before the binary.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/console_files.rs"));
const INDEX: &str = "index.html";
/// The beginning of an address in the document: its files are beside it.
const BESIDE: &str = "\"./";
/// Paths of the console's pages, which share one document.
const PAGES: [&str; 9] = ["/", "/devices", "/entities", "/topics", "/query", "/jobs", "/store", "/access", "/login"];
/// Prefix of files whose names contain a content hash.
const HASHED: &str = "assets/";
const LIMITS: Limits =
    Limits { body_max_bytes: 0, body_max_setting: "none: these routes take no body", timeout: Duration::from_secs(10) };

/// Returns the origins that the console may ask beside the server's own: those of the identity provider.
pub(crate) type ProviderOrigins = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// A file with its headers.
#[derive(Clone, Copy)]
struct File {
    media_type: &'static str,
    cache: &'static str,
    bytes: Bytes,
}

/// A file, and the origins that it may ask.
#[derive(Clone)]
struct ConsoleFile {
    file: File,
    origins: ProviderOrigins,
}

#[derive(Clone, Copy)]
enum Bytes {
    Plain(&'static [u8]),
    Gzip(&'static [u8]),
}

impl Bytes {
    /// Returns a body, and how it is encoded, for a client that takes gzip or not.
    fn body(self, takes_gzip: bool) -> (Body, Option<&'static str>) {
        match self {
            Self::Plain(bytes) => (Body::from(bytes), None),
            Self::Gzip(bytes) if takes_gzip => (Body::from(bytes), Some("gzip")),
            Self::Gzip(bytes) => {
                let mut plain = Vec::new();
                let unpacked = GzDecoder::new(bytes).read_to_end(&mut plain);
                debug_assert!(unpacked.is_ok(), "the build compressed them");
                (Body::from(plain), None)
            }
        }
    }

    fn text(self) -> Option<String> {
        let mut text = String::new();
        match self {
            Self::Plain(mut bytes) => bytes.read_to_string(&mut text).ok()?,
            Self::Gzip(bytes) => GzDecoder::new(bytes).read_to_string(&mut text).ok()?,
        };
        Some(text)
    }
}

impl File {
    fn new(name: &'static str, compressed: &'static [u8]) -> Self {
        let cache = if name.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
        Self { media_type: media_type(name), cache, bytes: Bytes::Gzip(compressed) }
    }
}

/// Makes the answer for browsers at paths that are no page; `None` if the console was not built.
pub(crate) fn stray_page(origins: &ProviderOrigins) -> Option<impl Fn(&str) -> Response + Send + Sync + use<>> {
    let (file, origins) = (index()?, Arc::clone(origins));
    let document = file.bytes.text()?;
    Some(move |path: &str| {
        let page = document.replace(BESIDE, &format!("\"{}", way_to_root(path)));
        with_headers(file, Body::from(page), None, &origins())
    })
}

/// The way from a page at `path` to the root, where the files are. It holds below any path that a proxy has taken away.
fn way_to_root(path: &str) -> String {
    match path.matches('/').count() {
        0 | 1 => "./".to_owned(),
        slashes => "../".repeat(slashes - 1),
    }
}

pub(crate) fn routes(origins: &ProviderOrigins) -> Routes {
    let mut routes = Routes::new("console");
    let page = index().unwrap_or(File {
        media_type: "text/plain; charset=utf-8",
        cache: "no-cache",
        bytes: Bytes::Plain(b"This binary was built without the console: 'make build' builds both.\n"),
    });
    for path in PAGES {
        routes = routes.route(route(path, page, origins));
    }
    for (name, bytes) in FILES.iter().filter(|(name, _)| *name != INDEX) {
        routes = routes.route(route(&format!("/{name}"), File::new(name, bytes), origins));
    }
    routes
}

fn index() -> Option<File> {
    FILES.iter().find(|(name, _)| *name == INDEX).map(|(_, bytes)| File::new(INDEX, bytes))
}

fn route(path: &str, file: File, origins: &ProviderOrigins) -> Route {
    Route::get(path, Access::Public, LIMITS, "A file of the console")
        .answers_with(200, "The file.", Content::bytes(file.media_type))
        .to(send, ConsoleFile { file, origins: Arc::clone(origins) })
}

async fn send(State(ConsoleFile { file, origins }): State<ConsoleFile>, headers: HeaderMap) -> Response {
    answer(file, takes_gzip(&headers), &origins())
}

fn answer(file: File, takes_gzip: bool, origins: &[String]) -> Response {
    let (body, encoding) = file.bytes.body(takes_gzip);
    with_headers(file, body, encoding, origins)
}

fn with_headers(file: File, body: Body, encoding: Option<&'static str>, origins: &[String]) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(file.media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(file.cache));
    headers.insert(CONTENT_SECURITY_POLICY, content_security_policy(origins));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if let Some(encoding) = encoding {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    response
}

/// True if `Accept-Encoding` has `gzip` with a weight above 0 (RFC 9110, section 12.5.3).
fn takes_gzip(headers: &HeaderMap) -> bool {
    let codings = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    codings.flat_map(|codings| codings.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, "q=1"));
        let weight = weight.trim().strip_prefix("q=").and_then(|weight| weight.parse().ok());
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_some_and(|weight: f32| weight > 0.0)
    })
}

/// Pictures of stored values are shown from memory (`blob:`).
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; font-src 'self'; \
                      form-action 'self'; base-uri 'none'; object-src 'none'; frame-ancestors 'none'; connect-src 'self'";

fn content_security_policy(origins: &[String]) -> HeaderValue {
    let is_origin = |origin: &&String| !origin.contains([' ', ';', ',']);
    let policy = origins.iter().filter(is_origin).fold(POLICY.to_owned(), |policy, origin| policy + " " + origin);
    HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static(POLICY))
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
