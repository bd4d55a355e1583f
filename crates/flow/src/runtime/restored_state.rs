//! The state with which a run begins: that of the last epoch of the run before.

use std::collections::HashMap;

use millstream_log::{Error as LogError, Log, UpTo};
use millstream_types::{BatchLimits, PartitionId, TenantId, TopicPartition, iso_time};
use serde_json::{Value, json};

use super::epoch_keeper::{epoch_of_positions, state_topic};
use crate::Error;
use crate::document::NodeId;
use crate::plan::StateLayout;
use crate::state::{EpochRecord, StateEntry, digest_of};

/// Bytes that one read returns.
const READ_MAX_BYTES: usize = 1 << 20;

/// Stored values by key.
pub(super) type Values = HashMap<Box<[u8]>, Box<[u8]>>;

/// The last epoch of a job as the API shows it, from its topic; `None` for a job without state. Blocks on the disk.
///
/// # Errors
/// It cannot be read.
pub(crate) fn last_epoch(log: &dyn Log, tenant: &TenantId, job_id: &str) -> Result<Option<Value>, Error> {
    let topic = TopicPartition { topic: state_topic(tenant, job_id), partition: PartitionId(0) };
    if log.topic(&topic.topic).is_none() {
        return Ok(None);
    }
    let epoch = RestoredState::read(log, &topic, &StateLayout(Vec::new()), &[])?.epoch;
    Ok(epoch.map(|epoch| json!({"epoch": epoch.epoch, "at": iso_time(epoch.at_ms)})))
}

/// Tells all entries of a job's topic, in their order. Blocks on the disk.
///
/// # Errors
/// One cannot be read.
pub(super) fn read_entries(
    log: &dyn Log,
    topic: &TopicPartition,
    tell: &mut dyn FnMut(StateEntry<'_>),
) -> Result<(), Error> {
    let partition = log.partition(topic)?;
    let mut next = partition.offsets().first;
    loop {
        let batches = partition.read(next, READ_MAX_BYTES, UpTo::Stable)?;
        let Some(last) = batches.last() else { return Ok(()) };
        next = last.next_offset();
        for batch in &batches {
            let damaged = |source| LogError::Batch { partition: topic.clone(), source };
            let batch = batch.inflated(&BatchLimits::default()).map_err(damaged)?;
            for record in batch.records() {
                let record = record.map_err(damaged)?;
                let entry = StateEntry::decode(record.key.unwrap_or_default(), record.value);
                let entry =
                    entry.map_err(|fault| Error::connector("state", format!("{topic} {}: {fault}", record.offset)))?;
                tell(entry);
            }
        }
    }
}

/// The values of all operators, by node and instance.
#[derive(Default)]
pub(super) struct RestoredState {
    pub(super) epoch: Option<EpochRecord>,
    values: HashMap<(NodeId, u32), Values>,
}

impl RestoredState {
    /// Reads the state of a job, which has the positions of its sources in these groups. Blocks on the disk.
    ///
    /// # Errors
    /// It cannot be read, or a part of it is lost.
    pub(super) fn read(
        log: &dyn Log,
        topic: &TopicPartition,
        layout: &StateLayout,
        groups: &[String],
    ) -> Result<Self, Error> {
        let mut restored = Self::default();
        read_entries(log, topic, &mut |entry| restored.apply(entry, layout))?;
        let of_positions = match log.topic(&topic.topic) {
            Some(topic) => epoch_of_positions(log, groups, topic.id)?,
            None => 0,
        };
        if let Some(fault) = restored.fault(of_positions, layout) {
            let message = format!("{topic}: {fault}; see what a repair of the log took out, and submit the job anew");
            return Err(Error::connector("state", message));
        }
        Ok(restored)
    }

    /// The loss that what was read shows, if records of it are lost.
    fn fault(&self, of_positions: u64, layout: &StateLayout) -> Option<String> {
        let epoch = self.epoch.as_ref().map_or(0, |record| record.epoch);
        if of_positions > epoch {
            return Some(format!(
                "its last epochs are lost: sources stand at epoch {of_positions}, and state at {epoch}"
            ));
        }
        let record = self.epoch.as_ref()?;
        let differs = |(number, (name, _)): (usize, &(String, u32))| {
            let expected = record.digests.get(name)?;
            let of_node = self.values.iter().filter(|((node, _), _)| *node == NodeId(number));
            let values = of_node.flat_map(|(_, values)| values);
            let found = values.fold(0, |sum: u64, (key, value)| sum.wrapping_add(digest_of(key, value)));
            let fault =
                || format!("values of node '{name}' are lost: they are not those that epoch {epoch} has stored");
            (found != *expected).then(fault)
        };
        layout.0.iter().enumerate().find_map(differs)
    }

    fn apply(&mut self, entry: StateEntry<'_>, layout: &StateLayout) {
        match entry {
            StateEntry::Epoch(epoch) => self.epoch = Some(epoch),
            StateEntry::Value(at, value) => {
                // A node that the document no longer has keeps its values for a later one that does.
                let Some(node) = layout.0.iter().position(|(name, _)| name == at.node) else { return };
                let instance = at.group.instance(layout.0[node].1);
                let values = self.values.entry((NodeId(node), instance)).or_default();
                match value {
                    Some(value) => drop(values.insert(at.key.into(), value.into())),
                    None => drop(values.remove(at.key)),
                }
            }
        }
    }

    /// The values of a node's instance, which has them from now on.
    pub(super) fn take(&mut self, node: NodeId, instance: u32) -> Values {
        self.values.remove(&(node, instance)).unwrap_or_default()
    }
}
