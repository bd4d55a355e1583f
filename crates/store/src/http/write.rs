//! Writes of a key: put, append, delete.

use std::sync::Arc;

use axum::http::header::{CONTENT_TYPE, ETAG};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use millstream_http::{Answer, Problem, Request, Unread};
use serde_json::json;

use super::conditions::{Preconditions, Unmet, etag};
use super::incoming::{BodyCheck, Incoming, announced, check_announced, is_small, too_large};
use super::parameters::{WriteParameters, refuse_content_range};
use super::problems::{bad_parameter, no_such_key, problem};
use super::target::KeyTarget;
use super::{BODY_MAX_BYTES, RECORD_VALUE_MAX_BYTES, multipart};
use crate::{
    Attributes, Bucket, ChunkWriter, Interrupted, OwnerTransaction, Splice, Store, Transaction, UploadId, Value,
    commit, splice,
};

/// The effect of a write's body on the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Replace,
    Append,
    /// Writes at this place of the value.
    At(u64),
}

impl Effect {
    fn at(self) -> Option<u64> {
        match self {
            Self::At(offset) => Some(offset),
            Self::Replace | Self::Append => None,
        }
    }
}

/// The outcome of a write.
pub(super) struct Written {
    pub(super) is_new: bool,
    pub(super) length: u64,
    pub(super) expires_ms: Option<i64>,
    /// Records of the transaction before that of the key.
    pub(super) before: u64,
}

/// A write that is stored.
pub(crate) struct StoredWrite {
    pub(super) written: Written,
    /// Bytes that came with the request.
    pub(crate) received: u64,
    pub(super) version: u64,
}

/// A write before its body.
pub(crate) struct WriteDraft {
    target: KeyTarget,
    parameters: WriteParameters,
    effect: Effect,
    conditions: Preconditions,
}

impl WriteDraft {
    /// A write without parameters or conditions, at a place of the value; at 0 it replaces the value.
    pub(crate) fn plain(bucket: Arc<Bucket>, key: Bytes, offset: u64) -> Self {
        let effect = if offset == 0 { Effect::Replace } else { Effect::At(offset) };
        let (parameters, conditions) = (WriteParameters::default(), Preconditions::default());
        Self { target: KeyTarget { bucket, key }, parameters, effect, conditions }
    }
}

/// `PUT /kv/{bucket}/{key}`
pub(super) fn put(store: &Arc<Store>, request: &Request<'_>) -> Answer {
    let start = || -> Result<Answer, Unread> {
        let (target, parameters) = (KeyTarget::of(store, request)?, WriteParameters::of(request)?);
        refuse_content_range(request.headers())?;
        if let Some(id) = parameters.upload.clone() {
            return multipart::put_part(&target, request, parameters, &id);
        }
        let effect = parameters.offset.map_or(Effect::Replace, Effect::At);
        take_body(request, target, parameters, effect)
    };
    answer(start())
}

/// `POST /kv/{bucket}/{key}?append`, and `?uploads` and `?commit=` of multipart uploads
pub(super) fn post(store: &Arc<Store>, request: &Request<'_>) -> Answer {
    let start = || -> Result<Answer, Unread> {
        let (target, parameters) = (KeyTarget::of(store, request)?, WriteParameters::of(request)?);
        if parameters.is_append {
            return take_body(request, target, parameters, Effect::Append);
        }
        if parameters.begins_upload {
            store.check_uploads(&request.caller()?.tenant).map_err(|error| problem(&error))?;
            return Ok(multipart::start(target, parameters));
        }
        if let Some(id) = parameters.commit.clone() {
            return multipart::finish(&target, request, parameters, &id);
        }
        let rule = "POST appends, or begins or commits an upload";
        Err(bad_parameter("append", "", rule)
            .remedy("send 'POST …?append', '?uploads' or '?commit=ID', or PUT to replace the value")
            .into())
    };
    answer(start())
}

fn answer(outcome: Result<Answer, Unread>) -> Answer {
    outcome.unwrap_or_else(Answer::from)
}

fn take_body(
    request: &Request<'_>,
    target: KeyTarget,
    parameters: WriteParameters,
    effect: Effect,
) -> Result<Answer, Unread> {
    let (conditions, is_minimal) = (Preconditions::of(request.headers())?, parameters.is_minimal);
    let draft = WriteDraft { target, parameters, effect, conditions };
    store_body(request, draft, async move |stored: StoredWrite| Ok(stored.answer(is_minimal)))
}

/// Stores the body of a request, taken whole if it is small and otherwise as a stream, and answers by `respond`.
pub(crate) fn store_body<R, F>(request: &Request<'_>, draft: WriteDraft, respond: R) -> Result<Answer, Unread>
where
    R: FnOnce(StoredWrite) -> F + Send + 'static,
    F: Future<Output = Result<Response, Problem>> + Send,
{
    let check = BodyCheck::of(request.headers())?;
    if is_small(request) {
        let body = request.body_to_keep()?;
        check.whole(&body)?;
        return Ok(Answer::later(async move {
            let answer = async { respond(write(draft, body).await?).await };
            answer.await.unwrap_or_else(IntoResponse::into_response)
        }));
    }
    // What can be told from the head is told before the client sends it all.
    if let Some(length) = announced(request).filter(|length| *length > BODY_MAX_BYTES) {
        return Err(too_large(length, BODY_MAX_BYTES).into());
    }
    check_announced(&draft.target.bucket, request)?;
    let version = draft.target.bucket.version(&draft.target.key);
    if let Some(unmet) = draft.conditions.unmet_by(version) {
        return Err(unmet.problem(version).into());
    }
    Ok(Answer::stream(async move |body| {
        let answer = async {
            let stored = match Incoming::new(body, check).whole_if_small().await? {
                Ok(body) => write(draft, body).await?,
                Err(incoming) => write_large(draft, incoming).await?,
            };
            respond(stored).await
        };
        answer.await.unwrap_or_else(IntoResponse::into_response)
    }))
}

/// Writes a body that fits a record.
async fn write(draft: WriteDraft, body: Bytes) -> Result<StoredWrite, Problem> {
    let WriteDraft { target: KeyTarget { bucket, key }, parameters, effect, conditions } = draft;
    let ttl_ms = parameters.ttl_ms.or(bucket.config().ttl_ms);
    let (of_key, attributes, size_bytes) = (key.clone(), parameters.attributes.clone(), key.len() + body.len());
    let (upload, of_splice) = (bucket.upload(&key, UploadId::random()), Splice::Bytes(body.clone()));
    let received = body.len() as u64;
    transact(&bucket, &key, &parameters, conditions, size_bytes, received, move |transaction| {
        let now_ms = transaction.now_ms();
        let expires_ms = ttl_ms.map(|ttl_ms| now_ms.saturating_add_unsigned(ttl_ms));
        let before = transaction.entry(&of_key);
        let is_new = before.is_none();
        let length = effect.at().unwrap_or_else(|| before.map_or(0, |entry| entry.length));
        let length = length.saturating_add(body.len() as u64).max(before.map_or(0, |entry| entry.length));
        let value = match effect {
            Effect::Replace => Value { bytes: body.clone(), expires_ms, attributes: attributes.clone() },
            Effect::Append | Effect::At(_) => {
                let stored = transaction.stored(&of_key)?;
                if length > RECORD_VALUE_MAX_BYTES || stored.as_ref().is_some_and(|stored| stored.large.is_some()) {
                    let (at, attributes) = (effect.at(), attributes.clone());
                    let done = splice(transaction, &upload, at, &of_splice, expires_ms, attributes)?;
                    return Ok(Written {
                        is_new,
                        length: done.length,
                        expires_ms: done.expires_ms,
                        before: done.before,
                    });
                }
                let before = stored.map(|stored| stored.value).unwrap_or_default();
                merged(before, effect, &body, expires_ms, attributes.clone())
            }
        };
        let (length, expires_ms) = (value.bytes.len() as u64, value.expires_ms);
        transaction.put(&of_key, value)?;
        Ok(Written { is_new, length, expires_ms, before: 0 })
    })
    .await
}

/// Writes a large body to parts as it arrives, and shows them once it is complete.
async fn write_large(draft: WriteDraft, incoming: Incoming) -> Result<StoredWrite, Problem> {
    let WriteDraft { target: KeyTarget { bucket, key }, parameters, effect, conditions } = draft;
    let upload = bucket.upload(&key, UploadId::random());
    let written = incoming.write(ChunkWriter::alone(&bucket, upload.clone()), BODY_MAX_BYTES).await?;
    let ttl_ms = parameters.ttl_ms.or(bucket.config().ttl_ms);
    let (piece, attributes) = (written.piece, parameters.attributes.clone());
    let received = piece.size;
    let stored = transact(&bucket, &key, &parameters, conditions, 0, received, move |transaction| {
        let expires_ms = ttl_ms.map(|ttl_ms| transaction.now_ms().saturating_add_unsigned(ttl_ms));
        let is_new = transaction.entry(&upload.key).is_none();
        let done = match effect {
            Effect::Replace => commit(transaction, &upload, vec![piece], expires_ms, attributes.clone()),
            Effect::Append | Effect::At(_) => {
                let new = Splice::Part(piece);
                splice(transaction, &upload, effect.at(), &new, expires_ms, attributes.clone())
            }
        }?;
        Ok(Written { is_new, length: done.length, expires_ms: done.expires_ms, before: done.before })
    });
    let stored = stored.await?;
    written.keep();
    Ok(stored)
}

/// Runs a write of `key` if its conditions hold. The sizes are the bytes that the transaction writes, and those that came
/// with the request.
pub(super) async fn transact<W>(
    bucket: &Bucket,
    key: &Bytes,
    parameters: &WriteParameters,
    conditions: Preconditions,
    size_bytes: usize,
    received: u64,
    mut work: W,
) -> Result<StoredWrite, Problem>
where
    W: FnMut(&mut OwnerTransaction<'_, '_>) -> Result<Written, Interrupted> + Send + 'static,
{
    let of_key = key.clone();
    let checked = move |transaction: &mut OwnerTransaction<'_, '_>| -> Result<Result<Written, Unmet>, Interrupted> {
        if let Err(unmet) = conditions.check(transaction, &of_key)? {
            return Ok(Err(unmet));
        }
        Ok(Ok(work(transaction)?))
    };
    let partition = bucket.partition_of(key);
    let done = bucket.transact(partition, parameters.level, size_bytes, checked).await;
    let done = done.map_err(|error| problem(&error))?;
    match done.output {
        Ok(written) => Ok(StoredWrite { version: done.first + written.before, received, written }),
        Err(unmet) => Err(unmet.problem(bucket.version(key))),
    }
}

/// The value after an append or a write at a place; it fits a record. What the request does not name stays as it was.
fn merged(
    before: Value,
    effect: Effect,
    body: &Bytes,
    expires_ms: Option<i64>,
    attributes: Option<Arc<Attributes>>,
) -> Value {
    let at = effect.at().map_or(before.bytes.len(), |offset| offset as usize);
    let length = (at + body.len()).max(before.bytes.len());
    let mut bytes = BytesMut::with_capacity(length);
    bytes.extend_from_slice(&before.bytes);
    bytes.resize(length, 0);
    bytes[at..at + body.len()].copy_from_slice(body);
    Value {
        bytes: bytes.freeze(),
        expires_ms: expires_ms.or(before.expires_ms),
        attributes: attributes.or(before.attributes),
    }
}

impl StoredWrite {
    /// The answer of `/kv`.
    pub(super) fn answer(&self, is_minimal: bool) -> Response {
        let Self { written, version, .. } = self;
        let mut response = match (is_minimal, written.is_new) {
            (true, _) => StatusCode::NO_CONTENT.into_response(),
            (false, is_new) => {
                let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
                let Written { length, expires_ms, .. } = written;
                let body = json!({"version": version, "length": length, "expires_ms": expires_ms}).to_string();
                let mut response = (status, body).into_response();
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                response
            }
        };
        response.headers_mut().insert(ETAG, etag(*version));
        response
    }
}

/// `DELETE /kv/{bucket}/{key}`
pub(super) fn delete(store: &Arc<Store>, request: &Request<'_>) -> Answer {
    answer(start_delete(store, request))
}

fn start_delete(store: &Arc<Store>, request: &Request<'_>) -> Result<Answer, Unread> {
    let target = KeyTarget::of(store, request)?;
    let parameters = WriteParameters::of(request)?;
    if let Some(id) = &parameters.upload {
        return Ok(multipart::give_up(&target, &parameters, id)?);
    }
    let conditions = Preconditions::of(request.headers())?;
    Ok(Answer::later(async move {
        remove(target, parameters, conditions).await.unwrap_or_else(IntoResponse::into_response)
    }))
}

async fn remove(
    target: KeyTarget,
    parameters: WriteParameters,
    conditions: Preconditions,
) -> Result<Response, Problem> {
    let KeyTarget { bucket, key } = target;
    let of_key = key.clone();
    let work = move |transaction: &mut OwnerTransaction<'_, '_>| -> Result<Result<bool, Unmet>, Interrupted> {
        if let Err(unmet) = conditions.check(transaction, &of_key)? {
            return Ok(Err(unmet));
        }
        Ok(Ok(transaction.delete(&of_key)))
    };
    let partition = bucket.partition_of(&key);
    let done = bucket.make_room(partition, parameters.level, key.len(), work).await.map_err(|error| problem(&error))?;
    match done.output {
        Ok(true) => Ok(StatusCode::NO_CONTENT.into_response()),
        Ok(false) => Err(no_such_key(&key)),
        Err(unmet) => Err(unmet.problem(bucket.version(&key))),
    }
}
