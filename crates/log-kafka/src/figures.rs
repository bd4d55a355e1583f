//! The figures of the engine, and the health of its cluster.

use std::sync::Arc;

use millstream_log::{Error, GroupLag, LogFigures, LogStats, Partition as _, PartitionStats, UpTo};
use millstream_types::{Offset, TopicName};
use tracing::debug;

use crate::OnKafka;
use crate::core::Core;
use crate::health::{ClusterHealth, Trouble, TroubleKind};
use crate::partition_state::PartitionState;
use crate::positions;

/// A longer lag has records.
const FEW_OFFSETS: u64 = 16;

impl LogFigures for OnKafka {
    /// A frame is a request to a leader, and a sync its acknowledgement by all in-sync replicas.
    fn stats(&self) -> LogStats {
        let core = self.core();
        let partitions = core.topics.all().into_iter().flat_map(|topic| topic.partitions());
        LogStats {
            pending_bytes: core.pending.bytes() as u64,
            partitions: partitions.map(|partition| stats_of(&partition)).collect(),
            ..core.counters.stats()
        }
    }

    fn topic_stats(&self, topic: &TopicName) -> Vec<PartitionStats> {
        let partitions = self.core().topics.find(topic).into_iter().flat_map(|topic| topic.partitions());
        partitions.map(|partition| stats_of(&partition)).collect()
    }

    fn lags(&self, topic: &TopicName) -> Vec<GroupLag> {
        let core = self.core();
        // Positions are read from the brokers: those that are gone would hold up all figures.
        let topic = core.topics.find(topic).filter(|_| core.cluster.contact.silence().is_none());
        let Some(topic) = topic else { return Vec::new() };
        let committed = self.positions.in_topic(&core, &topic.topic()).unwrap_or_else(|error| {
            debug!(%error, "the positions of groups are not known");
            Vec::new()
        });
        // A cluster that does not answer costs one wait, not one for each group.
        let mut answers = true;
        let of_group = |(group, known): (String, millstream_log::CommittedPosition)| {
            let partition = topic.partition(&known.partition).ok()?;
            let position = known.position.offset;
            answers = answers && look_for_records(&core, &partition, position).is_ok();
            Some(GroupLag { group, partition: known.partition, position, lag: partition.lag(position) })
        };
        committed.into_iter().filter_map(of_group).collect()
    }
}

impl OnKafka {
    /// The brokers, the partitions with which something is wrong, and findings about the whole cluster.
    pub fn health(&self) -> ClusterHealth {
        let core = self.core();
        let replicas = core.replicas.lock().clone();
        let mut troubles = replicas.troubles;
        for (partition, why) in core.troubles.all() {
            let is_told = partition.is_some() && troubles.iter().any(|trouble| trouble.partition == partition);
            if !is_told {
                troubles.push(Trouble { kind: TroubleKind::NotTaken, partition, why });
            }
        }
        let of_clocks = core.clocks.warnings(|broker| core.cluster.name(broker));
        let of_disk = core.disk.check().err().map(|full| full.to_string());
        let warnings = replicas.warnings.into_iter().chain(of_clocks).chain(of_disk).collect();
        ClusterHealth { brokers: core.cluster.health(), troubles, warnings }
    }
}

/// Looks whether the last offsets have records, for the lag of a group: no reader of it may be left to tell.
fn look_for_records(core: &Arc<Core>, partition: &Arc<PartitionState>, position: Offset) -> Result<(), Error> {
    if (1..=FEW_OFFSETS).contains(&partition.lag(position)) {
        positions::opened(core, Arc::clone(partition))?.read(position, 1, UpTo::Stable)?;
    }
    Ok(())
}

fn stats_of(partition: &Arc<PartitionState>) -> PartitionStats {
    let figures = partition.figures();
    PartitionStats {
        partition: partition.id.clone(),
        offsets: figures.offsets,
        segment_bytes: figures.size_bytes,
        // Kafka tells of none.
        segments: 0,
        memory_bytes: figures.memory_bytes,
        record_bytes: figures.size_bytes,
        open_transactions: u64::from(figures.offsets.stable < figures.offsets.high),
        aborted_transactions: 0,
        damaged_reads: 0,
    }
}
