//! Writes: upload and delete.

use std::sync::Arc;
use std::time::Instant;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use millstream_http::{Answer, Problem, Request, Unread};

use super::reply::{json_answer, placed};
use super::{RiftTarget, VALUE_MAX_BYTES, number};
use crate::http::problem;
use crate::{Interrupted, OwnerTransaction, Store, Transaction, Value, WriteRefusal};

/// `POST /upload/{bucket}/{key}`
pub(super) fn upload(store: &Arc<Store>, request: &Request<'_>) -> Result<Answer, Unread> {
    let target = RiftTarget::of(store, request)?;
    let offset = number(request, "offset")?;
    let body = request.body_to_keep()?;
    Ok(Answer::later(
        async move { store_value(target, offset, body).await.unwrap_or_else(IntoResponse::into_response) },
    ))
}

async fn store_value(target: RiftTarget, offset: u64, body: Bytes) -> Result<Response, Problem> {
    let (begun, bucket) = (Instant::now(), &target.bucket);
    let (partition, ttl_ms, received) = (bucket.partition_of(&target.key), bucket.config().ttl_ms, body.len());
    let key = target.key.clone();
    let work = move |transaction: &mut OwnerTransaction<'_, '_>| -> Result<(Bytes, i64), Interrupted> {
        let now_ms = transaction.now_ms();
        let expires_ms = ttl_ms.map(|ttl_ms| now_ms.saturating_add_unsigned(ttl_ms));
        let value = match offset {
            0 => Value { expires_ms, ..Value::of(body.clone()) },
            offset => {
                let before = transaction.get(&key)?.unwrap_or_default();
                let expires_ms = expires_ms.or(before.expires_ms);
                Value { bytes: patched(&before.bytes, offset, &body)?, expires_ms, ..before }
            }
        };
        let bytes = value.bytes.clone();
        transaction.put(&key, value)?;
        Ok((bytes, now_ms))
    };
    let done = bucket.transact(partition, None, target.key.len() + received, work).await;
    let done = done.map_err(|error| problem(&error))?;
    let (bytes, now_ms) = done.output;
    let mut tree = placed(&target, partition, done.first, &bytes, now_ms);
    tree["offset"] = offset.into();
    tree["bytes-per-second"] = (received as f64 / begun.elapsed().as_secs_f64().max(1e-6)).into();
    Ok(json_answer(&tree))
}

/// `before` with `body` at `offset`; a gap is filled with zeros.
fn patched(before: &[u8], offset: u64, body: &[u8]) -> Result<Bytes, WriteRefusal> {
    let length = offset.saturating_add(body.len() as u64).max(before.len() as u64);
    if length > VALUE_MAX_BYTES {
        return Err(WriteRefusal::ValueTooLarge { length, max_bytes: VALUE_MAX_BYTES });
    }
    let mut bytes = BytesMut::with_capacity(length as usize);
    bytes.extend_from_slice(before);
    bytes.resize(length as usize, 0);
    bytes[offset as usize..][..body.len()].copy_from_slice(body);
    Ok(bytes.freeze())
}

/// `POST /delete/{bucket}/{key}`
pub(super) fn delete(store: &Arc<Store>, request: &Request<'_>) -> Result<Answer, Unread> {
    let target = RiftTarget::of(store, request)?;
    Ok(Answer::later(async move { remove(target).await.unwrap_or_else(IntoResponse::into_response) }))
}

async fn remove(target: RiftTarget) -> Result<Response, Problem> {
    let key = target.key.clone();
    let work = move |transaction: &mut OwnerTransaction<'_, '_>| Ok(transaction.delete(&key));
    let partition = target.bucket.partition_of(&target.key);
    let done = target.bucket.transact(partition, None, target.key.len(), work).await;
    match done.map_err(|error| problem(&error))?.output {
        true => Ok(StatusCode::OK.into_response()),
        false => Err(target.no_such_key()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_written_at_an_offset() {
        for (before, offset, body, expected) in [
            (&b"abcdef"[..], 2, &b"XY"[..], &b"abXYef"[..]),
            (b"abc", 2, b"XYZ", b"abXYZ"),
            (b"a", 3, b"X", b"a\0\0X"),
            (b"", 1, b"", b"\0"),
        ] {
            assert_eq!(patched(before, offset, body).unwrap(), expected);
        }
        let refused = patched(b"a", VALUE_MAX_BYTES, b"X").unwrap_err();
        assert_eq!(refused, WriteRefusal::ValueTooLarge { length: VALUE_MAX_BYTES + 1, max_bytes: VALUE_MAX_BYTES });
        assert!(patched(b"a", u64::MAX, b"X").is_err());
    }
}
