//! The check that the operators of a new job can read the values of an earlier one, before anything is stopped for it.

use std::collections::HashMap;
use std::sync::Arc;

use millstream_log::Log;
use millstream_types::{PartitionId, TenantId, TopicPartition};

use super::epoch_keeper::state_topic;
use super::restored_state::read_entries;
use crate::Error;
use crate::document::{Document, EarlierJob, NodeForm};
use crate::operator::{self, KeyedNode};
use crate::state::{StateEntry, StateMemory};

/// Values of each node that are read: those of one operator are alike.
const VALUES_MAX: usize = 1_000;

/// Restores some values of each node. Blocks on the disk.
///
/// # Errors
/// [`Error::Plan`] with the node that cannot read one.
pub(crate) fn check_readable(
    log: &dyn Log,
    tenant: &TenantId,
    document: &Document,
    earlier: &EarlierJob,
) -> Result<(), Error> {
    let topic = TopicPartition { topic: state_topic(tenant, &earlier.id), partition: PartitionId(0) };
    let Some(resume) = document.resume_from.as_ref().filter(|_| log.topic(&topic.topic).is_some()) else {
        return Ok(());
    };
    let mut readers: HashMap<&str, (&str, KeyedNode, usize)> = HashMap::new();
    for node in document.nodes.iter().filter(|node| node.keeps_state) {
        let Some((old, _)) = earlier.node_of(&NodeForm::of(node), &resume.map) else { continue };
        let keyed = operator::keyed(node, StateMemory::unbounded(&node.name), &Arc::default())?;
        readers.extend(keyed.map(|keyed| (old, (node.name.as_str(), keyed, 0))));
    }
    let mut failure = None;
    read_entries(log, &topic, &mut |entry| {
        let StateEntry::Value(at, Some(value)) = entry else { return };
        let Some((node, keyed, count)) = readers.get_mut(at.node).filter(|(_, _, count)| *count < VALUES_MAX) else {
            return;
        };
        *count += 1;
        if let (Err(error), None) = (keyed.operator.restore(at.key, value), &failure) {
            let message = match error {
                Error::Connector { message, .. } => message,
                other => other.to_string(),
            };
            let message = format!(
                "{message}, as job '{}' has stored it with other settings: let the functions or aggregates be those of that job, or \
                 give the node another name and write on_missing: initialize",
                earlier.name
            );
            failure = Some(Error::plan(node, "state", message));
        }
    })?;
    failure.map_or(Ok(()), Err)
}
