//! The store over HTTP: `/kv/{bucket}/{key}` and `/buckets/{bucket}`.
//!
//! A key is the rest of the path, percent-decoded; it may have slashes and any bytes. Names that begin with `_` are
//! routes of the bucket, so a key that begins with one is written `%5F…`.

mod body;
mod bucket_routes;
mod bulk;
mod cached;
mod conditions;
mod incoming;
mod iterate;
mod key_line;
mod list;
mod multipart;
mod pages;
mod parameters;
mod problems;
mod query;
mod ranges;
mod read;
mod records;
mod scope;
mod target;
mod watch;
mod write;

use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use millstream_http::{Access, Content, Limits, Route, RouteDraft, Routes};
use millstream_types::Role;
use serde_json::json;

pub(crate) use self::body::{Segment, ValueBody};
pub(crate) use self::problems::problem;
pub(crate) use self::read::STREAM_BYTES;
pub(crate) use self::scope::check_key_scope;
pub(crate) use self::write::{StoredWrite, WriteDraft, store_body};
use crate::counters::CountedRoutes;
use crate::{CHUNK_BYTES, Store};

/// Largest value that an append leaves in one record, with room for key and headers.
const RECORD_VALUE_MAX_BYTES: u64 = 960 << 10;
/// Largest part of a multipart upload.
const PART_MAX_BYTES: u64 = 5 << 30;
/// Largest body of a write.
pub(crate) const BODY_MAX_BYTES: u64 = 5 << 40;
/// Most bytes that a write holds of its body: a chunk that is filled, two on their way, and what has just arrived.
pub(crate) const BODY_HELD_BYTES: u64 = 4 * CHUNK_BYTES as u64;
const TIMEOUT: Duration = Duration::from_secs(30);

const READ_LIMITS: Limits =
    Limits { body_max_bytes: 0, body_max_setting: "none: this route takes no body", timeout: TIMEOUT };
const WRITE_LIMITS: Limits =
    Limits { body_max_bytes: BODY_MAX_BYTES, body_max_setting: "none: a body has at most 5 TiB", timeout: TIMEOUT };
const SETTINGS_LIMITS: Limits = Limits {
    body_max_bytes: 16 << 10,
    body_max_setting: "none: a bucket's settings have at most 16 KiB",
    timeout: TIMEOUT,
};

const BUCKET: &str = "The bucket's name.";
const KEY: &str = "The key, percent-encoded; it may have slashes. Write `%5F` for `_` at its beginning.";

const NEEDS_DURABLE: &str = "The bucket is a cache, and this takes a durable one.";

/// The routes of the store.
pub fn routes(store: &Arc<Store>) -> Routes {
    let routes = Routes::new("store").observed(CountedRoutes::over(store.doors()));
    let routes = routes.route(read_route(store)).route(put_route(store)).route(post_route(store));
    let routes = routes.route(delete_route(store));
    let of_many = [list::route(store), bulk::route(store), watch::route(store), iterate::route(store)];
    of_many.into_iter().chain(bucket_routes::routes(store)).fold(routes, Routes::route)
}

fn documented(draft: RouteDraft) -> RouteDraft {
    draft.param("bucket", BUCKET).param("key", KEY).keeps_to_scope()
}

fn conditional(draft: RouteDraft) -> RouteDraft {
    draft
        .query("ack", "`memory`, `written`, `synced` or `all`; the default is the bucket's.")
        .header("If-Match", "Versions, one of which the key must have; `*` is any. A missing key has none.")
        .header("If-None-Match", "Versions that the key must not have; `*`: it must not be there.")
        .header(
            "If-Unmodified-Since",
            "Refused if the value was written later, unless there is `If-Match`. Cache buckets have no such times and pass \
             it over (RFC 9110, 13.1.4).",
        )
        .header("X-If-Timestamp-Before", "Time; refused if the stored time stamp is later. ISO 8601 or milliseconds.")
        .answers(404, "The bucket, or the upload that is named, does not exist.")
        .answers(409, NEEDS_DURABLE)
        .answers_with(
            412,
            "A condition does not hold; the body has the versions.",
            Content::json(json!({"type": "object"})),
        )
        .answers(429, "The bucket's rate of writes is reached; retry after `Retry-After`.")
        .answers(507, "The bucket is full; deletes still work.")
}

fn described(draft: RouteDraft) -> RouteDraft {
    draft
        .query("ttl", "Time to live: milliseconds, or with a unit (`500ms`, `30s`, `5m`, `2h`, `7d`).")
        .header("Content-Type", "The media type, which reads answer again.")
        .header(
            "Content-Encoding",
            "Stored with the value and answered again, as are `Content-Language`, `Content-Disposition` and `Cache-Control`.",
        )
        .header("Content-MD5", "MD5 of the body, base64; another body is refused.")
        .header("X-Timestamp", "The client's time stamp of the value. ISO 8601 or milliseconds.")
        .header("X-Tags", "Tags, separated by commas.")
        .header("X-Meta-NAME", "Metadata NAME, which reads answer again.")
}

fn read_route(store: &Arc<Store>) -> Route {
    let store = Arc::clone(store);
    let draft = Route::get("/kv/{bucket}/{*key}", Access::Role(Role::Reader), READ_LIMITS, "Read a value");
    documented(draft)
        .header("If-None-Match", "Versions that the client has; answered 304 if one is current.")
        .query("uploads", "Lists the open uploads of the key instead: their ids and when they began.")
        .query("upload", "Lists the parts of this open upload instead: number, size and CRC-32C of each that is there.")
        .header("Range", "Bytes of the value, at most 16 ranges; ranges that overlap become one.")
        .header(
            "If-Range",
            "The version, or the time of the write, that the range is of; otherwise the value comes whole.",
        )
        .header("If-Match", "Answered 412 unless the value has one of these versions.")
        .header("If-Unmodified-Since", "Answered 412 if the value was written later.")
        .header("If-Modified-Since", "Answered 304 if the value was not written since.")
        .answers_with(200, "The value. `ETag` is its version.", Content::bytes("application/octet-stream"))
        .answers_with(
            206,
            "The ranges: one with `Content-Range`, several as `multipart/byteranges`.",
            Content::bytes("application/octet-stream"),
        )
        .answers(304, "The client has the value.")
        .answers(412, "`If-Match` or `If-Unmodified-Since` does not hold.")
        .answers(416, "The value has no byte of the range.")
        .answers(404, "The bucket or the key does not exist.")
        .answers(409, NEEDS_DURABLE)
        .answered_by(move |request| cached::or(&store, request, cached::get, || read::get(&store, request)))
}

fn put_route(store: &Arc<Store>) -> Route {
    let store = Arc::clone(store);
    let draft = Route::put("/kv/{bucket}/{*key}", Access::Role(Role::Writer), WRITE_LIMITS, "Store a value");
    described(conditional(documented(draft)))
        .query("offset", "Writes the body at this place of the value; a gap before it reads as zeros.")
        .query("upload", "The id of a multipart upload: the body is one of its parts, of at most 5 GiB.")
        .query("part", "The number of that part, 1 to 10,000, in any order. Sent again, it has the same bytes.")
        .header("Prefer", "`return=minimal`: an answer without a body.")
        .takes(Content::bytes("application/octet-stream"))
        .answers_with(200, "Replaced. `ETag` is the new version.", Content::json(json!({"type": "object"})))
        .answers_with(201, "Stored under a new key.", Content::json(json!({"type": "object"})))
        .answers(204, "Stored, without a body.")
        .answers(400, "`Content-MD5` is not that of the body, or a parameter cannot be taken.")
        .answers(409, "Or the part is there with other bytes; both checksums are named.")
        .streams(BODY_HELD_BYTES)
        .answered_by(move |request| cached::or(&store, request, cached::put, || write::put(&store, request)))
}

fn post_route(store: &Arc<Store>) -> Route {
    let store = Arc::clone(store);
    let draft = Route::post(
        "/kv/{bucket}/{*key}",
        Access::Role(Role::Writer),
        WRITE_LIMITS,
        "Append to a value, or begin or commit an upload",
    );
    described(conditional(documented(draft)))
        .query("append", "Appends the body to the value, or stores it under a new key.")
        .query(
            "uploads",
            "Begins a multipart upload; answers its id. It may be committed for a day, restarts included.",
        )
        .query(
            "commit",
            "The id of an upload whose parts become the value, in the order of their numbers. The body may name \
             them: `[{\"part\": 1, \"size\": 5}]`. Sent again, it is answered as before, as long as the key has that value.",
        )
        .header("Prefer", "`return=minimal`: an answer without a body.")
        .takes(Content::bytes("application/octet-stream"))
        .answers_with(200, "Appended. `ETag` is the new version.", Content::json(json!({"type": "object"})))
        .answers_with(201, "Stored under a new key.", Content::json(json!({"type": "object"})))
        .answers(204, "Stored, without a body.")
        .answers(400, "The upload has no parts, or the list of parts does not match them.")
        .answers(409, "Or the tenant has as many open uploads as `store.uploads_per_tenant_max` allows.")
        .streams(BODY_HELD_BYTES)
        .answered_by(move |request| cached::or(&store, request, cached::post, || write::post(&store, request)))
}

fn delete_route(store: &Arc<Store>) -> Route {
    let store = Arc::clone(store);
    let limits = Limits { body_max_setting: "none: this route takes no body", ..READ_LIMITS };
    let draft = Route::on(Method::DELETE, "/kv/{bucket}/{*key}", Access::Role(Role::Writer), limits, "Delete a key");
    conditional(documented(draft))
        .query("upload", "Gives up this upload instead of deleting the key.")
        .answers(204, "Deleted, or given up.")
        .answers(404, "Or the key does not exist.")
        .answered_by(move |request| cached::or(&store, request, cached::delete, || write::delete(&store, request)))
}
