//! The errors of the store as problem details.

use std::time::Duration;

use axum::http::StatusCode;
use millstream_http::{Problem, Reason};
use millstream_types::ErrorCode;

use crate::table::LENGTH_MAX;
use crate::{Error, WriteRefusal};

/// Converts an error of the store.
pub(crate) fn problem(error: &Error) -> Problem {
    let problem = Problem::from_error(error.code(), error);
    match error {
        Error::Refused(WriteRefusal::BucketFull { held, max_bytes }) => problem
            .with_status(StatusCode::INSUFFICIENT_STORAGE)
            .value(held)
            .rule(format!("the bucket's max_bytes is {max_bytes}"))
            .remedy("delete keys, or raise max_bytes by 'PUT /buckets/{bucket}'"),
        Error::Refused(WriteRefusal::TooManyKeys { held, max_keys }) => problem
            .with_status(StatusCode::INSUFFICIENT_STORAGE)
            .value(held)
            .rule(format!("the bucket's max_keys is {max_keys}"))
            .remedy("delete keys, or raise max_keys by 'PUT /buckets/{bucket}'"),
        Error::Refused(WriteRefusal::ValueTooLarge { length, max_bytes: LENGTH_MAX }) => problem
            .value(length)
            .rule(format!("a value has at most {LENGTH_MAX} bytes"))
            .remedy("write nearer to the beginning of the value"),
        Error::Refused(WriteRefusal::ValueTooLarge { length, max_bytes }) => problem
            .value(length)
            .rule(format!("the bucket's value_max_bytes is {max_bytes}"))
            .remedy("store less, or raise value_max_bytes by 'PUT /buckets/{bucket}'"),
        Error::Refused(WriteRefusal::TooManyWrites { per_second, wait_ms }) => problem
            .value(per_second)
            .rule(format!("the bucket's writes_per_second is {per_second}"))
            .remedy("wait as Retry-After tells, or raise writes_per_second by 'PUT /buckets/{bucket}'")
            .retry_after(Duration::from_millis(*wait_ms)),
        Error::Refused(WriteRefusal::OtherPart { number, sent, .. }) => problem
            .value(format!("{sent:08x}"))
            .rule(format!("part {number} is sent once, or again with the same bytes"))
            .remedy("send it under another number, or give the upload up by 'DELETE …?upload=ID'"),
        Error::Refused(WriteRefusal::TooManyPieces { pieces, .. }) => problem
            .value(pieces)
            .rule("a value has at most 16,384 pieces of 1,024 uploads; each append and each write at a place adds some")
            .remedy("read the value and store it anew by PUT"),
        Error::Refused(WriteRefusal::NoUpload { upload }) => problem
            .value(upload)
            .rule("an upload is open until it is committed, given up or too old (store.upload_max_age_ms)")
            .remedy("begin a new one by 'POST …?uploads'"),
        Error::Refused(WriteRefusal::Key { length, .. }) => problem
            .value(length)
            .rule("store.key_max_bytes bounds keys; a zero byte at their beginning is the store's own")
            .remedy("choose another key"),
        Error::NoMemory { setting, size_bytes, more_bytes, left_bytes, budget, .. } => problem
            .with_status(StatusCode::INSUFFICIENT_STORAGE)
            .rule("buckets leave a quarter of what is not set aside at start to connections and requests")
            .remedy(format!(
                "set {setting} to at most {}, delete a bucket, or raise {budget}",
                (size_bytes - more_bytes).saturating_add(*left_bytes)
            )),
        Error::UnknownBucket { bucket } => problem
            .value(bucket)
            .rule("a bucket is made before it is used")
            .remedy(format!("'PUT /buckets/{bucket}' or 'millstream kv make {bucket}' makes it")),
        // The value is there once the file is restored: an error of the storage, not of the request.
        _ if error.code() == ErrorCode::Corrupt => problem.with_status(StatusCode::SERVICE_UNAVAILABLE),
        _ => problem,
    }
}

/// There is no such key.
pub(super) fn no_such_key(key: &[u8]) -> Problem {
    let key = String::from_utf8_lossy(key).into_owned();
    Problem::new(Reason::Code(ErrorCode::NotFound), format!("there is no key '{key}'"))
        .value(key)
        .rule("a key is there from its first write until it is deleted or expires")
        .remedy("see 'GET /kv/{bucket}' for the keys there are")
}

/// Refuses a parameter of the query or a header.
pub(super) fn bad_parameter(name: &str, value: &str, rule: &'static str) -> Problem {
    Problem::new(Reason::MalformedParameter, format!("'{name}' cannot be taken")).value(value).rule(rule)
}
