//! The stored keys of a node, as the API shows them: read from the job's topic, and never from the running operator.

use std::collections::BTreeMap;

use millstream_log::Log;
use millstream_types::{PartitionId, TenantId, TopicPartition, iso_time};
use serde_json::{Value, json};

use super::epoch_keeper::state_topic;
use super::restored_state::read_entries;
use crate::Error;
use crate::operator::key_as_json;
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
    let (mut epoch, mut sizes, mut is_cut) = (None, BTreeMap::<Box<[u8]>, usize>::new(), false);
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
            StateEntry::Value(at, value) if at.node == node && is_wanted(at.key) => {
                match value {
                    Some(value) => drop(sizes.insert(at.key.into(), value.len())),
                    None => drop(sizes.remove(at.key)),
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
    let values: Vec<Value> = shown.map(|(key, size)| json!({"key": key_as_json(key), "bytes": size})).collect();
    let (epoch, at) = epoch.map_or((Value::Null, Value::Null), |(epoch, at_ms)| (epoch.into(), iso_time(at_ms).into()));
    Ok(json!({"epoch": epoch, "at": at, "id": job_id, "node": node, "values": values, "more": is_cut}))
}
