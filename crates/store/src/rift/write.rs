//! Writes: upload and delete.

use std::sync::Arc;
use std::time::Instant;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use millstream_http::{Answer, Problem, Request, Unread};

use super::reply::{DigestedValue, json_answer, placed};
use super::{RiftTarget, number};
use crate::http::{StoredWrite, WriteDraft, problem, store_body};
use crate::{OwnerTransaction, Store, Transaction};

/// `POST /upload/{bucket}/{key}`
pub(super) fn upload(store: &Arc<Store>, request: &Request<'_>) -> Result<Answer, Unread> {
    let (begun, target) = (Instant::now(), RiftTarget::of(store, request)?);
    let offset = number(request, "offset")?;
    let draft = WriteDraft::plain(Arc::clone(&target.bucket), target.key.clone(), offset);
    store_body(request, draft, move |stored: StoredWrite| async move {
        let seconds = begun.elapsed().as_secs_f64().max(1e-6);
        // As a lookup would tell it now; another write may have come between.
        let value = DigestedValue::of(&target).await.map_err(|error| problem(&error))?;
        let mut tree = placed(&target, value.as_ref());
        tree["offset"] = offset.into();
        tree["bytes-per-second"] = (stored.received as f64 / seconds).into();
        Ok(json_answer(&tree))
    })
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
