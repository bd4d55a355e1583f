//! The shapes of Rift's answers.

use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use millstream_types::{PartitionId, iso_time};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

use super::RiftTarget;
use super::signature::hex_of;

/// The id of a key: SHA-512 of the bucket's name, a zero byte and the key, in hexadecimal.
pub(super) fn id(bucket: &str, key: &[u8]) -> String {
    hex_of(&Sha512::new().chain_update(bucket).chain_update([0_u8]).chain_update(key).finalize())
}

/// The place of a value. There is one copy, and its group is the number of the partition.
pub(super) fn placed(
    target: &RiftTarget,
    partition: PartitionId,
    version: u64,
    value: &Bytes,
    written_ms: i64,
) -> Value {
    json!({
        "info": [{
            "id": id(&target.name, &target.key),
            "csum": hex_of(&Sha512::digest(value)),
            "filename": format!("{}-{}", target.bucket.topic(), partition.0),
            "size": value.len(),
            "offset-within-data-file": version,
            "mtime": time(written_ms),
            "server": target.server,
        }],
        "success-groups": [partition.0],
        "error-groups": [],
    })
}

/// A time as text and as seconds with six decimals.
pub(super) fn time(ms: i64) -> Value {
    json!({"time": iso_time(ms), "time-raw": format!("{}.{:03}000", ms.div_euclid(1_000), ms.rem_euclid(1_000))})
}

pub(super) fn json_answer(tree: &Value) -> Response {
    let mut response = tree.to_string().into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_text_and_seconds() {
        assert_eq!(
            time(1_767_225_600_007),
            json!({"time": iso_time(1_767_225_600_007), "time-raw": "1767225600.007000"})
        );
    }

    /// The expected id is computed by Python: `hashlib.sha512(b"photos\0a").hexdigest()`.
    #[test]
    fn an_id_is_that_of_elliptics() {
        let expected = "2d7977021e6194a28d60ac0bf450d76398766e96d46a61078cf7707cb4b15bec4a64db2da4856dbf925a35c696e2437778be6c4945dd69ded711a1472d5bcb09";
        assert_eq!(id("photos", b"a"), expected);
    }
}
