//! The bucket and key in the path of a request.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use millstream_http::{Problem, Reason, Request};
use percent_encoding::percent_decode_str;

use super::problems::problem;
use super::scope::check_key_scope;
use crate::{Bucket, CacheBucket, Opened, Store};

/// The bucket and key that a request names.
pub(super) struct KeyTarget {
    pub(super) bucket: Arc<Bucket>,
    pub(super) key: Bytes,
}

impl KeyTarget {
    /// Finds the durable bucket of the request and reads its key.
    pub(super) fn of(store: &Store, request: &Request<'_>) -> Result<Self, Problem> {
        let (caller, name, (key, encoded)) = (request.caller()?, request.param(0)?, key_of(request)?);
        check_key_scope(caller, &name, &key)?;
        let bucket = store.bucket(&caller.tenant, &name).map_err(|error| problem(&error))?;
        bucket.check_key(&key).map_err(|error| problem(&error).value(encoded))?;
        Ok(Self { bucket, key })
    }
}

/// The cache bucket of the request, if it is one, and the key.
pub(super) fn cached_target(
    store: &Store,
    request: &Request<'_>,
) -> Result<Option<(Arc<CacheBucket>, Bytes)>, Problem> {
    let (caller, name) = (request.caller()?, request.param(0)?);
    let Ok(Opened::Cache(bucket)) = store.find(&caller.tenant, &name) else { return Ok(None) };
    let (key, _) = key_of(request)?;
    check_key_scope(caller, &name, &key)?;
    Ok(Some((bucket, key)))
}

/// The key in the path, and as it is written there. It is decoded here, as it may have bytes that are no text.
fn key_of<'a>(request: &Request<'a>) -> Result<(Bytes, &'a str), Problem> {
    let encoded = request.path().splitn(4, '/').nth(3).unwrap_or_default();
    if let Some(rest) = encoded.strip_prefix('_') {
        return Err(Problem::new(Reason::UnknownRoute, format!("a bucket has no route '{encoded}'"))
            .value(encoded)
            .rule("names that begin with '_' are routes of the bucket")
            .remedy(format!("write '%5F{rest}' for the key of that name")));
    }
    let key = Cow::from(percent_decode_str(encoded));
    Ok((Bytes::copy_from_slice(&key), encoded))
}
