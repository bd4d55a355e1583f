//! The keys that a caller's token is limited to.

use millstream_http::Problem;
use millstream_types::Principal;

/// Refuses a key of a bucket, or all keys with a beginning, that the caller may not use.
///
/// # Errors
/// 403; whether the bucket is there is not told.
pub(crate) fn check_key_scope(caller: &Principal, bucket: &str, key: &[u8]) -> Result<(), Problem> {
    if caller.scope.has_key(bucket, key) {
        return Ok(());
    }
    let rule = match caller.scope.keys() {
        [] => "it is good for no key".to_owned(),
        keys => format!("it is good for keys that begin with {}", keys.join(" or ")),
    };
    Err(Problem::forbidden(format!("token '{}' is limited to other keys", caller.name))
        .value(format!("{bucket}/{}", String::from_utf8_lossy(key)))
        .rule(rule)
        .remedy("name such a key, or a prefix of such keys, or use a token without this limit"))
}
