//! The stored keys of a node, as the API shows them: read from the job's topic, and never from the running operator.

use std::collections::{BTreeMap, HashMap};

use millstream_log::Log;
use millstream_types::{PartitionId, TenantId, TopicPartition, iso_time};
use serde_json::{Value, json};

use super::epoch_keeper::state_topic;
use super::restored_state::read_entries;
use crate::Error;
use crate::operator::{key_as_json, key_of_stored};
use crate::state::StateEntry;

/// Keys that are held beyond those that are shown, as later records may end some of these.
const SPARE_KEYS: usize = 10_000;

/// The keys of a job's node in the order of their bytes, at most `limit`, with the sizes of their values as of the last epoch; only
/// `key`, as text or JSON, if it is given. Blocks on the disk.
///
/// # Errors
/// They cannot be read.
pub(crate) fn stored_keys(
    log: &dyn Log,
    tenant: &TenantId,
    job_id: &str,
    node: &str,
    key: Option<&str>,
    limit: usize,
) -> Result<Value, Error> {
    let topic = TopicPartition { topic: state_topic(tenant, job_id), partition: PartitionId(0) };
    // The sizes of a key's values by the keys under which these are stored.
    let mut sizes = BTreeMap::<Box<[u8]>, HashMap<Box<[u8]>, usize>>::new();
    let (mut epoch, mut is_cut) = (None, false);
    let as_json: Option<Value> = key.and_then(|key| serde_json::from_str(key).ok());
    let is_wanted = |stored: &[u8]| {
        key.is_none_or(|key| {
            let stored = key_as_json(stored);
            stored.as_str() == Some(key) || as_json.as_ref() == Some(&stored)
        })
    };
    if log.topic(&topic.topic).is_some() {
        read_entries(log, &topic, &mut |entry| match entry {
            StateEntry::Epoch(last) => epoch = Some((last.epoch, last.at_ms)),
            StateEntry::Value(at, value) if at.node == node && is_wanted(key_of_stored(at.key)) => {
                let key = key_of_stored(at.key);
                match value {
                    Some(value) => drop(sizes.entry(key.into()).or_default().insert(at.key.into(), value.len())),
                    None => {
                        let left = sizes.get_mut(key).map(|values| {
                            values.remove(at.key);
                            values.len()
                        });
                        if left == Some(0) {
                            sizes.remove(key);
                        }
                    }
                }
                if sizes.len() > limit + SPARE_KEYS {
                    is_cut |= sizes.pop_last().is_some();
                }
            }
            StateEntry::Value(..) => {}
        })?;
    }
    let is_cut = is_cut || sizes.len() > limit;
    let shown = sizes.iter().take(limit);
    let size_of = |values: &HashMap<Box<[u8]>, usize>| values.values().sum::<usize>();
    let values: Vec<Value> =
        shown.map(|(key, values)| json!({"key": key_as_json(key), "bytes": size_of(values)})).collect();
    let (epoch, at) = epoch.map_or((Value::Null, Value::Null), |(epoch, at_ms)| (epoch.into(), iso_time(at_ms).into()));
    Ok(json!({"epoch": epoch, "at": at, "id": job_id, "node": node, "values": values, "more": is_cut}))
}
