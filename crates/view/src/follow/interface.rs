//! The interface that a plane implements to follow topics.

use std::time::Duration;

use millstream_log::Topic;
use millstream_types::{Offset, PartitionId, RecordView};

use crate::{SourcePartition, View};

/// A record that a follower has read.
#[derive(Debug, Clone, Copy)]
pub struct SourceRecord<'a> {
    /// The topic of the record.
    pub topic: &'a Topic,
    /// The partition of the topic.
    pub partition: PartitionId,
    /// The record itself, with its offset.
    pub record: &'a RecordView<'a>,
}

/// Maps records of topics to commands of a view.
pub trait Follow<V: View>: Send + Sync + 'static {
    /// The part of a command that one record asks for.
    type Item: Send;

    /// `true` if the records of `topic` are of interest.
    fn follows(&self, topic: &Topic) -> bool;

    /// Adds the owners that a record concerns, with their items, to `found`; none if the record is of no interest. An
    /// owner applies its items of a record and the position behind the record in one append. So a record for several
    /// owners counts once with each of them, but they do not apply it at the same moment.
    fn items(&self, source: SourceRecord<'_>, found: &mut Vec<(PartitionId, Self::Item)>);

    /// The command that applies `items` (with their offsets in `source`, in their order) and then notes that everything
    /// before `next` is applied: see [`crate::Draft::applied`] and [`crate::Draft::advance`].
    fn command(&self, source: SourcePartition, next: Offset, items: Vec<(Offset, Self::Item)>) -> V::Command;

    /// Approximate heap size of an item, to bound a command ([`FollowerConfig::command_max_bytes`]).
    fn item_bytes(_item: &Self::Item) -> usize {
        0
    }
}

/// The configuration of a follower.
#[derive(Debug, Clone)]
pub struct FollowerConfig {
    /// Number of threads, which share the sources. Default 2.
    pub threads: usize,
    /// Bytes of records per read. Default 256 KiB.
    pub read_max_bytes: usize,
    /// Most records per command, so that its changes fit into one append. Default 512.
    pub command_max_records: usize,
    /// Approximate bytes of items per command and per read, for the same reason; a single larger item
    /// is allowed. Default 1 MiB.
    pub command_max_bytes: usize,
    /// Most commands in flight per thread. Default 64.
    pub flights_max: usize,
    /// Progress of a source, in records, after which owners without records in it are told. Default 10,000.
    pub progress_records: u64,
    /// Shortest interval between such notes, over all sources: each note is a synced append, which makes the log sync
    /// other records too. Default 1 s.
    pub progress_interval: Duration,
    /// Quiet time of a source after which all owners are told its position. Default 2 s.
    pub quiet: Duration,
}

impl Default for FollowerConfig {
    fn default() -> Self {
        Self {
            threads: 2,
            read_max_bytes: 256 << 10,
            command_max_records: 512,
            command_max_bytes: 1 << 20,
            flights_max: 64,
            progress_records: 10_000,
            progress_interval: Duration::from_secs(1),
            quiet: Duration::from_secs(2),
        }
    }
}
