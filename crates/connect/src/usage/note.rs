//! Notes of the usage of tenants: a view of the state topic `_usage`.
//!
//! | key | value |
//! | --- | --- |
//! | tenant | version byte, JSON of the note |

use std::sync::Arc;

use millstream_log::Partition;
use millstream_types::{Offset, StateTopic, TenantId, TopicPartition};
use millstream_view::{DecodeError, Draft, Encoded, InState, View};
use serde::{Deserialize, Serialize};

/// Version of the value format; later versions are refused.
const VERSION: u8 = StateTopic::Usage.version();

/// The usage of a tenant and the matching ends of its streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// The start of the period in which the bytes were used.
    pub(super) volume_start_ms: i64,
    pub(super) volume_bytes: u64,
    pub(super) connected_start_ms: i64,
    pub(super) connected_ms: u64,
    pub(super) ends: Vec<PartitionEnd>,
}

/// The end of one partition. Offsets are never reused, so all records behind it are newer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PartitionEnd {
    /// The unique id of the topic, not its name.
    topic: String,
    partition: u32,
    next: u64,
}

impl PartitionEnd {
    pub(super) fn of(partition: &dyn Partition) -> Self {
        let TopicPartition { partition: number, .. } = partition.id();
        Self { topic: partition.topic().id.to_string(), partition: number.0, next: partition.offsets().tail.0 }
    }
}

impl Note {
    /// The first offset of `partition` that the note does not include.
    pub(super) fn end_of(&self, partition: &dyn Partition) -> Offset {
        let here = PartitionEnd::of(partition);
        let known = self.ends.iter().find(|end| (&end.topic, end.partition) == (&here.topic, here.partition));
        Offset(known.map_or(0, |end| end.next))
    }
}

pub(super) struct NoteView;

/// A tenant's note; `None` removes it.
#[derive(Debug, Clone)]
pub(super) struct NoteChange(pub(super) TenantId, pub(super) Option<Arc<Note>>);

impl View for NoteView {
    type State = imbl::HashMap<TenantId, Arc<Note>>;
    type Storage = InState;
    type Change = NoteChange;
    type Command = Vec<NoteChange>;
    type Answer = ();
    const NAME: &'static str = "usage";

    fn decide(&self, draft: &mut Draft<'_, Self>, command: Vec<NoteChange>) {
        for change in command {
            if change.1.is_some() || draft.state().contains_key(&change.0) {
                draft.change(change);
            }
        }
    }

    fn apply(state: &mut Self::State, change: &NoteChange) {
        match change {
            NoteChange(tenant, Some(note)) => drop(state.insert(tenant.clone(), note.clone())),
            NoteChange(tenant, None) => drop(state.remove(tenant)),
        }
    }

    fn encode(change: &NoteChange, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        key.extend_from_slice(change.0.as_str().as_bytes());
        let Some(note) = &change.1 else { return Encoded::Tombstone };
        value.push(VERSION);
        serde_json::to_writer(value, &**note).expect("a note is numbers and text");
        Encoded::Value
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<NoteChange, DecodeError> {
        let tenant = std::str::from_utf8(key).ok().and_then(|name| TenantId::new(name).ok());
        let tenant = tenant.ok_or_else(|| DecodeError::new("a key that is no tenant"))?;
        match value.map(<[u8]>::split_first) {
            None => Ok(NoteChange(tenant, None)),
            Some(Some((&VERSION, json))) => serde_json::from_slice(json)
                .map(|note| NoteChange(tenant, Some(Arc::new(note))))
                .map_err(|error| DecodeError::new(format!("a note of usage that cannot be read: {error}"))),
            Some(other) => {
                let version = other.map_or(0, |(version, _)| *version);
                Err(DecodeError::new(format!("note of usage, version {version}, known is {VERSION}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A note in the format of version 1, which must stay readable.
    const VERSION_1: &str = r#"{"volume_start_ms":5,"volume_bytes":7,"connected_start_ms":6,"connected_ms":8,"ends":[{"topic":"0000000000000000000000000000000f","partition":3,"next":9}]}"#;

    #[test]
    fn notes_of_version_1_are_read_and_written_as_they_lie() {
        let stored = [&[1], VERSION_1.as_bytes()].concat();
        let change = NoteView::decode(b"acme", Some(&stored)).unwrap();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        assert_eq!(NoteView::encode(&change, &mut key, &mut value), Encoded::Value);
        assert_eq!((key.as_slice(), value), (&b"acme"[..], stored));
        let gone = NoteView::decode(b"acme", None).unwrap();
        assert_eq!(NoteView::encode(&gone, &mut Vec::new(), &mut Vec::new()), Encoded::Tombstone);
        for (key, value, told) in [
            (&b"acme"[..], vec![2], "version 2, known is 1"),
            (b"acme", vec![], "version 0"),
            (b"acme", b"\x01{".to_vec(), "cannot be read"),
            (b"a b", vec![1], "no tenant"),
        ] {
            let refusal = NoteView::decode(key, Some(&value)).unwrap_err().to_string();
            assert!(refusal.contains(told), "{refusal}");
        }
    }
}
