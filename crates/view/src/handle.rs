//! The handle on a view whose partitions are all in this process: it accepts commands and returns snapshots.

use std::ops::ControlFlow;
use std::sync::Arc;

use millstream_types::{PartitionId, TopicName};
use tokio::sync::oneshot;

use crate::failure::Failure;
use crate::owner::Owner;
use crate::{Answer, Error, Slots, Snapshot, View, ViewRuntime, ViewsConfig};

/// A running view with one owner per partition, all of them here until it stops.
pub struct Views<V: View> {
    slots: Arc<Slots<V>>,
    owners: Vec<Arc<Owner<V>>>,
}

impl<V: View> std::fmt::Debug for Views<V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Views({}, {} partitions)", V::NAME, self.owners.len())
    }
}

impl<V: View> Views<V> {
    /// Opens the view over the state topic `topic`, which is created if it does not exist. Rebuilds the state from
    /// the checkpoint and then from the tail of the log. The view accepts commands on return.
    ///
    /// # Errors
    /// [`Error::Partitions`] if the topic has another number of partitions; [`Error::StateRecord`],
    /// [`Error::Checkpoint`] and [`Error::Log`] if the state cannot be rebuilt.
    pub fn open(view: V, topic: &TopicName, config: &ViewsConfig, ground: &ViewRuntime) -> Result<Arc<Self>, Error> {
        Self::open_shared(Arc::new(view), topic, config, ground)
    }

    /// As [`Views::open`], for a view that its plane looks at, too.
    ///
    /// # Errors
    /// The same as those of [`Views::open`].
    pub fn open_shared(
        view: Arc<V>,
        topic: &TopicName,
        config: &ViewsConfig,
        ground: &ViewRuntime,
    ) -> Result<Arc<Self>, Error> {
        let slots = Slots::open(view, topic, config, ground, "nobody")?;
        slots.take_all()?;
        let owners =
            (0..slots.partitions()).map(|number| slots.owner(PartitionId(number))).collect::<Result<_, _>>()?;
        Ok(Arc::new(Self { slots, owners }))
    }

    /// The partitions, for a follower.
    pub(crate) fn slots(&self) -> &Arc<Slots<V>> {
        &self.slots
    }

    /// The number of partitions of the view.
    pub fn partitions(&self) -> u32 {
        self.slots.partitions()
    }

    /// The partition that owns `key`.
    pub fn partition_of(&self, key: &[u8]) -> PartitionId {
        self.slots.partition_of(key)
    }

    /// Passes a command to the owner of `partition` and returns at once; the receiver gets the answer. Dropping the
    /// receiver before the decision withdraws the command.
    ///
    /// # Errors
    /// [`Error::Overloaded`], [`Error::Stopped`]: the command was not accepted.
    ///
    /// # Panics
    /// If the view has no such partition.
    pub fn submit(&self, partition: PartitionId, command: V::Command) -> Result<Answer<V>, Error> {
        self.offer(partition, command).map_err(|(refusal, _)| refusal)
    }

    /// Like [`Views::submit`], but a refusal returns the command.
    ///
    /// # Errors
    /// Those of [`Views::submit`], with the command.
    ///
    /// # Panics
    /// If the view has no such partition.
    pub fn offer(&self, partition: PartitionId, command: V::Command) -> Result<Answer<V>, (Error, V::Command)> {
        let (reply, answer) = oneshot::channel();
        self.owners[partition.0 as usize].offer(command, reply)?;
        Ok(answer)
    }

    /// Passes a command to the owner of `partition` and waits for the answer.
    ///
    /// # Errors
    /// Those of [`Views::submit`]; [`Error::OwnerEnded`] if the outcome of the change is unknown; [`Error::Log`] with
    /// [`millstream_log::Error::OutcomeUnknown`] if that of a command is which only publishes records.
    pub async fn ask(&self, partition: PartitionId, command: V::Command) -> Result<V::Answer, Error> {
        self.submit(partition, command)?.await.unwrap_or(Err(Error::Stopped))
    }

    /// The current state of `partition`; it includes every answered command. Never waits.
    ///
    /// # Panics
    /// If the view has no such partition.
    pub fn snapshot(&self, partition: PartitionId) -> Arc<Snapshot<V>> {
        self.owners[partition.0 as usize].snapshot()
    }

    /// The states of all partitions, in order. Each is consistent in itself.
    pub fn snapshots(&self) -> Vec<Arc<Snapshot<V>>> {
        self.owners.iter().map(|owner| owner.snapshot()).collect()
    }

    /// As [`Slots::list`].
    ///
    /// # Errors
    /// [`Error::Checkpoint`], [`Error::CheckpointBehind`] if the checkpoint cannot be written or read; [`Error::Stopped`].
    ///
    /// # Panics
    /// If the view has no such partition.
    pub fn list(
        &self,
        partition: PartitionId,
        start: &[u8],
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.slots.list(partition, start, visit)
    }

    /// The failures of the view that last until a restart, for health checks.
    pub fn failures(&self) -> Vec<Failure> {
        self.slots.failures()
    }

    /// Number of source records that never reach the state: an owner refused them, or they were
    /// trimmed before they were read.
    pub fn records_passed_over(&self) -> u64 {
        self.slots.records_passed_over()
    }

    /// Refuses further commands, answers the accepted ones, and writes the checkpoint.
    pub fn stop(&self) {
        self.slots.stop();
    }
}

impl<V: View> Drop for Views<V> {
    fn drop(&mut self) {
        self.stop();
    }
}
