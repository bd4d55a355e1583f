//! The stored state of a node, as the API shows it: read from the job's topic, and never from the running operator.

use std::collections::BTreeMap;

use millstream_log::Log;
use millstream_types::{PartitionId, TenantId, TopicPartition, iso_time};
use serde_json::{Value, json};

use super::epoch_keeper::state_topic;
use super::restored_state::read_entries;
use crate::Error;
use crate::operator::{KeyedNode, StoredValue, key_as_json};
use crate::state::StateEntry;

/// Values that are held beyond the keys that are shown, as later records may end some of these.
const SPARE_VALUES: usize = 10_000;
/// Bytes of keys and values that are held.
const HELD_MAX_BYTES: usize = 4 << 20;
/// Bytes of an answer, and the key that goes beyond.
const SHOWN_MAX_BYTES: usize = 4 << 20;

/// The part of a node's state that is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StateRequest<'a> {
    pub(crate) node: &'a str,
    /// Only this key, as text or JSON.
    pub(crate) key: Option<&'a str>,
    /// The most keys.
    pub(crate) limit: usize,
}

/// The values of some keys, by what they are stored under.
#[derive(Default)]
struct HeldValues {
    values: BTreeMap<Box<[u8]>, Box<[u8]>>,
    size_bytes: usize,
    /// There are more than are held.
    is_cut: bool,
}

impl HeldValues {
    fn set(&mut self, key: &[u8], value: Option<&[u8]>, max: usize) {
        if let Some(former) = self.values.remove(key) {
            self.size_bytes -= key.len() + former.len();
        }
        if let Some(value) = value {
            self.size_bytes += key.len() + value.len();
            self.values.insert(key.into(), value.into());
        }
        while self.values.len() > max || (self.size_bytes > HELD_MAX_BYTES && self.values.len() > 1) {
            let Some((key, value)) = self.values.pop_last() else { break };
            self.size_bytes -= key.len() + value.len();
            self.is_cut = true;
        }
    }
}

/// The first keys of a node in the order of their bytes, with their values as far as `operator` can read them, and the sizes of
/// these, as of the last epoch. Blocks on the disk.
///
/// # Errors
/// They cannot be read.
pub(crate) fn stored_state(
    log: &dyn Log,
    tenant: &TenantId,
    job_id: &str,
    StateRequest { node, key, limit }: StateRequest<'_>,
    operator: Option<&KeyedNode>,
) -> Result<Value, Error> {
    let topic = TopicPartition { topic: state_topic(tenant, job_id), partition: PartitionId(0) };
    let as_json: Option<Value> = key.and_then(|key| serde_json::from_str(key).ok());
    fn key_of<'k>(operator: Option<&KeyedNode>, stored: &'k [u8]) -> &'k [u8] {
        operator.map_or(stored, |known| known.operator.key_of(stored))
    }
    let is_wanted = |stored: &[u8]| {
        key.is_none_or(|key| {
            let stored = key_as_json(key_of(operator, stored));
            stored.as_str() == Some(key) || as_json.as_ref() == Some(&stored)
        })
    };
    let (mut epoch, mut held) = (None, HeldValues::default());
    if log.topic(&topic.topic).is_some() {
        read_entries(log, &topic, &mut |entry| match entry {
            StateEntry::Epoch(last) => epoch = Some((last.epoch, last.at_ms)),
            StateEntry::Value(at, value) if at.node == node && is_wanted(at.key) => {
                held.set(at.key, value, limit + SPARE_VALUES);
            }
            StateEntry::Value(..) => {}
        })?;
    }
    let mut keys: BTreeMap<Box<[u8]>, Vec<StoredValue>> = BTreeMap::new();
    for (stored_key, value) in held.values {
        keys.entry(key_of(operator, &stored_key).into()).or_default().push((stored_key, value));
    }
    if held.is_cut && keys.len() > 1 {
        // Some of its values may be missing.
        keys.pop_last();
    }
    let mut is_cut = held.is_cut || keys.len() > limit;
    let (mut values, mut shown_bytes) = (Vec::new(), 0);
    for (key, stored) in keys.iter().take(limit) {
        if shown_bytes > SHOWN_MAX_BYTES {
            is_cut = true;
            break;
        }
        let size_bytes: usize = stored.iter().map(|(_, value)| value.len()).sum();
        let mut told = json!({"key": key_as_json(key), "bytes": size_bytes});
        if let Some(value) = operator.and_then(|known| known.operator.describe(key, stored)) {
            told["value"] = value;
        }
        shown_bytes += told.to_string().len();
        values.push(told);
    }
    let (epoch, at) = epoch.map_or((Value::Null, Value::Null), |(epoch, at_ms)| (epoch.into(), iso_time(at_ms).into()));
    Ok(json!({"epoch": epoch, "at": at, "id": job_id, "node": node, "values": values, "more": is_cut}))
}
