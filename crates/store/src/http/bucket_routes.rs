//! `/buckets`: buckets are made, changed, described, listed and deleted.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use millstream_http::{Access, Caller, Content, Path, Payload, Problem, Route, parse_json};
use millstream_types::Role;
use serde_json::{Value, json};

use super::problems::problem;
use super::scope::check_key_scope;
use super::{BUCKET, READ_LIMITS, SETTINGS_LIMITS};
use crate::{BucketConfig, Opened, ShardStats, Store};

pub(super) fn routes(store: &Arc<Store>) -> [Route; 4] {
    let (reader, admin) = (Access::Role(Role::Reader), Access::Role(Role::Admin));
    let described = || Content::json(json!({"type": "object"}));
    [
        Route::get("/buckets", reader, READ_LIMITS, "List the tenant's buckets")
            .answers_with(200, "Each with its settings and figures.", Content::json(json!({"type": "array"})))
            .to(list, Arc::clone(store)),
        Route::get("/buckets/{bucket}", reader, READ_LIMITS, "Describe a bucket")
            .param("bucket", BUCKET)
            .keeps_to_scope()
            .answers_with(200, "Its settings and figures.", described())
            .answers(404, "The bucket does not exist.")
            .to(describe, Arc::clone(store)),
        Route::put("/buckets/{bucket}", admin, SETTINGS_LIMITS, "Create a bucket or change its settings")
            .param("bucket", BUCKET)
            .takes(described())
            .answers_with(200, "Changed.", described())
            .answers_with(201, "Made.", described())
            .answers(400, "A setting cannot be taken.")
            .answers(409, "A setting that never changes would.")
            .answers(507, "The memory budget has too little left; nothing is made or changed.")
            .to(put, Arc::clone(store)),
        Route::delete("/buckets/{bucket}", admin, READ_LIMITS, "Delete a bucket with all that it holds")
            .param("bucket", BUCKET)
            .answers(204, "Deleted.")
            .answers(404, "The bucket does not exist.")
            .to(delete, Arc::clone(store)),
    ]
}

fn shown(name: &str, opened: &Opened) -> Value {
    let mut settings = BucketConfig::clone(&opened.config());
    settings.rift_access.iter_mut().for_each(|user| user.secret.clear());
    match opened {
        Opened::Durable(bucket) => {
            let (totals, cache) = (bucket.totals(), bucket.cache_figures());
            json!({
                "name": name,
                "topic": bucket.topic().to_string(),
                "settings": settings,
                "keys": totals.keys,
                "bytes": totals.bytes,
                "cache": {
                    "hits": cache.hits, "misses": cache.misses, "values": cache.values,
                    "bytes": cache.bytes, "max_bytes": cache.max_bytes,
                },
            })
        }
        Opened::Cache(bucket) => {
            let cache = bucket.cache();
            let sum = |of: fn(&ShardStats) -> u64| cache.stats().iter().map(of).sum::<u64>();
            json!({
                "name": name,
                "settings": settings,
                "keys": cache.len(),
                "bytes": cache.held_bytes(),
                "cache": {
                    "hits": sum(|shard| shard.hits), "misses": sum(|shard| shard.misses), "values": cache.len(),
                    "bytes": cache.held_bytes(), "max_bytes": cache.max_bytes(),
                    "evictions": sum(|shard| shard.evictions), "expiries": sum(|shard| shard.expiries),
                },
            })
        }
    }
}

async fn list(State(store): State<Arc<Store>>, caller: Caller) -> Response {
    let buckets = store.all(Some(&caller.tenant));
    let all: Vec<Value> = buckets.iter().map(|((_, name), bucket)| shown(name, bucket)).collect();
    axum::Json(all).into_response()
}

async fn describe(
    State(store): State<Arc<Store>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    check_key_scope(caller.principal(), &name, b"")?;
    let bucket = store.find(&caller.tenant, &name).map_err(|error| problem(&error))?;
    Ok(axum::Json(shown(&name, &bucket)).into_response())
}

async fn put(
    State(store): State<Arc<Store>>,
    caller: Caller,
    Path(name): Path<String>,
    Payload(body): Payload,
) -> Result<Response, Problem> {
    let config: BucketConfig = if body.is_empty() { BucketConfig::default() } else { parse_json(&body)? };
    let made = store.put_bucket(&caller.tenant, &name, config).await;
    let (bucket, is_new) = made.map_err(|error| problem(&error).value(&name))?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, axum::Json(shown(&name, &bucket))).into_response())
}

async fn delete(
    State(store): State<Arc<Store>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    store.delete_bucket(&caller.tenant, &name).await.map_err(|error| problem(&error))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
