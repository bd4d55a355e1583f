//! The replicas of partitions, as the brokers tell them with the topics.

use std::collections::BTreeSet;

use kafka_protocol::messages::metadata_response::{MetadataResponsePartition, MetadataResponseTopic};
use millstream_types::{TopicName, TopicPartition};

use crate::core::Core;
use crate::health::{ReplicaReport, Trouble, TroubleKind};

/// The brokers' own topic of transactions, without which no writer works.
const TRANSACTIONS: &str = "__transaction_state";

/// Reports on the topics of this log that `is_ours` tells, and on transactions.
pub(crate) fn report(
    core: &Core,
    topics: &[MetadataResponseTopic],
    is_ours: impl Fn(&str, &TopicName) -> bool,
) -> ReplicaReport {
    let mut troubles = Vec::new();
    let mut with_few = 0;
    for topic in topics.iter().filter(|topic| topic.error_code == 0) {
        let Some(kafka_name) = topic.name.as_ref().map(|name| name.as_str()) else { continue };
        let name = core.names.topic(kafka_name).filter(|name| is_ours(kafka_name, name));
        if name.is_none() && kafka_name != TRANSACTIONS {
            continue;
        }
        for partition in &topic.partitions {
            let Some((kind, finding)) = finding(core, partition) else { continue };
            let number = partition.partition_index.cast_unsigned();
            let why = match &name {
                Some(_) => finding,
                None => format!("partition {number} of the brokers' {TRANSACTIONS} {finding}"),
            };
            let partition = name.clone().map(|name| TopicPartition::new(name, number));
            troubles.push(Trouble { kind, partition, why });
        }
        let wanted = usize::try_from(core.config.replication_factor).unwrap_or(0);
        with_few += usize::from(topic.partitions.iter().any(|partition| partition.replica_nodes.len() < wanted));
    }
    let wanted = core.config.replication_factor;
    let few = format!(
        "{with_few} topics have fewer replicas than log.kafka.replication_factor = {wanted}; give them more by kafka-reassign-partitions.sh, or lower the setting"
    );
    ReplicaReport { troubles, warnings: if with_few == 0 { Vec::new() } else { vec![few] } }
}

fn finding(core: &Core, partition: &MetadataResponsePartition) -> Option<(TroubleKind, String)> {
    let (all, in_sync) = (&partition.replica_nodes, &partition.isr_nodes);
    let missing: Vec<String> =
        all.iter().filter(|id| !in_sync.contains(id)).map(|id| core.cluster.name(id.0)).collect();
    let remedy = match missing.is_empty() {
        true => String::new(),
        false => format!("; missing: {}", missing.join(", ")),
    };
    if partition.leader_id.0 < 0 {
        return Some((TroubleKind::NoLeader, format!("has no leader{remedy}")));
    }
    // A topic with fewer replicas than are wanted is told by itself.
    let least = usize::try_from(core.config.min_insync_replicas).unwrap_or(0).min(all.len());
    (in_sync.len() < least).then(|| {
        let text = format!(
            "has {} of {} replicas in sync, and log.kafka.min_insync_replicas = {least} are needed to store anything{remedy}",
            in_sync.len(),
            all.len()
        );
        (TroubleKind::TooFewInSync, text)
    })
}

/// The brokers that have replicas.
pub(crate) fn holders(topics: &[MetadataResponseTopic]) -> BTreeSet<i32> {
    let partitions = topics.iter().flat_map(|topic| &topic.partitions);
    partitions.flat_map(|partition| &partition.replica_nodes).map(|id| id.0).collect()
}
