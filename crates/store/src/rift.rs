//! The routes of Rift, Elliptics' HTTP proxy, with its shapes of answers, over the same buckets as `/kv`.
//!
//! Not carried over: redirects to a data file, tags, directories of buckets. Parameters that it does not
//! know are passed over, as Rift did.

mod access;
mod read;
mod reply;
mod signature;
mod write;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use millstream_http::{Access, Answer, Content, Limits, Problem, Reason, Request, Route, RouteDraft, Routes};
use millstream_types::{ErrorCode, Role};
use percent_encoding::percent_decode_str;
use serde_json::json;

pub use self::access::RiftAccess;
use crate::counters::CountedRoutes;
use crate::http::{BODY_HELD_BYTES, BODY_MAX_BYTES, check_key_scope, problem};
use crate::{Bucket, Scope, Statistics, Store, answer_statistics};

/// Largest body that is answered as it came.
const ECHO_MAX_BYTES: u64 = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(30);
const READ_LIMITS: Limits =
    Limits { body_max_bytes: 0, body_max_setting: "none: this route takes no body", timeout: TIMEOUT };
const WRITE_LIMITS: Limits =
    Limits { body_max_bytes: BODY_MAX_BYTES, body_max_setting: "none: a body has at most 5 TiB", timeout: TIMEOUT };
// Rift's clients send a body with a deletion, which means nothing.
const SMALL_LIMITS: Limits =
    Limits { body_max_bytes: ECHO_MAX_BYTES, body_max_setting: "none: this body has at most 1 MiB", timeout: TIMEOUT };
const READER: Access = Access::Role(Role::Reader);
const WRITER: Access = Access::Role(Role::Writer);

/// The routes of Rift. Their listener authenticates by [`RiftAccess`].
pub fn routes(store: &Arc<Store>, statistics: &Arc<Statistics>) -> Routes {
    let routes = Routes::new("rift").trailing_slash().observed(CountedRoutes::over(store.doors()));
    let routes = routes.route(upload(store)).route(get(store)).route(info(store)).route(delete(store));
    let routes = routes.route(list(store)).route(ping()).route(echo());
    let stat = Route::get("/stat", READER, READ_LIMITS, "Show statistics").answers_with(
        200,
        "All categories.",
        Content::json(json!({"type": "object"})),
    );
    routes.route(stat.to(all_statistics, Arc::clone(statistics)))
}

fn documented(draft: RouteDraft) -> RouteDraft {
    draft
        .param("bucket", "The bucket's name.")
        .param("key", "The key, percent-encoded; it may have slashes.")
        .keeps_to_scope()
        .header("Authorization", "`riftv1 USER:HEX`, the signature, if the bucket has users of its own.")
        .answers(403, "The user is unknown, the signature is wrong, or the user lacks the right.")
        .answers(404, "The bucket or the key does not exist.")
        .answers(409, "The bucket is a cache, and this takes a durable one.")
}

fn object() -> Content {
    Content::json(json!({"type": "object"}))
}

fn upload(store: &Arc<Store>) -> Route {
    let store = Arc::clone(store);
    documented(Route::post("/upload/{bucket}/{*key}", WRITER, WRITE_LIMITS, "Store a value (Rift)"))
        .query("offset", "Writes the body at this place of the value; 0, the default, replaces the value.")
        .takes(Content::bytes("application/octet-stream"))
        .answers_with(200, "Where the value lies.", object())
        .answers(507, "The bucket is full; deletes still work.")
        .streams(BODY_HELD_BYTES)
        .answered_by(move |request| write::upload(&store, request).unwrap_or_else(Answer::from))
}

fn get(store: &Arc<Store>) -> Route {
    let store = Arc::clone(store);
    documented(Route::get("/get/{bucket}/{*key}", READER, READ_LIMITS, "Read a value (Rift)"))
        .query("offset", "The first byte. Default 0.")
        .query("size", "The number of bytes; 0, the default, is all to the end.")
        .header("Range", "One range of bytes.")
        .header("If-Modified-Since", "Answered 304 if the value was not written since.")
        .answers_with(200, "The value.", Content::bytes("application/octet-stream"))
        .answers_with(206, "A range of the value.", Content::bytes("application/octet-stream"))
        .answers(304, "The client has the value.")
        .answers(416, "The value has no such bytes.")
        .answered_by(move |request| read::get(&store, request).unwrap_or_else(Answer::from))
}

fn info(store: &Arc<Store>) -> Route {
    let store = Arc::clone(store);
    documented(Route::get("/download-info/{bucket}/{*key}", READER, READ_LIMITS, "Tell where a value lies (Rift)"))
        .answers_with(200, "Partition, offset, size, time and checksum.", object())
        .answered_by(move |request| read::info(&store, request).unwrap_or_else(Answer::from))
}

fn delete(store: &Arc<Store>) -> Route {
    let store = Arc::clone(store);
    documented(Route::post("/delete/{bucket}/{*key}", WRITER, SMALL_LIMITS, "Delete a key (Rift)"))
        .answers(200, "Deleted.")
        .answered_by(move |request| write::delete(&store, request).unwrap_or_else(Answer::from))
}

fn list(store: &Arc<Store>) -> Route {
    let store = Arc::clone(store);
    Route::get("/list/{bucket}", READER, READ_LIMITS, "List all keys of a bucket (Rift)")
        .param("bucket", "The bucket's name.")
        .keeps_to_scope()
        .answers_with(200, "Id, key and time of the write of each key.", object())
        .answers(404, "The bucket does not exist.")
        .answers(409, "The bucket is a cache, and this takes a durable one.")
        .answers(413, "The bucket has too many keys for one answer.")
        .answered_by(move |request| read::list(&store, request).unwrap_or_else(Answer::from))
}

fn ping() -> Route {
    Route::get("/ping", Access::Public, READ_LIMITS, "Answer at all (Rift)")
        .answers(200, "The server answers.")
        .answered_by(|_| Answer::Ready(StatusCode::OK.into_response()))
}

fn echo() -> Route {
    Route::post("/echo", READER, SMALL_LIMITS, "Answer the body (Rift)")
        .takes(Content::bytes("application/octet-stream"))
        .answers_with(200, "The body.", Content::bytes("application/octet-stream"))
        .answered_by(|request| match request.body_to_keep() {
            Ok(body) => Answer::Ready(bytes_answer(body)),
            Err(unread) => unread.into(),
        })
}

async fn all_statistics(
    axum::extract::State(statistics): axum::extract::State<Arc<Statistics>>,
    caller: millstream_http::Caller,
    headers: axum::http::HeaderMap,
) -> Result<Response, Problem> {
    answer_statistics(&statistics, "-1", &Scope::of(&caller), &headers).await
}

fn bytes_answer(bytes: Bytes) -> Response {
    let mut response = Body::from(bytes).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    response
}

/// The bucket and key that a request names.
struct RiftTarget {
    bucket: Arc<Bucket>,
    name: String,
    key: Bytes,
    /// The server's name, as the client calls it.
    server: String,
}

impl RiftTarget {
    fn of(store: &Store, request: &Request<'_>) -> Result<Self, Problem> {
        let name = request.param(0)?.into_owned();
        // Decoded here, as a key may have bytes that are no text.
        let encoded = request.path().splitn(4, '/').nth(3).unwrap_or_default();
        let key = Bytes::copy_from_slice(&Cow::from(percent_decode_str(encoded)));
        let caller = request.caller()?;
        check_key_scope(caller, &name, &key)?;
        let bucket = store.bucket(&caller.tenant, &name).map_err(|error| problem(&error))?;
        bucket.check_key(&key).map_err(|error| problem(&error).value(encoded))?;
        let server = request.header("host").map(|host| String::from_utf8_lossy(host).into_owned());
        Ok(Self { bucket, name, key, server: server.unwrap_or_default() })
    }

    fn no_such_key(&self) -> Problem {
        let key = String::from_utf8_lossy(&self.key).into_owned();
        Problem::new(Reason::Code(ErrorCode::NotFound), format!("there is no key '{key}' in bucket '{}'", self.name))
            .value(key)
            .rule("a key is there from its first write until it is deleted or expires")
            .remedy(format!("see 'GET /list/{}' for the keys there are", self.name))
    }
}

/// A number in the query; 0 if it is not there.
fn number(request: &Request<'_>, name: &'static str) -> Result<u64, Problem> {
    let mut pairs = request.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let Some((_, value)) = pairs.rfind(|(given, _)| *given == name) else { return Ok(0) };
    value.parse().map_err(|_| {
        Problem::new(Reason::MalformedParameter, format!("'{name}' cannot be taken"))
            .value(value)
            .rule("it is a number of bytes")
            .remedy(format!("leave '{name}' out for the whole value"))
    })
}
