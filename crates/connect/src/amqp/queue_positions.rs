//! How far the queues of events have come, as it is stored.
//!
//! | key | value |
//! | --- | --- |
//! | tenant, 0, subscription, 0, partition (4) | version; id of the topic (16); time of storage, ms (8); next offset (8); of each open record its offset (8) and failed deliveries (1) |
//!
//! Numbers are big endian. A record is open if it was handed out and nobody has settled it. All others before the next offset are
//! done.

use std::sync::Arc;

use millstream_types::{Offset, StateTopic, TenantId, TopicId};
use millstream_view::{DecodeError, Draft, Encoded, InState, View};

/// Version of the values; a later one is refused.
const VERSION: u8 = StateTopic::EventQueues.version();
/// Bytes of a value before its open records, and of each of them.
const HEAD_BYTES: usize = 33;
const OPEN_BYTES: usize = 9;

/// The place of a queue in one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QueuePosition {
    /// The id of the topic; another one under its name begins anew.
    pub(super) topic: TopicId,
    pub(super) stored_ms: i64,
    /// The first offset that was not handed out yet.
    pub(super) next: Offset,
    /// Offsets before that which are not settled, in order, each with its failed deliveries.
    pub(super) open: Vec<(Offset, u8)>,
}

/// The queues of a tenant: by subscription, which is empty for those without, and by partition.
pub(super) type TenantQueues = imbl::OrdMap<(Arc<str>, u32), Arc<QueuePosition>>;

/// The view of all positions.
pub(super) struct QueuePositions;

/// A new position of a queue; `None` removes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PositionChange {
    pub(super) tenant: TenantId,
    pub(super) subscription: Arc<str>,
    pub(super) partition: u32,
    pub(super) position: Option<Arc<QueuePosition>>,
}

impl View for QueuePositions {
    type State = imbl::HashMap<TenantId, TenantQueues>;
    type Storage = InState;
    type Change = PositionChange;
    type Command = Vec<PositionChange>;
    type Answer = ();
    const NAME: &'static str = "event queues";

    fn decide(&self, draft: &mut Draft<'_, Self>, command: Vec<PositionChange>) {
        command.into_iter().for_each(|change| draft.change(change));
    }

    fn owned_bytes(command: &Vec<PositionChange>) -> usize {
        let open = |change: &PositionChange| change.position.as_ref().map_or(0, |position| position.open.capacity());
        command.iter().map(|change| size_of::<PositionChange>() + open(change) * size_of::<(Offset, u8)>()).sum()
    }

    fn makes_room(command: &Vec<PositionChange>) -> bool {
        command.iter().all(|change| change.position.is_none())
    }

    fn apply(state: &mut Self::State, change: &PositionChange) {
        let key = (Arc::clone(&change.subscription), change.partition);
        match &change.position {
            Some(position) => drop(state.entry(change.tenant.clone()).or_default().insert(key, Arc::clone(position))),
            None => {
                let Some(queues) = state.get_mut(&change.tenant) else { return };
                queues.remove(&key);
                if queues.is_empty() {
                    state.remove(&change.tenant);
                }
            }
        }
    }

    fn encode(change: &PositionChange, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Encoded {
        for part in [change.tenant.as_str(), "\0", &change.subscription, "\0"] {
            key.extend_from_slice(part.as_bytes());
        }
        key.extend_from_slice(&change.partition.to_be_bytes());
        let Some(position) = &change.position else { return Encoded::Tombstone };
        value.reserve(HEAD_BYTES + position.open.len() * OPEN_BYTES);
        value.push(VERSION);
        value.extend_from_slice(&position.topic.0.to_be_bytes());
        value.extend_from_slice(&position.stored_ms.to_be_bytes());
        value.extend_from_slice(&position.next.0.to_be_bytes());
        for (offset, failed) in &position.open {
            value.extend_from_slice(&offset.0.to_be_bytes());
            value.push(*failed);
        }
        Encoded::Value
    }

    fn decode(key: &[u8], value: Option<&[u8]>) -> Result<PositionChange, DecodeError> {
        let no_queue = || DecodeError::new("a key that names no partition of a tenant's queue");
        let (names, partition) = key.split_last_chunk::<4>().ok_or_else(no_queue)?;
        let names = std::str::from_utf8(names).ok().and_then(|names| names.strip_suffix('\0'));
        let (tenant, subscription) = names.and_then(|names| names.split_once('\0')).ok_or_else(no_queue)?;
        let change = PositionChange {
            tenant: TenantId::new(tenant).map_err(|_| no_queue())?,
            subscription: subscription.into(),
            partition: u32::from_be_bytes(*partition),
            position: value.map(position).transpose()?.map(Arc::new),
        };
        Ok(change)
    }
}

fn position(value: &[u8]) -> Result<QueuePosition, DecodeError> {
    let version = value.first().copied().unwrap_or_default();
    let wrong =
        || DecodeError::new(format!("a queue of events: version {version}, known is {VERSION} with whole offsets"));
    if version != VERSION {
        return Err(wrong());
    }
    let (topic, rest) = value[1..].split_first_chunk().ok_or_else(wrong)?;
    let (stored_ms, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
    let (next, rest) = rest.split_first_chunk().ok_or_else(wrong)?;
    let (open, []) = rest.as_chunks::<OPEN_BYTES>() else { return Err(wrong()) };
    let offset = |[a, b, c, d, e, f, g, h, failed]: &[u8; OPEN_BYTES]| {
        (Offset(u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h])), *failed)
    };
    Ok(QueuePosition {
        topic: TopicId(u128::from_be_bytes(*topic)),
        stored_ms: i64::from_be_bytes(*stored_ms),
        next: Offset(u64::from_be_bytes(*next)),
        open: open.iter().map(offset).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> Vec<u8> {
        let mut stored = vec![1];
        stored.extend([0; 15]);
        stored.push(7);
        stored.extend([0, 0, 1, 0x8B, 0xCF, 0xE5, 0x68, 0]);
        stored.extend([0, 0, 0, 0, 0, 0, 1, 2]);
        stored.extend([0, 0, 0, 0, 0, 0, 0, 9, 0]);
        stored.extend([0, 0, 0, 0, 0, 0, 1, 1, 255]);
        stored
    }

    #[test]
    fn positions_of_version_1_are_read_and_written_as_they_lie() {
        let stored = stored();
        for (key, subscription) in [(&b"acme\0\0\0\0\0\x02"[..], ""), (b"acme\0a name\0\0\0\0\x02", "a name")] {
            for (value, encoded) in [(Some(&stored[..]), Encoded::Value), (None, Encoded::Tombstone)] {
                let change = QueuePositions::decode(key, value).unwrap();
                assert_eq!(
                    (change.tenant.as_str(), &*change.subscription, change.partition),
                    ("acme", subscription, 2)
                );
                let expected = QueuePosition {
                    topic: TopicId(7),
                    stored_ms: 1_700_000_000_000,
                    next: Offset(258),
                    open: vec![(Offset(9), 0), (Offset(257), 255)],
                };
                assert_eq!(change.position.as_deref(), value.map(|_| &expected));
                let (mut written_key, mut written) = (Vec::new(), Vec::new());
                assert_eq!(QueuePositions::encode(&change, &mut written_key, &mut written), encoded);
                assert_eq!((written_key.as_slice(), written.as_slice()), (key, value.unwrap_or_default()));
            }
        }
    }

    #[test]
    fn what_is_no_position_is_refused() {
        let stored = stored();
        let later: Vec<u8> = std::iter::once(2).chain(stored[1..].iter().copied()).collect();
        let key = &b"acme\0\0\0\0\0\x02"[..];
        for (key, value, told) in [
            (key, &later[..], "version 2, known is 1"),
            (key, &[], "version 0"),
            (key, &stored[..HEAD_BYTES - 1], "whole offsets"),
            (key, &stored[..stored.len() - 1], "whole offsets"),
            (b"acme\0\0\0\0\0", &stored, "names no partition"),
            (b"a b\0\0\0\0\0\x02", &stored, "names no partition"),
            (b"\x02", &stored, "names no partition"),
        ] {
            let refusal = QueuePositions::decode(key, Some(value)).unwrap_err().to_string();
            assert!(refusal.contains(told), "{refusal}");
        }
    }
}
