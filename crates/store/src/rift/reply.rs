//! The shapes of Rift's answers.

use std::pin::pin;

use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use millstream_types::iso_time;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

use super::RiftTarget;
use super::signature::hex_of;
use crate::{Error, FoundValue, OpenedValue};

/// The id of a key: SHA-512 of the bucket's name, a zero byte and the key, in hexadecimal.
pub(super) fn id(bucket: &str, key: &[u8]) -> String {
    hex_of(&Sha512::new().chain_update(bucket).chain_update([0_u8]).chain_update(key).finalize())
}

/// The size and checksum of a value.
pub(super) struct DigestedValue {
    size: u64,
    /// SHA-512 of all of it, in hexadecimal.
    sha_512: String,
    version: u64,
    written_ms: i64,
}

impl DigestedValue {
    /// Reads the value of a key to its end, a chunk at a time; `None` if there is none.
    pub(super) async fn of(target: &RiftTarget) -> Result<Option<Self>, Error> {
        let Some(opened) = target.bucket.open_value(&target.key).await? else { return Ok(None) };
        let mut digest = Sha512::new();
        let found = match opened {
            OpenedValue::Small(found) => {
                digest.update(&found.stored.value.bytes);
                found
            }
            OpenedValue::Large(found, reader) => {
                let mut chunks = pin!(reader.range(0..reader.size()));
                while let Some(chunk) = chunks.next().await {
                    digest.update(&chunk?);
                }
                found
            }
        };
        let FoundValue { stored, version } = found;
        let (size, written_ms) = (stored.length(), stored.written_ms);
        Ok(Some(Self { size, sha_512: hex_of(&digest.finalize()), version, written_ms }))
    }
}

/// The place of a value, if the key has one. There is one copy, and its group is the number of the partition.
pub(super) fn placed(target: &RiftTarget, value: Option<&DigestedValue>) -> Value {
    let group = target.bucket.partition_of(&target.key).0;
    let info = value.map(|value| {
        json!({
            "id": id(&target.name, &target.key),
            "csum": value.sha_512,
            "filename": format!("{}-{group}", target.bucket.topic()),
            "size": value.size,
            "offset-within-data-file": value.version,
            "mtime": time(value.written_ms),
            "server": target.server,
        })
    });
    json!({"info": Vec::from_iter(info), "success-groups": [group], "error-groups": []})
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
