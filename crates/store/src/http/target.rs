//! The bucket and key in the path of a request.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use millstream_http::{Problem, Reason, Request};
use percent_encoding::percent_decode_str;

use super::problems::problem;
use crate::{Bucket, CacheBucket, Opened, Store};

/// The bucket and key that a request names.
pub(super) struct KeyTarget {
    pub(super) bucket: Arc<Bucket>,
    pub(super) key: Bytes,
}

impl KeyTarget {
    /// Finds the durable bucket of the request and reads its key.
    pub(super) fn of(store: &Store, request: &Request<'_>) -> Result<Self, Problem> {
        let bucket = store.bucket(&request.caller()?.tenant, &request.param(0)?).map_err(|error| problem(&error))?;
        let (key, encoded) = key_of(request)?;
        bucket.check_key(&key).map_err(|error| problem(&error).value(encoded))?;
        Ok(Self { bucket, key })
    }
}

/// The cache bucket of the request, if it is one, and the key.
pub(super) fn cached_target(
    store: &Store,
    request: &Request<'_>,
) -> Result<Option<(Arc<CacheBucket>, Bytes)>, Problem> {
    match store.find(&request.caller()?.tenant, &request.param(0)?) {
        Ok(Opened::Cache(bucket)) => Ok(Some((bucket, key_of(request)?.0))),
        _ => Ok(None),
    }
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
