//! The settings of all buckets, as a view of the topic `_buckets`.

use millstream_types::{StateTopic, TenantId};
use millstream_view::{DecodeError, Draft, Encoded, InState, View};

use crate::BucketConfig;

/// Version of the record format; the first byte of each record's value.
const VERSION: u8 = StateTopic::Buckets.version();
/// Separates tenant and bucket in a key; neither has such a byte.
const SEPARATOR: u8 = 0;

/// A bucket by tenant and name.
pub(crate) type BucketId = (TenantId, String);

/// The view of the settings.
pub(crate) struct Buckets;

/// New settings of a bucket, or its end.
#[derive(Debug)]
pub(crate) struct BucketChange {
    pub(crate) id: BucketId,
    pub(crate) config: Option<BucketConfig>,
}

impl View for Buckets {
    type State = imbl::OrdMap<BucketId, BucketConfig>;
    type Storage = InState;
    type Change = BucketChange;
    type Command = BucketChange;
    type Answer = ();
    const NAME: &'static str = "buckets";

    fn makes_room(command: &BucketChange) -> bool {
        command.config.is_none()
    }

    fn decide(&self, draft: &mut Draft<'_, Self>, command: BucketChange) {
        draft.change(command);
    }

    fn apply(state: &mut Self::State, change: &BucketChange) {
        match &change.config {
            Some(config) => drop(state.insert(change.id.clone(), config.clone())),
            None => drop(state.remove(&change.id)),
        }
    }

    fn encode(change: &BucketChange, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        key.extend_from_slice(change.id.0.as_str().as_bytes());
        key.push(SEPARATOR);
        key.extend_from_slice(change.id.1.as_bytes());
        let Some(config) = &change.config else { return Encoded::Tombstone };
        value.push(VERSION);
        // Settings are numbers and names, which JSON always takes.
        value.extend_from_slice(serde_json::to_string(config).unwrap_or_default().as_bytes());
        Encoded::Value
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<BucketChange, DecodeError> {
        let text = std::str::from_utf8(key).map_err(|_| DecodeError::new("a bucket's name is no text"))?;
        let (tenant, bucket) =
            text.split_once('\0').ok_or_else(|| DecodeError::new(format!("'{text}' names no bucket")))?;
        let tenant = TenantId::new(tenant).map_err(|fault| DecodeError::new(fault.to_string()))?;
        let config = match value {
            None => None,
            Some([VERSION, json @ ..]) => {
                let fault = |fault| DecodeError::new(format!("settings of bucket '{bucket}': {fault}"));
                Some(serde_json::from_slice(json).map_err(fault)?)
            }
            Some(other) => return Err(DecodeError::new(format!("settings of version {:?}", other.first()))),
        };
        Ok(BucketChange { id: (tenant, bucket.to_owned()), config })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(change: &BucketChange) -> (Vec<u8>, Vec<u8>) {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        Buckets::encode(change, &mut key, &mut value);
        (key, value)
    }

    #[test]
    fn settings_of_version_1_are_written_byte_for_byte() {
        let id = (TenantId::default(), "photos".to_owned());
        let (key, value) = encoded(&BucketChange { id: id.clone(), config: Some(BucketConfig::default()) });
        assert_eq!(key, b"default\0photos");
        let expected = "\u{1}{\"kind\":\"durable\",\"partitions\":4,\"ack\":\"synced\",\"cache_bytes\":2097152,\"policy\":\"allkeys-lru\"}";
        assert_eq!(String::from_utf8(value.clone()).unwrap(), expected);
        let read = Buckets::decode(&key, Some(&value)).unwrap();
        assert_eq!((read.id, read.config), (id, Some(BucketConfig::default())));
        assert!(Buckets::decode(&key, None).unwrap().config.is_none());
        assert_eq!(Buckets::decode(&key, Some(b"\x02{}")).unwrap_err().what, "settings of version Some(2)");
    }
}
