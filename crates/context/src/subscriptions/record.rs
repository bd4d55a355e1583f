//! The format of subscriptions in their state topic. Every version stays readable.
//!
//! | key: tenant, 0, id, 0, and | value: version 1, and JSON |
//! | --- | --- |
//! | `s` | the definition: `path`, `since`, `document` |
//! | `p` | what was counted: [`SubscriptionProgress`] |
//! | `h` | a notification that is held back by throttling: [`Notification`] |
//! | `q`, topic (16), partition (4), offset (8) of the change | a notification of a durable queue |

use std::sync::Arc;

use millstream_types::{StateTopic, TenantId};
use millstream_view::{DecodeError, Encoded};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::change::ChangePosition;
use super::notification::Notification;
use super::progress::SubscriptionProgress;
use super::subscription::{Identity, Since, Subscription};

const VERSION: u8 = StateTopic::Subscriptions.version();
const PLACE_BYTES: usize = 28;

/// One part of a subscription and its new value, or its removal.
#[derive(Debug)]
pub(crate) struct SubscriptionChange {
    pub(crate) tenant: TenantId,
    pub(crate) id: Arc<str>,
    pub(crate) part: RecordPart,
}

/// A part of a subscription; `None` removes it.
#[derive(Debug)]
pub(crate) enum RecordPart {
    Definition(Option<Arc<Subscription>>),
    Progress(Option<Arc<SubscriptionProgress>>),
    Held(Option<Arc<Notification>>),
    Waiting(ChangePosition, Option<Arc<Notification>>),
}

#[derive(Serialize, Deserialize)]
struct Definition {
    path: String,
    since: Since,
    document: Map<String, Value>,
}

/// Appends the key and value of a change.
pub(crate) fn encode(change: &SubscriptionChange, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
    key.extend_from_slice(change.tenant.as_str().as_bytes());
    key.push(0);
    key.extend_from_slice(change.id.as_bytes());
    key.push(0);
    match &change.part {
        RecordPart::Definition(given) => {
            key.push(b's');
            let definition = given.as_ref().map(|given| Definition {
                path: given.path.clone(),
                since: given.since.clone(),
                document: given.document.clone(),
            });
            write(definition.as_ref(), value)
        }
        RecordPart::Progress(given) => {
            key.push(b'p');
            write(given.as_deref(), value)
        }
        RecordPart::Held(given) => {
            key.push(b'h');
            write(given.as_deref(), value)
        }
        RecordPart::Waiting(place, given) => {
            key.push(b'q');
            key.extend_from_slice(&place.topic.to_be_bytes());
            key.extend_from_slice(&place.partition.to_be_bytes());
            key.extend_from_slice(&place.offset.to_be_bytes());
            write(given.as_deref(), value)
        }
    }
}

fn write(given: Option<&impl Serialize>, value: &mut Vec<u8>) -> Encoded {
    let Some(given) = given else { return Encoded::Tombstone };
    value.push(VERSION);
    serde_json::to_writer(value, given).expect("writing to memory");
    Encoded::Value
}

pub(crate) fn decode(key: &[u8], value: Option<&[u8]>) -> Result<SubscriptionChange, DecodeError> {
    let mut parts = key.splitn(3, |byte| *byte == 0);
    let mut next = || parts.next().ok_or_else(|| DecodeError::new("a subscription's key ends too early"));
    let (tenant, id, kind) = (text(next()?)?, text(next()?)?, next()?);
    let tenant = TenantId::new(tenant).map_err(|error| DecodeError::new(error.to_string()))?;
    let id: Arc<str> = id.into();
    let part = match kind {
        b"s" => RecordPart::Definition(match read::<Definition>(value)? {
            None => None,
            Some(Definition { path, since, document }) => {
                let identity = Identity { tenant: tenant.clone(), id: id.clone(), path, since };
                let compiled = Subscription::compile(identity, document);
                Some(Arc::new(compiled.map_err(|refusal| DecodeError::new(refusal.description))?))
            }
        }),
        b"p" => RecordPart::Progress(read(value)?.map(Arc::new)),
        b"h" => RecordPart::Held(read(value)?.map(Arc::new)),
        [b'q', place @ ..] => RecordPart::Waiting(read_place(place)?, read(value)?.map(Arc::new)),
        _ => return Err(DecodeError::new("a subscription's key is of no known kind")),
    };
    Ok(SubscriptionChange { tenant, id, part })
}

fn text(bytes: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|_| DecodeError::new("a subscription's key is not UTF-8"))
}

fn read<T: DeserializeOwned>(value: Option<&[u8]>) -> Result<Option<T>, DecodeError> {
    match value.map(<[u8]>::split_first) {
        None => Ok(None),
        Some(Some((&VERSION, json))) => {
            let read = serde_json::from_slice(json);
            read.map(Some).map_err(|error| DecodeError::new(format!("a subscription's record: {error}")))
        }
        Some(Some((version, _))) => Err(DecodeError::new(format!("subscription record of version {version}"))),
        Some(None) => Err(DecodeError::new("an empty subscription record")),
    }
}

fn read_place(bytes: &[u8]) -> Result<ChangePosition, DecodeError> {
    let wrong = || DecodeError::new(format!("a waiting notification's place has {PLACE_BYTES} bytes"));
    let (topic, rest) = bytes.split_first_chunk::<16>().ok_or_else(wrong)?;
    let (partition, rest) = rest.split_first_chunk::<4>().ok_or_else(wrong)?;
    let offset: [u8; 8] = rest.try_into().map_err(|_| wrong())?;
    Ok(ChangePosition {
        topic: u128::from_be_bytes(*topic),
        partition: u32::from_be_bytes(*partition),
        offset: u64::from_be_bytes(offset),
    })
}

#[cfg(test)]
mod tests {
    use super::super::body::check_sent;
    use super::*;

    const TOPIC: u128 = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef;

    /// The key of each record after tenant and id, and its JSON in version 1.
    fn fixtures() -> Vec<(Vec<u8>, &'static str)> {
        let waiting = [&b"q"[..], &TOPIC.to_be_bytes(), &3_u32.to_be_bytes(), &9_u64.to_be_bytes()].concat();
        vec![
            (
                b"s".to_vec(),
                r##"{"path":"/a/#","since":{"topic":1512366075204170947332355369683137007,"offsets":[3,4]},"document":{"subject":{"entities":[{"id":"e"}]},"notification":{"http":{"url":"http://127.0.0.1:1/"}}}}"##,
            ),
            (
                b"p".to_vec(),
                r#"{"status":"active","times_sent":2,"last_notification_ms":5,"last_success_ms":6,"last_success_code":200,"last_failure_ms":null,"last_failure_reason":"timeout","fails":1}"#,
            ),
            (
                b"p".to_vec(),
                r#"{"status":"active","times_sent":2,"last_notification_ms":5,"last_success_ms":null,"last_success_code":null,"last_failure_ms":7,"last_failure_reason":null,"fails":1,"failed":[{"topic":7,"partition":3,"offset":9}]}"#,
            ),
            (
                b"p".to_vec(),
                r#"{"status":"inactive","times_sent":9,"last_notification_ms":5,"last_success_ms":null,"last_success_code":null,"last_failure_ms":7,"last_failure_reason":null,"fails":1,"dropped":8}"#,
            ),
            (
                b"p".to_vec(),
                r#"{"status":"active","times_sent":9,"last_notification_ms":5,"last_success_ms":6,"last_success_code":200,"last_failure_ms":null,"last_failure_reason":null,"fails":0,"ended":{"delivered":7,"given_up":2}}"#,
            ),
            (
                b"h".to_vec(),
                r#"{"place":{"topic":7,"partition":0,"offset":1},"made_ms":8,"message":{"Mqtt":{"topic":"t","payload":"{}"}}}"#,
            ),
            (
                waiting.clone(),
                r#"{"place":{"topic":7,"partition":3,"offset":9},"made_ms":8,"message":{"Http":{"method":"POST","url":"http://127.0.0.1:1/","headers":[["a","b"]],"body":"{}"}}}"#,
            ),
            (
                waiting.clone(),
                r#"{"place":{"topic":7,"partition":3,"offset":9},"lane":5,"made_ms":8,"message":{"Mqtt":{"topic":"t","payload":"{}"}}}"#,
            ),
            (
                waiting,
                r#"{"place":{"topic":7,"partition":3,"offset":9},"made_ms":8,"message":{"Kafka":{"topic":"t","key":null,"headers":[["a","b"]],"value":"{}","place":7}}}"#,
            ),
        ]
    }

    /// Conditions that earlier versions accepted and that are refused now.
    #[test]
    fn definitions_are_read_by_the_rules_by_which_they_were_taken() {
        for expression in [
            r#"{"q":"a!=true,5"}"#,
            r#"{"q":"a~='101'"}"#,
            r#"{"georel":"near","geometry":"point","coords":"1,2"}"#,
            r#"{"georel":"coveredBy","geometry":"box","coords":"1,2;1,2"}"#,
        ] {
            let json = format!(
                r#"{{"path":"/","since":{{"topic":0,"offsets":[]}},"document":{{"subject":{{"entities":[{{"id":"e"}}],"condition":{{"expression":{expression}}}}},"notification":{{"http":{{"url":"http://127.0.0.1:1/"}}}}}}}}"#
            );
            let value = [&[1][..], json.as_bytes()].concat();
            let change = decode(b"acme\x005f3e1b7c9d8a4e2f6b1c0a9d\x00s", Some(&value)).unwrap();
            let RecordPart::Definition(Some(subscription)) = change.part else { panic!("{expression}") };
            assert!(subscription.check_sent().is_ok(), "a PATCH of anything else goes on: {expression}");
            assert!(check_sent(&subscription.document).is_err(), "{expression}");
        }
    }

    #[test]
    fn records_are_read_and_written_as_their_fixtures() {
        for (kind, json) in fixtures() {
            let key = [&b"acme\x005f3e1b7c9d8a4e2f6b1c0a9d\x00"[..], &kind].concat();
            for value in [Some([&[1][..], json.as_bytes()].concat()), None] {
                let change = decode(&key, value.as_deref()).unwrap();
                assert_eq!((change.tenant.as_str(), &*change.id), ("acme", "5f3e1b7c9d8a4e2f6b1c0a9d"));
                let (mut again, mut written) = (Vec::new(), Vec::new());
                let encoded = encode(&change, &mut again, &mut written);
                assert_eq!(again, key);
                assert_eq!(
                    String::from_utf8_lossy(&written),
                    String::from_utf8_lossy(value.as_deref().unwrap_or_default())
                );
                assert_eq!(matches!(encoded, Encoded::Tombstone), value.is_none());
            }
            let newer = [&[2][..], json.as_bytes()].concat();
            for damaged in [&newer[..], b"", b"\x01{"] {
                assert!(decode(&key, Some(damaged)).is_err(), "{json}: {damaged:?}");
            }
        }
        for key in
            [&b"acme"[..], b"acme\x00s", b"acme\x00i\x00x", b"acme\x00i\x00q123", b"a b\x00i\x00p", b"\xff\x00i\x00p"]
        {
            assert!(decode(key, None).is_err(), "{key:?}");
        }
    }
}
